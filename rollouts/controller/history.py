"""The history of a workload: revisions, rollouts, the steps of their timelines, counts of pods over time.

Before it: a pass of the reconciler. After it: pages and the REST API, which read the rows of `models.history`.

Passes repeat, end early and are killed, so nothing here counts passes. A rollout is what the status of the set says
about its update: which generation hash, since when, until when. The row follows that status, whichever pass sees it
first, and a change of the row is written in one transaction with its revision and its first or last step. The steps of
a plan are written before its writes are sent: a pass that is killed in between makes the same plan again, and the same
step is the same row. The first deployment is a rollout too, from nothing, since the set was created.

The invariants: there is one row for each rollout and one open rollout for each workload; the end is written once, by
the pass that sees it first; a rollout of any length has a bounded number of steps and samples.
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
from rollouts.engine.model.workload import REVISIONS_KEPT, Workload
from rollouts.engine.plan import messages
from rollouts.engine.rollout.update import read_progress
from rollouts.models import Revision, Rollout, Sample, Step
from rollouts.telemetry import metrics

Outcome = Rollout.Outcome
Status = Mapping[str, Any]

ROLLOUTS_KEPT: Final = 100  # of a workload
DAYS_KEPT: Final = 30  # the history of a workload that is gone
STEPS_KEPT: Final = 1000  # of a rollout; further ones are counted by reason
MAX_ALIKE_STEPS: Final = 20  # of one reason in one pass; more than that become one step
# A step that comes again within this many seconds is the same one, from a repeated pass; after that it has happened
# once more. Longer than a lease: by then another worker has taken over the workload of a killed one.
REPEAT_SECONDS: Final = 120.0
# Samples are kept one second apart for 400 seconds, then at growing distances: the same number for each e-fold.
DENSE_SAMPLE_SECONDS: Final = 400.0

# Timeline events that follow from the status, and are recorded with the change of the row.
_ROLLOUT_REASONS: Final = frozenset({"UpdateStarted", "UpdateEnded", "UpdateSuperseded"})


@dataclass(frozen=True, slots=True)
class RecordedWorkload:
    """The workload whose history is recorded."""

    cluster: str
    namespace: str
    name: str
    uid: str
    created: float  # seconds since the epoch
    workload: Workload  # with its effective strategy
    template: Mapping[str, Any]  # spec.template as stored


@dataclass(frozen=True, slots=True)
class _RolloutStatus:
    """A rollout as the status of the set shows it."""

    to_hash: str
    started: datetime
    ended: datetime | None
    is_stuck: bool
    stuck_changed: datetime | None  # when it became stuck, or stopped being stuck
    stuck_message: str  # why it is stuck


class HistoryRecorder:
    """Records the history of one workload during one pass."""

    def __init__(self, recorded: RecordedWorkload, now: float) -> None:
        self._workload = recorded
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
        """Record the steps of a plan before they are taken; `status` is the one that the plan leads to."""
        shown = _parse_rollout_status(self._workload, status)
        events = [event for event in plan.timeline_events if event.reason not in _ROLLOUT_REASONS]
        if shown is None or not events:
            return False
        with transaction.atomic():
            rollout = (
                self.newest if self.newest is not None and self._is_recorded(shown) else self._create_rollout(shown)
            )
            _add_steps(rollout, _make_steps(plan, events), _to_datetime(self._now))
        return True

    def record_statuses(self, statuses: Iterable[Status]) -> bool:
        """Update the newest rollout to statuses of the set, oldest first; return whether anything has changed.

        A pass records the status that it begins with, and at its end the statuses that it has written.
        """
        changed = False
        for status in statuses:
            shown = _parse_rollout_status(self._workload, status)
            if shown is None or (self.newest is not None and _is_up_to_date(self.newest, shown)):
                continue
            with transaction.atomic():
                if not self._is_recorded(shown):
                    self._create_rollout(shown)
                    changed = True
                if self.newest is not None and _is_same_rollout(self.newest, shown):
                    changed |= _update_rollout(self.newest, shown, self._now)
        return changed

    def _is_recorded(self, shown: _RolloutStatus) -> bool:
        """Return whether the newest rollout is this one or a later one."""
        newest = self.newest
        return newest is not None and (
            _is_same_rollout(newest, shown) or shown.started < _truncate_to_second(newest.started)
        )

    def _create_rollout(self, shown: _RolloutStatus) -> Rollout:
        self._newest = _create_rollout(self._workload, shown, self.newest)
        return self._newest


def end_open_rollouts(cluster: str, namespace: str, name: str, now: float, *, but: str = "") -> bool:
    """End as Deleted the open rollouts of all workloads of this name, except the one with the uid `but`."""
    unfinished = Rollout.objects.filter(cluster=cluster, namespace=namespace, name=name, ended=None)
    with transaction.atomic():
        ended = [
            _end_rollout(rollout, Outcome.DELETED, _to_datetime(now), f"{name} is deleted.")
            for rollout in unfinished.exclude(workload_uid=but)
        ]
    return any(ended)


def delete_expired(now: float) -> int:
    """Delete the history of workloads that have long been gone; return the number of rollouts."""
    before = _to_datetime(now) - timedelta(days=DAYS_KEPT)
    present = models.Workload.objects.values("uid")
    # While a mirror is being listed, a workload that is missing from it is not gone.
    mirrored = models.Cluster.objects.filter(complete=True).values("name")
    gone = Rollout.objects.filter(cluster__in=mirrored, ended__lt=before).exclude(workload_uid__in=present)
    recent = Rollout.objects.exclude(ended__lt=before).values("workload_uid")
    Revision.objects.filter(cluster__in=mirrored, created__lt=before).exclude(workload_uid__in=present).exclude(
        workload_uid__in=recent
    ).delete()
    return gone.delete()[1].get(Rollout._meta.label, 0)  # noqa: SLF001 (public in all but name)


def record_sample(rollout: Rollout, counts: Counts, now: float) -> bool:
    """Store counts that have changed; join those of one moment, and keep the fewest that were available."""
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


# ---- the status


def _parse_rollout_status(recorded: RecordedWorkload, status: Status) -> _RolloutStatus | None:
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
        started=_to_datetime(recorded.created if started is None else started),
        ended=None if ended is None else _to_datetime(ended),
        is_stuck=stuck.get("status") == "True",
        stuck_changed=None if since is None else _to_datetime(since),
        stuck_message=str(stuck.get("message") or ""),
    )


def _is_up_to_date(rollout: Rollout, shown: _RolloutStatus) -> bool:
    """Return whether the row already has what the status shows; this is so in almost every pass."""
    if not _is_same_rollout(rollout, shown):
        return False
    return rollout.ended is not None or (shown.ended is None and shown.is_stuck == (rollout.outcome == Outcome.STUCK))


def _is_same_rollout(rollout: Rollout, shown: _RolloutStatus) -> bool:
    return rollout.to_hash == shown.to_hash and _truncate_to_second(rollout.started) == shown.started


# ---- rollouts


def _rollouts(recorded: RecordedWorkload) -> QuerySet[Rollout]:
    return Rollout.objects.filter(
        cluster=recorded.cluster, namespace=recorded.namespace, name=recorded.name, workload_uid=recorded.uid
    )


def _create_rollout(recorded: RecordedWorkload, shown: _RolloutStatus, former: Rollout | None) -> Rollout:
    """Add the row of a rollout, with its revision and its first step, and end the one before."""
    from_hash = ""
    if former is not None:
        from_hash = former.from_hash if former.to_hash == shown.to_hash else former.to_hash
    strategy, started = str(recorded.workload.strategy), shown.started
    if former is not None and _truncate_to_second(former.started) == started:
        # Both began in the same second, which the status cannot distinguish: the order of the rows does.
        started = former.started + timedelta(milliseconds=1)
    rollout, is_new = Rollout.objects.get_or_create(
        cluster=recorded.cluster,
        workload_uid=recorded.uid,
        to_hash=shown.to_hash,
        started=started,
        defaults={
            "namespace": recorded.namespace,
            "name": recorded.name,
            "from_hash": from_hash,
            "strategy": strategy,
            "observed_at": started,
        },
    )
    if is_new:
        begins = messages.UPDATE_STARTED.format(name=recorded.name, current=shown.to_hash, strategy=strategy)
        text = begins if former is not None else f"{recorded.name} is deployed with {shown.to_hash}."
        _add_steps(rollout, [Step(reason="UpdateStarted", component=recorded.name, text=text)], started)
        was_there = _ensure_revision(recorded, shown)
        for other in _rollouts(recorded).filter(ended=None).exclude(pk=rollout.pk):
            outcome = Outcome.ROLLED_BACK if was_there and other.to_hash != shown.to_hash else Outcome.SUPERSEDED
            _end_rollout(other, outcome, shown.started, f"It is superseded by an update to {shown.to_hash}.")
        end_open_rollouts(
            recorded.cluster, recorded.namespace, recorded.name, shown.started.timestamp(), but=recorded.uid
        )
        kept = _rollouts(recorded).order_by("-started", "-id").values_list("pk", flat=True)[:ROLLOUTS_KEPT]
        _rollouts(recorded).exclude(pk__in=[*kept]).delete()
    return rollout


def _update_rollout(rollout: Rollout, shown: _RolloutStatus, now: float) -> bool:
    """Update the row to what the status shows; return whether anything has changed."""
    if rollout.ended is not None:
        return False
    if shown.ended is not None:
        text = messages.UPDATE_ENDED.format(name=rollout.name, current=rollout.to_hash)
        # The status has whole seconds; within that second the clock of the pass is more exact.
        is_now = 0 <= now - shown.ended.timestamp() < 1
        return _end_rollout(rollout, Outcome.COMPLETE, _to_datetime(now) if is_now else shown.ended, text)
    if shown.is_stuck == (rollout.outcome == Outcome.STUCK):
        return False
    at = shown.stuck_changed or _to_datetime(now)
    values = {**_render_durations(rollout, at), "outcome": Outcome.STUCK if shown.is_stuck else ""}
    if not _update_if_open(rollout, values):
        return False
    step = Step(reason="UpdateStuck", component=rollout.name, text=shown.stuck_message)
    if not shown.is_stuck:
        step = Step(
            reason="UpdateMoves", component=rollout.name, text=f"The update of {rollout.name} makes progress again."
        )
    _add_steps(rollout, [step], at)
    return True


def _end_rollout(rollout: Rollout, outcome: str, at: datetime, text: str) -> bool:
    """End a rollout that is still open."""
    at = max(at, rollout.started)
    if not _update_if_open(rollout, {**_render_durations(rollout, at), "outcome": outcome, "ended": at}):
        return False
    reason = {Outcome.COMPLETE: "UpdateEnded", Outcome.DELETED: "Deleted"}.get(Outcome(outcome), "UpdateSuperseded")
    _add_steps(rollout, [Step(reason=reason, component=rollout.name, text=text)], at)
    seconds = (rollout.progressing_seconds, rollout.waiting_seconds)
    transaction.on_commit(partial(metrics.observe_rollout, rollout.strategy, str(outcome), *seconds))
    return True


def compute_durations(rollout: Rollout, until: datetime) -> tuple[float, float]:
    """Return for how many seconds it has made progress and been stuck, until a given time."""
    seconds = max(0.0, (until - (rollout.observed_at or rollout.started)).total_seconds())
    if rollout.outcome == Outcome.STUCK:
        return rollout.progressing_seconds, rollout.waiting_seconds + seconds
    return rollout.progressing_seconds + seconds, rollout.waiting_seconds


def _render_durations(rollout: Rollout, until: datetime) -> dict[str, Any]:
    """Return the columns of the durations, until a given time."""
    progressing, waiting = compute_durations(rollout, until)
    since = rollout.observed_at or rollout.started
    return {"progressing_seconds": progressing, "waiting_seconds": waiting, "observed_at": max(until, since)}


def _update_if_open(rollout: Rollout, values: Mapping[str, Any]) -> bool:
    """Update an open row that has not changed since it was read."""
    if not Rollout.objects.filter(pk=rollout.pk, ended=None, outcome=rollout.outcome).update(**values):
        return False
    for name, value in values.items():
        setattr(rollout, name, value)
    return True


# ---- revisions


def _ensure_revision(recorded: RecordedWorkload, shown: _RolloutStatus) -> bool:
    """Store the template of a new rollout's hash; return whether it is a return to an earlier revision."""
    if compute_generation_hash(recorded.workload) != shown.to_hash:
        return False  # the template has changed since, so that of the hash is lost
    theirs = Revision.objects.filter(cluster=recorded.cluster, workload_uid=recorded.uid)
    last = theirs.aggregate(last=Max("number"))["last"] or 0
    former = theirs.filter(generation_hash=shown.to_hash).first()
    if former is not None:
        if former.number < last:
            theirs.filter(pk=former.pk).update(number=last + 1, template=_without_nul(recorded.template))
        return former.number < last
    Revision.objects.create(
        cluster=recorded.cluster,
        namespace=recorded.namespace,
        name=recorded.name,
        workload_uid=recorded.uid,
        number=last + 1,
        generation_hash=shown.to_hash,
        template=_without_nul(recorded.template),
        created=shown.started,
    )
    theirs.filter(number__lte=last + 1 - REVISIONS_KEPT).delete()
    return False


