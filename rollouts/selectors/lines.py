"""Workloads as lines of the dashboard's list: what `workloads` tells of each, with its pods and their templates.

Pods are counted and not looked at one by one: a line says how many are wanted, how many of them serve, how many of
those run the current template, and which templates the others run. For all lines of a page together this costs four
queries, and one more when a revision is met for the first time.

Surge is what is there beyond what is wanted, at any of the three levels; as everywhere, pods that are leaving do not
count.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeAlias

from django.db.models import Count

from rollouts import models
from rollouts.selectors.ages import Age
from rollouts.selectors.revisions import template_hashes_of
from rollouts.selectors.workloads import WorkloadSummary

_Place: TypeAlias = tuple[str, str, str]  # cluster, namespace, name


@dataclass(frozen=True, slots=True)
class PodFigures:
    """How many pods of a workload there are, of what kind; those that are leaving are not counted."""

    desired: int
    available: int
    updated: int  # available, on the current template
    outdated: int  # on another template, available or not
    surge: int  # there beyond what is wanted

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
    def old_available(self) -> int:
        """How many pods serve that do not run the current template."""
        return self.pods.available - self.pods.updated

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

    template: str  # its name in the template
    template_hash: str  # what it promises
    wanted: int
    is_surge: bool  # all of it


_NO_CLIQUE: Final = _Clique("", "", 0, is_surge=False)


@dataclass(slots=True)
class _Crowd:
    """What there is of one workload."""

    cliques: dict[str, _Clique] = field(default_factory=dict)  # by name
    # How many pods, by clique, template hash and whether they serve.
    pods: Counter[tuple[str, str, bool]] = field(default_factory=Counter)


@dataclass(slots=True)
class _Record:
    """The revisions of one workload: by number its generation hash, and the template hash of each clique."""

    revisions: dict[int, tuple[str, Mapping[str, str]]] = field(default_factory=dict)


def _place(workload: WorkloadSummary) -> _Place:
    return workload.cluster, workload.namespace, workload.name


def _read_crowds(workloads: Sequence[WorkloadSummary]) -> Mapping[_Place, _Crowd]:
    replicas = {_place(one): one.replicas for one in workloads}
    crowds: defaultdict[_Place, _Crowd] = defaultdict(_Crowd)
    groups = {
        (cluster, namespace, name): wanted
        for cluster, namespace, name, wanted in _of(models.ScalingGroup, workloads).values_list(
            "cluster__name", "namespace", "name", "replicas"
        )
    }
    columns = ("name", "template", "template_hash", "replica", "group", "group_replica", "replicas")
    for cluster, namespace, workload, *rest in _of(models.Clique, workloads).values_list(*_PLACE, *columns):
        name, template, template_hash, replica, group, group_replica, wanted = rest
        is_surge = replica >= replicas.get((cluster, namespace, workload), 0) or (
            bool(group) and group_replica >= groups.get((cluster, namespace, group), 0)
        )
        crowds[cluster, namespace, workload].cliques[name] = _Clique(template, template_hash, wanted, is_surge)
    for cluster, namespace, workload, clique, template_hash, ready, number in _count_pods(workloads):
        crowds[cluster, namespace, workload].pods[clique, template_hash, ready] += number
    return crowds


_PLACE: Final = ("cluster__name", "namespace", "workload")


def _of(model: Any, workloads: Iterable[WorkloadSummary]) -> Any:
    """Return what belongs to any of the workloads, and perhaps to some of the same name elsewhere."""
    places = [_place(one) for one in workloads]
    clusters, namespaces, names = (set(part) for part in zip(*places, strict=True)) if places else ((), (), ())
    rows = model.objects.filter(cluster__name__in=clusters, namespace__in=namespaces, workload__in=names)
    return rows.filter(leaving=False).order_by()


def _count_pods(workloads: Iterable[WorkloadSummary]) -> Any:
    rows = _of(models.Pod, workloads).exclude(phase__in=("Failed", "Succeeded"))
    return rows.values_list(*_PLACE, "clique", "template_hash", "ready").annotate(number=Count("id"))


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
    by_revision: Counter[int] = Counter()
    available = updated = 0
    for (clique, template_hash, ready), pods in crowd.pods.items():
        number = find(clique, template_hash)
        by_revision[number] += pods
        available += pods if ready else 0
        updated += pods if ready and number == _CURRENT else 0
    figures = PodFigures(
        desired=sum(one.wanted for one in crowd.cliques.values() if not one.is_surge),
        available=available,
        updated=updated,
        outdated=by_revision.total() - by_revision[_CURRENT],
        surge=_count_surge(crowd),
    )
    return WorkloadLine(workload, figures, _templates(workload, record, by_revision))


def _finder(workload: WorkloadSummary, crowd: _Crowd, record: _Record) -> Callable[[str, str], int]:
    """Return what says which revision a pod of a clique with a template hash is of."""
    numbers: dict[tuple[str, str], int] = {}
    current: Mapping[str, str] | None = None
    for number, (generation, hashes) in record.revisions.items():
        numbers |= dict.fromkeys(hashes.items(), number)
        if generation == workload.generation_hash:
            current = hashes

    def find(clique: str, template_hash: str) -> int:
        known = crowd.cliques.get(clique, _NO_CLIQUE)
        # Until the current revision is on record, what the clique promises is the best that is known.
        newest = known.template_hash if current is None else current.get(known.template)
        return _CURRENT if template_hash == newest else numbers.get((known.template, template_hash), _UNKNOWN)

    return find


def _count_surge(crowd: _Crowd) -> int:
    there: Counter[str] = Counter()
    for (clique, _, _), pods in crowd.pods.items():
        there[clique] += pods
    surge = 0
    for clique, pods in there.items():
        known = crowd.cliques.get(clique)
        if known is not None:
            surge += pods if known.is_surge else max(0, pods - known.wanted)
    return surge


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
