"""Workloads as lines of the dashboard's list: what `workloads` tells of each, with its pods and their templates.

Pods are counted and not looked at one by one: a line says how many are desired, how many serve, how many of the desired
ones are updated, and which templates the others run. For all lines of a page together this costs four queries, and one
more each when a revision or a generation is met for the first time.

The numbers are those of `pod_counts`, which counts one workload: surge is what is there beyond what is desired, at any
of the three levels, and no part of what is updated; pods that are leaving do not count, nor do those whose PodClique is
gone, which will follow it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

from django.db.models import Count, F, OuterRef, Subquery
from django.db.models.lookups import GreaterThanOrEqual

from rollouts import models
from rollouts.controller.pod_counts import Makeup, Scaled, count_scaled
from rollouts.engine.model.names import group_name
from rollouts.engine.model.observed import ENDED
from rollouts.selectors.pod_totals import makeups_of
from rollouts.selectors.revisions import template_hashes_of
from rollouts.selectors.template_age import Age
from rollouts.selectors.workloads import WorkloadSummary

_Place: TypeAlias = tuple[str, str, str]  # cluster, namespace, name


@dataclass(frozen=True, slots=True)
class PodFigures:
    """How many pods of a workload there are, of what kind; those that are leaving are not counted."""

    desired: int
    available: int  # surge included
    updated: int  # of the desired ones: available, on the current template
    behind: int  # of the desired ones: available, on another template
    outdated: int  # on another template, available or not, surge included
    surge: int  # there beyond what is desired, available or not

    @property
    def usual(self) -> int:
        """How many serve that are no surge."""
        return self.updated + self.behind

    @property
    def surge_available(self) -> int:
        """How many serve that are surge."""
        return self.available - self.usual

    @property
    def shown(self) -> int:
        """What a bar is as long as."""
        return max(self.desired + self.surge, self.available, 1)


@dataclass(frozen=True, slots=True)
class TemplateInUse:
    """A revision that pods of a workload run."""

    generation_hash: str  # empty: not on record
    revision: int | None
    age: Age
    pods: int


@dataclass(frozen=True, slots=True)
class WorkloadLine:
    """A workload as a line of the list."""

    workload: WorkloadSummary
    pods: PodFigures
    templates: tuple[TemplateInUse, ...]  # the current one first

    @property
    def since(self) -> datetime:
        """Since when it is as it is: under way, complete, or there."""
        one = self.workload
        return one.update_ended_at or one.update_started_at or one.created


def workload_lines(workloads: Sequence[WorkloadSummary]) -> list[WorkloadLine]:
    """Return the lines of these workloads, in their order."""
    crowds = _read_crowds(workloads)
    records = _read_records(workloads)
    return [_line(one, crowds[_place(one)], records[one.uid]) for one in workloads]


# ---- what is read


@dataclass(frozen=True, slots=True)
class _Clique:
    """What counting needs to know of a clique."""

    uid: str
    template: str  # its name in the template
    template_hash: str  # what it promises
    wanted: int
    is_extra: bool  # the replica that it is in is surge, and so all of it


class _Sort(NamedTuple):
    """Pods that are alike."""

    clique: str
    template_hash: str
    ready: bool
    is_beyond: bool  # their indices are beyond what their clique is to have


@dataclass(slots=True)
class _Crowd:
    """What there is of one workload."""

    name: str
    replicas: int  # that it is to have
    makeup: Makeup | None  # None: its manifest cannot be read
    cliques: dict[str, _Clique] = field(default_factory=dict)  # by name
    groups: dict[str, int] = field(default_factory=dict)  # what scaling groups are scaled to, by name
    scaled: list[Scaled] = field(default_factory=list)
    pods: Counter[_Sort] = field(default_factory=Counter)  # how many

    def is_extra(self, replica: int, group: str, group_replica: int) -> bool:
        """Whether a replica of the set, or of one of its groups, is surge."""
        return replica >= self.replicas or (group != "" and group_replica >= self._count_parts(replica, group))

    def _count_parts(self, replica: int, group: str) -> int:
        """Return how many replicas a group is to have: by the template where it is gone while it is recreated."""
        component = group.removeprefix(group_name(self.name, replica, ""))
        return self.groups.get(group, (self.makeup or {}).get(component, (0, 0))[0])


@dataclass(slots=True)
class _Record:
    """The revisions of one workload: by number its generation hash, and the template hash of each clique."""

    revisions: dict[int, tuple[str, Mapping[str, str]]] = field(default_factory=dict)


def _place(workload: WorkloadSummary) -> _Place:
    return workload.cluster, workload.namespace, workload.name


def _read_crowds(workloads: Sequence[WorkloadSummary]) -> Mapping[_Place, _Crowd]:
    makeups = makeups_of(workloads)
    crowds = {_place(one): _Crowd(one.name, one.replicas, makeups.get(one.uid)) for one in workloads}
    for crowd, name, *scaled in _rows(crowds, models.ScalingGroup, "name", "template", "replica", "replicas"):
        crowd.groups[name] = scaled[-1]
        crowd.scaled.append(tuple(scaled))
    columns = ("name", "uid", "template", "template_hash", "replica", "group", "group_replica", "replicas")
    for crowd, name, uid, template, template_hash, *where, wanted in _rows(crowds, models.Clique, *columns):
        crowd.cliques[name] = _Clique(uid, template, template_hash, wanted, crowd.is_extra(*where))
        replica, group, _ = where
        if not group:
            crowd.scaled.append((template, replica, wanted))
    for crowd, owner, *sort, number in _with_crowds(crowds, _count_pods(crowds)):
        clique = crowd.cliques.get(sort[0])
        # What an earlier PodClique of that name has left is about to go.
        if clique is not None and clique.uid == owner:
            crowd.pods[_Sort(*sort)] += number
    return crowds


_PLACE: Final = ("cluster__name", "namespace", "workload")


def _rows(crowds: Mapping[_Place, _Crowd], model: Any, *columns: str) -> Iterator[tuple[Any, ...]]:
    return _with_crowds(crowds, _of(model, crowds).values_list(*_PLACE, *columns))


def _with_crowds(crowds: Mapping[_Place, _Crowd], rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield each row with the crowd that it belongs to in the place of the workload's name."""
    for cluster, namespace, workload, *rest in rows:
        crowd = crowds.get((cluster, namespace, workload))
        if crowd is not None:
            yield crowd, *rest


