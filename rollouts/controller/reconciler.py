"""One pass over a workload: observe, write, store the answers, record what happened.

Before it: the queue, which passes a key and nothing else. After it: the cluster, the mirror and the history. The engine
decides what is done, `effective_strategy` which strategy it decides by, `rounds` in which rounds; `executor` sends the
writes. This module holds the order of these steps. From one pass to the next only the database and the cluster remember
anything.

A pass may be killed between any two lines:

    1  the unconfirmed writes of a round (deletes, creates of pods) and the steps of its plan are stored
    2  the round is sent, its answers are overlaid on the view, and the next round begins at 1; whatever ends the
       rounds, the answers are stored, so the next pass sees the writes of this one
    3  the row of the rollout follows the status, then come Events and the change feed

Killed after 1 or in 2, the next pass fetches the unconfirmed objects before it plans; all other writes have names that
are taken or preconditions. Killed in 3, the next pass reads the same status and records the same. So the invariant of
the engine holds in every case: an update never uses more than its budget, since no plan is made while the result of one
of our deletes is unknown.
"""

import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
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
from rollouts.controller.executor import ExecutionContext, ExecutionResult, WriteRecord, WriteResult
from rollouts.controller.orphans import AdoptionResult, adopt_orphans
from rollouts.controller.pod_counts import count_pods
from rollouts.controller.rejected_writes import RejectedWrites, parse_rejected_writes, render_rejected_writes
from rollouts.controller.rounds import PassContext, PassView, Round, RoundsEnd, plan_rounds, start_view
from rollouts.controller.set_status import StatusFacts, compute_set_status, render_findings
from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.engine.manifest.validation import find_unsupported, validate_create
from rollouts.engine.model.actions import Kind, WriteStatus
from rollouts.engine.model.conditions import INVALID_SPEC, WRITE_DENIED
from rollouts.engine.model.observed import Observed
from rollouts.engine.model.times import parse_time
from rollouts.engine.model.workload import Workload
from rollouts.engine.plan.wait_codes import wait_sort_key
from rollouts.engine.rollout.ready_times import ReadyTimes, choose_recorded, measure_ready_times
from rollouts.engine.tree.layout import Layout, make_layout
from rollouts.engine.tree.tree_builder import find_orphans
from rollouts.live import change_feed
from rollouts.live.change_feed import Change
from rollouts.manifests.workload_ref import WorkloadRef
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

CLUSTER_NOT_MIRRORED: Final = "ClusterNotMirrored"

# Until a cluster that is being listed or cannot be reached is checked again; usually the watcher enqueues earlier.
RECHECK_SECONDS: Final = 60.0
MIN_REQUEUE_SECONDS: Final = 0.1

# What scaling can cause after a set was accepted; the engine copes with it.
_CODES_CAUSED_BY_SCALING: Final = frozenset(
    {FindingCode.BUDGET_OVER_REPLICAS, FindingCode.BUDGET_RESOLVES_TO_ZERO, FindingCode.MIN_REPLICAS_UNDER_REPLICAS}
)


def reconcile(key: str, fence: Fence = allow_every_write, now: Callable[[], float] = time.time) -> ReconcileResult:
    """Run one pass over a workload; raise what the fence raises if another worker has the workload by now."""
    ref = WorkloadRef.parse(key)
    row = models.Cluster.objects.filter(name=ref.cluster).first()
    if row is None or settings.ENVIRONMENT.observe:
        return Done()
    if (obstacle := _find_obstacle(row)) is not None:
        return obstacle
    mirrored = mirror.fetch_workload(row, ref.namespace, ref.name)
    # Fetched again: if the watcher has emptied the mirror in between, missing rows do not mean missing objects.
    row = models.Cluster.objects.filter(pk=row.pk).first()
    if row is None or not row.complete:
        return RequeueAfter(RECHECK_SECONDS, CLUSTER_NOT_MIRRORED)
    try:
        cluster = shared_cluster(ref.cluster, row.url)
        if find_other_operator(cluster, row):
            return RequeueAfter(RECHECK_SECONDS, OTHER_OPERATOR)
        return reconcile_workload(cluster.fenced(fence), row, key, mirrored, now(), fence=fence)
    except ClusterError as error:
        return Retry(str(error))


