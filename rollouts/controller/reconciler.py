"""One pass over a workload: observe, act, store what was answered, put on record what happened.

Before it: the queue, which hands in a key and nothing else. After it: the cluster, the mirror and the history. What is
done is decided by the engine and carried out by `rounds`, what strategy counts is said by `effective_strategy`; here is the
order of things, and nothing is remembered from one pass to the next but what is stored.

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
from rollouts.cluster import AlreadyExists, Cluster, ClusterError, Conflict, Fence, NotFound, Obj, open_fence
from rollouts.controller import events, executor, history
from rollouts.controller.effective_strategy import Effective, compute_effective, list_overrides
from rollouts.controller.events import Event
from rollouts.controller.executor import Applied, Fate, Scene
from rollouts.controller.orphans import Adopted, adopt
from rollouts.controller.pod_counts import count_pods
from rollouts.controller.rejected_writes import parse_refused, render_refused
from rollouts.controller.rounds import Bearings, Course
from rollouts.engine.manifest.findings import Code, Finding
from rollouts.engine.manifest.parsing import Unreadable, parse_workload
from rollouts.engine.manifest.validation import find_unsupported, render_unsupported, validate_create
from rollouts.engine.model.actions import Action, Kind, Plan, WriteStatus
from rollouts.engine.model.conditions import LONGEST_LIST, PROGRESSING, STUCK, condition, find_condition, put_conditions
from rollouts.engine.model.times import parse_time, render_time
from rollouts.engine.model.workload import Workload
from rollouts.engine.plan.diagnosis import pressure
from rollouts.engine.rollout.ready_times import choose_noted
from rollouts.engine.rollout.update import read_progress
from rollouts.engine.tree.layout import make_shape
from rollouts.engine.tree.tree_builder import find_orphans
from rollouts.live import change_feed
from rollouts.live.change_feed import Change
from rollouts.manifests.workload_version import version_of
from rollouts.mirror import News, Seen
from rollouts.mirror.other_operator import (
    NEW_SECONDS,
    OTHER_OPERATOR,
    find_other_keeper,
    find_other_operator,
    may_be_claimed,
)
from rollouts.queue.results import Again, Done, Outcome, Retry, Stop, Wait
from rollouts.runtime.connections import redis_client, shared_cluster
from rollouts.telemetry import heartbeats

Status = Mapping[str, Any]

# Conditions of a PodCliqueSet that are only there while something is wrong.
VALID: Final = "Valid"
WRITE_DENIED: Final = "WriteDenied"
UNSUPPORTED: Final = "Unsupported"

CLUSTER_NOT_MIRRORED: Final = "ClusterNotMirrored"

# Until a cluster that is being listed, or is in trouble, is looked at again: only in case nobody wakes us.
SECONDS_TO_RETURN: Final = 60.0
# The definitions take longer ones, but nobody reads them.
LONGEST_MESSAGE: Final = 2000
SHORTEST_WAIT: Final = 0.1

# Why a set makes no progress, where nothing keeps it from doing so.
_AT_REST: Final = frozenset({"Complete", "AwaitingDeletion"})

# What scaling can bring about after a set was accepted; the engine makes the best of it.
_BY_SCALING: Final = frozenset(
    {Code.BUDGET_OVER_REPLICAS, Code.BUDGET_RESOLVES_TO_ZERO, Code.MIN_REPLICAS_UNDER_REPLICAS}
)


def reconcile(key: str, fence: Fence = open_fence, now: Callable[[], float] = time.time) -> Outcome:
    """Take a workload one pass further; raises what the fence raises when the workload is no longer ours."""
    name, namespace, workload = key.split("/")
    row = models.Cluster.objects.filter(name=name).first()
    if row is None or settings.ENVIRONMENT.observe:
        return Done()
    if (obstacle := _find_obstacle(row)) is not None:
        return obstacle
    seen = mirror.read(row, namespace, workload)
    # Asked again, as the mirror may have been dropped in between: then nothing can be concluded from what is missing.
    row = models.Cluster.objects.filter(pk=row.pk).first()
    if row is None or not row.complete:
        return Wait(SECONDS_TO_RETURN, CLUSTER_NOT_MIRRORED)
    try:
        cluster = shared_cluster(name, row.url)
        if find_other_operator(cluster, row):
            return Wait(SECONDS_TO_RETURN, OTHER_OPERATOR)
        return act(cluster.fenced(fence), row, key, seen, now(), fence=fence)
    except ClusterError as error:
        return Retry(str(error))


def _find_obstacle(row: models.Cluster) -> Wait | None:
    """Return what keeps the mirror of a cluster from being acted on; the watcher wakes everything when it is over."""
    if not row.complete:
        return Wait(SECONDS_TO_RETURN, CLUSTER_NOT_MIRRORED)
    if row.trouble_code:
        return Wait(SECONDS_TO_RETURN, row.trouble_code)
    return Wait(SECONDS_TO_RETURN, "ClusterNotHeard") if _is_unheard(row.name) else None


def _is_unheard(cluster: str) -> bool:
    """Say whether the watcher has heard nothing for so long that its mirror is no view to act on."""
    try:
        age = heartbeats.cluster_word(redis_client(), cluster).age
    except RedisError:
        return False
    return age is not None and age > settings.CLUSTER_MAX_AGE_SECONDS


def act(
    cluster: Cluster, row: models.Cluster, key: str, seen: Seen | None, now: float, *, fence: Fence = open_fence
) -> Outcome:
    """Take a workload as it was seen one pass further; raises what keeps the cluster from answering."""
    _, namespace, name = key.split("/")
    if seen is None or seen.leaving:
        if history.close_all(row.name, namespace, name, now):
            change_feed.publish(
                redis_client(), [Change(row.name, "workload", key, ("timeline",), deleted=seen is None)]
            )
        return Done()
    if (obstacle := _find_claim(row, seen, now)) is not None:
        return obstacle
    one = _Pass(cluster, row, key, seen, now, fence=fence)
    if seen.in_doubt:
        return one.find_out()
    effective = compute_effective(seen.manifest, list_overrides(row.name), now, cluster=row.name)
    workload, findings = _read_effective(seen, effective)
    if isinstance(workload, Unreadable):
        return one.refuse(findings or workload.findings)
    if findings and not _is_known(seen):
        return one.refuse(findings)
    # What only scaling has brought about is nobody's fault.
    return one.carry_out(workload, effective, [fault for fault in findings if fault.code not in _BY_SCALING])


def _find_claim(row: models.Cluster, seen: Seen, now: float) -> Outcome | None:
    """Return what keeps a workload from being ours: it is Grove's, or it is new and may become Grove's."""
    if why := find_other_keeper(seen.manifest, seen.written_by_grove):
        return Stop(why, OTHER_OPERATOR)
    if not _is_known(seen) and may_be_claimed(row, seen.manifest, now):
        return Wait(NEW_SECONDS, OTHER_OPERATOR)
    return None


def _is_known(seen: Seen) -> bool:
    """Say whether the set has been acted on before: then its pods are kept alive as long as it can be read."""
    return bool(read_progress(seen.observed.status).generation_hash)


@dataclass(frozen=True, slots=True)
class _Spec:
    """A stored spec, which is the same as long as the generation is."""

    uid: str
    generation: int
    manifest: Obj = field(compare=False)


def _read_effective(seen: Seen, effective: Effective) -> tuple[Workload | Unreadable, tuple[Finding, ...]]:
    """Return the workload with the strategy in force, and what is wrong with it."""
    if effective.manifest is not seen.manifest:
        return parse_workload(effective.manifest), validate_create(effective.manifest).errors
    return _read_spec(_Spec(seen.uid, seen.manifest["metadata"].get("generation") or 0, seen.manifest))


def _list_unsupported(seen: Seen) -> tuple[Finding, ...]:
    return _read_unsupported(_Spec(seen.uid, seen.manifest["metadata"].get("generation") or 0, seen.manifest))


@lru_cache(maxsize=256)
def _read_unsupported(spec: _Spec) -> tuple[Finding, ...]:
    """Return the fields of a spec that have no effect, once for the many passes that are made with it."""
    return find_unsupported(spec.manifest)


@lru_cache(maxsize=256)
def _read_spec(spec: _Spec) -> tuple[Workload | Unreadable, tuple[Finding, ...]]:
    """Read a spec, once for the many passes that are made with it."""
    return parse_workload(spec.manifest), validate_create(spec.manifest).errors


class _Pass:
    """One look at a workload, and what follows from it."""

    def __init__(
        self, cluster: Cluster, row: models.Cluster, key: str, seen: Seen, now: float, *, fence: Fence
    ) -> None:
        self._cluster = cluster
        self._row = row
        self._key = key
        self._seen = seen
        self._now = now
        self._fence = fence
        self._namespace: str = seen.manifest["metadata"]["namespace"]
        self._name: str = seen.manifest["metadata"]["name"]
        self._unsupported = _list_unsupported(seen)
        self._refused = parse_refused(
            seen.refused, version_of(seen.uid, seen.manifest["metadata"].get("generation") or 0)
        )
        self._doubts: list[executor.Doubt] = []  # noted by this pass
        self._is_noted = False  # there is something new on the timeline

    # The three things that a pass can be.

    def find_out(self) -> Outcome:
        """Learn what became of writes that an earlier pass has sent and not heard of."""
        found = executor.find_out(self._cluster, self._namespace, self._seen.in_doubt)
        news = mirror.store_all(self._row, found.changes())
        self._doubt([])
        self._publish(news)
        return Again()

    def refuse(self, findings: Sequence[Finding]) -> Outcome:
        """Say on the set that it cannot be acted on, and leave everything as it is."""
        stored, applied = self._seen.observed.status, Applied()
        status = self._judge(stored, findings, applied, is_whole=True)
        if status is not stored:
            write = WriteStatus(Kind.SET, self._name, self._seen.uid, status)
            scene = Scene(self._namespace, self._seen.observed, self._seen.resource_version)
            executor.apply_plan(self._cluster, [write], scene, applied)
            self._publish(mirror.store_all(self._row, applied.changes()))
            told = [self._invalid(findings), *self._unsupported_news(stored)]
            events.tell(self._cluster, self._seen.manifest, told, self._now)
        if applied.failure is not None:
            return Retry(str(applied.failure))
        return Again() if applied.of(Fate.OUTRUN) else Stop(_sentence(findings), events.INVALID_SPEC)

    def carry_out(self, workload: Workload, effective: Effective, findings: Sequence[Finding]) -> Outcome:
        """Act, and put on record what came of it; what was adopted is looked at anew first."""
        held = self._refused.compute_held(self._now)
        adopted = self._adopt(workload, held)
        if any(answer.fate is Fate.DONE for answer in adopted.applied.answers):
            return Again()
        before = self._seen.observed.status
        book = history.Book(self._subject(workload), self._now)
        self._is_noted = book.record([before])  # what an earlier pass did not get to
        bearings = Bearings(
            workload=workload,
            now=self._now,
            note=lambda decided, moves, status: self._note(book, decided, moves, status),
            judge=lambda status, applied, is_whole: self._judge(status, findings, applied, is_whole=is_whole),
            held=held.union([f"create {orphan.kind} {orphan.name}" for orphan in adopted.waiting]),
        )
        course = Course(self._cluster, self._seen, bearings)
        course.applied.answers += adopted.applied.answers
        self._note_ready_times(course, workload)
        news = self._act(course)
        self._count_refused(course)
        statuses = _statuses(course.applied)
        self._record(book, course, statuses)
        told = self._choose_events(course, before, statuses[-1] if statuses else before)
        if findings and find_condition(before, VALID).get("message") != _sentence(findings):
            told.append(self._invalid(findings))
        told += self._unsupported_news(before)
        events.tell(self._cluster, self._seen.manifest, told, self._now)
        self._publish(news, timeline=self._is_noted)
        return Again() if adopted.waiting and news else self._conclude(course, effective, news)

    # Acting.

    def _adopt(self, workload: Workload, held: Container[str]) -> Adopted:
        """Adopt what nothing controls and what has a place in the workload."""
        if self._seen.ownerless is None:
            return Adopted()
        orphans = find_orphans(make_shape(workload), self._seen.ownerless)
        adopted = adopt(self._cluster, self._seen.manifest, orphans, held)
        self._publish(mirror.store_all(self._row, adopted.applied.changes()))
        return adopted

    def _note(self, book: history.Book, decided: Plan, moves: Sequence[Action], status: Status) -> None:
        """Write down what is about to be done, as far as a pass after this one must know."""
        momentous = [move for move in moves[: executor.WRITES_A_PASS] if executor.is_momentous(move)]
        if not momentous and not decided.moments:
            return
        with transaction.atomic():
            if momentous:
                # What earlier rounds have sent is answered, but the mirror does not know it yet.
                self._doubts += map(executor.doubt_of, momentous)
                self._doubt(self._doubts)
            self._is_noted |= book.note_steps(decided, status)

    def _note_ready_times(self, course: Course, workload: Workload) -> None:
        """Put on the workload's row how long its pods took, before any of them is deleted."""
        before = course.observed.measured
        noted = choose_noted(before, course.ready_times.measured, [clique.name for clique in workload.cliques])
        if noted != before:
            stored = [[one.clique, one.template_hash, one.seconds, one.pods] for one in noted]
            rows = models.Workload.objects.filter(pk=self._seen.workload_id, uid=self._seen.uid)
            rows.update(ready_times=stored)
            course.observed = replace(course.observed, measured=noted)

    def _act(self, course: Course) -> list[News]:
        """Go the course and store what was answered, whatever ends it."""
        in_doubt: list[executor.Doubt] | None = None
        try:
            course.run()
            in_doubt = [executor.doubt_of(action) for action in course.applied.in_doubt]
        finally:
            news = mirror.store_all(self._row, course.applied.changes()) if course.applied.answers else []
            # Where the end came from elsewhere, from the time limit say, everything noted stays in doubt.
            if in_doubt is not None and self._doubts:
                self._doubt(in_doubt)
        return news

    def _count_refused(self, course: Course) -> None:
        """Put on the workload's row what the cluster refuses, for the passes after this one."""
        is_whole = course.applied.failure is None and not course.is_unfinished
        before, self._refused = self._refused, self._refused.count(course.applied, self._now, is_whole=is_whole)
        if render_refused(before) != render_refused(self._refused):
            rows = models.Workload.objects.filter(pk=self._seen.workload_id, uid=self._seen.uid)
            rows.update(refused=render_refused(self._refused))

    def _doubt(self, doubts: Sequence[executor.Doubt]) -> None:
        self._fence()  # the notes of a worker that has the workload now must stay
        models.Workload.objects.filter(pk=self._seen.workload_id, uid=self._seen.uid).update(in_doubt=[*doubts])

    def _judge(self, status: Status, findings: Sequence[Finding], applied: Applied, *, is_whole: bool) -> Status:
        """Return the status of the set with what there is to say besides the plan; the same one if that is nothing."""
        at, wanted, dropped = render_time(self._now), [], [VALID, UNSUPPORTED]
        if findings:
            wanted.append(condition(VALID, "False", events.INVALID_SPEC, _sentence(findings), at))
        if self._unsupported:
            text = _list_unsupported_fields(self._unsupported)
            wanted.append(condition(UNSUPPORTED, "True", "FieldsWithoutEffect", text, at, longest=LONGEST_LIST))
        problem = self._refused.count(applied, self._now, is_whole=is_whole and applied.failure is None).problem
        if problem is not None:
            wanted.append(condition(WRITE_DENIED, "True", problem[0], _shorten(problem[1]), at))
        elif applied.failure is None:
            dropped.append(WRITE_DENIED)
        former = status.get("conditions") or []
        conditions = put_conditions(former, wanted, dropped)
        return status if conditions == [*former] else {**status, "conditions": conditions}

    # The record.

    def _subject(self, workload: Workload) -> history.Subject:
        created = parse_time(self._seen.manifest["metadata"].get("creationTimestamp"))
        return history.Subject(
            cluster=self._row.name,
            namespace=self._namespace,
            name=self._name,
            uid=self._seen.uid,
            created=self._now if created is None else created,
            workload=workload,
            template=self._seen.manifest["spec"]["template"],
        )

    def _record(self, book: history.Book, course: Course, statuses: Sequence[Status]) -> None:
        self._is_noted |= book.record(statuses)
        if book.newest is not None and (book.newest.ended is None or self._is_noted):
            self._is_noted |= history.sample(book.newest, count_pods(book.workload, course.observed), self._now)

    def _choose_events(self, course: Course, before: Status, after: Status) -> list[Event]:
        """Return what to tell on the set; nothing of what the set's status did not take, as that is planned anew."""
        progress, applied = read_progress(after), course.applied
        since = progress.started_at or progress.generation_hash
        is_taken = applied.failure is None and not any(_is_of_set(answer) for answer in applied.of(Fate.OUTRUN))
        told = events.choose_events(course.moments, since) if is_taken else []
        stuck = find_condition(after, STUCK)
        if stuck.get("status") == "True" and find_condition(before, STUCK).get("status") != "True":
            text, at = str(stuck.get("message")), str(stuck.get("lastTransitionTime"))
            told.append(Event(events.UPDATE_STUCK, text, at, "Warning"))
        told += _standstill(before, after)
        denied = find_condition(after, WRITE_DENIED)
        if denied and find_condition(before, WRITE_DENIED).get("message") != denied.get("message"):
            told.append(Event(events.WRITE_DENIED, str(denied.get("message")), render_time(self._now), "Warning"))
        return told

    def _invalid(self, findings: Sequence[Finding]) -> Event:
        generation = str(self._seen.manifest["metadata"].get("generation"))
        return Event(events.INVALID_SPEC, _sentence(findings), generation, "Warning")

    def _unsupported_news(self, before: Status) -> list[Event]:
        """Return the Event about fields without effect, unless the set says so already."""
        text = _list_unsupported_fields(self._unsupported)
        if not text or find_condition(before, UNSUPPORTED).get("message") == text:
            return []
        generation = str(self._seen.manifest["metadata"].get("generation"))
        return [Event(events.UNSUPPORTED, text, generation, "Warning")]

    def _publish(self, news: Sequence[News], *, timeline: bool = False) -> None:
        changes = mirror.changes_of(self._row.name, news)
        if timeline:
            changes.append(Change(self._row.name, "workload", self._key, ("timeline",)))
        if changes:
            change_feed.publish(redis_client(), changes)

    # What to tell the queue.

    def _conclude(self, course: Course, effective: Effective, news: Sequence[News]) -> Outcome:
        applied = course.applied
        if applied.failure is not None:
            return Retry(str(applied.failure))
        if course.is_unfinished:
            return Again()
        if applied.of(Fate.OUTRUN) or applied.of(Fate.DENIED):
            # What is held back from now on is shown by a pass that does not lose itself in it.
            return Again() if news or self._refused.until > self._now else _refusal(applied)
        held_until = self._refused.until if self._refused.has_held else None
        times = [at for at in (course.decided.look_again_at, effective.until, held_until) if at is not None]
        if not times:
            return Done()
        if held_until is not None:
            return Wait(max(SHORTEST_WAIT, min(times) - self._now), WRITE_DENIED)
        waits = sorted(course.decided.waits, key=pressure)
        return Wait(max(SHORTEST_WAIT, min(times) - self._now), waits[0].code if waits else "OverrideExpires")


