"""One pass over a workload: observe, plan, act, store what was answered, put on record what happened.

Before it: the queue, which hands in a key and nothing else. After it: the cluster, the mirror and the history. What to
do is decided by the engine, how it is carried out by `actuator`, what strategy counts by `effective`; here is the order
of things, and nothing is remembered from one pass to the next but what is stored.

The order makes every point between two lines a good one to be killed at:

    1  deletes and pods are noted as in doubt, and steps on the timeline, before anything is sent
    2  the plan is carried out; whatever ends that, what was answered is stored, so the next pass sees its own writes
    3  the rollout's row follows the status, events and the change feed follow

Killed after 1 or within 2, the next pass finds out what became of them before it plans; everything else has names that
are taken or preconditions. Killed within 3, the next pass reads the same status and puts the same on record. So the
invariant of the engine holds whatever happens: an update never takes more than its budget, since no plan is made while
a delete of ours is unaccounted for.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from django.db import transaction

from rollouts import actuator, events, feed, history, mirror, models
from rollouts.actuator import Applied, Fate, Scene
from rollouts.cluster import AlreadyExists, Cluster, ClusterError, Conflict, NotFound, Obj
from rollouts.connections import redis_client, shared_cluster
from rollouts.effective import Effective, compute_effective, list_overrides
from rollouts.engine.actions import Action, Kind, Plan, WriteStatus
from rollouts.engine.conditions import STUCK, Condition, condition, find_condition, put_conditions
from rollouts.engine.findings import Code, Finding
from rollouts.engine.planner import plan
from rollouts.engine.spec import Unreadable, parse_workload
from rollouts.engine.times import parse_time, render_time
from rollouts.engine.update import read_progress
from rollouts.engine.validation import validate_create
from rollouts.engine.workload import Workload
from rollouts.events import Event
from rollouts.feed import Change
from rollouts.headcount import count_pods
from rollouts.mirror import News, Seen
from rollouts.outcomes import Again, Done, Outcome, Retry, Stop, Wait

Status = Mapping[str, Any]

# Conditions of a PodCliqueSet that are only there while something is wrong.
VALID: Final = "Valid"
WRITE_DENIED: Final = "WriteDenied"

# Until a cluster that is being listed, or is in trouble, is looked at again.
SECONDS_TO_RETURN: Final = 3.0
SHORTEST_WAIT: Final = 0.1

# What scaling can bring about after a set was accepted; the engine makes the best of it.
_BY_SCALING: Final = frozenset({Code.BUDGET_OVER_REPLICAS, Code.BUDGET_RESOLVES_TO_ZERO})


def reconcile(key: str, now: Callable[[], float] = time.time) -> Outcome:
    """Take a workload one pass further."""
    name, _, _ = key.partition("/")
    row = models.Cluster.objects.filter(name=name).first()
    if row is None:
        return Done()
    if not row.complete:
        return Wait(SECONDS_TO_RETURN, "ClusterNotMirrored")
    if row.trouble_code:
        return Wait(SECONDS_TO_RETURN, row.trouble_code)
    try:
        return take_pass(shared_cluster(name), row, key, now())
    except ClusterError as error:
        return Retry(str(error))


def take_pass(cluster: Cluster, row: models.Cluster, key: str, now: float) -> Outcome:
    """Take a workload of a mirrored cluster one pass further; raises what keeps the cluster from answering."""
    _, namespace, name = key.split("/")
    seen = mirror.read(row, namespace, name)
    if seen is None or seen.leaving:
        if history.close_all(row.name, namespace, name, now):
            feed.publish(redis_client(), [Change(row.name, "workload", key, ("timeline",), deleted=seen is None)])
        return Done()
    one = _Pass(cluster, row, key, seen, now)
    if seen.in_doubt:
        return one.find_out()
    effective = compute_effective(seen.manifest, list_overrides(row.name), now, cluster=row.name)
    workload, findings = _read_effective(seen, effective)
    if isinstance(workload, Unreadable):
        return one.refuse(findings or workload.findings)
    if not _is_known(seen):
        return one.refuse(findings) if findings else one.carry_out(workload, effective, ())
    # What only scaling has brought about is nobody's fault.
    return one.carry_out(workload, effective, [fault for fault in findings if fault.code not in _BY_SCALING])


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


@lru_cache(maxsize=256)
def _read_spec(spec: _Spec) -> tuple[Workload | Unreadable, tuple[Finding, ...]]:
    """Read a spec, once for the many passes that are made with it."""
    return parse_workload(spec.manifest), validate_create(spec.manifest).errors


@dataclass(frozen=True, slots=True)
class _Pass:
    """One look at a workload, and what follows from it."""

    cluster: Cluster
    row: models.Cluster
    key: str
    seen: Seen
    now: float

    @property
    def _namespace(self) -> str:
        namespace: str = self.seen.manifest["metadata"]["namespace"]
        return namespace

    @property
    def _name(self) -> str:
        name: str = self.seen.manifest["metadata"]["name"]
        return name

    # The three things that a pass can be.

    def find_out(self) -> Outcome:
        """Learn what became of writes that an earlier pass has sent and not heard of."""
        found = actuator.find_out(self.cluster, self._namespace, self.seen.in_doubt)
        news = self._store(found, in_doubt=[])
        self._publish(news)
        return Again()

    def refuse(self, findings: Sequence[Finding]) -> Outcome:
        """Say on the set that it cannot be acted on, and leave everything as it is."""
        status = self._judge(self.seen.observed.status, findings)
        applied = Applied()
        if status is not self.seen.observed.status:
            write = WriteStatus(Kind.SET, self._name, self.seen.uid, status)
            actuator.apply_status(self.cluster, self._namespace, write, self.seen.resource_version, applied)
            self._publish(self._store(applied, in_doubt=None))
            events.tell(self.cluster, self.seen.manifest, [self._invalid(findings)], self.now)
        if applied.failure is not None:
            return Retry(str(applied.failure))
        if applied.of(Fate.OUTRUN):
            return Again()
        return Stop(_sentence(findings), events.INVALID_SPEC)

    def carry_out(self, workload: Workload, effective: Effective, findings: Sequence[Finding]) -> Outcome:
        """Plan and act."""
        decided = plan(workload, self.seen.observed, self.now)
        before = self.seen.observed.status
        actions, status = self._decide_writes(decided, findings)
        book = history.Book(self._subject(workload), self.now)
        is_noted = self._note(book, decided, actions, status)
        applied = Applied()
        news = self._act(actions, applied)
        after = _status_after(applied, before)
        is_recorded = self._record(book, workload, before, after)
        told = self._choose_events(decided, before, after, applied)
        if findings and status is not before:
            told.append(self._invalid(findings))
        events.tell(self.cluster, self.seen.manifest, told, self.now)
        self._publish(news, timeline=is_noted or is_recorded)
        return self._conclude(decided, effective, applied, news)

    # Writes.

    def _decide_writes(self, decided: Plan, findings: Sequence[Finding]) -> tuple[tuple[Action, ...], Status]:
        """Return the plan's actions, and the status that they leave on the set, with what we have to say about it."""
        ours = (action for action in decided.actions if isinstance(action, WriteStatus) and action.kind is Kind.SET)
        planned = next(ours, None)
        base = self.seen.observed.status if planned is None else planned.status
        status = self._judge(base, findings)
        if status is base:
            return decided.actions, status
        others = tuple(action for action in decided.actions if action is not planned)
        return (*others, WriteStatus(Kind.SET, self._name, self.seen.uid, status)), status

    def _note(self, book: history.Book, decided: Plan, actions: Sequence[Action], status: Status) -> bool:
        """Write down what is about to be done, as far as a pass after this one must know; say if steps are among it."""
        momentous = _momentous(actions)
        if not momentous and not decided.moments:
            return False
        with transaction.atomic():
            if momentous:
                self._doubt(momentous)
            return book.note_steps(decided, status)

    def _act(self, actions: Sequence[Action], applied: Applied) -> list[News]:
        """Carry out the plan and store what was answered, whatever ends it."""
        if not actions and not find_condition(self.seen.observed.status, WRITE_DENIED):
            return []
        scene = Scene(self._namespace, self.seen.observed, self.seen.resource_version)
        momentous = _momentous(actions)
        in_doubt: Sequence[Action] = momentous
        try:
            actuator.apply_plan(self.cluster, actions, scene, applied)
            in_doubt = applied.in_doubt
            self._tell_denial(applied)
        finally:
            # All of it, where the end came from elsewhere: the time limit, say.
            news = self._store(applied, in_doubt if momentous else None)
        return news

    def _tell_denial(self, applied: Applied) -> None:
        """Say on the set what the cluster will not have, or no longer say it."""
        newest = _newest_set(applied) or self.seen.manifest
        stored: Status = newest.get("status") or {}
        denied = next((answer.error for answer in applied.of(Fate.DENIED) if answer.error is not None), None)
        if denied is None and (applied.failure is not None or not find_condition(stored, WRITE_DENIED)):
            return
        wanted: list[Condition] = []
        if denied is not None:
            wanted = [condition(WRITE_DENIED, "True", denied.reason or "Denied", str(denied), render_time(self.now))]
        status = _put(stored, wanted, dropped=(WRITE_DENIED,))
        if status is not stored:
            write = WriteStatus(Kind.SET, self._name, self.seen.uid, status)
            actuator.apply_status(self.cluster, self._namespace, write, newest["metadata"]["resourceVersion"], applied)

    def _judge(self, status: Status, findings: Sequence[Finding]) -> Status:
        """Return the status with what there is to say about the spec."""
        wanted: list[Condition] = []
        if findings:
            text, at = _sentence(findings), render_time(self.now)
            wanted = [condition(VALID, "False", events.INVALID_SPEC, text, at)]
        return _put(status, wanted, dropped=(VALID,))

    def _store(self, applied: Applied, in_doubt: Sequence[Action] | None) -> list[News]:
        news = mirror.store_all(self.row, applied.changes())
        if in_doubt is not None:
            self._doubt(in_doubt)
        return news

    def _doubt(self, actions: Sequence[Action]) -> None:
        noted = [actuator.doubt_of(action) for action in actions]
        models.Workload.objects.filter(pk=self.seen.workload_id, uid=self.seen.uid).update(in_doubt=noted)

    # The record.

    def _subject(self, workload: Workload) -> history.Subject:
        created = parse_time(self.seen.manifest["metadata"].get("creationTimestamp"))
        return history.Subject(
            cluster=self.row.name,
            namespace=self._namespace,
            name=self._name,
            uid=self.seen.uid,
            created=self.now if created is None else created,
            workload=workload,
            template=self.seen.manifest["spec"]["template"],
        )

    def _record(self, book: history.Book, workload: Workload, before: Status, after: Status) -> bool:
        changed = book.record((before, after))
        if book.newest is None or (book.newest.ended is not None and not changed):
            return False
        return history.sample(book.newest, count_pods(workload, self.seen.observed), self.now) or changed

    def _choose_events(self, decided: Plan, before: Status, after: Status, applied: Applied) -> list[Event]:
        """Return what to tell on the set; nothing of a plan whose status was not taken, as that is planned anew."""
        progress = read_progress(after)
        since = progress.started_at or progress.generation_hash
        is_taken = not any(kind is Kind.SET for kind in map(_kind, applied.of(Fate.OUTRUN))) and not applied.failure
        told = events.choose_events(decided.moments, since) if is_taken else []
        stuck = find_condition(after, STUCK)
        if stuck.get("status") == "True" and find_condition(before, STUCK).get("status") != "True":
            text, at = str(stuck.get("message")), str(stuck.get("lastTransitionTime"))
            told.append(Event(events.UPDATE_STUCK, text, at, "Warning"))
        denied = next((answer.error for answer in applied.of(Fate.DENIED)), None)
        if denied is not None and find_condition(before, WRITE_DENIED).get("message") != str(denied):
            told.append(Event(events.WRITE_DENIED, str(denied), render_time(self.now), "Warning"))
        return told

    def _invalid(self, findings: Sequence[Finding]) -> Event:
        generation = str(self.seen.manifest["metadata"].get("generation"))
        return Event(events.INVALID_SPEC, _sentence(findings), generation, "Warning")

    def _publish(self, news: Sequence[News], *, timeline: bool = False) -> None:
        changes = mirror.changes_of(self.row.name, news)
        if timeline:
            changes.append(Change(self.row.name, "workload", self.key, ("timeline",)))
        if changes:
            feed.publish(redis_client(), changes)

    # What to tell the queue.

    def _conclude(self, decided: Plan, effective: Effective, applied: Applied, news: Sequence[News]) -> Outcome:
        if applied.failure is not None:
            return Retry(str(applied.failure))
        if news or applied.is_cut_short:
            return Again()
        if (refused := _refusal(applied)) is not None:
            return refused
        times = [at for at in (decided.look_again_at, effective.until) if at is not None]
        if not times:
            return Done()
        problems = sorted(decided.waits, key=lambda wait: not wait.is_problem)
        return Wait(max(SHORTEST_WAIT, min(times) - self.now), problems[0].code if problems else "OverrideExpires")


