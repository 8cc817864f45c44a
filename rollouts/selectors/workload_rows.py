"""The rows of the list of workloads: the summary of `workloads`, with counts of pods and their templates.

The database counts the pods: how many are desired, how many are available, how many of the desired pods are updated,
and which templates the others run. Its state and the reason beside it are in `workload_state`. All rows of a page
together cost four queries, and one more each for revisions and generations that are new to this process.

The numbers are equal to those of `pod_counts`, which counts one workload: surge is everything beyond the desired number
at any of the three levels (`engine.tree.surge`), and does not count as updated; terminating pods do not count, nor do
pods whose PodClique is gone, because the cluster deletes them. One exception: while a workload is updated, a gap in the
indices of a clique that this update does not change counts as surge.
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
    """Counts of the pods of a workload; terminating pods do not count."""

    desired: int
    available: int  # surge included
    updated: int  # available pods of the current template in desired positions
    available_outdated: int  # available pods of another template in desired positions
    outdated: int  # pods of another template, available or not, surge included
    surge: int  # pods beyond the desired positions, available or not

    @property
    def available_desired(self) -> int:
        """How many available pods are not surge."""
        return self.updated + self.available_outdated

    @property
    def surge_available(self) -> int:
        """How many available pods are surge."""
        return self.available - self.available_desired

    @property
    def bar_length(self) -> int:
        """The number of pods that a full bar stands for."""
        return max(self.desired + self.surge, self.available, 1)


@dataclass(frozen=True, slots=True)
class TemplateInUse:
    """A revision that pods of a workload run."""

    generation_hash: str  # empty: not stored
    revision: int | None
    age: TemplateAge
    pods: int


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """A row of the list."""

    workload: WorkloadSummary
    pods: RowPodCounts
    templates: tuple[TemplateInUse, ...]  # the current one first

    @property
    def since(self) -> datetime:
        """Since when it has its present state."""
        one = self.workload
        return one.update_ended_at or one.update_started_at or one.created


def workload_rows(workloads: Sequence[WorkloadSummary]) -> list[WorkloadRow]:
    """Return the rows of workloads, in their order."""
    workload_pods_by_key = _read_workload_pods(workloads)
    records = _read_revision_indexes(workloads)
    return [_make_row(one, workload_pods_by_key[_workload_key(one)], records[one.uid]) for one in workloads]


# ---- queries


@dataclass(frozen=True, slots=True)
class _Clique:
    """The columns of a PodClique that counting needs."""

    uid: str
    template: str  # its name in the template
    template_hash: str  # the hash on the PodClique
    wanted: int
    is_extra: bool  # its replica is surge, and so are all its pods


class _PodKind(NamedTuple):
    """Pods with equal values."""

    clique: str
    template_hash: str
    ready: bool
    is_beyond: bool  # their indices are not below the wanted number of their clique


@dataclass(slots=True)
class _WorkloadPods:
    """The objects of one workload."""

    name: str
    replicas: int  # wanted
    pods_per_replica: PodsPerReplica | None  # None: the manifest cannot be parsed
    cliques: dict[str, _Clique] = field(default_factory=dict)  # by name
    groups: dict[str, int] = field(default_factory=dict)  # the replicas of scaling groups, by name
    scaled: list[ScaledComponent] = field(default_factory=list)
    pods: Counter[_PodKind] = field(default_factory=Counter)  # how many

    def is_extra(self, replica: int, group: str, group_replica: int) -> bool:
        """Whether a replica of the set, or of one of its groups, is surge."""
        return replica >= self.replicas or (group != "" and group_replica >= self._count_parts(replica, group))

    def _count_parts(self, replica: int, group: str) -> int:
        """Return the wanted replicas of a group; while it is recreated, those of the template."""
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
        # The cluster is about to delete pods of an earlier PodClique with that name.
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
    """Yield each row with its workload in place of the key."""
    for cluster, namespace, workload, *rest in rows:
        workload_pods = workload_pods_by_key.get((cluster, namespace, workload))
        if workload_pods is not None:
            yield workload_pods, *rest


def _filter_by_workload(model: Any, places: Iterable[_WorkloadKey]) -> Any:
    """Return the objects of the workloads, and possibly of others with the same name elsewhere."""
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


# ---- rows

_CURRENT: Final = 0  # stands for the current revision, whatever its number
_UNKNOWN: Final = -1  # for a revision that is not stored; both are below every number


def _make_row(workload: WorkloadSummary, workload_pods: _WorkloadPods, record: _RevisionIndex) -> WorkloadRow:
    find = _make_revision_finder(workload, workload_pods, record)
    revisions = {sort: find(sort.clique, sort.template_hash) for sort in workload_pods.pods}
    by_revision: Counter[int] = Counter()
    for sort, number in revisions.items():
        by_revision[number] += workload_pods.pods[sort]
    figures = _count(workload, workload_pods, {sort for sort, number in revisions.items() if number == _CURRENT})
    return WorkloadRow(workload, figures, _templates(workload, record, by_revision))


def _count(workload: WorkloadSummary, workload_pods: _WorkloadPods, current: Set[_PodKind]) -> RowPodCounts:
    not_too_many = _find_cliques_without_surge(workload, workload_pods)
    available = updated = behind = surge = 0
    for sort, pods in workload_pods.pods.items():
        available += pods if sort.ready else 0
        if workload_pods.cliques[sort.clique].is_extra or (sort.is_beyond and sort.clique not in not_too_many):
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
    # Without a valid manifest, the objects of an earlier one count.
    return sum(one.wanted for one in workload_pods.cliques.values() if not one.is_extra)


def _find_cliques_without_surge(workload: WorkloadSummary, workload_pods: _WorkloadPods) -> Set[str]:
    """Return the cliques that have no more pods than they should have, whatever the indices: they have no surge.

    Scaling in may have left the pods 0 and 2. During an update, pod 2 is surge for a pod that is replaced.
    """
    if workload.update_started_at is not None and workload.update_ended_at is None:
        return frozenset()
    there: Counter[str] = Counter()
    for sort, pods in workload_pods.pods.items():
        there[sort.clique] += pods
    return {name for name, one in workload_pods.cliques.items() if there[name] <= one.wanted}


def _make_revision_finder(
    workload: WorkloadSummary, workload_pods: _WorkloadPods, record: _RevisionIndex
) -> Callable[[str, str], int]:
    """Return a function that finds the revision of a pod by its clique and template hash."""
    numbers: dict[tuple[str, str], int] = {}
    current: Mapping[str, str] | None = None
    for number, (generation, hashes) in record.revisions.items():
        numbers |= dict.fromkeys(hashes.items(), number)
        if generation == workload.generation_hash:
            current = hashes

    def find(clique: str, template_hash: str) -> int:
        known = workload_pods.cliques[clique]
        # Until the current revision is stored, the hash on the PodClique is used.
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
