"""One pass over a workload: observe, act, store what was answered, put on record what happened.

Before it: the queue, which hands in a key and nothing else. After it: the cluster, the mirror and the history. What is
done is decided by the engine and carried out by `rounds`, what strategy counts is said by `effective_strategy`; here is
the order of things, and nothing is remembered from one pass to the next but what is stored.

The order makes every point between two lines a good one to be killed at:

    1  of every round, deletes and pods are noted as in doubt, and steps on the timeline, before anything is sent
    2  rounds are carried out; whatever ends that, what was answered is stored, so the next pass sees its own writes
    3  the rollout's row follows the status, events and the change feed follow

Killed after 1 or within 2, the next pass finds out what became of them before it plans; everything else has names that
are taken or preconditions. Killed within 3, the next pass reads the same status and puts the same on record. So the
invariant of the engine holds whatever happens: an update never takes more than its budget, since no plan is made while
a delete of ours is unaccounted for.
"""

import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from redis import RedisError

from rollouts import mirror, models
from rollouts.cluster import (
    AlreadyExists,
    ClusterClient,
    ClusterError,
    Conflict,
    Fence,
    NotFound,
    Obj,
    allow_every_write,
)
from rollouts.controller import events, executor, history
from rollouts.controller.effective_strategy import EffectiveStrategy, compute_effective_strategy, list_overrides
from rollouts.controller.events import WorkloadEvent
from rollouts.controller.executor import ExecutionContext, ExecutionResult, WriteResult
from rollouts.controller.orphans import AdoptionResult, adopt_orphans
from rollouts.controller.pod_counts import count_pods
from rollouts.controller.rejected_writes import parse_rejected_writes, render_rejected_writes
from rollouts.controller.rounds import PassContext, Rounds
from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.engine.manifest.validation import find_unsupported, render_unsupported, validate_create
from rollouts.engine.model.actions import Action, Kind, Plan, WriteStatus
from rollouts.engine.model.conditions import (
    MAX_LIST_MESSAGE_LENGTH,
    PROGRESSING,
    STUCK,
    find_condition,
    make_condition,
    merge_conditions,
)
from rollouts.engine.model.times import parse_time, render_time
from rollouts.engine.model.workload import Workload
from rollouts.engine.plan.wait_codes import wait_sort_key
from rollouts.engine.rollout.ready_times import choose_recorded
from rollouts.engine.rollout.update import read_progress
from rollouts.engine.tree.layout import make_layout
from rollouts.engine.tree.tree_builder import find_orphans
from rollouts.live import change_feed
from rollouts.live.change_feed import Change
from rollouts.manifests.workload_version import version_of
from rollouts.mirror import MirroredWorkload, RowChange
from rollouts.mirror.other_operator import (
    FINALIZER_WAIT_SECONDS,
    OTHER_OPERATOR,
    find_grove_management,
    find_other_operator,
    may_get_grove_finalizer,
)
from rollouts.queue.results import Done, ReconcileResult, Requeue, RequeueAfter, Retry, Stop
from rollouts.runtime.connections import redis_client, shared_cluster
from rollouts.telemetry import heartbeats

Status = Mapping[str, Any]

# Conditions of a PodCliqueSet that are only there while something is wrong.
VALID: Final = "Valid"
WRITE_DENIED: Final = "WriteDenied"
UNSUPPORTED: Final = "Unsupported"

CLUSTER_NOT_MIRRORED: Final = "ClusterNotMirrored"

# Until a cluster that is being listed, or is in trouble, is looked at again: only in case nobody wakes us.
RECHECK_SECONDS: Final = 60.0
# The definitions take longer ones, but nobody reads them.
MAX_MESSAGE_LENGTH: Final = 2000
MIN_REQUEUE_SECONDS: Final = 0.1

# Why a set makes no progress, where nothing keeps it from doing so.
_IDLE_REASONS: Final = frozenset({"Complete", "AwaitingDeletion"})

# What scaling can bring about after a set was accepted; the engine makes the best of it.
_CODES_CAUSED_BY_SCALING: Final = frozenset(
    {FindingCode.BUDGET_OVER_REPLICAS, FindingCode.BUDGET_RESOLVES_TO_ZERO, FindingCode.MIN_REPLICAS_UNDER_REPLICAS}
)