def _momentous(actions: Sequence[Action]) -> list[Action]:
    """Return what this pass may get to that the next one must know about."""
    return [action for action in actions[: actuator.WRITES_A_PASS] if actuator.is_momentous(action)]


def _refusal(applied: Applied) -> Outcome | None:
    """Return what follows from writes that were not taken although the mirror has nothing to learn from it."""
    errors = [answer.error for fate in (Fate.DENIED, Fate.OUTRUN) for answer in applied.of(fate) if answer.error]
    for error in errors:
        if isinstance(error, AlreadyExists) or not isinstance(error, Conflict | NotFound):
            return Retry(str(error))
    # Somebody was quicker, and the watcher too: what is known by now is worth another look.
    return Wait(SHORTEST_WAIT, "Conflict") if errors else None


def _newest_set(applied: Applied) -> Obj | None:
    """Return the set as it was answered last."""
    found = [answer.found for answer in applied.answers if answer.found is not None and _kind(answer) is Kind.SET]
    return found[-1] if found else None


def _status_after(applied: Applied, before: Status) -> Status:
    newest = _newest_set(applied)
    return before if newest is None else newest.get("status") or {}


def _kind(answer: actuator.Answer) -> Kind:
    return actuator.kind_of(answer.action)


def _put(status: Status, wanted: list[Condition], dropped: Sequence[str]) -> Status:
    """Return a status with these conditions and without the others of ours; the same one if nothing changes."""
    former = status.get("conditions") or []
    conditions = put_conditions(former, wanted, dropped)
    return status if conditions == [*former] else {**status, "conditions": conditions}


def _sentence(findings: Sequence[Finding]) -> str:
    return "; ".join(
        f"{finding.field}: {finding.message}" if finding.field else finding.message for finding in findings
    )
