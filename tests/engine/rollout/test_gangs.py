"""Gangs, gates and gang termination."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from rollouts.engine.model.actions import Action, Create, Kind, Patch, RemoveGate
from rollouts.engine.model.observed import Gang
from rollouts.engine.model.workload import Strategy
from rollouts.engine.plan.planner import plan
from rollouts.engine.simulation.scheduler import SimulatedNode
from tests.engine.simulated import QUICK, Cluster, clique, group, settled, workload

DELAY = 3600.0
PARTS = (clique("a", 2, 1), clique("l", 1), clique("k", 3, 2), group("g", ("l", "k"), 3, 2))


def gangs(cluster: Cluster) -> dict[str, Gang]:
    return {gang.name: gang for gang in cluster.world.observed().gangs if not gang.leaving}


def test_the_base_gang_holds_the_minimum_and_scaled_gangs_the_rest() -> None:
    found = gangs(settled(workload(*PARTS)))
    assert {name: set(gang.pod_groups) for name, gang in found.items()} == {
        "w-0": {"w-0-a", "w-0-g-0-l", "w-0-g-0-k", "w-0-g-1-l", "w-0-g-1-k"},
        "w-0-g-0": {"w-0-g-2-l", "w-0-g-2-k"},
    }


def test_a_pod_group_takes_the_minimum_of_its_clique_and_refers_to_all_its_pods() -> None:
    cluster = settled(workload(*PARTS))
    least, pods = gangs(cluster)["w-0"].pod_groups["w-0-g-0-k"]
    assert least == 2
    assert set(pods) == {pod.name for pod in cluster.live_pods("w-0-g-0-k")}


def test_surge_pods_are_referred_to_and_do_not_change_the_minimum() -> None:
    cluster = settled(workload(clique("a", 2, budget=(0, 1)), strategy=Strategy.ROLLING_UPDATE)).update()
    cluster.run_until(lambda cluster: len(cluster.live_pods()) == 3 and not any(p.gated for p in cluster.live_pods()))
    least, pods = gangs(cluster)["w-0"].pod_groups["w-0-a"]
    assert (least, len(pods)) == (2, 3)


def test_a_gang_is_made_once_it_has_what_it_takes_to_place_it() -> None:
    cluster = Cluster(workload(*PARTS))
    for planned in cluster.passes():
        for action in planned.actions:
            if isinstance(action, Create) and action.kind is Kind.GANG:
                groups = action.manifest["spec"]["podgroups"]
                assert all(len(one["podReferences"]) >= one["minReplicas"] for one in groups)


def test_a_gate_opens_only_for_pods_that_the_stored_gang_refers_to() -> None:
    cluster = Cluster(workload(*PARTS))
    for planned in iter_passes(cluster):
        referred = {pod for gang in gangs(cluster).values() for _, pods in gang.pod_groups.values() for pod in pods}
        opened = {action.pod for action in planned if isinstance(action, RemoveGate)}
        assert opened <= referred
        cluster.world.apply(planned)


def iter_passes(cluster: Cluster) -> Iterator[tuple[Action, ...]]:
    """Plan again and again; the caller carries the actions out."""
    for _ in range(100):
        planned = cluster.plan()
        yield planned.actions
        if not planned.actions and not cluster.wait():
            return


def test_a_scaled_gang_waits_until_the_base_gang_is_placed() -> None:
    full = replace(QUICK, nodes=(SimulatedNode("node", pods=6),))
    cluster = Cluster(workload(*PARTS), full).settle()  # the base gang needs 7
    scaled = cluster.live_pods("w-0-g-2")
    assert len(scaled) == 4
    assert all(pod.gated for pod in scaled)
    cluster.world.set_behaviour(QUICK)
    cluster.settle()
    assert not any(pod.gated for pod in cluster.live_pods())


def test_a_scaled_gang_stays_while_the_base_gang_is_missing() -> None:
    cluster = settled(workload(*PARTS))
    cluster.world.delete(Kind.GANG, "w-0")
    assert set(gangs(cluster)) == {"w-0-g-0"}
    cluster.settle()
    assert not cluster.deleted(Kind.GANG)
    assert set(gangs(cluster)) == {"w-0", "w-0-g-0"}


def test_a_pod_that_went_and_the_one_in_its_place_are_written_into_the_gang_at_once() -> None:
    cluster = settled(workload(clique("a", 3)))
    cluster.update().settle()
    patches = [action for action in cluster.actions if isinstance(action, Patch) and action.kind is Kind.GANG]
    assert len(patches) == 3


def test_the_gang_of_a_group_replica_goes_with_it() -> None:
    cluster = settled(workload(*PARTS))
    cluster.world.scale(Kind.GROUP, "w-0-g", 2)
    assert set(gangs(cluster.settle())) == {"w-0"}


# Gang termination.


def breaking(*parts: object, **fields: object) -> Cluster:
    cluster = settled(workload(*parts, termination_delay=DELAY, **fields))  # type: ignore[arg-type]
    cluster.world.set_behaviour(replace(QUICK, nodes=(SimulatedNode("full", pods=0),)))
    return cluster


def kill(cluster: Cluster, prefix: str, count: int = 1) -> set[str]:
    """Delete pods whose replacements find no room; return the uids of the others."""
    for pod in cluster.live_pods(prefix)[:count]:
        cluster.world.delete(Kind.POD, pod.name)
    cluster.run_for(60.0)
    return {pod.uid for pod in cluster.live_pods() if pod.node}


def survivors(cluster: Cluster, before: set[str]) -> set[str]:
    return before & {pod.uid for pod in cluster.live_pods()}


def test_below_its_minimum_a_replica_is_recreated_after_the_delay_and_not_before() -> None:
    cluster = breaking(clique("a", 2), clique("b", 1))
    before = kill(cluster, "w-0-a")
    planned = cluster.plan()
    assert planned.requeue_at == pytest.approx(cluster.world.now + DELAY - 60.0, abs=5.0)
    cluster.run_for(DELAY - 200.0)
    assert survivors(cluster, before) == before
    cluster.run_for(300.0)
    assert survivors(cluster, before) == set()
    cluster.world.set_behaviour(QUICK)
    cluster.settle()
    assert all(pod.ready for pod in cluster.live_pods())


def test_what_was_recreated_and_finds_no_room_is_not_recreated_again() -> None:
    cluster = breaking(clique("a", 2))
    kill(cluster, "w-0-a")
    cluster.run_for(DELAY + 100.0)
    waiting = {pod.uid for pod in cluster.live_pods()}
    cluster.run_for(5 * DELAY)
    assert {pod.uid for pod in cluster.live_pods()} == waiting


def test_a_group_that_was_recreated_and_finds_no_room_is_not_recreated_again() -> None:
    cluster = breaking(clique("l", 1), group("g", ("l",), 2, 2))
    kill(cluster, "w-0-g-1-l")
    cluster.run_for(DELAY + 100.0)
    waiting = {pod.uid for pod in cluster.live_pods()}
    cluster.run_for(3 * DELAY)
    assert {pod.uid for pod in cluster.live_pods()} == waiting


def test_a_group_replica_is_recreated_alone_when_enough_others_stay() -> None:
    cluster = breaking(clique("l", 1), clique("k", 2), group("g", ("l", "k"), 3, 2), clique("a", 1))
    before = kill(cluster, "w-0-g-2-k")
    cluster.run_for(DELAY + 100.0)
    others = {pod.uid for pod in cluster.live_pods() if not pod.clique.startswith("w-0-g-2")}
    assert survivors(cluster, before) == others
    assert len(before - others) == 2  # the other k and the l of replica 2


def test_a_group_below_its_minimum_takes_the_replica_of_the_set_with_it() -> None:
    cluster = breaking(clique("l", 1), group("g", ("l",), 2, 2), clique("a", 1))
    before = kill(cluster, "w-0-g-1-l")
    cluster.run_for(DELAY + 100.0)
    assert survivors(cluster, before) == set()
    (found,) = cluster.world.observed().groups
    flags = {one["type"]: one["reason"] for one in found.status["conditions"]}
    assert flags["GangTerminationInProgress"] == "GangTerminationActive"
    cluster.world.set_behaviour(QUICK)
    cluster.settle()
    (found,) = cluster.world.observed().groups
    assert "GangTerminationInProgress" not in {one["type"] for one in found.status["conditions"]}


def test_other_replicas_of_the_set_are_left_alone() -> None:
    cluster = breaking(clique("a", 2), replicas=2)
    others = {pod.uid for pod in cluster.live_pods("w-1")}
    kill(cluster, "w-0-a")
    cluster.run_for(DELAY + 100.0)
    assert {pod.uid for pod in cluster.live_pods("w-1")} == others


def test_while_an_update_is_at_work_nothing_is_terminated() -> None:
    cluster = breaking(clique("a", 2), clique("b", 1))
    cluster.update("app:v2", "a")
    before = kill(cluster, "w-0-a", 0)
    cluster.run_for(DELAY + 300.0)
    assert {pod.uid for pod in cluster.live_pods("w-0-b")} <= before


def test_under_on_delete_termination_stays_in_force() -> None:
    cluster = breaking(clique("a", 2), clique("b", 1), strategy=Strategy.ON_DELETE)
    cluster.update()
    before = kill(cluster, "w-0-a")
    cluster.run_for(DELAY + 100.0)
    assert survivors(cluster, before) == set()


def test_pods_that_merely_start_are_no_breach_and_failing_ones_are() -> None:
    cluster = settled(workload(clique("a", 2), termination_delay=DELAY))
    seen = cluster.world.observed()
    for failing, status in ((False, "False"), (True, "True")):
        pods = tuple(replace(pod, ready=False, failing=failing) for pod in seen.pods)
        planned = plan(cluster.workload, replace(seen, pods=pods), cluster.world.now)
        written = [action.status for action in planned.actions if getattr(action, "kind", None) is Kind.CLIQUE]  # type: ignore[union-attr]
        conditions = (written[0] if written else seen.cliques[0].status)["conditions"]
        assert {one["type"]: one["status"] for one in conditions}["MinAvailableBreached"] == status


def test_a_breach_that_is_over_terminates_nothing_though_it_is_still_written_down() -> None:
    cluster = breaking(clique("a", 2))
    kill(cluster, "w-0-a")
    seen = cluster.world.observed()
    healed = tuple(replace(pod, node="node", ready=True, gated=False, phase="Running") for pod in seen.pods)
    planned = plan(cluster.workload, replace(seen, pods=healed), cluster.world.now + 2 * DELAY)
    assert not [action for action in planned.actions if getattr(action, "reason", "") == "GangTerminated"]