def reconcile(key: str, fence: Fence = allow_every_write, now: Callable[[], float] = time.time) -> ReconcileResult:
    """Take a workload one pass further; raises what the fence raises when the workload is no longer ours."""
    name, namespace, workload = key.split("/")
    row = models.Cluster.objects.filter(name=name).first()
    if row is None or settings.ENVIRONMENT.observe:
        return Done()
    if (obstacle := _find_obstacle(row)) is not None:
        return obstacle
    seen = mirror.fetch_workload(row, namespace, workload)
    # Asked again, as the mirror may have been dropped in between: then nothing can be concluded from what is missing.
    row = models.Cluster.objects.filter(pk=row.pk).first()
    if row is None or not row.complete:
        return RequeueAfter(RECHECK_SECONDS, CLUSTER_NOT_MIRRORED)
    try:
        cluster = shared_cluster(name, row.url)
        if find_other_operator(cluster, row):
            return RequeueAfter(RECHECK_SECONDS, OTHER_OPERATOR)
        return reconcile_workload(cluster.fenced(fence), row, key, seen, now(), fence=fence)
    except ClusterError as error:
        return Retry(str(error))


def _find_obstacle(row: models.Cluster) -> RequeueAfter | None:
    """Return what keeps the mirror of a cluster from being acted on; the watcher wakes everything when it is over."""
    if not row.complete:
        return RequeueAfter(RECHECK_SECONDS, CLUSTER_NOT_MIRRORED)
    if row.trouble_code:
        return RequeueAfter(RECHECK_SECONDS, row.trouble_code)
    return RequeueAfter(RECHECK_SECONDS, "ClusterNotHeard") if _is_cluster_silent(row.name) else None


def _is_cluster_silent(cluster: str) -> bool:
    """Say whether the watcher has heard nothing for so long that its mirror is no view to act on."""
    try:
        age = heartbeats.fetch_cluster_heartbeat(redis_client(), cluster).age
    except RedisError:
        return False
    return age is not None and age > settings.CLUSTER_MAX_AGE_SECONDS


def reconcile_workload(
    cluster: ClusterClient,
    row: models.Cluster,
    key: str,
    seen: MirroredWorkload | None,
    now: float,
    *,
    fence: Fence = allow_every_write,
) -> ReconcileResult:
    """Take a workload as it was seen one pass further; raises what keeps the cluster from answering."""
    _, namespace, name = key.split("/")
    if seen is None or seen.leaving:
        if history.end_open_rollouts(row.name, namespace, name, now):
            change_feed.publish(
                redis_client(), [Change(row.name, "workload", key, ("timeline",), deleted=seen is None)]
            )
        return Done()
    if (obstacle := _find_other_manager(row, seen, now)) is not None:
        return obstacle
    one = _Pass(cluster, row, key, seen, now, fence=fence)
    if seen.unconfirmed_writes:
        return one.resolve_unconfirmed()
    effective = compute_effective_strategy(seen.manifest, list_overrides(row.name), now, cluster=row.name)
    workload, findings = _parse_effective(seen, effective)
    if isinstance(workload, ParseFailure):
        return one.report_invalid(findings or workload.findings)
    if findings and not _was_acted_on(seen):
        return one.report_invalid(findings)
    # What only scaling has brought about is nobody's fault.
    return one.run(workload, effective, [fault for fault in findings if fault.code not in _CODES_CAUSED_BY_SCALING])


def _find_other_manager(row: models.Cluster, seen: MirroredWorkload, now: float) -> ReconcileResult | None:
    """Return what keeps a workload from being ours: it is Grove's, or it is new and may become Grove's."""
    if why := find_grove_management(seen.manifest, seen.written_by_grove):
        return Stop(why, OTHER_OPERATOR)
    if not _was_acted_on(seen) and may_get_grove_finalizer(row, seen.manifest, now):
        return RequeueAfter(FINALIZER_WAIT_SECONDS, OTHER_OPERATOR)
    return None


def _was_acted_on(seen: MirroredWorkload) -> bool:
    """Say whether the set has been acted on before: then its pods are kept alive as long as it can be read."""
    return bool(read_progress(seen.observed.status).generation_hash)


