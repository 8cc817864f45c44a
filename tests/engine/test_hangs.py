"""Situations in which an update or a replica once waited for ever."""

from dataclasses import replace

import pytest

from rollouts.engine.model.actions import Kind
from rollouts.engine.model.conditions import find_condition
from rollouts.engine.model.observed import Pod
from rollouts.engine.model.workload import Strategy, Workload
from rollouts.engine.simulation.scheduler import SimulatedNode
from tests.engine.chance import AUTOMATIC, assert_all_there
from tests.engine.simulated import QUICK, Cluster, clique, group, settled, workload


def assert_updated(cluster: Cluster) -> None:
    assert_all_there(cluster)
    assert not any(unit.outdated for unit in cluster.view.set_units())
    assert cluster.progress["updateEndedAt"]


# 1. Pods that have ended.


def test_a_pod_that_has_ended_does_not_keep_its_replica_from_being_recreated() -> None:
    cluster = settled(workload(clique("a", 2), replicas=2, strategy=Strategy.REPLICA_RECREATE, budget=(1, 0)))
    cluster.update()
    cluster.world.fail_pod(cluster.live_pods("w-0-a")[0].name)
    assert_updated(cluster.settle())


def test_a_pod_that_ends_in_a_replica_whose_turn_has_not_come_is_deleted_at_once() -> None:
    cluster = settled(workload(clique("a", 3, 1), replicas=2, strategy=Strategy.REPLICA_RECREATE, budget=(1, 0)))
    cluster.update().run_until(lambda cluster: bool(cluster.deleted()))
    ended = cluster.live_pods("w-1-a")[0].name
    cluster.world.fail_pod(ended)
    cluster.step()
    assert ended in [one.name for one in cluster.deleted()]
    assert_updated(cluster.settle())


def test_a_pod_that_ends_after_its_replica_was_emptied_does_not_keep_it_from_coming_back() -> None:
    """A pass that is cut short leaves a pod without a deletionTimestamp."""
    cluster = settled(workload(clique("a", 2), strategy=Strategy.REPLICA_RECREATE, budget=(1, 0)))
    cluster.update().step()
    cut = [one for one in cluster.plan().actions if getattr(one, "kind", None) is Kind.POD]
    cluster.carry_out(cut[:1])
    cluster.world.fail_pod(next(pod.name for pod in cluster.live_pods("w-0-a")))
    assert_updated(cluster.settle())


# 2. Replicas of a scaling group beyond what is wanted.


def test_a_missing_replica_of_a_scaling_group_comes_back_though_surge_is_no_longer_allowed() -> None:
    """The surge may not go before the pending replica is up, and that waits for its gang: for the missing one."""
    parts = (clique("l", 1), group("g", ("l",), 3, 3, budget=(1, 1)))
    cluster = settled(workload(*parts, strategy=Strategy.ROLLING_UPDATE)).update()
    cluster.run_until(lambda cluster: cluster.view.group_text("w-0-g", "g") == "0 3s")
    cluster.edit(groups=(group("g", ("l",), 3, 3, budget=(1, 0)),))
    cluster.run_until(lambda cluster: cluster.view.group_text("w-0-g", "g") == "0 1? 2? 3s")
    assert_updated(cluster.settle())


def test_a_missing_replica_of_a_scaling_group_comes_back_though_one_more_was_scaled_in() -> None:
    cluster = settled(workload(clique("l", 1), group("g", ("l",), 4, 2))).update()
    cluster.run_until(lambda cluster: cluster.view.group_text("w-0-g", "g").startswith("0? 1* 2*"))
    cluster.world.set_ready(cluster.live_pods("w-0-g-1-l")[0].name, ready=False)
    cluster.world.scale(Kind.GROUP, "w-0-g", 3)
    assert_updated(cluster.settle())


# 1 to 4. A switch of the strategy while an update is under way.