def _find_obstacle(row: models.Cluster) -> RequeueAfter | None:
    """Return why the mirror of a cluster cannot be trusted; the watcher enqueues all workloads when that has ended."""
    if not row.complete:
        return RequeueAfter(RECHECK_SECONDS, CLUSTER_NOT_MIRRORED)
    if row.trouble_code:
        return RequeueAfter(RECHECK_SECONDS, row.trouble_code)
    return RequeueAfter(RECHECK_SECONDS, "ClusterNotHeard") if _is_cluster_silent(row.name) else None


def _is_cluster_silent(cluster: str) -> bool:
    """Return whether the watcher has received nothing for so long that its mirror may be out of date."""
    try:
        age = heartbeats.fetch_cluster_heartbeat(redis_client(), cluster).age
    except RedisError:
        return False
    return age is not None and age > settings.CLUSTER_MAX_AGE_SECONDS


def reconcile_workload(
    cluster: ClusterClient,
    row: models.Cluster,
    key: str,
    mirrored: MirroredWorkload | None,
    now: float,
    *,
    fence: Fence = allow_every_write,
) -> ReconcileResult:
    """Run one pass over a workload as the mirror has it; raise the error if the cluster does not answer."""
    ref = WorkloadRef.parse(key)
    if mirrored is None or mirrored.leaving:
        if history.end_open_rollouts(row.name, ref.namespace, ref.name, now):
            change_feed.publish(
                redis_client(), [Change(row.name, "workload", key, ("timeline",), deleted=mirrored is None)]
            )
        return Done()
    if (obstacle := _find_other_manager(row, mirrored, now)) is not None:
        return obstacle
    this_pass = _Pass(cluster, row, key, mirrored, now, fence=fence)
    if mirrored.unconfirmed_writes:
        return this_pass.resolve_unconfirmed()
    effective = compute_effective_strategy(mirrored.manifest, list_overrides(row.name), now, cluster=row.name)
    workload, findings = _parse_effective(mirrored, effective)
    if isinstance(workload, ParseFailure):
        return this_pass.report_invalid(findings or workload.findings)
    if findings and not mirrored.was_acted_on:
        return this_pass.report_invalid(findings)
    # What scaling alone has caused is not an error in the spec.
    return this_pass.run(workload, effective, [one for one in findings if one.code not in _CODES_CAUSED_BY_SCALING])


def _find_other_manager(row: models.Cluster, mirrored: MirroredWorkload, now: float) -> ReconcileResult | None:
    """Return the result if Grove's operator manages the workload, or may be about to: the workload is new."""
    if why := find_grove_management(mirrored.manifest, mirrored.written_by_grove):
        return Stop(why, OTHER_OPERATOR)
    if not mirrored.was_acted_on and may_get_grove_finalizer(row, mirrored.manifest, now):
        return RequeueAfter(FINALIZER_WAIT_SECONDS, OTHER_OPERATOR)
    return None


@dataclass(frozen=True, slots=True)
class _StoredSpec:
    """A stored spec; two of the same uid and generation are equal."""

    uid: str
    generation: int
    manifest: Obj = field(compare=False)


def _parse_effective(
    mirrored: MirroredWorkload, effective: EffectiveStrategy
) -> tuple[Workload | ParseFailure, tuple[Finding, ...]]:
    """Return the workload with its effective strategy, and what is wrong with the spec."""
    if effective.manifest is not mirrored.manifest:
        return parse_workload(effective.manifest), validate_create(effective.manifest).errors
    return _parse_spec(
        _StoredSpec(mirrored.uid, mirrored.manifest["metadata"].get("generation") or 0, mirrored.manifest)
    )


def _find_unsupported_fields(mirrored: MirroredWorkload) -> tuple[Finding, ...]:
    return _parse_unsupported_fields(
        _StoredSpec(mirrored.uid, mirrored.manifest["metadata"].get("generation") or 0, mirrored.manifest)
    )


@lru_cache(maxsize=256)
def _parse_unsupported_fields(spec: _StoredSpec) -> tuple[Finding, ...]:
    """Return the fields of a spec that have no effect; cached for the many passes over the same spec."""
    return find_unsupported(spec.manifest)


