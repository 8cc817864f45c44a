"""Remedies are tried before they are offered: what takes capacity and ends nothing is not among them."""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from rollouts.engine.model.actions import Delete, Kind, Wait
from rollouts.engine.model.container_faults import ContainerFault
from rollouts.engine.model.workload import Strategy, Workload
from rollouts.engine.simulation.cluster import ClusterBehaviour
from rollouts.engine.simulation.remedy_trials import RemedyTrials
from rollouts.engine.simulation.scheduler import SimulatedNode
from rollouts.engine.simulation.simulate import SimulationResult, simulate
from tests.engine.simulated import QUICK, Cluster, clique, group, hashes, settled, with_image, workload

BUDGET = (1, 0)
Level = Callable[..., Cluster]


def of_pods(budget: tuple[int, int] = BUDGET) -> Cluster:
    return settled(workload(clique("a", 3, 1, budget), strategy=Strategy.ROLLING_UPDATE))


def of_group(budget: tuple[int, int] = BUDGET) -> Cluster:
    parts = (clique("l", 1), clique("k", 1), group("g", ("l", "k"), 3, 1, budget))
    return settled(workload(*parts, strategy=Strategy.ROLLING_UPDATE))


def of_set(budget: tuple[int, int] = BUDGET) -> Cluster:
    return settled(workload(clique("a", 1), replicas=3, strategy=Strategy.REPLICA_RECREATE, budget=budget))


LEVELS = [of_pods, of_group, of_set]


def broken(cluster: Cluster) -> tuple[Cluster, ClusterBehaviour]:
    """Update to a template that never becomes Ready."""
    changed = with_image(cluster.workload, "app:v2")
    behaviour = replace(
        QUICK, never_ready=frozenset({*hashes(changed).values()} - {*hashes(cluster.workload).values()})
    )
    cluster.world.set_behaviour(behaviour)
    cluster.workload = changed
    return cluster.settle(), behaviour


def full(cluster: Cluster) -> tuple[Cluster, ClusterBehaviour]:
    """Update with room for the pods that run and no more."""
    behaviour = replace(QUICK, nodes=(SimulatedNode("node", pods=len(cluster.world.pods)),))
    cluster.world.set_behaviour(behaviour)
    cluster.workload = with_image(cluster.workload, "app:v2")
    return cluster.settle(), behaviour


def cordoned(cluster: Cluster) -> tuple[Cluster, ClusterBehaviour, Workload]:
    """Update while no node takes new pods; return the workload of before too."""
    former = cluster.workload
    behaviour = replace(QUICK, nodes=(SimulatedNode("node", cordoned=True),))
    cluster.world.set_behaviour(behaviour)
    return cluster.update().settle(), behaviour, former


def misplaced(cluster: Cluster) -> tuple[Cluster, ClusterBehaviour, Workload]:
    """Update to a template that fits no node, where the one of before does; return the workload of before too."""
    former = cluster.workload
    elsewhere = {"nodeSelector": {"gpu": "none"}}
    cliques = (replace(one, pod_spec={**one.pod_spec, **elsewhere}) for one in former.cliques)
    behaviour = replace(QUICK, nodes=(SimulatedNode("node"),))
    cluster.world.set_behaviour(behaviour)
    return cluster.edit(cliques=tuple(cliques)).settle(), behaviour, former


def fail(cluster: Cluster, fault: str) -> Cluster:
    """Let the containers fail of all that is not Ready; an empty fault: nobody knows why it is not."""
    for pod in cluster.live_pods():
        if fault and pod.node and not pod.ready:
            cluster.world.set_fault(pod.name, fault)
    cluster.plan()
    return cluster