def _without_nul(template: Mapping[str, Any]) -> Any:
    """Return a template without NUL characters, which PostgreSQL does not accept, not even in JSON."""
    text = orjson.dumps(template)
    return orjson.loads(text.replace(rb"\u0000", b"")) if rb"\u0000" in text else template


# ---- steps


def _make_steps(plan: Plan, events: Sequence[TimelineEvent]) -> list[Step]:
    """Return the steps of a plan; many of one reason become one step."""
    made = _created_pods(plan)
    numbers = Counter(event.reason for event in events)
    steps = [
        Step(
            reason=one.reason,
            component=one.component,
            text=one.text,
            fingerprint=_fingerprint(one.reason, one.component, one.text, *made.get(one.component, ())),
        )
        for one in events
        if numbers[one.reason] <= MAX_ALIKE_STEPS
    ]
    return [*steps, *_merge_alike([one for one in events if numbers[one.reason] > MAX_ALIKE_STEPS])]


def _merge_alike(events: Sequence[TimelineEvent]) -> Iterator[Step]:
    by_reason: dict[str, list[TimelineEvent]] = {}
    for event in events:
        by_reason.setdefault(event.reason, []).append(event)
    for reason, alike in by_reason.items():
        text = f"{alike[0].text} {len(alike) - 1} more like it."
        fingerprint = _fingerprint(reason, *(event.text for event in alike))
        yield Step(reason=reason, component=alike[0].component, text=text, count=len(alike), fingerprint=fingerprint)


