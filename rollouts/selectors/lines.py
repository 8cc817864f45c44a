"""Workloads as lines of the dashboard's list: what `workloads` tells of each, with its pods and their templates.

Pods are counted and not looked at one by one: a line says how many are wanted, how many of them serve, how many of
those run the current template, and which templates the others run. For all lines of a page together this costs four
queries, and one more when a revision is met for the first time.

Surge is what is there beyond what is wanted, at any of the three levels; as everywhere, pods that are leaving do not
count.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from django.db.models import Count

from rollouts import models
from rollouts.selectors.revisions import template_hashes_of
from rollouts.selectors.workloads import WorkloadSummary

Age: TypeAlias = Literal["current", "previous", "older"]
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


@dataclass(slots=True)
class _Crowd:
    """What there is of one workload."""

    # By name: its name in the template, how many pods are wanted, and whether all of it is surge.
    cliques: dict[str, tuple[str, int, bool]] = field(default_factory=dict)
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
    columns = ("name", "template", "replica", "group", "group_replica", "replicas")
    for cluster, namespace, workload, *rest in _of(models.Clique, workloads).values_list(*_PLACE, *columns):
        name, template, replica, group, group_replica, wanted = rest
        is_surge = replica >= replicas.get((cluster, namespace, workload), 0) or (
            bool(group) and group_replica >= groups.get((cluster, namespace, group), 0)
        )
        crowds[cluster, namespace, workload].cliques[name] = (template, wanted, is_surge)
    for cluster, namespace, workload, clique, template_hash, ready, number in _count_pods(workloads):
        crowds[cluster, namespace, workload].pods[clique, template_hash, ready] += number
    return crowds


_PLACE = ("cluster__name", "namespace", "workload")


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


def _line(workload: WorkloadSummary, crowd: _Crowd, record: _Record) -> WorkloadLine:
    current = next(
        (number for number, (generation, _) in record.revisions.items() if generation == workload.generation_hash), None
    )
    numbers = {
        (clique, template_hash): number
        for number, (_, hashes) in record.revisions.items()
        for clique, template_hash in hashes.items()
    }
    # What has not changed since is of the current revision too.
    if current is not None:
        numbers |= dict.fromkeys(record.revisions[current][1].items(), current)
    by_revision: Counter[int | None] = Counter()
    available = updated = 0
    for (clique, template_hash, ready), pods in crowd.pods.items():
        template = crowd.cliques.get(clique, ("", 0, False))[0]
        number = numbers.get((template, template_hash))
        by_revision[number] += pods
        available += pods if ready else 0
        updated += pods if ready and number == current else 0
    figures = PodFigures(
        desired=sum(wanted for _, wanted, is_surge in crowd.cliques.values() if not is_surge),
        available=available,
        updated=updated,
        outdated=sum(pods for number, pods in by_revision.items() if number != current),
        surge=_count_surge(crowd),
    )
    return WorkloadLine(workload, figures, _templates(workload, record, by_revision, current))


def _count_surge(crowd: _Crowd) -> int:
    there: Counter[str] = Counter()
    for (clique, _, _), pods in crowd.pods.items():
        there[clique] += pods
    return sum(
        number if is_surge else max(0, number - wanted)
        for clique, number in there.items()
        for _, wanted, is_surge in (crowd.cliques.get(clique, ("", number, False)),)
    )


def _templates(
    workload: WorkloadSummary, record: _Record, by_revision: Mapping[int | None, int], current: int | None
) -> tuple[TemplateInUse, ...]:
    others = sorted((number for number in by_revision if number is not None and number != current), reverse=True)
    found = [TemplateInUse(workload.generation_hash, current, "current", by_revision.get(current, 0))]
    for rank, number in enumerate(others):
        age: Age = "older" if rank else "previous"
        found.append(TemplateInUse(record.revisions[number][0], number, age, by_revision[number]))
    if current is not None and None in by_revision:
        found.append(TemplateInUse("", None, "older", by_revision[None]))
    return tuple(found if workload.generation_hash else found[1:])