@dataclass(frozen=True, slots=True)
class _StoredSpec:
    """A stored spec, which is the same as long as the generation is."""

    uid: str
    generation: int
    manifest: Obj = field(compare=False)


def _parse_effective(
    seen: MirroredWorkload, effective: EffectiveStrategy
) -> tuple[Workload | ParseFailure, tuple[Finding, ...]]:
    """Return the workload with the strategy in force, and what is wrong with it."""
    if effective.manifest is not seen.manifest:
        return parse_workload(effective.manifest), validate_create(effective.manifest).errors
    return _parse_spec(_StoredSpec(seen.uid, seen.manifest["metadata"].get("generation") or 0, seen.manifest))


def _find_unsupported_fields(seen: MirroredWorkload) -> tuple[Finding, ...]:
    return _parse_unsupported_fields(
        _StoredSpec(seen.uid, seen.manifest["metadata"].get("generation") or 0, seen.manifest)
    )


@lru_cache(maxsize=256)
def _parse_unsupported_fields(spec: _StoredSpec) -> tuple[Finding, ...]:
    """Return the fields of a spec that have no effect, once for the many passes that are made with it."""
    return find_unsupported(spec.manifest)


@lru_cache(maxsize=256)
def _parse_spec(spec: _StoredSpec) -> tuple[Workload | ParseFailure, tuple[Finding, ...]]:
    """Read a spec, once for the many passes that are made with it."""
    return parse_workload(spec.manifest), validate_create(spec.manifest).errors