def _of(model: Any, places: Iterable[_Place]) -> Any:
    """Return what belongs to any of the workloads, and perhaps to some of the same name elsewhere."""
    known = [*places]
    clusters, namespaces, names = (set(part) for part in zip(*known, strict=True)) if known else ((), (), ())
    return model.objects.filter(cluster__name__in=clusters, namespace__in=namespaces, workload__in=names).order_by()


def _count_pods(crowds: Mapping[_Place, _Crowd]) -> Any:
    clique = models.Clique.objects.filter(
        cluster=OuterRef("cluster"), namespace=OuterRef("namespace"), name=OuterRef("clique")
    )
    rows = _of(models.Pod, crowds).filter(leaving=False).exclude(phase__in=ENDED)
    rows = rows.annotate(is_beyond=GreaterThanOrEqual(F("index"), Subquery(clique.values("replicas"))))
    return rows.values_list(*_PLACE, "owner_uid", *_Sort._fields).annotate(number=Count("id"))


def _read_records(workloads: Sequence[WorkloadSummary]) -> Mapping[str, _Record]:
    records: defaultdict[str, _Record] = defaultdict(_Record)
    rows = models.Revision.objects.filter(workload_uid__in=[one.uid for one in workloads]).order_by("number")
    known = list(rows.values_list("id", "workload_uid", "number", "generation_hash"))
    hashes = template_hashes_of([(row, generation) for row, _, _, generation in known])
    for row, uid, number, generation in known:
        records[uid].revisions[number] = (generation, hashes.get((row, generation), {}))
    return records