EVERY_LEVEL = (clique("a", 2, 1, budget=(1, 1)), clique("l", 1), group("g", ("l",), 3, 3, budget=(1, 1)))
STARTS = {
    "inside a replica": workload(*EVERY_LEVEL, budget=(1, 1)),
    "among replicas": workload(clique("a", 2, 1, budget=(1, 1)), replicas=3, budget=(1, 1)),
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
@pytest.mark.parametrize(("then", "now"), [(then, now) for then in AUTOMATIC for now in Strategy if now is not then])
def test_an_update_ends_whenever_its_strategy_is_switched(start: Workload, then: Strategy, now: Strategy) -> None:
    cluster = settled(replace(start, strategy=then)).update()
    for _ in cluster.passes():
        switched = cluster.fork().edit(strategy=now).settle()
        assert_all_there(switched)
        assert switched.progress["updateEndedAt"]
        assert now is Strategy.ON_DELETE or not any(unit.outdated for unit in switched.view.set_units())


# 3. A replica of which only its PodGang is left.


def test_a_replica_of_which_only_its_gang_is_left_is_rebuilt() -> None:
    cluster = settled(workload(clique("a", 1), clique("l", 1), group("g", ("l",), 2), replicas=2))
    for kind, name in ((Kind.CLIQUE, "w-1-a"), (Kind.GROUP, "w-1-g"), (Kind.SERVICE, "w-1")):
        cluster.world.delete(kind, name)
    while cluster.live_pods("w-1-") or any(pod.clique.startswith("w-1-") for pod in cluster.world.pods.values()):
        cluster.world.advance()
    assert_all_there(cluster.settle())


# 4. Pods whose indices have a gap.


def test_a_replica_recreated_while_it_was_scaled_in_is_complete_with_whatever_pods_it_has() -> None:
    recreate = workload(clique("a", 3, 1), strategy=Strategy.REPLICA_RECREATE, budget=(1, 0))
    cluster = settled(recreate).update()
    cluster.run_until(lambda cluster: cluster.view.pods_text("w-0-a", "a") == "0? 1? 2?")
    cluster.world.set_ready(cluster.live_pods("w-0-a")[1].name, ready=True)
    cluster.world.set_ready(cluster.live_pods("w-0-a")[2].name, ready=True)
    cluster.world.scale(Kind.CLIQUE, "w-0-a", 2)
    cluster.settle()
    assert cluster.progress["updateEndedAt"]


def test_pods_with_a_gap_are_complete_when_an_automatic_strategy_finds_nothing_to_update() -> None:
    cluster = settled(workload(clique("a", 3, 1), strategy=Strategy.ON_DELETE)).update().settle()
    cluster.world.delete(Kind.POD, cluster.live_pods("w-0-a")[2].name)
    cluster.settle()
    cluster.world.scale(Kind.CLIQUE, "w-0-a", 2)
    assert cluster.settle().view.pods_text("w-0-a", "a") == "0* 2s"
    cluster.world.delete(Kind.POD, cluster.live_pods("w-0-a")[0].name)
    cluster.run_until(lambda cluster: cluster.view.pods_text("w-0-a", "a") == "0? 2s")
    cluster.edit(strategy=Strategy.ROLLING_RECREATE).settle()
    assert cluster.view.pods_text("w-0-a", "a") == "0 2s"
    assert {one["type"]: one["reason"] for one in cluster.status["conditions"]}["Progressing"] == "Complete"


# 5. Gang termination.


def test_a_pod_that_is_lost_soon_after_it_was_created_and_finds_no_node_is_below_its_minimum_like_any_other() -> None:
    cluster = Cluster(workload(clique("a", 2), termination_delay=10.0), replace(QUICK, ready_seconds=1.0))
    cluster.run_until(lambda cluster: cluster.view.pods_text("w-0-a", "a") == "0 1")
    cluster.run_for(1.0)
    lost, kept = cluster.live_pods("w-0-a")
    cluster.world.set_behaviour(replace(cluster.behaviour, nodes=(SimulatedNode("node", pods=1),)))
    cluster.world.remove(lost.name)
    cluster.run_for(60.0)
    assert kept.uid not in [pod.uid for pod in cluster.live_pods("w-0-a")]


def test_a_pod_that_is_lost_before_any_pass_has_seen_it_scheduled_is_below_its_minimum_like_any_other() -> None:
    cluster = Cluster(workload(clique("a", 2), termination_delay=10.0), replace(QUICK, ready_seconds=0.0))
    lost, kept = placed_and_unseen(cluster, 2)
    cluster.world.set_behaviour(replace(cluster.behaviour, nodes=(SimulatedNode("node", pods=1),)))
    cluster.world.remove(lost.name)
    cluster.run_for(60.0)
    assert kept.uid not in [pod.uid for pod in cluster.live_pods("w-0-a")]


def test_a_pod_of_a_scaling_group_that_is_lost_before_any_pass_has_seen_it_scheduled_is_no_exception() -> None:
    parts = (clique("l", 2), group("g", ("l",), 2, 2))
    cluster = Cluster(workload(*parts, termination_delay=10.0), replace(QUICK, ready_seconds=0.0))
    lost, *kept = placed_and_unseen(cluster, 4)
    cluster.world.set_behaviour(replace(cluster.behaviour, nodes=(SimulatedNode("node", pods=3),)))
    cluster.world.remove(lost.name)
    cluster.run_for(60.0)
    assert not {pod.uid for pod in kept} & {pod.uid for pod in cluster.live_pods()}


@pytest.mark.parametrize("lost", ["w-0-a", "w-0-g-0-l"])
def test_the_only_pod_of_a_clique_that_is_lost_before_any_pass_has_seen_it_scheduled_is_no_exception(lost: str) -> None:
    """Its clique has nothing scheduled now; the rest of its gang has, and a gang is scheduled whole."""
    parts = (clique("a", 1), clique("b", 1), clique("l", 1), group("g", ("l",), 1))
    cluster = Cluster(workload(*parts, termination_delay=10.0), replace(QUICK, ready_seconds=0.0))
    before = placed_and_unseen(cluster, 3)
    kept = {pod.uid for pod in before if pod.clique != lost}
    cluster.world.set_behaviour(replace(cluster.behaviour, nodes=(SimulatedNode("node", pods=2),)))
    cluster.world.remove(next(pod.name for pod in before if pod.clique == lost))
    cluster.run_for(120.0)
    assert not kept & {pod.uid for pod in cluster.live_pods()}


def test_the_only_pod_of_a_clique_in_a_scaled_gang_that_is_lost_so_early_is_no_exception() -> None:
    parts = (clique("l", 1), clique("k", 1), group("g", ("l", "k"), 2, 1))
    cluster = Cluster(workload(*parts, termination_delay=10.0), replace(QUICK, ready_seconds=0.0))
    before = placed_and_unseen(cluster, 4, "w-0-g-1")
    base = {pod.uid for pod in before if pod.clique.startswith("w-0-g-0")}
    kept = next(pod.uid for pod in before if pod.clique == "w-0-g-1-k")
    cluster.world.set_behaviour(replace(cluster.behaviour, nodes=(SimulatedNode("node", pods=3),)))
    cluster.world.remove(next(pod.name for pod in before if pod.clique == "w-0-g-1-l"))
    cluster.run_for(120.0)
    live = {pod.uid for pod in cluster.live_pods()}
    assert kept not in live
    assert base <= live


def test_a_replica_of_a_scaling_group_that_was_recreated_and_finds_no_node_is_left_in_its_queue() -> None:
    """Its gang serves; of the replica itself nothing was scheduled since."""
    parts = (clique("l", 1), clique("k", 1), group("g", ("l", "k"), 2, 1))
    cluster = settled(workload(*parts, termination_delay=10.0), replace(QUICK, ready_seconds=0.0))
    cluster.world.set_behaviour(replace(cluster.behaviour, nodes=(SimulatedNode("node", pods=0),)))
    cluster.world.remove(cluster.live_pods("w-0-g-0-l")[0].name)
    cluster.run_for(60.0)
    waiting = [pod.uid for pod in cluster.live_pods("w-0-g-0") if not pod.node]
    assert len(waiting) == 2
    cluster.run_for(60.0)
    assert [pod.uid for pod in cluster.live_pods("w-0-g-0")] == waiting


def test_a_pod_that_never_had_a_node_is_not_recreated_for_it() -> None:
    """The scheduler of the world places gangs whole."""
    start = workload(clique("a", 2), termination_delay=10.0)
    cluster = Cluster(start, replace(QUICK, nodes=(SimulatedNode("node", pods=1),)))
    cluster.run_for(60.0)
    before = [pod.uid for pod in cluster.live_pods("w-0-a")]
    cluster.run_for(60.0)
    assert [pod.uid for pod in cluster.live_pods("w-0-a")] == before
    assert not cluster.deleted()


def placed_and_unseen(cluster: Cluster, count: int, prefix: str = "") -> list[Pod]:
    """Take passes until the pods have their nodes, and none after that; no status of these PodCliques says so yet."""
    while not (len(cluster.live_pods()) == count and all(pod.node for pod in cluster.live_pods())):
        cluster.step()
        cluster.wait()
    for one in cluster.world.observed().cliques:
        if one.name.startswith(prefix):
            assert find_condition(one.status, "PodCliqueScheduled").get("status") != "True"
    return cluster.live_pods()


# 7. An update that ends and begins again without a pause.


def test_an_update_ends_once_though_pods_of_its_surge_are_collected_late() -> None:
    parts = (clique("l", 1), group("g", ("l",), 1, 1, budget=(0, 1)))
    late = replace(QUICK, ready_seconds=0.0, garbage_collection_seconds=2.0)
    cluster = settled(workload(*parts, strategy=Strategy.ROLLING_UPDATE), late).update("app:v2")
    cluster.run_until(lambda cluster: any(pod.clique == "w-0-g-1-l" and pod.node for pod in cluster.live_pods()))
    cluster.update("app:v1")
    moments = [moment.reason for planned in cluster.passes() for moment in planned.timeline_events]
    assert [one for one in moments if one.startswith("Update")] == ["UpdateSuperseded", "UpdateStarted", "UpdateEnded"]


def test_an_update_does_not_end_while_surge_stands_in_for_a_pod_that_was_lost() -> None:
    cluster = settled(workload(clique("a", 3, 1, (0, 1)), strategy=Strategy.ROLLING_UPDATE)).update()
    cluster.run_until(lambda cluster: cluster.view.pods_text("w-0-a", "a") == "0 1 2? 3s")
    by_index = {pod.index: pod.name for pod in cluster.live_pods()}
    cluster.world.set_ready(by_index[2], ready=True)
    cluster.world.delete(Kind.POD, by_index[1])
    assert cluster.view.pods_text("w-0-a", "a") == "0 2 3s"
    cluster.step()
    assert not cluster.progress.get("updateEndedAt")
    assert cluster.settle().view.pods_text("w-0-a", "a") == "0 1 2"
    assert_updated(cluster)