class _Pass:
    """One look at a workload, and what follows from it."""

    def __init__(
        self, cluster: ClusterClient, row: models.Cluster, key: str, seen: MirroredWorkload, now: float, *, fence: Fence
    ) -> None:
        self._cluster = cluster
        self._cluster_row = row
        self._key = key
        self._mirrored = seen
        self._now = now
        self._fence = fence
        self._namespace: str = seen.manifest["metadata"]["namespace"]
        self._name: str = seen.manifest["metadata"]["name"]
        self._unsupported = _find_unsupported_fields(seen)
        self._rejected = parse_rejected_writes(
            seen.rejected_writes, version_of(seen.uid, seen.manifest["metadata"].get("generation") or 0)
        )
        self._unconfirmed: list[executor.UnconfirmedWrite] = []  # noted by this pass
        self._has_new_steps = False  # there is something new on the timeline

    # The three things that a pass can be.

    def resolve_unconfirmed(self) -> ReconcileResult:
        """Learn what became of writes that an earlier pass has sent and not heard of."""
        found = executor.resolve_unconfirmed(self._cluster, self._namespace, self._mirrored.unconfirmed_writes)
        news = mirror.store_all(self._cluster_row, found.changes())
        self._store_unconfirmed([])
        self._publish(news)
        return Requeue()

    def report_invalid(self, findings: Sequence[Finding]) -> ReconcileResult:
        """Say on the set that it cannot be acted on, and leave everything as it is."""
        stored, applied = self._mirrored.observed.status, ExecutionResult()
        status = self._compute_conditions(stored, findings, applied, is_whole=True)
        if status is not stored:
            write = WriteStatus(Kind.SET, self._name, self._mirrored.uid, status)
            scene = ExecutionContext(self._namespace, self._mirrored.observed, self._mirrored.resource_version)
            executor.apply_plan(self._cluster, [write], scene, applied)
            self._publish(mirror.store_all(self._cluster_row, applied.changes()))
            events_to_write = [self._make_invalid_spec_event(findings), *self._make_unsupported_events(stored)]
            events.write_events(self._cluster, self._mirrored.manifest, events_to_write, self._now)
        if applied.failure is not None:
            return Retry(str(applied.failure))
        return (
            Requeue()
            if applied.with_result(WriteResult.CONFLICT)
            else Stop(_render_findings(findings), events.INVALID_SPEC)
        )

    def run(self, workload: Workload, effective: EffectiveStrategy, findings: Sequence[Finding]) -> ReconcileResult:
        """Act, and put on record what came of it; what was adopted is looked at anew first."""
        backed_off = self._rejected.compute_backed_off(self._now)
        adopted = self._adopt_orphans(workload, backed_off)
        if any(answer.result is WriteResult.APPLIED for answer in adopted.result.writes):
            return Requeue()
        before = self._mirrored.observed.status
        recorder = history.HistoryRecorder(self._make_recorded_workload(workload), self._now)
        self._has_new_steps = recorder.record_statuses([before])  # what an earlier pass did not get to
        bearings = PassContext(
            workload=workload,
            now=self._now,
            note=lambda decided, moves, status: self._record_intent(recorder, decided, moves, status),
            judge=lambda status, applied, is_whole: self._compute_conditions(
                status, findings, applied, is_whole=is_whole
            ),
            backed_off=backed_off.union([f"create {orphan.kind} {orphan.name}" for orphan in adopted.without_owner]),
        )
        course = Rounds(self._cluster, self._mirrored, bearings)
        course.result.writes += adopted.result.writes
        self._store_ready_times(course, workload)
        news = self._run_rounds(course)
        self._store_rejected_writes(course)
        statuses = _list_set_statuses(course.result)
        self._record_history(recorder, course, statuses)
        events_to_write = self._choose_events(course, before, statuses[-1] if statuses else before)
        if findings and find_condition(before, VALID).get("message") != _render_findings(findings):
            events_to_write.append(self._make_invalid_spec_event(findings))
        events_to_write += self._make_unsupported_events(before)
        events.write_events(self._cluster, self._mirrored.manifest, events_to_write, self._now)
        self._publish(news, timeline=self._has_new_steps)
        return Requeue() if adopted.without_owner and news else self._compute_result(course, effective, news)

    # Acting.

    def _adopt_orphans(self, workload: Workload, held: Container[str]) -> AdoptionResult:
        """Adopt what nothing controls and what has a place in the workload."""
        if self._mirrored.orphans is None:
            return AdoptionResult()
        orphans = find_orphans(make_layout(workload), self._mirrored.orphans)
        adopted = adopt_orphans(self._cluster, self._mirrored.manifest, orphans, held)
        self._publish(mirror.store_all(self._cluster_row, adopted.result.changes()))
        return adopted

    def _record_intent(
        self, book: history.HistoryRecorder, decided: Plan, moves: Sequence[Action], status: Status
    ) -> None:
        """Write down what is about to be done, as far as a pass after this one must know."""
        momentous = [move for move in moves[: executor.MAX_WRITES_PER_PASS] if executor.needs_confirmation(move)]
        if not momentous and not decided.timeline_events:
            return
        with transaction.atomic():
            if momentous:
                # What earlier rounds have sent is answered, but the mirror does not know it yet.
                self._unconfirmed += map(executor.make_unconfirmed_write, momentous)
                self._store_unconfirmed(self._unconfirmed)
            self._has_new_steps |= book.record_steps(decided, status)

    def _store_ready_times(self, course: Rounds, workload: Workload) -> None:
        """Put on the workload's row how long its pods took, before any of them is deleted."""
        before = course.observed.ready_times
        noted = choose_recorded(before, course.ready_times.measured, [clique.name for clique in workload.cliques])
        if noted != before:
            stored = [[one.clique, one.template_hash, one.seconds, one.pods] for one in noted]
            rows = models.Workload.objects.filter(pk=self._mirrored.workload_id, uid=self._mirrored.uid)
            rows.update(ready_times=stored)
            course.observed = replace(course.observed, ready_times=noted)

    def _run_rounds(self, course: Rounds) -> list[RowChange]:
        """Go the course and store what was answered, whatever ends it."""
        in_doubt: list[executor.UnconfirmedWrite] | None = None
        try:
            course.run()
            in_doubt = [executor.make_unconfirmed_write(action) for action in course.result.unconfirmed]
        finally:
            news = mirror.store_all(self._cluster_row, course.result.changes()) if course.result.writes else []
            # Where the end came from elsewhere, from the time limit say, everything noted stays in doubt.
            if in_doubt is not None and self._unconfirmed:
                self._store_unconfirmed(in_doubt)
        return news

    def _store_rejected_writes(self, course: Rounds) -> None:
        """Put on the workload's row what the cluster refuses, for the passes after this one."""
        is_whole = course.result.failure is None and not course.is_unfinished
        before, self._rejected = self._rejected, self._rejected.after_pass(course.result, self._now, is_whole=is_whole)
        if render_rejected_writes(before) != render_rejected_writes(self._rejected):
            rows = models.Workload.objects.filter(pk=self._mirrored.workload_id, uid=self._mirrored.uid)
            rows.update(refused=render_rejected_writes(self._rejected))

    def _store_unconfirmed(self, doubts: Sequence[executor.UnconfirmedWrite]) -> None:
        self._fence()  # the notes of a worker that has the workload now must stay
        models.Workload.objects.filter(pk=self._mirrored.workload_id, uid=self._mirrored.uid).update(in_doubt=[*doubts])

    def _compute_conditions(
        self, status: Status, findings: Sequence[Finding], applied: ExecutionResult, *, is_whole: bool
    ) -> Status:
        """Return the status of the set with what there is to say besides the plan; the same one if that is nothing."""
        at, wanted, dropped = render_time(self._now), [], [VALID, UNSUPPORTED]
        if findings:
            wanted.append(make_condition(VALID, "False", events.INVALID_SPEC, _render_findings(findings), at))
        if self._unsupported:
            text = _render_unsupported_fields(self._unsupported)
            wanted.append(
                make_condition(UNSUPPORTED, "True", "FieldsWithoutEffect", text, at, longest=MAX_LIST_MESSAGE_LENGTH)
            )
        problem = self._rejected.after_pass(applied, self._now, is_whole=is_whole and applied.failure is None).problem
        if problem is not None:
            wanted.append(make_condition(WRITE_DENIED, "True", problem[0], _truncate(problem[1]), at))
        elif applied.failure is None:
            dropped.append(WRITE_DENIED)
        former = status.get("conditions") or []
        conditions = merge_conditions(former, wanted, dropped)
        return status if conditions == [*former] else {**status, "conditions": conditions}

    # The record.

    def _make_recorded_workload(self, workload: Workload) -> history.RecordedWorkload:
        created = parse_time(self._mirrored.manifest["metadata"].get("creationTimestamp"))
        return history.RecordedWorkload(
            cluster=self._cluster_row.name,
            namespace=self._namespace,
            name=self._name,
            uid=self._mirrored.uid,
            created=self._now if created is None else created,
            workload=workload,
            template=self._mirrored.manifest["spec"]["template"],
        )

    def _record_history(self, book: history.HistoryRecorder, course: Rounds, statuses: Sequence[Status]) -> None:
        self._has_new_steps |= book.record_statuses(statuses)
        if book.newest is not None and (book.newest.ended is None or self._has_new_steps):
            self._has_new_steps |= history.record_sample(
                book.newest, count_pods(book.workload, course.observed), self._now
            )

    def _choose_events(self, course: Rounds, before: Status, after: Status) -> list[WorkloadEvent]:
        """Return what to tell on the set; nothing of what the set's status did not take, as that is planned anew."""
        progress, applied = read_progress(after), course.result
        since = progress.started_at or progress.generation_hash
        is_taken = applied.failure is None and not any(
            _is_set_write(answer) for answer in applied.with_result(WriteResult.CONFLICT)
        )
        events_to_write = events.choose_events(course.timeline_events, since) if is_taken else []
        stuck = find_condition(after, STUCK)
        if stuck.get("status") == "True" and find_condition(before, STUCK).get("status") != "True":
            text, at = str(stuck.get("message")), str(stuck.get("lastTransitionTime"))
            events_to_write.append(WorkloadEvent(events.UPDATE_STUCK, text, at, "Warning"))
        events_to_write += _make_stalled_events(before, after)
        denied = find_condition(after, WRITE_DENIED)
        if denied and find_condition(before, WRITE_DENIED).get("message") != denied.get("message"):
            events_to_write.append(
                WorkloadEvent(events.WRITE_DENIED, str(denied.get("message")), render_time(self._now), "Warning")
            )
        return events_to_write

    def _make_invalid_spec_event(self, findings: Sequence[Finding]) -> WorkloadEvent:
        generation = str(self._mirrored.manifest["metadata"].get("generation"))
        return WorkloadEvent(events.INVALID_SPEC, _render_findings(findings), generation, "Warning")

    def _make_unsupported_events(self, before: Status) -> list[WorkloadEvent]:
        """Return the Event about fields without effect, unless the set says so already."""
        text = _render_unsupported_fields(self._unsupported)
        if not text or find_condition(before, UNSUPPORTED).get("message") == text:
            return []
        generation = str(self._mirrored.manifest["metadata"].get("generation"))
        return [WorkloadEvent(events.UNSUPPORTED, text, generation, "Warning")]

    def _publish(self, news: Sequence[RowChange], *, timeline: bool = False) -> None:
        changes = mirror.compute_changes(self._cluster_row.name, news)
        if timeline:
            changes.append(Change(self._cluster_row.name, "workload", self._key, ("timeline",)))
        if changes:
            change_feed.publish(redis_client(), changes)

    # What to tell the queue.

    def _compute_result(
        self, course: Rounds, effective: EffectiveStrategy, news: Sequence[RowChange]
    ) -> ReconcileResult:
        applied = course.result
        if applied.failure is not None:
            return Retry(str(applied.failure))
        if course.is_unfinished:
            return Requeue()
        if applied.with_result(WriteResult.CONFLICT) or applied.with_result(WriteResult.REJECTED):
            # What is held back from now on is shown by a pass that does not lose itself in it.
            return (
                Requeue()
                if news or self._rejected.backoff_until > self._now
                else _compute_result_of_rejections(applied)
            )
        held_until = self._rejected.backoff_until if self._rejected.has_backed_off else None
        times = [at for at in (course.plan.requeue_at, effective.next_expiry, held_until) if at is not None]
        if not times:
            return Done()
        if held_until is not None:
            return RequeueAfter(max(MIN_REQUEUE_SECONDS, min(times) - self._now), WRITE_DENIED)
        waits = sorted(course.plan.waits, key=wait_sort_key)
        return RequeueAfter(
            max(MIN_REQUEUE_SECONDS, min(times) - self._now), waits[0].code if waits else "OverrideExpires"
        )


