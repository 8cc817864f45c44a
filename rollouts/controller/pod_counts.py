"""How many pods a workload has, should have and may not fall below: the numbers in cards and charts.

Pure, from the same values that a pass plans with; `history` stores the numbers over time. Every level is counted in
pods, so that one chart can show all three. `engine.tree.surge` decides which pods are surge, and which of the others
are updated; lists, which count in SQL, apply the same rules.

The invariant: an unavailable pod does not count as updated, and surge never does, so that

    updated <= desired    how far an update is: "8 of 14 pods are updated"
    updated <= available  the pods that serve, surge included

The status of a PodClique counts differently: its updatedReplicas are all pods of the current template.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from rollouts.engine.model.observed import Clique, Observed, Pod
from rollouts.engine.model.workload import Strategy, Workload
from rollouts.engine.rollout.levels import compute_component_budget, compute_set_budget
from rollouts.engine.tree.availability import CliqueView, compute_min_available
from rollouts.engine.tree.layout import Layout, make_layout
from rollouts.engine.tree.surge import count_surge_pods, count_updated_pods


@dataclass(frozen=True, slots=True)
class Counts:
    """How many pods a workload has at one moment; terminating pods do not count."""

    desired: int
    available: int  # surge included
    updated: int  # of the desired ones: available, on the current template
    surge: int  # beyond the desired ones, available or not
    floor: int  # an update must keep at least so many available


def count_pods(workload: Workload, observed: Observed) -> Counts:
    """Count the pods of a workload as it is observed."""
    layout = make_layout(workload)
    groups = {group.name: group.replicas for group in observed.groups}
    pods: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in observed.pods:
        if not pod.leaving:
            pods[pod.clique].append(pod)
    available = updated = surge = 0
    for clique in observed.cliques:
        if clique.template in layout.cliques:
            view, is_extra = _make_view(layout, clique, pods[clique.name]), _is_surge(layout, clique, groups)
            available += view.available
            updated += count_updated_pods(view, is_extra=is_extra)
            surge += count_surge_pods(view, is_extra=is_extra)
    sizes = _compute_replica_sizes(workload, observed)
    desired = sum(size.pods for size in sizes)
    return Counts(desired, available, updated, surge, _compute_floor(workload, sizes))


def _make_view(layout: Layout, clique: Clique, pods: list[Pod]) -> CliqueView:
    pods.sort(key=lambda pod: pod.index)
    return layout.make_clique_view(clique.name, layout.cliques[clique.template], clique, pods)


def _is_surge(layout: Layout, clique: Clique, groups: Mapping[str, int]) -> bool:
    """Return whether a clique is surge as a whole, because its replica of the set or of a group is."""
    if clique.replica >= layout.workload.replicas:
        return True
    group = layout.groups.get(layout.group_of.get(clique.template, ""))
    return group is not None and clique.group_replica >= groups.get(clique.group, group.replicas)


PodsPerReplica: TypeAlias = Mapping[str, tuple[int, int]]
"""What a replica of a set consists of by its template: for each component its replicas, and the pods of each."""

ScaledComponent: TypeAlias = tuple[str, int, int]
"""A component in the cluster: its name in the template, its replica of the set, the number it is scaled to."""


def compute_pods_per_replica(workload: Workload) -> PodsPerReplica:
    """Return what each replica of a workload consists of."""
    each = {clique.name: clique.replicas for clique in workload.cliques}
    members = {name for group in workload.groups for name in group.clique_names}
    known = {one.name: (one.replicas, 1) for one in workload.cliques if one.name not in members}
    return known | {one.name: (one.replicas, sum(each[name] for name in one.clique_names)) for one in workload.groups}


def count_scaled_pods(replicas: int, pods_per_replica: PodsPerReplica, scaled: Iterable[ScaledComponent]) -> int:
    """Count the desired pods of a set of so many replicas: by its template, except for components that are scaled.

    A component that is being recreated counts although it does not exist at the moment.
    """
    return replicas * sum(number * pods for number, pods in pods_per_replica.values()) + sum(
        (live - pods_per_replica[component][0]) * pods_per_replica[component][1]
        for component, replica, live in scaled
        if replica < replicas and component in pods_per_replica
    )


def count_desired(workload: Workload, observed: Observed, renewed: Collection[str] = ()) -> int:
    """Count the desired pods, in time that does not grow with the numbers in the manifest.

    A component counts with the number that it is scaled to; a `renewed` one counts with the number of the template.
    """
    scaled = (one for one in _list_scaled(observed) if one[0] not in renewed)
    return count_scaled_pods(workload.replicas, compute_pods_per_replica(workload), scaled)


def _list_scaled(observed: Observed) -> Iterator[ScaledComponent]:
    for clique in observed.cliques:
        if not clique.group:
            yield clique.template, clique.replica, clique.replicas
    for group in observed.groups:
        yield group.template, group.replica, group.replicas


@dataclass(frozen=True, slots=True)
class _ReplicaSize:
    """One replica of the set, in pods."""

    pods: int
    serving: int  # as long as an update counts the replica as serving, at least so many of its pods serve
    may_be_unavailable: int  # of these, while its components are updated


def _compute_replica_sizes(workload: Workload, observed: Observed) -> list[_ReplicaSize]:
    """Measure each desired replica: by the template, except for components that are scaled."""
    usual = {name: replicas for name, (replicas, _) in compute_pods_per_replica(workload).items()}
    scaled: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for component, replica, live in _list_scaled(observed):
        if live != usual.get(component):
            scaled[replica][component] = live
    kept = _list_kept_minimums(workload, observed)
    as_usual = _compute_replica_size(workload, {}, {})
    return [
        _compute_replica_size(workload, scaled.get(index, {}), kept.get(index, {}))
        if index in scaled or index in kept
        else as_usual
        for index in range(workload.replicas)
    ]


def _list_kept_minimums(workload: Workload, observed: Observed) -> Mapping[int, Mapping[str, int]]:
    """Return, by replica of the set, the minAvailable of PodCliques that differs from that of their template now."""
    templates = {clique.name: clique for clique in workload.cliques if not clique.has_explicit_min_available}
    kept: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for clique in observed.cliques:
        template = templates.get(clique.template)
        if template is not None and (minimum := compute_min_available(template, clique)) != template.min_available:
            found = kept[clique.replica]
            found[clique.template] = min(minimum, found.get(clique.template, minimum))
    return kept


def _compute_replica_size(
    workload: Workload, scaled: Mapping[str, int], kept_minimums: Mapping[str, int]
) -> _ReplicaSize:
    """Measure a replica of the set, some of whose components may be scaled or keep a smaller minimum.

    With a clique of four pods and a group of two replicas of five pods, each with maxUnavailable 1, it has 14 pods, of
    which 1 + 5 may be missing. A replica of a group serves if each of its cliques has minAvailable pods, and if that is
    3 of the 5 pods, then 4 + 2 × 3 are kept, of which 1 + 3 may be missing. Under ReplicaRecreate minAvailable of every
    component is enough.
    """
    is_whole = workload.strategy is Strategy.REPLICA_RECREATE
    members = {name for group in workload.groups for name in group.clique_names}
    minimums = {clique.name: clique.min_available for clique in workload.cliques} | {**kept_minimums}
    pods = kept = may_miss = 0
    for clique in workload.cliques:
        if clique.name not in members:
            replicas = scaled.get(clique.name, clique.replicas)
            pods += replicas
            kept += min(replicas, minimums[clique.name]) if is_whole else replicas
            may_miss += compute_component_budget(workload, clique.budget, replicas).max_unavailable
    for group in workload.groups:
        replicas = scaled.get(group.name, group.replicas)
        inside = [clique for clique in workload.cliques if clique.name in group.clique_names]
        serving = sum(minimums[clique.name] for clique in inside)
        pods += replicas * sum(clique.replicas for clique in inside)
        kept += (min(replicas, group.min_available) if is_whole else replicas) * serving
        may_miss += compute_component_budget(workload, group.budget, replicas).max_unavailable * serving
    return _ReplicaSize(pods, kept, may_miss)


def _compute_floor(workload: Workload, sizes: list[_ReplicaSize]) -> int:
    """Return how many pods serve at least during an update that keeps to the budgets and to minAvailable."""
    if workload.strategy is Strategy.ON_DELETE:
        return sum(size.pods for size in sizes)
    kept = sorted(size.serving for size in sizes)
    if workload.strategy is Strategy.REPLICA_RECREATE:
        return sum(kept[: len(kept) - compute_set_budget(workload).max_unavailable])
    return max(0, sum(kept) - max((size.may_be_unavailable for size in sizes), default=0))
