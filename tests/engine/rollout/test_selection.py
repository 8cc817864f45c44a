"""Which replica of the set is updated, and which ones the update waits for: one at a time, and never two down.

A replica that was scaled out, or broke after its update, is down and needs no update. It is not selected, and until it
is up the update takes nothing from a replica that serves.
"""

from dataclasses import replace
from typing import Any

from rollouts.engine.model.actions import Wait
from rollouts.engine.model.workload import Strategy
from rollouts.engine.simulation.scheduler import SimulatedNode
from tests.engine.simulated import QUICK, Cluster, clique, group, settled, workload

# Of `a` two have to be there: a gang of three finds no room where one pod of each sort has been taken away.
PARTS = (clique("a", 3, 2), clique("l", 1), group("g", ("l",), 2))


def updating(cluster: Cluster) -> list[int]:
    progress: Any = cluster.progress
    assert progress.get("currentlyUpdating") == progress.get("updatingReplicas")
    return [entry["replicaIndex"] for entry in progress.get("updatingReplicas") or ()]


def give_room(cluster: Cluster, pods: int) -> None:
    cluster.world.set_behaviour(replace(cluster.behaviour, nodes=(SimulatedNode("node", pods=pods),)))


def half_way(replicas: int = 1) -> Cluster:
    """Return a set in a full cluster whose replica 0 is half updated and available."""
    cluster = settled(workload(*PARTS, replicas=replicas))
    give_room(cluster, len(cluster.world.pods))
    cluster.update().run_until(lambda cluster: cluster.view.pods_text("w-0-a", "a") == "0 2*")
    return cluster.run_until(lambda cluster: cluster.view.pods_text("w-0-a", "a") == "0 1? 2*")


def scaled_out() -> Cluster:
    """Return the same after scaling out by one replica, which finds no room."""
    cluster = half_way()
    started = cluster.progress["updatingReplicas"]
    cluster.edit(replicas=2).settle()
    assert cluster.progress["updatingReplicas"] == started
    return cluster


def held(cluster: Cluster) -> Wait:
    (wait,) = [wait for wait in cluster.waits if wait.code == "WaitingForReplica"]
    return wait


def test_a_replica_scaled_out_while_another_is_half_way_is_not_the_one_that_is_updated() -> None:
    cluster = half_way()
    assert updating(cluster) == [0]
    cluster.edit(replicas=2)
    seen = set()
    for _ in cluster.passes():
        seen.add(tuple(updating(cluster)))
    assert seen == {(0,)}


def test_nothing_is_taken_from_a_replica_that_serves_while_another_is_down() -> None:
    cluster = scaled_out()
    assert cluster.view.set_text() == "0* 1?"
    before = cluster.deleted()
    cluster.run_for(3600.0)
    assert cluster.deleted() == before


def test_an_update_that_waits_for_a_replica_without_room_says_so_and_what_would_help() -> None:
    wait = held(scaled_out())
    assert wait.units == ("w-0",)
    assert wait.text.startswith("w-0 waits until w-1 is available: an update takes down only one replica at a time; ")
    assert "have no node: 0/1 nodes are available: 1 Too many pods." in wait.text
    assert wait.remedies == ("AddCapacity", "ScaleIn")
    assert wait.is_problem


def test_an_outdated_replica_that_is_down_is_not_said_to_wait_for_itself() -> None:
    cluster = half_way(replicas=2)
    cluster.world.set_behaviour(replace(cluster.behaviour, never_ready=frozenset({"w-1-a-0", "w-1-a-1"})))
    for pod in cluster.live_pods("w-1-a")[:2]:
        cluster.world.set_ready(pod.name, ready=False)
    cluster.settle()
    assert cluster.view.set_text() == "0* 1*?"
    wait = held(cluster)
    assert wait.units == ("w-0",)
    assert wait.text.startswith("w-0 waits until w-1 is available: ")


def test_a_replica_that_is_scaled_in_is_not_said_to_wait_for_its_turn() -> None:
    cluster = settled(workload(clique("a", 1), replicas=2), replace(QUICK, garbage_collection_seconds=2.0))
    cluster.edit(replicas=1).update().run_for(1.0)
    assert cluster.live_pods("w-1-a"), "garbage collection takes its time"
    assert not [wait for wait in cluster.waits if wait.code == "WaitingForReplica"]


def test_an_update_that_waits_is_called_stuck_by_what_is_the_matter_with_the_other() -> None:
    stuck = {one["type"]: one for one in scaled_out().status["conditions"]}["UpdateStuck"]
    assert (stuck["status"], stuck["reason"]) == ("True", "ReplicaUnschedulable")
    assert "w-1" in stuck["message"]


