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
from rollouts.controller.pod_counts import PodsPerReplica, ScaledComponent, count_scaled_pods
from rollouts.engine.model.names import group_name
from rollouts.engine.model.observed import TERMINAL_PHASES
from rollouts.selectors.pod_totals import list_pods_per_replica
from rollouts.selectors.revisions import list_template_hashes
from rollouts.selectors.template_age import TemplateAge
from rollouts.selectors.workloads import WorkloadSummary

_WorkloadKey: TypeAlias = tuple[str, str, str]  # cluster, namespace, name


@dataclass(frozen=True, slots=True)
class RowPodCounts:
    """How many pods of a workload there are, of what kind; those that are leaving are not counted."""

    desired: int
    available: int  # surge included
    updated: int  # of the desired ones: available, on the current template
    available_outdated: int  # of the desired ones: available, on another template
    outdated: int  # on another template, available or not, surge included
    surge: int  # there beyond what is desired, available or not

    @property
    def available_desired(self) -> int:
        """How many serve that are no surge."""
        return self.updated + self.available_outdated

    @property
    def surge_available(self) -> int:
        """How many serve that are surge."""
        return self.available - self.available_desired

    @property
    def bar_length(self) -> int:
        """What a bar is as long as."""
        return max(self.desired + self.surge, self.available, 1)


@dataclass(frozen=True, slots=True)
class TemplateInUse:
    """A revision that pods of a workload run."""

    generation_hash: str  # empty: not on record
    revision: int | None
    age: TemplateAge
    pods: int


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """A workload as a line of the list."""

    workload: WorkloadSummary
    pods: RowPodCounts
    templates: tuple[TemplateInUse, ...]  # the current one first

    @property
    def since(self) -> datetime:
        """Since when it is as it is: under way, complete, or there."""
        one = self.workload
        return one.update_ended_at or one.update_started_at or one.created


def workload_rows(workloads: Sequence[WorkloadSummary]) -> list[WorkloadRow]:
    """Return the lines of these workloads, in their order."""
    workload_pods_by_key = _read_workload_pods(workloads)
    records = _read_revision_indexes(workloads)
    return [_make_row(one, workload_pods_by_key[_workload_key(one)], records[one.uid]) for one in workloads]


# ---- what is read


@dataclass(frozen=True, slots=True)
class _Clique:
    """What counting needs to know of a clique."""

    uid: str
    template: str  # its name in the template
    template_hash: str  # what it promises
    wanted: int
    is_extra: bool  # the replica that it is in is surge, and so all of it


class _PodKind(NamedTuple):
    """Pods that are alike."""

    clique: str
    template_hash: str
    ready: bool
    is_beyond: bool  # their indices are beyond what their clique is to have


@dataclass(slots=True)
class _WorkloadPods:
    """What there is of one workload."""

    name: str
    replicas: int  # that it is to have
    pods_per_replica: PodsPerReplica | None  # None: its manifest cannot be read
    cliques: dict[str, _Clique] = field(default_factory=dict)  # by name
    groups: dict[str, int] = field(default_factory=dict)  # what scaling groups are scaled to, by name
    scaled: list[ScaledComponent] = field(default_factory=list)
    pods: Counter[_PodKind] = field(default_factory=Counter)  # how many

    def is_extra(self, replica: int, group: str, group_replica: int) -> bool:
        """Whether a replica of the set, or of one of its groups, is surge."""
        return replica >= self.replicas or (group != "" and group_replica >= self._count_parts(replica, group))

    def _count_parts(self, replica: int, group: str) -> int:
        """Return how many replicas a group is to have: by the template where it is gone while it is recreated."""
        component = group.removeprefix(group_name(self.name, replica, ""))
        return self.groups.get(group, (self.pods_per_replica or {}).get(component, (0, 0))[0])


@dataclass(slots=True)
class _RevisionIndex:
    """The revisions of one workload: by number its generation hash, and the template hash of each clique."""

    revisions: dict[int, tuple[str, Mapping[str, str]]] = field(default_factory=dict)


def _workload_key(workload: WorkloadSummary) -> _WorkloadKey:
    return workload.cluster, workload.namespace, workload.name


