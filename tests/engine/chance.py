"""Random workloads, clusters and interference for the properties, and what they are measured by.

Between any two passes somebody may change the template, scale, delete, switch strategy or budget, or a pod may break.
The counts are read off the pods by `simulated.View`, which knows nothing of the planner.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from rollouts.engine.actions import Kind
from rollouts.engine.budget import Budget, resolve_budget
from rollouts.engine.observed import Observed
from rollouts.engine.workload import BudgetSpec, CliqueTemplate, GroupTemplate, Strategy, Workload
from rollouts.engine.world import Behaviour
from tests.engine.simulated import Cluster, Unit, View, clique, group, workload

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
def clusters(draw: st.DrawFn) -> Behaviour:
    return Behaviour(
        ready_seconds=draw(st.sampled_from([0.0, 3.0, 10.0])),
        gone_seconds=draw(st.sampled_from([1.0, 20.0])),
        collect_seconds=draw(st.sampled_from([0.0, 2.0])),
        owners_go_last=draw(st.booleans()),
    )


# What somebody does between two passes.

Deed = Callable[[Cluster, Callable[..., Any]], None]


def change_template(cluster: Cluster, draw: Callable[..., Any]) -> None:
    image = draw(st.sampled_from(["app:v1", "app:v2", "app:v3"]))
    names = [one.name for one in cluster.workload.cliques]
    cluster.update(image, *draw(st.sampled_from([tuple(names), (names[0],), (names[-1],)])))


def scale_set(cluster: Cluster, draw: Callable[..., Any]) -> None:
    cluster.edit(replicas=draw(st.integers(0, 3)))


def scale_component(cluster: Cluster, draw: Callable[..., Any]) -> None:
    observed = cluster.world.observed()
    found = [(Kind.CLIQUE, one.name) for one in observed.cliques if not one.group and not one.leaving]
    found += [(Kind.GROUP, one.name) for one in observed.groups if not one.leaving]
    if found:
        kind, name = draw(st.sampled_from(found))
        cluster.world.scale(kind, name, draw(st.integers(1, 4)))


def delete_pod(cluster: Cluster, draw: Callable[..., Any]) -> None:
    if cluster.world.pods:
        cluster.world.delete(Kind.POD, draw(st.sampled_from(sorted(cluster.world.pods))))


def delete_clique(cluster: Cluster, draw: Callable[..., Any]) -> None:
    names = sorted(one.name for one in cluster.world.observed().cliques)
    if names:
        cluster.world.delete(Kind.CLIQUE, draw(st.sampled_from(names)))


def break_pod(cluster: Cluster, draw: Callable[..., Any]) -> None:
    running = sorted(pod.name for pod in cluster.world.pods.values() if pod.node)
    if running:
        cluster.world.set_ready(draw(st.sampled_from(running)), ready=False)


def switch_strategy(cluster: Cluster, draw: Callable[..., Any]) -> None:
    cluster.edit(strategy=draw(st.sampled_from(list(Strategy))))


def change_budget(cluster: Cluster, draw: Callable[..., Any]) -> None:
    cliques = tuple(replace(one, budget=BudgetSpec(*draw(budgets(one.replicas)))) for one in cluster.workload.cliques)
    cluster.edit(cliques=cliques, budget=BudgetSpec(*draw(budgets(cluster.workload.replicas))))


GENTLE: list[Deed] = [change_template, scale_set, scale_component, delete_pod, break_pod, change_budget]
EVERYTHING: list[Deed] = [*GENTLE, delete_clique, switch_strategy]


def heal(cluster: Cluster) -> None:
    for pod in list(cluster.world.pods.values()):
        if pod.node and not pod.ready:
            cluster.world.set_ready(pod.name, ready=True)


# What is counted.


@dataclass(frozen=True, slots=True)
class Count:
    """One component: what is there, and what its update may cost."""

    wanted: int
    live: int
    available: int
    budget: Budget
    is_of_replicas: bool  # of the set or of a group, not of pods


def counts(workload: Workload, observed: Observed) -> dict[str, Count]:
    """Return the counts of every component of the replicas that are wanted, and of the set."""
    view = View(workload, observed)
    found = {"w": _count(view.set_units(), workload.replicas, _set_budget(workload), replicas=True)}
    for one in view.cliques.values():
        if not one.group and one.replica < workload.replicas:
            budget = _budget(workload, view.templates[one.template].budget, one.replicas)
            found[one.name] = _count(view.pod_units(one.name, one.template), one.replicas, budget, replicas=False)
    for template in workload.groups:
        for seen in view.groups.values():
            if seen.template == template.name and seen.replica < workload.replicas:
                budget = _budget(workload, template.budget, seen.replicas)
                found[seen.name] = _count(view.group_units(seen.name, template), seen.replicas, budget, replicas=True)
    return found


def _count(units: list[Unit], wanted: int, budget: Budget, *, replicas: bool) -> Count:
    return Count(wanted, len(units), sum(unit.available for unit in units), budget, replicas)


def _set_budget(workload: Workload) -> Budget:
    if workload.strategy is Strategy.REPLICA_RECREATE:
        return resolve_budget(workload.budget, workload.replicas)
    return ONE_AT_A_TIME


def _budget(workload: Workload, spec: BudgetSpec | None, replicas: int) -> Budget:
    if workload.strategy is Strategy.ROLLING_UPDATE:
        return resolve_budget(spec, replicas)
    return ONE_AT_A_TIME


def assert_within_budget(
    workload: Workload, before: dict[str, Count], after: dict[str, Count], *, scaled_in: bool = False
) -> None:
    """Assert that no update took more than it may, nor added more than it may.

    Replicas are scaled in from the top, be they the only ones that serve: that is no update, and so asked for.
    """
    whole = workload.strategy is Strategy.REPLICA_RECREATE  # its unit is the replica, whatever that does to components
    for name, then in before.items():
        now = after.get(name)
        if now is None or (whole and name != "w"):
            continue
        floor = now.wanted - now.budget.max_unavailable
        if not (scaled_in and now.is_of_replicas):
            assert now.available >= min(then.available, floor), f"{name}: {then} → {now}"
        assert now.live <= max(then.live, now.wanted + now.budget.max_surge), f"{name}: {then} → {now}"


def finish(cluster: Cluster) -> None:
    """Let everything that broke recover, again and again, until nothing happens any more."""
    for _ in range(20):
        cluster.settle()
        if all(pod.ready or not pod.node for pod in cluster.world.pods.values()):
            return
        heal(cluster)


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