def test_an_update_goes_on_when_there_is_room_for_the_replica_it_waits_for() -> None:
    cluster = scaled_out()
    cluster.world.set_behaviour(QUICK)
    cluster.settle()
    assert cluster.view.set_text() == "0 1"
    assert cluster.progress["updateEndedAt"]


def test_an_update_goes_on_when_the_replica_it_waits_for_is_scaled_in_again() -> None:
    cluster = scaled_out().edit(replicas=1).settle()
    assert cluster.view.set_text() == "0"
    assert cluster.progress["updateEndedAt"]


def test_nobody_is_called_updated_while_the_first_to_be_waits_for_another() -> None:
    cluster = settled(workload(clique("a", 1), replicas=2))
    give_room(cluster, 2)
    cluster.edit(replicas=3).update().settle()
    assert updating(cluster) == []
    assert cluster.view.set_text() == "0* 1* 2?"
    assert held(cluster).units == ("w-0", "w-1")


def test_an_outdated_replica_that_is_down_is_updated_even_if_others_are_down() -> None:
    """It serves nobody, so it costs no budget, and the update may be its repair."""
    cluster = settled(workload(clique("a", 1), replicas=2))
    give_room(cluster, 2)
    cluster.world.set_ready(cluster.live_pods("w-1-a")[0].name, ready=False)
    cluster.edit(replicas=3).update().settle()
    assert cluster.view.set_text() == "0* 1 2?"


def test_one_that_broke_after_its_update_is_waited_for_by_name() -> None:
    cluster = settled(workload(clique("a", 1), replicas=3)).update()
    cluster.run_until(lambda cluster: updating(cluster) == [1])
    cluster.world.set_ready(cluster.live_pods("w-0-a")[0].name, ready=False)
    cluster.run_until(lambda cluster: cluster.view.set_text() == "0? 1 2*").settle()
    assert updating(cluster) == []
    wait = held(cluster)
    assert (wait.units, wait.remedies) == (("w-2",), ("LookAtPods", "RollBack"))
    cluster.world.set_ready(cluster.live_pods("w-0-a")[0].name, ready=True)
    assert cluster.settle().progress["updateEndedAt"]


def test_replicas_replaced_whole_are_in_the_progress_and_one_that_is_scaled_out_is_not() -> None:
    recreate = workload(clique("a", 1), replicas=3, strategy=Strategy.REPLICA_RECREATE, budget=(2, 0))
    cluster = settled(recreate)
    give_room(cluster, 3)
    cluster.update().run_until(lambda cluster: updating(cluster) == [0, 1])
    cluster.edit(replicas=4).run_until(lambda cluster: cluster.view.set_text().endswith("3?"))
    assert updating(cluster) == [0, 1]
    seen = set()
    for _ in cluster.passes():
        seen.update(updating(cluster))
    assert seen == {0, 1, 2}


def test_one_that_waits_gives_up_its_surge_to_the_one_it_waits_for() -> None:
    cluster = settled(workload(clique("a", 2, budget=(0, 1)), strategy=Strategy.ROLLING_UPDATE))
    give_room(cluster, 4)
    cluster.update().run_until(lambda cluster: cluster.view.pods_text("w-0-a", "a") == "0* 1* 2s?")
    cluster.edit(replicas=2).run_until(lambda cluster: cluster.view.set_text() == "0* 1")
    assert updating(cluster) == [0]


def test_of_two_replicas_that_were_begun_the_one_at_work_stays_selected_whichever_is_down() -> None:
    recreate = workload(clique("a", 4, 2), replicas=3, strategy=Strategy.REPLICA_RECREATE, budget=(2, 0))
    cluster = settled(recreate).update()
    cluster.run_until(lambda cluster: [len(updated(cluster, name)) for name in ("w-0", "w-1")] == [4, 4])
    cluster.world.set_behaviour(replace(QUICK, never_ready=frozenset({"w-0-a-0", "w-1-a-0"})))
    cluster.edit(strategy=Strategy.ROLLING_RECREATE).run_for(30.0)
    (chosen,) = updating(cluster)
    for _ in range(2):
        for broken in (1 - chosen, chosen):
            for index in (0, 1):
                for pod in cluster.live_pods(f"w-{index}-a")[1:]:
                    cluster.world.set_ready(pod.name, ready=index != broken)
            cluster.run_for(5.0)
            assert updating(cluster) == [chosen], cluster.view.set_text()


def updated(cluster: Cluster, prefix: str) -> list[str]:
    return [pod.name for pod in cluster.live_pods(prefix) if pod.template_hash == cluster.view.hashes["a"]]