def sift(
    cluster: Cluster, behaviour: ClusterBehaviour, former: Workload | None = None, passes: int = 10**6
) -> tuple[Wait, ...]:
    """Return the waits of a cluster at rest, with the remedies that help; each trial is cut after so many passes."""
    observed, now = cluster.world.observed(), cluster.world.now

    def run(after: Workload, first: tuple[Delete, ...], left: int) -> SimulationResult:
        assert left > 0
        count = itertools.count(1)
        return simulate(
            *(cluster.workload, observed, after, behaviour, now), first=first, is_enough=lambda: next(count) >= passes
        )

    return RemedyTrials(cluster.workload, observed, former, run).filter_remedies(cluster.waits)


def offered(waits: Iterable[Wait]) -> set[str]:
    return {remedy for wait in waits for remedy in wait.remedies}


FAULTS = ["", *ContainerFault]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("budget", [(1, 0), (0, 1)])
@pytest.mark.parametrize("level", LEVELS)
def test_nothing_more_is_taken_down_for_a_template_that_never_becomes_ready(
    level: Level, budget: tuple[int, int], fault: str
) -> None:
    cluster = level(budget)
    former = cluster.workload
    stuck, behaviour = broken(cluster)
    fail(stuck, fault)
    assert {"RaiseMaxUnavailable", "DeleteSurge"} & offered(stuck.waits)
    waits = sift(stuck, behaviour, former)
    assert offered(waits) == {"RollBack", "LookAtPods"}
    unready = {wait.remedies for wait in waits if wait.code == (fault or wait.code) and wait.is_problem}
    assert unready == {("RollBack", "LookAtPods")}


@pytest.mark.parametrize("passes", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("budget", [(1, 0), (0, 1)])
@pytest.mark.parametrize("level", LEVELS)
def test_a_trial_that_ran_out_of_time_proves_nothing(level: Level, budget: tuple[int, int], passes: int) -> None:
    cluster = level(budget)
    former = cluster.workload
    stuck, behaviour = broken(cluster)
    waits = sift(stuck, behaviour, former, passes)
    assert offered(waits) == {"RollBack", "LookAtPods"}


def test_of_trials_that_share_the_time_rolling_back_is_the_first() -> None:
    cluster = of_pods((0, 1))
    former = cluster.workload
    stuck, _ = broken(cluster)
    observed, shares = stuck.world.observed(), []

    def run(after: Workload, first: tuple[Delete, ...], left: int) -> SimulationResult:
        shares.append((after == former, left))
        return simulate(stuck.workload, observed, after, QUICK, stuck.world.now, first=first, is_enough=lambda: True)

    RemedyTrials(stuck.workload, observed, former, run).filter_remedies(stuck.waits)
    assert shares[0] == (True, len(shares) + 1)
    assert [left for _, left in shares] == sorted((left for _, left in shares), reverse=True)


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault])
def test_under_on_delete_a_template_that_fails_is_rolled_back_and_takes_no_more_pods(fault: str) -> None:
    cluster = settled(workload(clique("a", 3, 1), strategy=Strategy.ON_DELETE))
    former = cluster.workload
    cluster.update().run_for(5.0)
    behaviour = replace(QUICK, never_ready=frozenset(cluster.view.hashes.values()))
    cluster.world.set_behaviour(behaviour)
    cluster.world.delete(Kind.POD, next(iter(cluster.world.pods)))
    fail(cluster.settle(), fault)
    assert "DeleteOutdatedPods" in offered(cluster.waits)
    waits = sift(cluster, behaviour, former)
    assert offered(waits) == {"RollBack", "LookAtPods"}
    assert next(wait.remedies[0] for wait in waits if wait.code == fault) == "RollBack"
    assert "DeleteOutdatedPods" in offered(sift(cluster, QUICK, former))


@pytest.mark.parametrize("budget", [(1, 0), (0, 1)])
@pytest.mark.parametrize("level", LEVELS)
def test_a_template_that_fits_no_node_is_rolled_back(level: Level, budget: tuple[int, int]) -> None:
    stuck, behaviour, former = misplaced(level(budget))
    waits = [wait for wait in sift(stuck, behaviour, former) if wait.is_problem]
    assert {wait.remedies for wait in waits} == {("RollBack", "AddCapacity")}


