"""Which pods are surge, and that statuses, simulations and the trial of a deletion count the same ones.

A clique that is not updated may keep a gap in the indices of its pods since it was scaled in. Pods above the gap are
wanted, so they are no surge; the controller deletes none of them, and a user who deletes surge must not either.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from rollouts.engine.model.actions import Delete, Kind, Wait
from rollouts.engine.model.workload import Strategy, Workload
from rollouts.engine.plan.remedies import Remedy
from rollouts.engine.plan.wait_codes import WaitCode
from rollouts.engine.simulation.remedy_trials import RemedyTrials
from rollouts.engine.simulation.simulate import SimulationEnd, SimulationResult, simulate
from rollouts.engine.tree.availability import CliqueView
from rollouts.engine.tree.layout import make_layout
from rollouts.engine.tree.surge import (
    SurgeUnit,
    count_surge_pods,
    count_updated_pods,
    find_surge,
    list_surge_pods,
    plan_unit_deletions,
)
from rollouts.engine.tree.tree_builder import build_tree
from tests.engine.simulated import QUICK, Cluster, clique, group, settled, workload

SURGE_OF_ONE = (0, 1)


def with_a_gap() -> Cluster:
    """Return two pods with the indices 0 and 2: pod 1 was not Ready when the clique was scaled in."""
    cluster = settled(workload(clique("a", 3, 1)))
    cluster.world.set_ready(cluster.live_pods()[1].name, ready=False)
    cluster.world.scale(Kind.CLIQUE, "w-0-a", 2)
    cluster.settle()
    assert [pod.index for pod in cluster.live_pods()] == [0, 2]
    return cluster


def with_a_gap_and_one_pod_down() -> Cluster:
    """Return the same with a pod that is not Ready, so that the clique is not complete."""
    cluster = with_a_gap()
    cluster.world.set_ready(cluster.live_pods()[0].name, ready=False)
    cluster.settle()
    return cluster


def of_pods() -> Cluster:
    cluster = settled(workload(clique("a", 3, 1, SURGE_OF_ONE), strategy=Strategy.ROLLING_UPDATE))
    return cluster.update().run_until(lambda cluster: cluster.view.pods_text("w-0-a", "a") == "1* 2* 3s")


def of_a_group() -> Cluster:
    parts = (clique("l", 1), clique("k", 2), group("g", ("l", "k"), 3, 1, SURGE_OF_ONE))
    cluster = settled(workload(*parts, strategy=Strategy.ROLLING_UPDATE))
    return cluster.update().run_until(lambda cluster: cluster.view.group_text("w-0-g", "g") == "1* 2* 3s")


def of_the_set() -> Cluster:
    parts = (clique("a", 1), clique("l", 1), group("g", ("l",), 1))
    cluster = settled(workload(*parts, replicas=3, strategy=Strategy.REPLICA_RECREATE, budget=SURGE_OF_ONE))
    return cluster.update().run_until(lambda cluster: cluster.view.set_text() == "1* 2* 3s")


def view_of(cluster: Cluster) -> CliqueView:
    tree = build_tree(make_layout(cluster.workload), cluster.world.observed())
    return tree.replicas[0].cliques[0]


def surge_of(cluster: Cluster) -> list[int]:
    return [pod.index for pod in list_surge_pods(view_of(cluster), is_extra=False)]


@pytest.mark.parametrize("make", [with_a_gap, with_a_gap_and_one_pod_down])
def test_a_clique_that_is_not_updated_and_has_not_too_many_pods_has_no_surge_whatever_their_indices(
    make: Callable[[], Cluster],
) -> None:
    cluster = make()
    assert surge_of(cluster) == []
    assert find_surge(cluster.workload, cluster.world.observed()) == ()
    assert count_updated_pods(view_of(cluster), is_extra=False) == view_of(cluster).available


def test_a_clique_that_is_not_updated_has_as_much_surge_as_it_has_too_many_pods() -> None:
    cluster = with_a_gap()
    first, last = cluster.live_pods()
    observed = cluster.world.observed()
    third = replace(last, name="w-0-a-third", uid="third", index=3)
    cluster.begin_from(replace(observed, pods=(first, last, third)))
    assert surge_of(cluster) == [3]
    assert count_updated_pods(view_of(cluster), is_extra=False) == 2


def test_in_a_clique_that_is_updated_the_pods_from_the_wanted_number_up_are_surge() -> None:
    cluster = of_pods()
    assert len(view_of(cluster).live) == view_of(cluster).wanted
    assert surge_of(cluster) == [3]
    assert count_surge_pods(view_of(cluster), is_extra=False) == 1


def test_in_a_replica_that_is_surge_every_pod_is() -> None:
    assert count_surge_pods(view_of(with_a_gap()), is_extra=True) == 2


@pytest.mark.parametrize("make", [with_a_gap, with_a_gap_and_one_pod_down, of_pods])
def test_a_status_and_a_simulation_count_the_surge_that_a_user_may_delete(make: Callable[[], Cluster]) -> None:
    cluster = make()
    cluster.plan()
    (found,) = cluster.world.observed().cliques
    result = simulate(cluster.workload, cluster.world.observed(), cluster.workload, QUICK)
    counts = (found.status.get("surgeReplicas", 0), result.start["w-0-a"].surge, result.pods[0].surge)
    assert counts == (len(surge_of(cluster)),) * 3


def test_a_simulation_of_a_clique_with_a_gap_is_done_and_not_stuck() -> None:
    cluster = with_a_gap()
    result = simulate(cluster.workload, cluster.world.observed(), cluster.workload, QUICK)
    assert (result.end, result.waits) == (SimulationEnd.DONE, ())


# ---- the trial of deleting surge


def tried(cluster: Cluster, component: str) -> list[tuple[Delete, ...]]:
    """Return the deletions of each trial of deleting surge, without the run that deletes nothing."""
    found: list[tuple[Delete, ...]] = []

    def run(after: Workload, first: tuple[Delete, ...], _share: int) -> SimulationResult:
        found.extend([first] if first else [])
        return simulate(cluster.workload, cluster.world.observed(), after, QUICK)

    wait = Wait(WaitCode.SURGE_NOT_READY, component, (), "", (Remedy.DELETE_SURGE,), is_problem=True)
    RemedyTrials(cluster.workload, cluster.world.observed(), None, run).filter_remedies([wait])
    return found


def units_of(cluster: Cluster) -> Sequence[SurgeUnit]:
    return find_surge(cluster.workload, cluster.world.observed())


@pytest.mark.parametrize(
    ("make", "component", "unit"),
    [(of_pods, "w-0-a", ""), (of_a_group, "w-0-g-3-l", "w-0-g-3"), (of_the_set, "w-3-g-0-l", "w-3")],
)
def test_a_trial_deletes_what_the_command_deletes(make: Callable[[], Cluster], component: str, unit: str) -> None:
    cluster = make()
    units = units_of(cluster)
    assert [one.name for one in units] == [unit or cluster.live_pods("w-0-a")[-1].name]
    assert tried(cluster, component) == [plan_unit_deletions(units)]


@pytest.mark.parametrize("make", [with_a_gap, with_a_gap_and_one_pod_down])
def test_a_trial_deletes_no_pod_above_a_gap(make: Callable[[], Cluster]) -> None:
    assert tried(make(), "w-0-a") == []


def test_of_surge_at_several_levels_a_trial_deletes_that_of_the_component_that_waits() -> None:
    parts = (clique("a", 2, 1, SURGE_OF_ONE), clique("b", 2, 1, SURGE_OF_ONE))
    cluster = settled(workload(*parts, strategy=Strategy.ROLLING_UPDATE)).update()
    cluster.run_until(lambda cluster: len(units_of(cluster)) == 2)
    first, second = units_of(cluster)
    assert (first.component, second.component) == ("w-0-a", "w-0-b")
    assert tried(cluster, "w-0-b") == [plan_unit_deletions([second])]
    assert tried(cluster, "w") == [plan_unit_deletions([first, second])]
