"""What happened to a workload, on record: revisions, rollouts, the steps of their timelines, counts over time.

Before it: a pass of the reconciler. After it: pages and the REST API, which read the rows of `models.history`.

Passes repeat, stop half-way and are killed, so nothing here counts passes. A rollout is what the status of the set says
about its update: which generation hash, since when, until when. The row follows that status, whichever pass gets to see
it first, and what goes with a change of the row (its revision, its first and last step) is written in the same
transaction. Steps that a pass decides are written before it acts on them: killed afterwards, it decides the same again,
and the same step is the same row. The first deployment is a rollout as well, from nothing, since the set was created.

The invariants: one row a rollout and one open rollout a workload; an end is written once, by whoever gets there first;
a rollout of any length leaves a bounded number of steps and samples.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import orjson
from django.db import connection, transaction
from django.db.models import F, Max, QuerySet

from rollouts import models
from rollouts.controller.pod_counts import Counts
from rollouts.engine.model import names
from rollouts.engine.model.actions import Create, Kind, Plan, TimelineEvent
from rollouts.engine.model.conditions import PROGRESSING, STUCK, find_condition
from rollouts.engine.model.hashing import compute_generation_hash
from rollouts.engine.model.times import parse_time
from rollouts.engine.model.workload import Workload
from rollouts.engine.rollout.update import read_progress
from rollouts.models import Revision, Rollout, Sample, Step
from rollouts.models.history import REVISIONS_KEPT
from rollouts.telemetry import metrics

Outcome = Rollout.Outcome
Status = Mapping[str, Any]

ROLLOUTS_KEPT: Final = 100  # of a workload
DAYS_KEPT: Final = 30  # what there is of a workload that is gone
STEPS_KEPT: Final = 1000  # of a rollout, before they are only counted by reason
MAX_ALIKE_STEPS: Final = 20  # steps of one reason in one pass, before they are told as one
# A step that is told again within this many seconds is the same one, told by a pass that was repeated; later on it
# has happened once more. Longer than a lease: by then another worker has taken over from one that was killed.
REPEAT_SECONDS: Final = 120.0
# As many samples are kept of each e-fold of a rollout's length: 400 seconds one by one, then ever further apart.
DENSE_SAMPLE_SECONDS: Final = 400.0

# Moments that follow from the status and are told with the change of the row.
_ROLLOUT_REASONS: Final = frozenset({"UpdateStarted", "UpdateEnded", "UpdateSuperseded"})


@dataclass(frozen=True, slots=True)
class RecordedWorkload:
    """Whose history it is."""

    cluster: str
    namespace: str
    name: str
    uid: str
    created: float  # seconds since the epoch
    workload: Workload  # with the strategy in force
    template: Mapping[str, Any]  # spec.template as stored


@dataclass(frozen=True, slots=True)
class _RolloutStatus:
    """A rollout as the status of the set tells it."""

    to_hash: str
    started: datetime
    ended: datetime | None
    is_stuck: bool
    stuck_changed: datetime | None  # when it got stuck, or last was not any more
    stuck_message: str  # what it is stuck on


class HistoryRecorder:
    """The history of one workload, open for one pass."""

    def __init__(self, subject: RecordedWorkload, now: float) -> None:
        self._workload = subject
        self._now = now
        self._newest: Rollout | None = None
        self._is_fetched = False

    @property
    def workload(self) -> Workload:
        """The workload whose history it is."""
        return self._workload.workload

    @property
    def newest(self) -> Rollout | None:
        """The newest rollout of the workload."""
        if not self._is_fetched:
            self._newest, self._is_fetched = _fetch_newest(self._workload), True
        return self._newest

    def record_steps(self, plan: Plan, status: Status) -> bool:
        """Write down what a plan is about to do, once; `status` is the one that it will leave behind."""
        told = _parse_rollout_status(self._workload, status)
        moments = [moment for moment in plan.timeline_events if moment.reason not in _ROLLOUT_REASONS]
        if told is None or not moments:
            return False
        with transaction.atomic():
            rollout = self.newest if self.newest is not None and self._is_recorded(told) else self._create_rollout(told)
            _add_steps(rollout, _make_steps(plan, moments), _to_datetime(self._now))
        return True

    def record_statuses(self, statuses: Iterable[Status]) -> bool:
        """Let the newest rollout follow statuses in the order in which they were in force; say if there was news.

        A pass tells the one that it found before anything else, and in the end those that it has written.
        """
        changed = False
        for status in statuses:
            status_of_rollout = _parse_rollout_status(self._workload, status)
            if status_of_rollout is None or (
                self.newest is not None and _is_up_to_date(self.newest, status_of_rollout)
            ):
                continue
            with transaction.atomic():
                if not self._is_recorded(status_of_rollout):
                    self._create_rollout(status_of_rollout)
                    changed = True
                if self.newest is not None and _is_same_rollout(self.newest, status_of_rollout):
                    changed |= _update_rollout(self.newest, status_of_rollout, self._now)
        return changed

    def _is_recorded(self, told: _RolloutStatus) -> bool:
        """Say whether the newest rollout is the one that is told of, or came after it."""
        newest = self.newest
        return newest is not None and (
            _is_same_rollout(newest, told) or told.started < _truncate_to_second(newest.started)
        )

    def _create_rollout(self, told: _RolloutStatus) -> Rollout:
        self._newest = _create_rollout(self._workload, told, self.newest)
        return self._newest


def end_open_rollouts(cluster: str, namespace: str, name: str, now: float, *, but: str = "") -> bool:
    """End as Deleted whatever is open of the workloads of a name, but of the one with this uid."""
    unfinished = Rollout.objects.filter(cluster=cluster, namespace=namespace, name=name, ended=None)
    with transaction.atomic():
        ended = [
            _end_rollout(rollout, Outcome.DELETED, _to_datetime(now), f"{name} is deleted.")
            for rollout in unfinished.exclude(workload_uid=but)
        ]
    return any(ended)


def delete_expired(now: float) -> int:
    """Drop the history of workloads that have been gone for long; return how many rollouts."""
    before = _to_datetime(now) - timedelta(days=DAYS_KEPT)
    present = models.Workload.objects.values("uid")
    # While a mirror is made anew, nothing is gone because it is missing there.
    mirrored = models.Cluster.objects.filter(complete=True).values("name")
    gone = Rollout.objects.filter(cluster__in=mirrored, ended__lt=before).exclude(workload_uid__in=present)
    recent = Rollout.objects.exclude(ended__lt=before).values("workload_uid")
    Revision.objects.filter(cluster__in=mirrored, created__lt=before).exclude(workload_uid__in=present).exclude(
        workload_uid__in=recent
    ).delete()
    return gone.delete()[1].get(Rollout._meta.label, 0)  # noqa: SLF001 (public in all but name)


def record_sample(rollout: Rollout, counts: Counts, now: float) -> bool:
    """Keep the counts if they have changed; those of one moment become one, with the fewest that were available."""
    at = _to_datetime(float(int(now)))
    last = _fetch_last_sample(rollout)
    if last is None:
        _write_sample(rollout, at, counts)
        return True
    former = Counts(last.desired, last.available, last.updated, last.surge, last.floor)
    if former == counts:
        return False
    apart = 1.0 if rollout.ended else max(1.0, (at - rollout.started).total_seconds() / DENSE_SAMPLE_SECONDS)
    if (at - last.at).total_seconds() >= apart:
        _write_sample(rollout, at, counts)
        return True
    if not rollout.ended:
        available, surge = min(former.available, counts.available), max(former.surge, counts.surge)
        counts = replace(counts, available=available, updated=min(counts.updated, available), surge=surge)
    _write_sample(rollout, last.at, counts)
    return counts != former


# ---- what the status tells


def _parse_rollout_status(subject: RecordedWorkload, status: Status) -> _RolloutStatus | None:
    progress = read_progress(status)
    if not progress.generation_hash:
        return None
    stuck, moving = find_condition(status, STUCK), find_condition(status, PROGRESSING)
    started, ended = parse_time(progress.started_at), parse_time(progress.ended_at)
    if started is None and moving.get("reason") == "Complete":
        ended = parse_time(moving.get("lastTransitionTime"))
    since = parse_time(stuck.get("lastTransitionTime"))
    return _RolloutStatus(
        to_hash=progress.generation_hash,
        started=_to_datetime(subject.created if started is None else started),
        ended=None if ended is None else _to_datetime(ended),
        is_stuck=stuck.get("status") == "True",
        stuck_changed=None if since is None else _to_datetime(since),
        stuck_message=str(stuck.get("message") or ""),
    )


def _is_up_to_date(rollout: Rollout, told: _RolloutStatus) -> bool:
    """Say whether the row has nothing to learn from the status: so it is almost always."""
    if not _is_same_rollout(rollout, told):
        return False
    return rollout.ended is not None or (told.ended is None and told.is_stuck == (rollout.outcome == Outcome.STUCK))


def _is_same_rollout(rollout: Rollout, told: _RolloutStatus) -> bool:
    return rollout.to_hash == told.to_hash and _truncate_to_second(rollout.started) == told.started


# ---- rollouts


def _rollouts(subject: RecordedWorkload) -> QuerySet[Rollout]:
    return Rollout.objects.filter(
        cluster=subject.cluster, namespace=subject.namespace, name=subject.name, workload_uid=subject.uid
    )


def _create_rollout(subject: RecordedWorkload, told: _RolloutStatus, former: Rollout | None) -> Rollout:
    """Add the row of a rollout, with its revision and its first step, and end the one before."""
    from_hash = ""
    if former is not None:
        from_hash = former.from_hash if former.to_hash == told.to_hash else former.to_hash
    strategy, started = str(subject.workload.strategy), told.started
    if former is not None and _truncate_to_second(former.started) == started:
        # There and back within the second: the status cannot tell the two apart, their order can.
        started = former.started + timedelta(milliseconds=1)
    rollout, is_new = Rollout.objects.get_or_create(
        cluster=subject.cluster,
        workload_uid=subject.uid,
        to_hash=told.to_hash,
        started=started,
        defaults={
            "namespace": subject.namespace,
            "name": subject.name,
            "from_hash": from_hash,
            "strategy": strategy,
            "observed_at": started,
        },
    )
    if is_new:
        begins = f"An update of {subject.name} to {told.to_hash} begins ({strategy})."
        text = begins if former is not None else f"{subject.name} is deployed with {told.to_hash}."
        _add_steps(rollout, [Step(reason="UpdateStarted", component=subject.name, text=text)], started)
        was_there = _ensure_revision(subject, told)
        for other in _rollouts(subject).filter(ended=None).exclude(pk=rollout.pk):
            outcome = Outcome.ROLLED_BACK if was_there and other.to_hash != told.to_hash else Outcome.SUPERSEDED
            _end_rollout(other, outcome, told.started, f"It is superseded by an update to {told.to_hash}.")
        end_open_rollouts(subject.cluster, subject.namespace, subject.name, told.started.timestamp(), but=subject.uid)
        kept = _rollouts(subject).order_by("-started", "-id").values_list("pk", flat=True)[:ROLLOUTS_KEPT]
        _rollouts(subject).exclude(pk__in=[*kept]).delete()
    return rollout


def _update_rollout(rollout: Rollout, told: _RolloutStatus, now: float) -> bool:
    """Let the row say what the status says; return whether it did not yet."""
    if rollout.ended is not None:
        return False
    if told.ended is not None:
        text = f"The update of {rollout.name} to {rollout.to_hash} has ended."
        # The status tells whole seconds; within that one the clock of the pass says more.
        is_now = 0 <= now - told.ended.timestamp() < 1
        return _end_rollout(rollout, Outcome.COMPLETE, _to_datetime(now) if is_now else told.ended, text)
    if told.is_stuck == (rollout.outcome == Outcome.STUCK):
        return False
    at = told.stuck_changed or _to_datetime(now)
    values = {**_render_durations(rollout, at), "outcome": Outcome.STUCK if told.is_stuck else ""}
    if not _update_if_open(rollout, values):
        return False
    step = Step(reason="UpdateStuck", component=rollout.name, text=told.stuck_message)
    if not told.is_stuck:
        step = Step(reason="UpdateMoves", component=rollout.name, text=f"The update of {rollout.name} moves again.")
    _add_steps(rollout, [step], at)
    return True


def _end_rollout(rollout: Rollout, outcome: str, at: datetime, text: str) -> bool:
    """End a rollout, if nobody has yet."""
    at = max(at, rollout.started)
    if not _update_if_open(rollout, {**_render_durations(rollout, at), "outcome": outcome, "ended": at}):
        return False
    reason = {Outcome.COMPLETE: "UpdateEnded", Outcome.DELETED: "Deleted"}.get(Outcome(outcome), "UpdateSuperseded")
    _add_steps(rollout, [Step(reason=reason, component=rollout.name, text=text)], at)
    seconds = (rollout.progressing_seconds, rollout.waiting_seconds)
    transaction.on_commit(partial(metrics.observe_rollout, rollout.strategy, str(outcome), *seconds))
    return True


def compute_durations(rollout: Rollout, until: datetime) -> tuple[float, float]:
    """Return how long it has been moving and how long waiting, counted on to a moment."""
    seconds = max(0.0, (until - (rollout.observed_at or rollout.started)).total_seconds())
    if rollout.outcome == Outcome.STUCK:
        return rollout.progressing_seconds, rollout.waiting_seconds + seconds
    return rollout.progressing_seconds + seconds, rollout.waiting_seconds


def _render_durations(rollout: Rollout, until: datetime) -> dict[str, Any]:
    """Return the columns of what is counted on to a moment."""
    progressing, waiting = compute_durations(rollout, until)
    since = rollout.observed_at or rollout.started
    return {"progressing_seconds": progressing, "waiting_seconds": waiting, "observed_at": max(until, since)}


def _update_if_open(rollout: Rollout, values: Mapping[str, Any]) -> bool:
    """Change an open row that is still as it was read."""
    if not Rollout.objects.filter(pk=rollout.pk, ended=None, outcome=rollout.outcome).update(**values):
        return False
    for name, value in values.items():
        setattr(rollout, name, value)
    return True


# ---- revisions


def _ensure_revision(subject: RecordedWorkload, told: _RolloutStatus) -> bool:
    """Note what the hash of a new rollout stands for; return whether it had been in force before."""
    if compute_generation_hash(subject.workload) != told.to_hash:
        return False  # changed again meanwhile: nobody knows any more what that template was
    theirs = Revision.objects.filter(cluster=subject.cluster, workload_uid=subject.uid)
    last = theirs.aggregate(last=Max("number"))["last"] or 0
    former = theirs.filter(generation_hash=told.to_hash).first()
    if former is not None:
        if former.number < last:
            theirs.filter(pk=former.pk).update(number=last + 1, template=_without_nul(subject.template))
        return former.number < last
    Revision.objects.create(
        cluster=subject.cluster,
        namespace=subject.namespace,
        name=subject.name,
        workload_uid=subject.uid,
        number=last + 1,
        generation_hash=told.to_hash,
        template=_without_nul(subject.template),
        created=told.started,
    )
    theirs.filter(number__lte=last + 1 - REVISIONS_KEPT).delete()
    return False


def _without_nul(template: Mapping[str, Any]) -> Any:
    """Return a template as every database takes it: PostgreSQL keeps no NUL, not even in JSON."""
    text = orjson.dumps(template)
    return orjson.loads(text.replace(rb"\u0000", b"")) if rb"\u0000" in text else template


# ---- steps


def _make_steps(plan: Plan, moments: Sequence[TimelineEvent]) -> list[Step]:
    """Return the steps of a plan, those that are many of one kind as one."""
    made = _created_pods(plan)
    numbers = Counter(moment.reason for moment in moments)
    steps = [
        Step(
            reason=one.reason,
            component=one.component,
            text=one.text,
            fingerprint=_fingerprint(one.reason, one.component, one.text, *made.get(one.component, ())),
        )
        for one in moments
        if numbers[one.reason] <= MAX_ALIKE_STEPS
    ]
    return [*steps, *_merge_alike([one for one in moments if numbers[one.reason] > MAX_ALIKE_STEPS])]


def _merge_alike(moments: Sequence[TimelineEvent]) -> Iterator[Step]:
    by_reason: dict[str, list[TimelineEvent]] = {}
    for moment in moments:
        by_reason.setdefault(moment.reason, []).append(moment)
    for reason, alike in by_reason.items():
        text = f"{alike[0].text} {len(alike) - 1} more like it."
        mark = _fingerprint(reason, *(moment.text for moment in alike))
        yield Step(reason=reason, component=alike[0].component, text=text, count=len(alike), fingerprint=mark)


def _created_pods(plan: Plan) -> dict[str, list[str]]:
    """Return the names of the pods that a plan creates, by PodClique: they tell one creation from the next."""
    made: dict[str, list[str]] = {}
    for action in plan.actions:
        if isinstance(action, Create) and action.kind is Kind.POD:
            metadata = action.manifest["metadata"]
            made.setdefault(metadata["labels"][names.CLIQUE], []).append(metadata["name"])
    return made


def _add_steps(rollout: Rollout, steps: Sequence[Step], at: datetime) -> None:
    """Add steps to a timeline; one that is there already happened again, or is only told again."""
    for step in steps:
        step.rollout, step.at = rollout, at
        step.fingerprint = step.fingerprint or _fingerprint(step.reason, step.component, step.text, at.isoformat())
    known = _fetch_known_steps(rollout, [step.fingerprint for step in steps])
    again = [step.pk for step in known.values() if (at - step.at).total_seconds() > REPEAT_SECONDS]
    if again:
        Step.objects.filter(pk__in=again).update(count=F("count") + 1, at=at)
    fresh = [step for step in steps if step.fingerprint not in known]
    if fresh:
        room = max(0, STEPS_KEPT - _fetch_step_count(rollout))
        Step.objects.bulk_create(fresh[:room], ignore_conflicts=True)
        _count_further_steps(rollout, fresh[room:], at)


def _count_further_steps(rollout: Rollout, steps: Sequence[Step], at: datetime) -> None:
    """Count further steps of a long timeline by their reason."""
    for reason, number in Counter(step.reason for step in steps).items():
        mark = _fingerprint(reason, "further ones")
        last = next(step for step in reversed(steps) if step.reason == reason)
        further, is_new = Step.objects.get_or_create(
            rollout=rollout,
            fingerprint=mark,
            defaults={"reason": reason, "component": last.component, "text": last.text, "at": at, "count": number},
        )
        if not is_new:
            changes = {"text": last.text, "component": last.component, "at": at}
            Step.objects.filter(pk=further.pk).update(count=F("count") + number, **changes)


def _fingerprint(*told: str) -> str:
    return hashlib.blake2b("\0".join(told).encode(), digest_size=16).hexdigest()


def _to_datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _truncate_to_second(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)


# ---- what almost every pass of a rollout asks and says, in words that need not be put together each time


def _fetch_newest(subject: RecordedWorkload) -> Rollout | None:
    statement = (
        "SELECT * FROM rollouts_rollout WHERE cluster = %s AND namespace = %s AND name = %s AND workload_uid = %s"
        " ORDER BY started DESC, id DESC LIMIT 1"
    )
    found = Rollout.objects.raw(statement, [subject.cluster, subject.namespace, subject.name, subject.uid])
    return next(iter(found), None)


def _fetch_last_sample(rollout: Rollout) -> Sample | None:
    statement = "SELECT * FROM rollouts_sample WHERE rollout_id = %s ORDER BY at DESC LIMIT 1"
    return next(iter(Sample.objects.raw(statement, [rollout.pk])), None)


def _write_sample(rollout: Rollout, at: datetime, counts: Counts) -> None:
    statement = (
        "INSERT INTO rollouts_sample (rollout_id, at, desired, available, updated, surge, floor)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (rollout_id, at) DO UPDATE SET desired = excluded.desired,"
        " available = excluded.available, updated = excluded.updated, surge = excluded.surge, floor = excluded.floor"
    )
    numbers = (counts.desired, counts.available, counts.updated, counts.surge, counts.floor)
    with connection.cursor() as cursor:
        cursor.execute(statement, [rollout.pk, connection.ops.adapt_datetimefield_value(at), *numbers])


def _fetch_known_steps(rollout: Rollout, marks: Sequence[str]) -> dict[str, Step]:
    places = ", ".join(["%s"] * len(marks))
    statement = f"SELECT * FROM rollouts_step WHERE rollout_id = %s AND fingerprint IN ({places})"  # noqa: S608
    return {step.fingerprint: step for step in Step.objects.raw(statement, [rollout.pk, *marks])}


def _fetch_step_count(rollout: Rollout) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM rollouts_step WHERE rollout_id = %s", [rollout.pk])
        number: int = cursor.fetchone()[0]
        return number