def _read_workload_pods(workloads: Sequence[WorkloadSummary]) -> Mapping[_WorkloadKey, _WorkloadPods]:
    makeups = list_pods_per_replica(workloads)
    workload_pods_by_key = {
        _workload_key(one): _WorkloadPods(one.name, one.replicas, makeups.get(one.uid)) for one in workloads
    }
    for workload_pods, name, *scaled in _rows(
        workload_pods_by_key, models.ScalingGroup, "name", "template", "replica", "replicas"
    ):
        workload_pods.groups[name] = scaled[-1]
        workload_pods.scaled.append(tuple(scaled))
    columns = ("name", "uid", "template", "template_hash", "replica", "group", "group_replica", "replicas")
    for workload_pods, name, uid, template, template_hash, *where, wanted in _rows(
        workload_pods_by_key, models.Clique, *columns
    ):
        workload_pods.cliques[name] = _Clique(uid, template, template_hash, wanted, workload_pods.is_extra(*where))
        replica, group, _ = where
        if not group:
            workload_pods.scaled.append((template, replica, wanted))
    for workload_pods, owner, *sort, number in _with_workload_pods(
        workload_pods_by_key, _count_pods(workload_pods_by_key)
    ):
        clique = workload_pods.cliques.get(sort[0])
        # What an earlier PodClique of that name has left is about to go.
        if clique is not None and clique.uid == owner:
            workload_pods.pods[_PodKind(*sort)] += number
    return workload_pods_by_key


_KEY_COLUMNS: Final = ("cluster__name", "namespace", "workload")


def _rows(
    workload_pods_by_key: Mapping[_WorkloadKey, _WorkloadPods], model: Any, *columns: str
) -> Iterator[tuple[Any, ...]]:
    return _with_workload_pods(
        workload_pods_by_key, _filter_by_workload(model, workload_pods_by_key).values_list(*_KEY_COLUMNS, *columns)
    )


def _with_workload_pods(
    workload_pods_by_key: Mapping[_WorkloadKey, _WorkloadPods], rows: Iterable[tuple[Any, ...]]
) -> Iterator[tuple[Any, ...]]:
    """Yield each row with the crowd that it belongs to in the place of the workload's name."""
    for cluster, namespace, workload, *rest in rows:
        workload_pods = workload_pods_by_key.get((cluster, namespace, workload))
        if workload_pods is not None:
            yield workload_pods, *rest


def _filter_by_workload(model: Any, places: Iterable[_WorkloadKey]) -> Any:
    """Return what belongs to any of the workloads, and perhaps to some of the same name elsewhere."""
    known = [*places]
    clusters, namespaces, names = (set(part) for part in zip(*known, strict=True)) if known else ((), (), ())
    return model.objects.filter(cluster__name__in=clusters, namespace__in=namespaces, workload__in=names).order_by()


def _count_pods(workload_pods_by_key: Mapping[_WorkloadKey, _WorkloadPods]) -> Any:
    clique = models.Clique.objects.filter(
        cluster=OuterRef("cluster"), namespace=OuterRef("namespace"), name=OuterRef("clique")
    )
    rows = (
        _filter_by_workload(models.Pod, workload_pods_by_key).filter(leaving=False).exclude(phase__in=TERMINAL_PHASES)
    )
    rows = rows.annotate(is_beyond=GreaterThanOrEqual(F("index"), Subquery(clique.values("replicas"))))
    return rows.values_list(*_KEY_COLUMNS, "owner_uid", *_PodKind._fields).annotate(number=Count("id"))


def _read_revision_indexes(workloads: Sequence[WorkloadSummary]) -> Mapping[str, _RevisionIndex]:
    records: defaultdict[str, _RevisionIndex] = defaultdict(_RevisionIndex)
    rows = models.Revision.objects.filter(workload_uid__in=[one.uid for one in workloads]).order_by("number")
    known = list(rows.values_list("id", "workload_uid", "number", "generation_hash"))
    hashes = list_template_hashes([(row, generation) for row, _, _, generation in known])
    for row, uid, number, generation in known:
        records[uid].revisions[number] = (generation, hashes.get((row, generation), {}))
    return records


# ---- what is made of it

_CURRENT: Final = 0  # stands for the current revision, whatever its number
_UNKNOWN: Final = -1  # for one that is not on record; both come before all that are