def _created_pods(plan: Plan) -> dict[str, list[str]]:
    """Return the names of the pods that a plan creates, by PodClique: they distinguish two creations."""
    made: dict[str, list[str]] = {}
    for action in plan.actions:
        if isinstance(action, Create) and action.kind is Kind.POD:
            metadata = action.manifest["metadata"]
            made.setdefault(metadata["labels"][names.CLIQUE], []).append(metadata["name"])
    return made


def _add_steps(rollout: Rollout, steps: Sequence[Step], at: datetime) -> None:
    """Add steps to a timeline; one that exists already is counted, unless a repeated pass has made it again."""
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
    """Count further steps of a long timeline by reason."""
    for reason, number in Counter(step.reason for step in steps).items():
        fingerprint = _fingerprint(reason, "further ones")
        last = next(step for step in reversed(steps) if step.reason == reason)
        further, is_new = Step.objects.get_or_create(
            rollout=rollout,
            fingerprint=fingerprint,
            defaults={"reason": reason, "component": last.component, "text": last.text, "at": at, "count": number},
        )
        if not is_new:
            changes = {"text": last.text, "component": last.component, "at": at}
            Step.objects.filter(pk=further.pk).update(count=F("count") + number, **changes)


def _fingerprint(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


def _to_datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _truncate_to_second(at: datetime) -> datetime:
    return at.replace(microsecond=0)


# ---- the statements of almost every pass, written by hand: to have Django build them each time takes longer


def _fetch_newest(recorded: RecordedWorkload) -> Rollout | None:
    statement = (
        "SELECT * FROM rollouts_rollout WHERE cluster = %s AND namespace = %s AND name = %s AND workload_uid = %s"
        " ORDER BY started DESC, id DESC LIMIT 1"
    )
    found = Rollout.objects.raw(statement, [recorded.cluster, recorded.namespace, recorded.name, recorded.uid])
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


def _fetch_known_steps(rollout: Rollout, fingerprints: Sequence[str]) -> dict[str, Step]:
    places = ", ".join(["%s"] * len(fingerprints))
    statement = f"SELECT * FROM rollouts_step WHERE rollout_id = %s AND fingerprint IN ({places})"  # noqa: S608
    return {step.fingerprint: step for step in Step.objects.raw(statement, [rollout.pk, *fingerprints])}


def _fetch_step_count(rollout: Rollout) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM rollouts_step WHERE rollout_id = %s", [rollout.pk])
        number: int = cursor.fetchone()[0]
        return number