# ---- what is made of it

_CURRENT: Final = 0  # stands for the current revision, whatever its number
_UNKNOWN: Final = -1  # for one that is not on record; both come before all that are


def _line(workload: WorkloadSummary, crowd: _Crowd, record: _Record) -> WorkloadLine:
    find = _finder(workload, crowd, record)
    revisions = {sort: find(sort.clique, sort.template_hash) for sort in crowd.pods}
    by_revision: Counter[int] = Counter()
    for sort, number in revisions.items():
        by_revision[number] += crowd.pods[sort]
    figures = _count(workload, crowd, {sort for sort, number in revisions.items() if number == _CURRENT})
    return WorkloadLine(workload, figures, _templates(workload, record, by_revision))


def _count(workload: WorkloadSummary, crowd: _Crowd, current: Set[_Sort]) -> PodFigures:
    complete = _find_complete(workload, crowd, current)
    available = updated = behind = surge = 0
    for sort, pods in crowd.pods.items():
        available += pods if sort.ready else 0
        if crowd.cliques[sort.clique].is_extra or (sort.is_beyond and sort.clique not in complete):
            surge += pods
        elif sort.ready and sort in current:
            updated += pods
        elif sort.ready:
            behind += pods
    outdated = sum(pods for sort, pods in crowd.pods.items() if sort not in current)
    return PodFigures(_count_desired(crowd), available, updated, behind, outdated, surge)


def _count_desired(crowd: _Crowd) -> int:
    if crowd.makeup is not None:
        return count_scaled(crowd.replicas, crowd.makeup, crowd.scaled)
    # Of a manifest that cannot be read, what was made of an earlier one.
    return sum(one.wanted for one in crowd.cliques.values() if not one.is_extra)


def _find_complete(workload: WorkloadSummary, crowd: _Crowd, current: Set[_Sort]) -> Set[str]:
    """Return the cliques that have just what they want, all of it available and current: they have no surge.

    Scaling in may have left the pods 0 and 2. While an update is under way, pod 2 stands in for one that is replaced.
    """
    if workload.update_started_at is not None and workload.update_ended_at is None:
        return frozenset()
    there: Counter[str] = Counter()
    good: Counter[str] = Counter()
    for sort, pods in crowd.pods.items():
        there[sort.clique] += pods
        good[sort.clique] += pods if sort.ready and sort in current else 0
    return {name for name, one in crowd.cliques.items() if there[name] == good[name] == one.wanted}


def _finder(workload: WorkloadSummary, crowd: _Crowd, record: _Record) -> Callable[[str, str], int]:
    """Return what says which revision a pod of a clique with a template hash is of."""
    numbers: dict[tuple[str, str], int] = {}
    current: Mapping[str, str] | None = None
    for number, (generation, hashes) in record.revisions.items():
        numbers |= dict.fromkeys(hashes.items(), number)
        if generation == workload.generation_hash:
            current = hashes

    def find(clique: str, template_hash: str) -> int:
        known = crowd.cliques[clique]
        # Until the current revision is on record, what the clique promises is the best that is known.
        newest = known.template_hash if current is None else current.get(known.template)
        return _CURRENT if template_hash == newest else numbers.get((known.template, template_hash), _UNKNOWN)

    return find


def _templates(workload: WorkloadSummary, record: _Record, by_revision: Mapping[int, int]) -> tuple[TemplateInUse, ...]:
    known = {generation: number for number, (generation, _) in record.revisions.items()}
    now = workload.generation_hash
    found = [TemplateInUse(now, known.get(now), "current", by_revision.get(_CURRENT, 0))] if now else []
    others = sorted((number for number in by_revision if number > _CURRENT), reverse=True)
    for rank, number in enumerate(others):
        age: Age = "older" if rank else "previous"
        found.append(TemplateInUse(record.revisions[number][0], number, age, by_revision[number]))
    if _UNKNOWN in by_revision:
        found.append(TemplateInUse("", None, "older", by_revision[_UNKNOWN]))
    return tuple(found)