@pytest.mark.parametrize("level", LEVELS)
def test_where_the_former_template_finds_no_node_either_it_is_not_rolled_back(level: Level) -> None:
    stuck, behaviour, former = cordoned(level())
    assert offered(sift(stuck, behaviour, former)) == {"AddCapacity"}


@pytest.mark.parametrize("level", LEVELS)
def test_surge_for_which_the_former_template_finds_no_node_either_is_rolled_back_last(level: Level) -> None:
    stuck, behaviour, former = cordoned(level((0, 1)))
    waits = [wait for wait in sift(stuck, behaviour, former) if wait.is_problem]
    assert {wait.remedies for wait in waits} == {("AddCapacity", "RollBack")}


@pytest.mark.parametrize("level", LEVELS)
def test_a_trial_of_the_former_template_that_ran_out_of_time_proves_nothing(level: Level) -> None:
    stuck, behaviour, former = misplaced(level((0, 1)))
    waits = [wait for wait in sift(stuck, behaviour, former, passes=10) if wait.is_problem]
    assert {wait.remedies for wait in waits} == {("AddCapacity", "RollBack")}


def test_a_pod_that_fails_without_an_update_is_not_rolled_back() -> None:
    cluster = of_pods()
    former = with_image(cluster.workload, "app:v0")
    cluster.world.set_ready(next(iter(cluster.world.pods)), ready=False)
    fail(cluster, ContainerFault.CRASH)
    assert offered(sift(cluster, QUICK, former)) == {"LookAtPods"}


@pytest.mark.parametrize("level", LEVELS)
def test_rolling_back_is_offered_where_there_is_something_to_go_back_to(level: Level) -> None:
    stuck, behaviour = broken(level())
    assert "RollBack" in offered(stuck.waits)
    assert "RollBack" not in offered(sift(stuck, behaviour))


@pytest.mark.parametrize("level", LEVELS)
def test_surge_without_room_is_given_up_where_that_ends_the_wait(level: Level) -> None:
    stuck, behaviour = full(level((0, 1)))
    assert "SetMaxSurgeToZero" in offered(sift(stuck, behaviour))


@pytest.mark.parametrize("level", LEVELS)
def test_surge_without_room_is_not_given_up_for_a_template_that_fails(level: Level) -> None:
    stuck, behaviour = full(level((0, 1)))
    failing = frozenset(hashes(stuck.workload).values())
    waits = sift(stuck, replace(behaviour, never_ready=failing))
    assert "SetMaxSurgeToZero" not in offered(waits)
    assert "AddCapacity" in offered(waits)


@pytest.mark.parametrize("level", LEVELS)
def test_surge_is_deleted_where_another_one_would_come_up(level: Level) -> None:
    cluster = level((0, 1))
    hosts = frozenset({"w-0-a-3", "w-0-g-3-l-0", "w-3-a-0"})
    cluster.world.set_behaviour(replace(QUICK, never_ready=hosts))
    cluster.update().settle()
    lost = frozenset(pod.name for pod in cluster.live_pods() if not pod.ready)
    assert "DeleteSurge" in offered(sift(cluster, replace(QUICK, never_ready=lost)))
    failing = frozenset(hashes(cluster.workload).values())
    assert "DeleteSurge" not in offered(sift(cluster, replace(QUICK, never_ready=failing)))


def test_replicas_without_room_are_scaled_in() -> None:
    cluster = settled(workload(clique("a", 1), replicas=2))
    behaviour = replace(QUICK, nodes=(SimulatedNode("node", pods=2),))
    cluster.world.set_behaviour(behaviour)
    cluster.edit(replicas=3).update().settle()
    assert "ScaleIn" in offered(sift(cluster, behaviour))
    failing = frozenset(hashes(cluster.workload).values())
    assert "ScaleIn" not in offered(sift(cluster, replace(behaviour, never_ready=failing)))