@lru_cache(maxsize=256)
def _parse_spec(spec: _StoredSpec) -> tuple[Workload | ParseFailure, tuple[Finding, ...]]:
    """Parse a spec; cached for the many passes over the same spec."""
    return parse_workload(spec.manifest), validate_create(spec.manifest).errors


class _Pass:
    """One pass over a workload."""

    def __init__(
        self,
        cluster: ClusterClient,
        row: models.Cluster,
        key: str,
        mirrored: MirroredWorkload,
        now: float,
        *,
        fence: Fence,
    ) -> None:
        self._cluster = cluster
        self._cluster_row = row
        self._key = key
        self._mirrored = mirrored
        self._now = now
        self._fence = fence
        self._metadata: Obj = mirrored.manifest["metadata"]
        self._namespace: str = self._metadata["namespace"]
        self._name: str = self._metadata["name"]
        self._unsupported = _find_unsupported_fields(mirrored)
        self._rejected = parse_rejected_writes(
            mirrored.rejected_writes, version_of(mirrored.uid, self._metadata.get("generation") or 0)
        )
        self._unconfirmed: list[executor.UnconfirmedWrite] = []  # stored by this pass
        self._has_new_steps = False  # on the timeline

    # The three kinds of passes.

    def resolve_unconfirmed(self) -> ReconcileResult:
        """Fetch the objects of writes that an earlier pass sent without learning the result."""
        found = executor.resolve_unconfirmed(self._cluster, self._namespace, self._mirrored.unconfirmed_writes)
        row_changes = mirror.store_all(self._cluster_row, found.changes())
        self._store_unconfirmed([])
        self._publish(row_changes)
        return Requeue()

    def report_invalid(self, findings: Sequence[Finding]) -> ReconcileResult:
        """Write into the status of the set that its spec is invalid; change nothing else."""
        stored, facts = self._mirrored.observed.status, self._make_facts(findings)
        status, result = compute_set_status(stored, facts, (), is_whole=True), ExecutionResult()
        if status is not stored:
            write = WriteStatus(Kind.SET, self._name, self._mirrored.uid, status)
            context = ExecutionContext(self._namespace, self._mirrored.observed, self._mirrored.resource_version)
            batches = executor.execute(self._cluster, [write], context)
            result = ExecutionResult([record for batch in batches for record in batch])
            self._publish(mirror.store_all(self._cluster_row, result.changes()))
            invalid = events.make_invalid_spec_events(facts, self._generation)
            unsupported = events.make_unsupported_events(stored, facts, self._generation)
            events.write_events(self._cluster, self._mirrored.manifest, [*invalid, *unsupported], self._now)
        if result.failure is not None:
            return Retry(str(result.failure))
        if result.with_result(WriteResult.CONFLICT):
            return Requeue()
        return Stop(render_findings(findings), INVALID_SPEC)

    def run(self, workload: Workload, effective: EffectiveStrategy, findings: Sequence[Finding]) -> ReconcileResult:
        """Plan and write in rounds, then record what happened; after an adoption the next pass does that."""
        layout, backed_off = make_layout(workload), self._rejected.compute_backed_off(self._now)
        adopted = self._adopt_orphans(layout, backed_off)
        if any(record.result is WriteResult.APPLIED for record in adopted.records):
            return Requeue()
        before, facts = self._mirrored.observed.status, self._make_facts(findings)
        recorder = history.HistoryRecorder(self._make_recorded_workload(workload), self._now)
        self._has_new_steps = recorder.record_statuses([before])  # what an interrupted pass has not recorded
        ready_times = measure_ready_times(self._mirrored.observed)
        context = PassContext(
            namespace=self._namespace,
            set_name=self._name,
            set_uid=self._mirrored.uid,
            layout=layout,
            now=self._now,
            ready_times=ready_times,
            facts=facts,
            backed_off=backed_off.union([f"create {orphan.kind} {orphan.name}" for orphan in adopted.without_owner]),
        )
        observed = self._store_ready_times(ready_times, workload)
        view = start_view(context, observed, self._mirrored.resource_version, adopted.records)
        end, result, row_changes = self._run_rounds(context, view, recorder)
        self._store_rejected_writes(result, is_whole=result.failure is None and not end.is_unfinished)
        statuses = _list_set_statuses(result)
        self._record_history(recorder, end.observed, statuses)
        timeline_events = end.timeline_events if _is_set_status_accepted(result) else ()
        after = statuses[-1] if statuses else before
        chosen = events.choose_events(before, after, timeline_events, facts, self._generation)
        events.write_events(self._cluster, self._mirrored.manifest, chosen, self._now)
        self._publish(row_changes, timeline=self._has_new_steps)
        if adopted.without_owner and row_changes:
            return Requeue()
        return compute_result(end, result, self._rejected, effective, self._now, has_changes=bool(row_changes))

    # The steps of a pass.

    def _adopt_orphans(self, layout: Layout, backed_off: Container[str]) -> AdoptionResult:
        """Adopt the objects that fit into the workload and have no controller."""
        if self._mirrored.orphans is None:
            return AdoptionResult()
        orphans = find_orphans(layout, self._mirrored.orphans)
        adopted = adopt_orphans(self._cluster, self._mirrored.manifest, orphans, backed_off)
        self._publish(mirror.store_all(self._cluster_row, ExecutionResult(adopted.records).changes()))
        return adopted

    def _store_ready_times(self, ready_times: ReadyTimes, workload: Workload) -> Observed:
        """Store how long the pods took to become Ready, before any of them is deleted; return what is then observed."""
        observed = self._mirrored.observed
        recorded = choose_recorded(
            observed.ready_times, ready_times.measured, [clique.name for clique in workload.cliques]
        )
        if recorded == observed.ready_times:
            return observed
        self._update_row(ready_times=[[one.clique, one.template_hash, one.seconds, one.pods] for one in recorded])
        return replace(observed, ready_times=recorded)

    def _run_rounds(
        self, context: PassContext, view: PassView, recorder: history.HistoryRecorder
    ) -> tuple[RoundsEnd, ExecutionResult, list[RowChange]]:
        """Record, send and answer round after round; store the answers, whatever ends this."""
        records, rounds = [*view.records], plan_rounds(context, view)
        try:
            step = next(rounds)
            while isinstance(step, Round):
                self._record_intent(recorder, step)
                records += step.skipped
                answers: list[WriteRecord] = []
                for batch in executor.execute(self._cluster, step.writes, step.context):
                    records += batch
                    answers += batch
                step = rounds.send(answers)
        finally:
            result = ExecutionResult(records)
            row_changes = mirror.store_all(self._cluster_row, result.changes()) if records else []
        # If an exception ended the rounds, a time limit for example, all writes that were stored stay unconfirmed.
        if self._unconfirmed:
            self._store_unconfirmed(map(executor.make_unconfirmed_write, result.unconfirmed))
        return step, result, row_changes

    def _record_intent(self, recorder: history.HistoryRecorder, one: Round) -> None:
        """Store what is about to be sent, as far as the next pass must know it, and the steps of a new plan."""
        sent = one.writes[: executor.MAX_WRITES_PER_PASS]
        unconfirmed = [executor.make_unconfirmed_write(write) for write in sent if executor.needs_confirmation(write)]
        has_steps = one.plan is not None and bool(one.plan.timeline_events)
        if not unconfirmed and not has_steps:
            return
        with transaction.atomic():
            if unconfirmed:
                # The writes of earlier rounds are answered, but the mirror does not have the answers yet.
                self._unconfirmed += unconfirmed
                self._store_unconfirmed(self._unconfirmed)
            if one.plan is not None:
                self._has_new_steps |= recorder.record_steps(one.plan, one.context.observed.status)

    def _store_unconfirmed(self, writes: Iterable[executor.UnconfirmedWrite]) -> None:
        self._fence()  # a worker that holds the lease by now must keep the writes that it has stored
        self._update_row(in_doubt=[*writes])

    def _store_rejected_writes(self, result: ExecutionResult, *, is_whole: bool) -> None:
        """Store which writes the cluster rejects, for the next passes."""
        before, self._rejected = self._rejected, self._rejected.after_pass(result, self._now, is_whole=is_whole)
        if render_rejected_writes(before) != render_rejected_writes(self._rejected):
            self._update_row(refused=render_rejected_writes(self._rejected))

    def _update_row(self, **columns: Any) -> None:
        models.Workload.objects.filter(pk=self._mirrored.workload_id, uid=self._mirrored.uid).update(**columns)

    def _record_history(
        self, recorder: history.HistoryRecorder, observed: Observed, statuses: Sequence[Status]
    ) -> None:
        self._has_new_steps |= recorder.record_statuses(statuses)
        newest = recorder.newest
        if newest is not None and (newest.ended is None or self._has_new_steps):
            self._has_new_steps |= history.record_sample(newest, count_pods(recorder.workload, observed), self._now)

    def _publish(self, row_changes: Sequence[RowChange], *, timeline: bool = False) -> None:
        changes = mirror.compute_changes(self._cluster_row.name, row_changes)
        if timeline:
            changes.append(Change(self._cluster_row.name, "workload", self._key, ("timeline",)))
        if changes:
            change_feed.publish(redis_client(), changes)

    # What the steps need to know of the workload.

    @property
    def _generation(self) -> str:
        return str(self._metadata.get("generation"))

    def _make_facts(self, findings: Sequence[Finding]) -> StatusFacts:
        return StatusFacts(findings, self._unsupported, self._rejected, self._now)

    def _make_recorded_workload(self, workload: Workload) -> history.RecordedWorkload:
        created = parse_time(self._metadata.get("creationTimestamp"))
        return history.RecordedWorkload(
            cluster=self._cluster_row.name,
            namespace=self._namespace,
            name=self._name,
            uid=self._mirrored.uid,
            created=self._now if created is None else created,
            workload=workload,
            template=self._mirrored.manifest["spec"]["template"],
        )