def _make_stalled_events(before: Status, after: Status) -> list[WorkloadEvent]:
    """Return the Event about what keeps a set from being complete while no update is under way.

    A first deployment that finds no node is such a case. A problem of an update is told as UpdateStuck.
    """
    now = find_condition(after, PROGRESSING)
    if now.get("status") != "False" or now.get("reason") in _IDLE_REASONS:
        return []
    former = find_condition(before, PROGRESSING)
    if (former.get("status"), former.get("reason")) == (now["status"], now.get("reason")):
        return []
    return [
        WorkloadEvent(str(now.get("reason")), str(now.get("message")), str(now.get("lastTransitionTime")), "Warning")
    ]


def _compute_result_of_rejections(applied: ExecutionResult) -> ReconcileResult:
    """Return what follows from writes that were not taken although the mirror has nothing to learn from it."""
    for answer in (*applied.with_result(WriteResult.REJECTED), *applied.with_result(WriteResult.CONFLICT)):
        if isinstance(answer.error, AlreadyExists) or not isinstance(answer.error, Conflict | NotFound | None):
            return Retry(str(answer.error))
    # Somebody was quicker, and the watcher too: what is known by now is worth another look.
    return RequeueAfter(MIN_REQUEUE_SECONDS, "Conflict")


def _list_set_statuses(applied: ExecutionResult) -> list[Status]:
    """Return the statuses of the set that were answered, in their order."""
    found = [answer.current for answer in applied.writes if _is_set_write(answer)]
    return [obj.get("status") or {} for obj in found if obj is not None]


def _is_set_write(answer: executor.WriteRecord) -> bool:
    return executor.kind_of(answer.action) is Kind.SET


def _render_findings(findings: Sequence[Finding]) -> str:
    told = (f"{finding.field}: {finding.message}" if finding.field else finding.message for finding in findings)
    return _truncate("; ".join(told))


def _render_unsupported_fields(findings: Sequence[Finding]) -> str:
    return _truncate(render_unsupported(findings), MAX_LIST_MESSAGE_LENGTH)


def _truncate(text: str, longest: int = MAX_MESSAGE_LENGTH) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