def _standstill(before: Status, after: Status) -> list[Event]:
    """Return the Event about what keeps a set from being complete while no update is under way.

    A first deployment that finds no node is such a case. A problem of an update is told as UpdateStuck.
    """
    now = find_condition(after, PROGRESSING)
    if now.get("status") != "False" or now.get("reason") in _AT_REST:
        return []
    former = find_condition(before, PROGRESSING)
    if (former.get("status"), former.get("reason")) == (now["status"], now.get("reason")):
        return []
    return [Event(str(now.get("reason")), str(now.get("message")), str(now.get("lastTransitionTime")), "Warning")]


def _refusal(applied: Applied) -> Outcome:
    """Return what follows from writes that were not taken although the mirror has nothing to learn from it."""
    for answer in (*applied.of(Fate.DENIED), *applied.of(Fate.OUTRUN)):
        if isinstance(answer.error, AlreadyExists) or not isinstance(answer.error, Conflict | NotFound | None):
            return Retry(str(answer.error))
    # Somebody was quicker, and the watcher too: what is known by now is worth another look.
    return Wait(SHORTEST_WAIT, "Conflict")


def _statuses(applied: Applied) -> list[Status]:
    """Return the statuses of the set that were answered, in their order."""
    found = [answer.found for answer in applied.answers if _is_of_set(answer)]
    return [obj.get("status") or {} for obj in found if obj is not None]


def _is_of_set(answer: executor.Answer) -> bool:
    return executor.kind_of(answer.action) is Kind.SET


def _sentence(findings: Sequence[Finding]) -> str:
    told = (f"{finding.field}: {finding.message}" if finding.field else finding.message for finding in findings)
    return _shorten("; ".join(told))


def _list_unsupported_fields(findings: Sequence[Finding]) -> str:
    return _shorten(render_unsupported(findings), LONGEST_LIST)


def _shorten(text: str, longest: int = LONGEST_MESSAGE) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