def compute_result(
    end: RoundsEnd,
    result: ExecutionResult,
    rejected: RejectedWrites,
    effective: EffectiveStrategy,
    now: float,
    *,
    has_changes: bool,
) -> ReconcileResult:
    """Return when the workload is due again; `rejected` is the state after this pass."""
    if result.failure is not None:
        return Retry(str(result.failure))
    if end.is_unfinished:
        return Requeue()
    if result.with_result(WriteResult.CONFLICT) or result.with_result(WriteResult.REJECTED):
        # The next pass leaves out what is backed off from now on, and writes a status that shows it.
        return Requeue() if has_changes or rejected.backoff_until > now else _compute_result_of_rejections(result)
    backoff_until = rejected.backoff_until if rejected.has_backed_off else None
    times = [at for at in (end.plan.requeue_at, effective.next_expiry, backoff_until) if at is not None]
    if not times:
        return Done()
    seconds = max(MIN_REQUEUE_SECONDS, min(times) - now)
    if backoff_until is not None:
        return RequeueAfter(seconds, WRITE_DENIED)
    waits = sorted(end.plan.waits, key=wait_sort_key)
    return RequeueAfter(seconds, waits[0].code if waits else "OverrideExpires")


def _compute_result_of_rejections(result: ExecutionResult) -> ReconcileResult:
    """Return what follows from conflicts and rejections that have brought nothing new for the mirror."""
    for record in (*result.with_result(WriteResult.REJECTED), *result.with_result(WriteResult.CONFLICT)):
        if isinstance(record.error, AlreadyExists) or not isinstance(record.error, Conflict | NotFound | None):
            return Retry(str(record.error))
    # Another client was faster, and so was the watcher: the mirror already has what the next pass needs.
    return RequeueAfter(MIN_REQUEUE_SECONDS, "Conflict")


def _list_set_statuses(result: ExecutionResult) -> list[Status]:
    """Return the statuses of the set in the answers, in their order."""
    found = [record.current for record in result.writes if _is_set_write(record)]
    return [obj.get("status") or {} for obj in found if obj is not None]


def _is_set_status_accepted(result: ExecutionResult) -> bool:
    """Return whether the status of the set is stored. If not, the next pass makes the same timeline events again."""
    return result.failure is None and not any(map(_is_set_write, result.with_result(WriteResult.CONFLICT)))


def _is_set_write(record: WriteRecord) -> bool:
    return executor.kind_of(record.action) is Kind.SET
