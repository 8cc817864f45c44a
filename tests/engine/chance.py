"""Random workloads, clusters and interference for the property tests, and the counts that they check.

Between any two passes a user may change the template, scale, delete, or switch strategy or budget, and a pod may break.
`simulated.View` counts the pods independently of the planner.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from rollouts.engine.model.actions import Kind
from rollouts.engine.model.budget import Budget, resolve_budget
from rollouts.engine.model.container_faults import ContainerFault
from rollouts.engine.model.observed import TERMINAL_PHASES, Observed
from rollouts.engine.model.workload import BudgetSpec, CliqueTemplate, GroupTemplate, Strategy, Workload
from rollouts.engine.simulation.cluster import ClusterBehaviour
from rollouts.engine.simulation.scheduler import SimulatedNode
from tests.engine.simulated import Cluster, Unit, View, clique, group, hashes, workload

ONE_AT_A_TIME = Budget(1, 0)
AUTOMATIC = [Strategy.ROLLING_RECREATE, Strategy.ROLLING_UPDATE, Strategy.REPLICA_RECREATE]


@st.composite
def budgets(draw: st.DrawFn, replicas: int) -> tuple[int, int]:
    surge = draw(st.integers(0, 2))
    return draw(st.integers(0 if surge else 1, max(1, replicas))), surge


@st.composite
def workloads(draw: st.DrawFn, strategies: list[Strategy] = list(Strategy)) -> Workload:  # noqa: B006
    strategy = draw(st.sampled_from(strategies))
    parts: list[CliqueTemplate | GroupTemplate] = [
        _clique(draw, name) for name in draw(st.sampled_from(["", "a", "ab"]))
    ]
    members = draw(st.sampled_from(["l", "lk"] if not parts else ["", "l", "lk"]))
    if members:
        parts += [
            clique(name, count, draw(st.integers(1, count))) for name in members for count in [draw(st.integers(1, 2))]
        ]
        parts.append(_group(draw, tuple(members)))
    replicas = draw(st.integers(1, 3))
    return workload(*parts, replicas=replicas, strategy=strategy, budget=draw(budgets(replicas)))


def _clique(draw: st.DrawFn, name: str) -> CliqueTemplate:
    replicas = draw(st.integers(1, 4))
    return clique(name, replicas, draw(st.integers(1, replicas)), draw(budgets(replicas)))


def _group(draw: st.DrawFn, members: tuple[str, ...]) -> GroupTemplate:
    replicas = draw(st.integers(1, 3))
    return group("g", members, replicas, draw(st.integers(1, replicas)), draw(budgets(replicas)))


@st.composite
def clusters(draw: st.DrawFn) -> ClusterBehaviour:
    return ClusterBehaviour(
        ready_seconds=draw(st.sampled_from([0.0, 3.0, 10.0])),
        termination_seconds=draw(st.sampled_from([1.0, 20.0])),
        garbage_collection_seconds=draw(st.sampled_from([0.0, 2.0])),
        foreground_deletion=draw(st.booleans()),
    )


# What happens between two passes.

Disturbance = Callable[[Cluster, Callable[..., Any]], None]


def change_template(cluster: Cluster, draw: Callable[..., Any]) -> None:
    image = draw(st.sampled_from(["app:v1", "app:v2", "app:v3"]))
    names = [one.name for one in cluster.workload.cliques]
    cluster.update(image, *draw(st.sampled_from([tuple(names), (names[0],), (names[-1],)])))


def scale_set(cluster: Cluster, draw: Callable[..., Any]) -> None:
    cluster.edit(replicas=draw(st.integers(0, 3)))


def scale_component(cluster: Cluster, draw: Callable[..., Any]) -> None:
    """Scale a component to its minimum or more: below it, a gang scheduler would not place its gang."""
    found = _scalable(cluster)
    if found:
        kind, name, least = draw(st.sampled_from(found))
        cluster.world.scale(kind, name, draw(st.integers(least, 4)))


def scale_below_minimum(cluster: Cluster, draw: Callable[..., Any]) -> None:
    found = _scalable(cluster)
    if found:
        kind, name, least = draw(st.sampled_from(found))
        cluster.world.scale(kind, name, draw(st.integers(0, least - 1)))


def scale_to_minimum(cluster: Cluster) -> None:
    """Scale every component that is below its minimum back to it."""
    for kind, name, least in _scalable(cluster):
        if _scales(cluster)[name] < least:
            cluster.world.scale(kind, name, least)


def is_below_minimum(cluster: Cluster, component: str) -> bool:
    """Say whether a component is scaled below its minimum."""
    return component in list_below_minimum(cluster)


def list_below_minimum(cluster: Cluster) -> list[str]:
    """Return the components that are scaled below their minimum."""
    scales = _scales(cluster)
    return [name for _, name, least in _scalable(cluster) if scales[name] < least]


def _scales(cluster: Cluster) -> dict[str, int]:
    observed = cluster.world.observed()
    return {one.name: one.replicas for one in observed.cliques} | {one.name: one.replicas for one in observed.groups}


def _scalable(cluster: Cluster) -> list[tuple[Kind, str, int]]:
    observed = cluster.world.observed()
    least = {one.name: one.min_available for one in cluster.workload.cliques}
    least |= {one.name: one.min_available for one in cluster.workload.groups}
    cliques = [one for one in observed.cliques if not one.group and not one.leaving]
    groups = [one for one in observed.groups if not one.leaving]
    return [
        *((Kind.CLIQUE, one.name, least[one.template]) for one in cliques),
        *((Kind.GROUP, one.name, least[one.template]) for one in groups),
    ]


def delete_pod(cluster: Cluster, draw: Callable[..., Any]) -> None:
    if cluster.world.pods:
        cluster.world.delete(Kind.POD, draw(st.sampled_from(sorted(cluster.world.pods))))


def delete_clique(cluster: Cluster, draw: Callable[..., Any]) -> None:
    names = sorted(one.name for one in cluster.world.observed().cliques)
    if names:
        cluster.world.delete(Kind.CLIQUE, draw(st.sampled_from(names)))


def end_pod(cluster: Cluster, draw: Callable[..., Any]) -> None:
    """Evict a pod: it has ended, and its object stays."""
    running = sorted(pod.name for pod in cluster.world.pods.values() if pod.node and not pod.leaving)
    if running:
        cluster.world.fail_pod(draw(st.sampled_from(running)))


def delete_anything(cluster: Cluster, draw: Callable[..., Any]) -> None:
    """Delete some objects of any kind, as a user does who cleans up by hand."""
    seen = cluster.world.observed()
    found = [(Kind.GROUP, one.name) for one in seen.groups] + [(Kind.GANG, one.name) for one in seen.gangs]
    found += [(Kind.SERVICE, one.name) for one in seen.services] + [(Kind.CLIQUE, one.name) for one in seen.cliques]
    for kind, name in draw(st.lists(st.sampled_from(sorted(found)), max_size=4, unique=True)) if found else ():
        if cluster.world.exists(kind, name):  # an owner that went may have taken it along
            cluster.world.delete(kind, name)


def lose_node(cluster: Cluster, draw: Callable[..., Any]) -> None:
    """Take a node away: its pods have ended, and until it is back no pod, or only some, find room."""
    short = SimulatedNode("node", pods=draw(st.integers(0, len(cluster.world.pods))), cordoned=draw(st.booleans()))
    nodes = cluster.behaviour.nodes if draw(st.booleans()) else (short,)
    for pod in [*cluster.world.pods.values()]:
        if pod.node and not pod.leaving and draw(st.booleans()):
            cluster.world.fail_pod(pod.name)
    cluster.world.set_behaviour(replace(cluster.behaviour, nodes=nodes))


def break_pod(cluster: Cluster, draw: Callable[..., Any]) -> None:
    running = sorted(pod.name for pod in cluster.world.pods.values() if pod.node)
    if running:
        cluster.world.set_ready(draw(st.sampled_from(running)), ready=False)


def fail_container(cluster: Cluster, draw: Callable[..., Any]) -> None:
    """Let a container of a pod fail: the cluster reports a fault that waiting does not cure."""
    running = sorted(pod.name for pod in cluster.world.pods.values() if pod.node and pod.is_live)
    if running:
        pod = draw(st.sampled_from(running))
        cluster.world.set_ready(pod, ready=False)
        cluster.world.set_fault(pod, draw(st.sampled_from(list(ContainerFault))), draw(st.sampled_from(["", "app:v1"])))


def break_template(cluster: Cluster, draw: Callable[..., Any]) -> None:
    """Change the template of a clique to one whose pods never become Ready."""
    name = draw(st.sampled_from([one.name for one in cluster.workload.cliques]))
    cluster.update(draw(st.sampled_from(["app:v2", "app:v3"])), name)
    cluster.world.set_behaviour(replace(cluster.behaviour, never_ready=frozenset({hashes(cluster.workload)[name]})))


def switch_strategy(cluster: Cluster, draw: Callable[..., Any]) -> None:
    cluster.edit(strategy=draw(st.sampled_from(list(Strategy))))


def switch_to_automatic(cluster: Cluster, draw: Callable[..., Any]) -> None:
    """Switch to a strategy under which updates end by themselves."""
    cluster.edit(strategy=draw(st.sampled_from(AUTOMATIC)))


def change_budget(cluster: Cluster, draw: Callable[..., Any]) -> None:
    cliques = tuple(replace(one, budget=BudgetSpec(*draw(budgets(one.replicas)))) for one in cluster.workload.cliques)
    groups = tuple(replace(one, budget=BudgetSpec(*draw(budgets(one.replicas)))) for one in cluster.workload.groups)
    cluster.edit(cliques=cliques, groups=groups, budget=BudgetSpec(*draw(budgets(cluster.workload.replicas))))


GENTLE: list[Disturbance] = [change_template, scale_set, scale_component, delete_pod, break_pod, change_budget]
HARSH: list[Disturbance] = [
    *GENTLE,
    fail_container,
    delete_clique,
    end_pod,
    delete_anything,
    lose_node,
    switch_to_automatic,
]
EVERYTHING: list[Disturbance] = [*HARSH, switch_strategy]


def heal(cluster: Cluster) -> None:
    cluster.world.set_behaviour(cluster.behaviour)  # nodes are back
    for pod in list(cluster.world.pods.values()):
        if pod.node and not pod.ready and pod.phase not in TERMINAL_PHASES:
            cluster.world.set_ready(pod.name, ready=True)


# What is counted.


@dataclass(frozen=True, slots=True)
class Count:
    """The counts of one component, and its budget."""

    wanted: int
    live: int
    available: int
    budget: Budget
    is_of_replicas: bool  # of the set or of a group, not of pods
    extra: int  # units with an index beyond the wanted number


def counts(workload: Workload, observed: Observed) -> dict[str, Count]:
    """Return the counts of the set, and of every component of its wanted replicas."""
    view = View(workload, observed)
    found = {"w": _count(view.set_units(), workload.replicas, _set_budget(workload), replicas=True)}
    for one in view.cliques.values():
        if not one.group and one.replica < workload.replicas:
            budget = component_budget(workload, view.templates[one.template].budget, one.replicas)
            found[one.name] = _count(view.pod_units(one.name, one.template), one.replicas, budget, replicas=False)
    for template in workload.groups:
        for seen in view.groups.values():
            if seen.template == template.name and seen.replica < workload.replicas:
                budget = component_budget(workload, template.budget, seen.replicas)
                found[seen.name] = _count(view.group_units(seen.name, template), seen.replicas, budget, replicas=True)
    return found


def _count(units: list[Unit], wanted: int, budget: Budget, *, replicas: bool) -> Count:
    extra = sum(unit.index >= wanted for unit in units)
    return Count(wanted, len(units), sum(unit.available for unit in units), budget, replicas, extra)


def _set_budget(workload: Workload) -> Budget:
    if workload.strategy is Strategy.REPLICA_RECREATE:
        return resolve_budget(workload.budget, workload.replicas)
    return ONE_AT_A_TIME


def component_budget(workload: Workload, spec: BudgetSpec | None, replicas: int) -> Budget:
    if workload.strategy is Strategy.ROLLING_UPDATE:
        return resolve_budget(spec, replicas)
    return ONE_AT_A_TIME


def assert_within_budget(
    workload: Workload, before: dict[str, Count], after: dict[str, Count], *, scaled_in: bool = False
) -> None:
    """Assert that no update exceeded its budget.

    A scale-in removes the highest replicas, even if they are the only available ones: that is no update.
    """
    whole = workload.strategy is Strategy.REPLICA_RECREATE  # its unit is the replica, whatever that does to components
    for name, then in before.items():
        now = after.get(name)
        if now is None or (whole and name != "w"):
            continue
        floor = now.wanted - now.budget.max_unavailable
        if not (scaled_in and now.is_of_replicas):
            assert now.available >= min(then.available, floor), f"{name}: {then} → {now}"
        # Surplus that may not go yet takes no room from a missing original, and never grows.
        assert now.live <= max(then.live, now.wanted + max(now.budget.max_surge, then.extra)), f"{name}: {then} → {now}"
        if now.is_of_replicas:
            assert now.extra <= max(then.extra, now.budget.max_surge), f"{name}: {then} → {now}"


def finish(cluster: Cluster) -> None:
    """Repair everything that broke, again and again, until nothing happens any more."""
    for _ in range(20):
        heal(cluster)
        cluster.settle()
        if all(pod.ready or not pod.node for pod in cluster.world.pods.values()):
            return


def assert_all_there(cluster: Cluster) -> None:
    view, wanted = cluster.view, cluster.workload.replicas
    assert [unit.index for unit in view.set_units()] == list(range(wanted))
    assert all(unit.available for unit in view.set_units()), view.set_text()
    for name, count in counts(cluster.workload, cluster.world.observed()).items():
        assert count.live == count.wanted == count.available, f"{name}: {count}"
    for template in cluster.workload.groups:
        for seen in view.groups.values():
            units = view.group_units(seen.name, template)
            assert sorted(unit.index for unit in units) == list(range(seen.replicas)), "no holes"
    assert not [pod.name for pod in cluster.world.pods.values() if pod.leaving or pod.gated]
    assert {gang.replica for gang in cluster.world.observed().gangs} == set(range(wanted))