def _make_row(workload: WorkloadSummary, workload_pods: _WorkloadPods, record: _RevisionIndex) -> WorkloadRow:
    find = _make_revision_finder(workload, workload_pods, record)
    revisions = {sort: find(sort.clique, sort.template_hash) for sort in workload_pods.pods}
    by_revision: Counter[int] = Counter()
    for sort, number in revisions.items():
        by_revision[number] += workload_pods.pods[sort]
    figures = _count(workload, workload_pods, {sort for sort, number in revisions.items() if number == _CURRENT})
    return WorkloadRow(workload, figures, _templates(workload, record, by_revision))


def _count(workload: WorkloadSummary, workload_pods: _WorkloadPods, current: Set[_PodKind]) -> RowPodCounts:
    complete = _find_complete(workload, workload_pods, current)
    available = updated = behind = surge = 0
    for sort, pods in workload_pods.pods.items():
        available += pods if sort.ready else 0
        if workload_pods.cliques[sort.clique].is_extra or (sort.is_beyond and sort.clique not in complete):
            surge += pods
        elif sort.ready and sort in current:
            updated += pods
        elif sort.ready:
            behind += pods
    outdated = sum(pods for sort, pods in workload_pods.pods.items() if sort not in current)
    return RowPodCounts(_count_desired(workload_pods), available, updated, behind, outdated, surge)


def _count_desired(workload_pods: _WorkloadPods) -> int:
    if workload_pods.pods_per_replica is not None:
        return count_scaled_pods(workload_pods.replicas, workload_pods.pods_per_replica, workload_pods.scaled)
    # Of a manifest that cannot be read, what was made of an earlier one.
    return sum(one.wanted for one in workload_pods.cliques.values() if not one.is_extra)


def _find_complete(workload: WorkloadSummary, workload_pods: _WorkloadPods, current: Set[_PodKind]) -> Set[str]:
    """Return the cliques that have just what they want, all of it available and current: they have no surge.

    Scaling in may have left the pods 0 and 2. While an update is under way, pod 2 stands in for one that is replaced.
    """
    if workload.update_started_at is not None and workload.update_ended_at is None:
        return frozenset()
    there: Counter[str] = Counter()
    good: Counter[str] = Counter()
    for sort, pods in workload_pods.pods.items():
        there[sort.clique] += pods
        good[sort.clique] += pods if sort.ready and sort in current else 0
    return {name for name, one in workload_pods.cliques.items() if there[name] == good[name] == one.wanted}


def _make_revision_finder(
    workload: WorkloadSummary, workload_pods: _WorkloadPods, record: _RevisionIndex
) -> Callable[[str, str], int]:
    """Return what says which revision a pod of a clique with a template hash is of."""
    numbers: dict[tuple[str, str], int] = {}
    current: Mapping[str, str] | None = None
    for number, (generation, hashes) in record.revisions.items():
        numbers |= dict.fromkeys(hashes.items(), number)
        if generation == workload.generation_hash:
            current = hashes

    def find(clique: str, template_hash: str) -> int:
        known = workload_pods.cliques[clique]
        # Until the current revision is on record, what the clique promises is the best that is known.
        newest = known.template_hash if current is None else current.get(known.template)
        return _CURRENT if template_hash == newest else numbers.get((known.template, template_hash), _UNKNOWN)

    return find


def _templates(
    workload: WorkloadSummary, record: _RevisionIndex, by_revision: Mapping[int, int]
) -> tuple[TemplateInUse, ...]:
    known = {generation: number for number, (generation, _) in record.revisions.items()}
    now = workload.generation_hash
    found = [TemplateInUse(now, known.get(now), TemplateAge.CURRENT, by_revision.get(_CURRENT, 0))] if now else []
    others = sorted((number for number in by_revision if number > _CURRENT), reverse=True)
    for rank, number in enumerate(others):
        age = TemplateAge.OLDER if rank else TemplateAge.PREVIOUS
        found.append(TemplateInUse(record.revisions[number][0], number, age, by_revision[number]))
    if _UNKNOWN in by_revision:
        found.append(TemplateInUse("", None, TemplateAge.OLDER, by_revision[_UNKNOWN]))
    return tuple(found)
