"""How many pods a workload has, should have and may not fall below: the numbers that charts are drawn from.

Pure, from the same values that a pass plans with; `history` keeps the numbers over time. Counted in pods at every
level, so that the three levels can be seen in one picture.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rollouts.engine.budget import resolve_budget
from rollouts.engine.hashing import compute_template_hash
from rollouts.engine.names import clique_name, group_name
from rollouts.engine.observed import Observed
from rollouts.engine.workload import Strategy, Workload


@dataclass(frozen=True, slots=True)
class Counts:
    """How many pods a workload has at a moment."""

    desired: int
    available: int
    updated: int  # of the current template, and not leaving
    surge: int  # beyond the places that are desired
    floor: int  # fewer may not be available because of an update


def count_pods(workload: Workload, observed: Observed) -> Counts:
    """Count the pods of a workload as it is observed."""
    hashes = {clique.name: compute_template_hash(clique, workload.priority_class) for clique in workload.cliques}
    groups = {group.name: group.replicas for group in observed.groups}
    # For each PodClique: how many of its pods are no surge, and the hash of its current template.
    known: dict[str, tuple[int, str | None]] = {}
    for clique in observed.cliques:
        is_extra = clique.replica >= workload.replicas or (
            clique.group != "" and clique.group_replica >= groups.get(clique.group, 0)
        )
        known[clique.name] = (0 if is_extra else clique.replicas, hashes.get(clique.template))
    live = [(pod, *known[pod.clique]) for pod in observed.pods if not pod.leaving and pod.clique in known]
    sizes = _measure(workload, observed)
    desired = sum(size.pods for size in sizes)
    return Counts(
        desired=desired,
        available=sum(pod.ready for pod, _, _ in live),
        updated=sum(pod.template_hash == current for pod, _, current in live),
        surge=sum(pod.index >= places for pod, places, _ in live),
        floor=max(0, desired - _allowance(workload, sizes)),
    )


def count_desired(workload: Workload, observed: Observed, renewed: Collection[str] = ()) -> int:
    """Count the pods that are desired, in time that does not grow with the numbers in the manifest.

    Live components count by what they are scaled to, but for the renewed ones, in which the template's number is put in
    force.
    """
    each = {clique.name: clique.replicas for clique in workload.cliques}
    members = {name for group in workload.groups for name in group.clique_names}
    # By component: its replicas in the template, and how many pods a replica of it has.
    known = {one.name: (one.replicas, 1) for one in workload.cliques if one.name not in members}
    known |= {one.name: (one.replicas, sum(each[name] for name in one.clique_names)) for one in workload.groups}
    scaled = [
        *((one.template, one.replica, one.replicas) for one in observed.cliques if not one.group),
        *((one.template, one.replica, one.replicas) for one in observed.groups),
    ]
    return workload.replicas * sum(replicas * pods for replicas, pods in known.values()) + sum(
        (live - known[component][0]) * known[component][1]
        for component, replica, live in scaled
        if replica < workload.replicas and component in known and component not in renewed
    )


@dataclass(frozen=True, slots=True)
class _Size:
    """One replica of the set, in pods."""

    pods: int
    may_miss: int  # while its components are updated


def _measure(workload: Workload, observed: Observed) -> list[_Size]:
    """Measure each wanted replica: by what its components are scaled to, and by the template where they are not yet."""
    cliques = {clique.name: clique.replicas for clique in observed.cliques}
    groups = {group.name: group.replicas for group in observed.groups}
    return [_measure_replica(workload, index, cliques, groups) for index in range(workload.replicas)]


def _measure_replica(workload: Workload, index: int, cliques: Mapping[str, int], groups: Mapping[str, int]) -> _Size:
    """Measure a replica of the set.

    With a clique of four pods and a group of two replicas of five pods, each with maxUnavailable 1, it has 14 pods, of
    which 1 + 5 may be missing.
    """
    has_budgets = workload.strategy is Strategy.ROLLING_UPDATE
    members = {name for group in workload.groups for name in group.clique_names}
    pods = may_miss = 0
    for clique in workload.cliques:
        if clique.name not in members:
            replicas = cliques.get(clique_name(workload.name, index, clique.name), clique.replicas)
            pods += replicas
            may_miss += resolve_budget(clique.budget if has_budgets else None, replicas).max_unavailable
    for group in workload.groups:
        replicas = groups.get(group_name(workload.name, index, group.name), group.replicas)
        each = sum(clique.replicas for clique in workload.cliques if clique.name in group.clique_names)
        pods += replicas * each
        may_miss += resolve_budget(group.budget if has_budgets else None, replicas).max_unavailable * each
    return _Size(pods, may_miss)


def _allowance(workload: Workload, sizes: list[_Size]) -> int:
    """Return how many pods an update may make unavailable at once."""
    if workload.strategy is Strategy.ON_DELETE:
        return 0
    if workload.strategy is Strategy.REPLICA_RECREATE:
        number = resolve_budget(workload.budget, workload.replicas).max_unavailable
        return sum(sorted((size.pods for size in sizes), reverse=True)[:number])
    return max((size.may_miss for size in sizes), default=0)
