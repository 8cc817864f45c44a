"""Stored rollouts, their timelines, and the samples for charts.

The history stays when a workload is deleted; it is shown as long as its cluster is configured.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from django.db.models import QuerySet

from rollouts.accounts.commands import WorkloadRef
from rollouts.accounts.errors import NotFound
from rollouts.controller.history import compute_durations
from rollouts.models import Revision, Rollout, Sample, Step
from rollouts.runtime.connections import configured_cluster_names
from rollouts.selectors.paging import Page, Window, read_page
from rollouts.selectors.revisions import RevisionNumbers
from rollouts.selectors.timestamps import to_datetime
from rollouts.selectors.workload_snapshot import find_cluster, find_workload

UNDER_WAY = "UnderWay"


@dataclass(frozen=True, slots=True)
class RolloutSummary:
    """A rollout in a list."""

    id: int
    cluster: str
    namespace: str
    name: str
    workload_uid: str
    from_hash: str  # empty: the first rollout
    to_hash: str
    from_revision: int | None  # None: it is no longer stored
    to_revision: int | None
    strategy: str
    started: datetime
    ended: datetime | None
    outcome: str  # empty while it is in progress; Stuck is not an end
    progressing_seconds: float
    waiting_seconds: float


@dataclass(frozen=True, slots=True)
class SamplePoint:
    """The counts of pods at a time."""

    at: datetime
    desired: int
    available: int  # surge included
    updated: int  # available pods of the new template in desired positions
    surge: int  # pods beyond the desired positions, available or not
    floor: int  # the update keeps at least so many available


@dataclass(frozen=True, slots=True)
class RolloutDetail(RolloutSummary):
    """A rollout with the samples of its chart."""

    samples: tuple[SamplePoint, ...]


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """An event of a rollout."""

    id: int
    rollout: int
    at: datetime
    reason: str
    component: str
    text: str
    count: int  # how often it happened


def workload_rollouts(place: WorkloadRef, outcomes: tuple[str, ...], window: Window) -> Page[RolloutSummary]:
    """Return the rollouts of a workload, the newest first, also of a deleted one; raises NotFound if it has none.

    `outcomes` selects rollouts by their end; UNDER_WAY selects those in progress.
    """
    rows = Rollout.objects.filter(cluster__in=configured_cluster_names())
    rows = rows.filter(cluster=place.cluster, namespace=place.namespace, name=place.name)
    if outcomes:
        rows = rows.filter(outcome__in=["" if word == UNDER_WAY else word for word in outcomes])
    page = read_page(rows.order_by("-started", "-id"), window)
    if not page.count:
        _require_known(place)
    return Page(_summaries(page.items), page.count, window)


def rollout_detail(place: WorkloadRef, number: int) -> RolloutDetail:
    """Return one rollout of a workload with its chart; raises NotFound."""
    row = _find(place, number)
    (summary,) = _summaries([row])
    samples = Sample.objects.filter(rollout=row).order_by("at", "id")
    columns = ("at", "desired", "available", "updated", "surge", "floor")
    points = tuple(_clamp_counts(SamplePoint(*point)) for point in samples.values_list(*columns))
    return RolloutDetail(**{name: getattr(summary, name) for name in RolloutSummary.__slots__}, samples=points)


def newest_rollout(place: WorkloadRef, uid: str, numbers: RevisionNumbers) -> RolloutSummary | None:
    """Return the current or last rollout of a workload."""
    rows = Rollout.objects.filter(cluster=place.cluster, namespace=place.namespace, name=place.name, workload_uid=uid)
    newest = rows.order_by("-started", "-id").first()
    if newest is None:
        return None
    known = {word: numbers.of_generation(word) for word in (newest.from_hash, newest.to_hash)}
    return _summary(newest, known)


def rollout_timeline(place: WorkloadRef, number: int, window: Window) -> Page[TimelineEntry]:
    """Return the events of a rollout, in order; raises NotFound."""
    row = _find(place, number)
    return _timeline(Step.objects.filter(rollout=row).order_by("at", "id"), window)


def workload_timeline(place: WorkloadRef, window: Window) -> Page[TimelineEntry]:
    """Return the events of all rollouts of a workload, the newest first; raises NotFound."""
    find_cluster(place.cluster)
    steps = Step.objects.filter(
        rollout__cluster=place.cluster, rollout__namespace=place.namespace, rollout__name=place.name
    )
    page = _timeline(steps.order_by("-at", "-id"), window)
    if not page.count:
        _require_known(place)
    return page


def _timeline(steps: "QuerySet[Step]", window: Window) -> Page[TimelineEntry]:
    columns = ("id", "rollout_id", "at", "reason", "component", "text", "count")
    page = read_page(steps.values_list(*columns), window)
    return Page([TimelineEntry(*entry) for entry in page.items], page.count, window)


def _clamp_counts(point: SamplePoint) -> SamplePoint:
    """Return the counts of a sample; rows of older releases count surge and unavailable pods as updated."""
    return replace(point, updated=min(point.updated, point.available, point.desired))


def _find(place: WorkloadRef, number: int) -> Rollout:
    find_cluster(place.cluster)
    whose = {"cluster": place.cluster, "namespace": place.namespace, "name": place.name}
    row = Rollout.objects.filter(pk=number, **whose).first()
    if row is None:
        raise NotFound(f"{place.name} has no rollout {number}; the oldest rollouts are deleted after a while.")
    return row


def _require_known(place: WorkloadRef) -> None:
    """Raise NotFound for a workload that neither exists nor has a history; called when nothing was found."""
    find_cluster(place.cluster)
    if not Rollout.objects.filter(cluster=place.cluster, namespace=place.namespace, name=place.name).exists():
        find_workload(place)


def _summaries(rows: Iterable[Rollout]) -> list[RolloutSummary]:
    listed = list(rows)
    found = Revision.objects.filter(workload_uid__in={row.workload_uid for row in listed})
    by_workload: dict[tuple[str, str], dict[str, int | None]] = {}
    for cluster, uid, generation_hash, number in found.values_list(
        "cluster", "workload_uid", "generation_hash", "number"
    ):
        by_workload.setdefault((cluster, uid), {})[generation_hash] = number
    return [_summary(row, by_workload.get((row.cluster, row.workload_uid), {})) for row in listed]


def _summary(row: Rollout, numbers: Mapping[str, int | None]) -> RolloutSummary:
    progressing, waiting = compute_durations(row, row.ended or to_datetime(time.time()))
    return RolloutSummary(
        id=row.pk,
        cluster=row.cluster,
        namespace=row.namespace,
        name=row.name,
        workload_uid=row.workload_uid,
        from_hash=row.from_hash,
        to_hash=row.to_hash,
        from_revision=numbers.get(row.from_hash),
        to_revision=numbers.get(row.to_hash),
        strategy=row.strategy,
        started=row.started,
        ended=row.ended,
        outcome=row.outcome,
        progressing_seconds=round(progressing, 3),
        waiting_seconds=round(waiting, 3),
    )
