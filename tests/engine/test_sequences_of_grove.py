"""Grove's end-to-end scenarios in the simulated cluster: rolling updates, OnDelete, gangs, gang termination.

Each test is named by Grove's number. As in Grove's harness, a node holds one pod, so n free nodes have room for n pods.
"""

from collections import Counter
from dataclasses import replace

import pytest

from rollouts.engine.model.actions import Create, Kind
from rollouts.engine.model.workload import Strategy, Workload
from rollouts.engine.simulation.scheduler import SimulatedNode
from tests.engine.simulated import QUICK, Cluster, clique, group, settled, workload


def nodes(count: int) -> tuple[SimulatedNode, ...]:
    return tuple(SimulatedNode(f"node-{number}", pods=1) for number in range(count))


def in_room(cluster: Cluster, count: int) -> Cluster:
    cluster.world.set_behaviour(replace(QUICK, nodes=nodes(count)))
    return cluster


def workload1(**fields: object) -> Workload:
    return ten_pods((2, 2), (1, 1), (3, 3), (2, 2), **fields)


def workload2(**fields: object) -> Workload:
    return ten_pods((2, 1), (1, 1), (3, 1), (2, 1), **fields)


def workload_ondelete() -> Workload:
    return ten_pods((2, 1), (1, 1), (3, 3), (2, 2), strategy=Strategy.ON_DELETE)


def ten_pods(
    a: tuple[int, int], b: tuple[int, int], c: tuple[int, int], x: tuple[int, int], **fields: object
) -> Workload:
    parts = (clique("pc-a", *a), clique("pc-b", *b), clique("pc-c", *c), group("sg-x", ("pc-b", "pc-c"), *x))
    return workload(*parts, **fields)  # type: ignore[arg-type]


def roll(cluster: Cluster) -> tuple[int, int]:
    """Run on; return the most pods missing in pc-a, and the most replicas missing in sg-x, at any time."""
    pods, replicas = [0], [0]
    for _ in cluster.passes():
        view = cluster.view
        for index in range(cluster.workload.replicas):
            if f"w-{index}-pc-a" in view.cliques:
                pods.append(2 - sum(unit.available for unit in view.pod_units(f"w-{index}-pc-a", "pc-a")))
                (template,) = cluster.workload.groups
                replicas.append(2 - sum(unit.available for unit in view.group_units(f"w-{index}-sg-x", template)))
    return max(pods), max(replicas)


def updating(cluster: Cluster) -> list[int]:
    return [entry["replicaIndex"] for entry in cluster.progress.get("currentlyUpdating") or ()]


def assert_updated(cluster: Cluster, replicas: int) -> None:
    assert cluster.status["updatedReplicas"] == replicas
    assert cluster.progress["updateEndedAt"]
    assert len(cluster.live_pods()) == 10 * replicas
    assert all(pod.ready for pod in cluster.live_pods())


@pytest.mark.parametrize(
    ("cliques", "most_missing"),
    [(("pc-a",), (1, 0)), (("pc-b",), (0, 1)), (("pc-a", "pc-b", "pc-c"), (1, 1))],
    ids=["ru7", "ru8", "ru9"],
)
def test_ru7_ru8_ru9_one_pod_and_one_group_replica_at_a_time(
    cliques: tuple[str, ...], most_missing: tuple[int, int]
) -> None:
    cluster = settled(workload1(), replace(QUICK, nodes=nodes(10)))
    cluster.update("app:v2", *cliques)
    assert roll(cluster) == most_missing
    assert_updated(cluster, 1)


def test_ru10_without_room_one_pod_is_deleted_and_no_second() -> None:
    cluster = settled(workload1(), replace(QUICK, nodes=nodes(10)))
    in_room(cluster, 0).update("app:v2", "pc-a").settle()
    assert len(cluster.deleted()) == 1
    assert [pod.phase for pod in cluster.live_pods("w-0-pc-a")].count("Pending") == 1
    assert any(wait.is_problem for wait in cluster.waits)
    in_room(cluster, 10).settle()
    assert_updated(cluster, 1)


def test_ru11_scaling_out_during_an_update() -> None:
    cluster = settled(workload1(replicas=2), replace(QUICK, nodes=nodes(30), termination_seconds=5.0))
    cluster.update("app:v2", "pc-a")
    cluster.step()
    cluster.edit(replicas=3).settle()
    assert_updated(cluster, 3)


def test_ru12_scaling_in_the_replica_that_is_being_updated() -> None:
    cluster = settled(workload1(replicas=2), replace(QUICK, nodes=nodes(30), termination_seconds=5.0))
    cluster.update("app:v2")
    cluster.run_until(lambda cluster: updating(cluster) == [1])
    cluster.edit(replicas=1).settle()
    assert_updated(cluster, 1)


def assert_nothing_is_deleted_by_itself(cluster: Cluster, before: set[str]) -> None:
    assert {pod.uid for pod in cluster.live_pods()} == before
    assert not cluster.deleted()
    assert cluster.progress["updateStartedAt"] == cluster.progress["updateEndedAt"]
    assert cluster.progress.get("currentlyUpdating") is None
    assert cluster.progress["totalPodCliquesCount"] > 0
    assert cluster.progress["updatedPodCliquesCount"] <= cluster.progress["totalPodCliquesCount"]


@pytest.mark.parametrize("changed", ["pc-a", "pc-b", "pc-c"], ids=["od1", "od4", "od5"])
def test_od1_od4_nothing_is_deleted_by_itself(changed: str) -> None:
    cluster = settled(workload_ondelete(), replace(QUICK, nodes=nodes(10)))
    before = {pod.uid for pod in cluster.live_pods()}
    cluster.update("app:v2", changed).settle()
    assert_nothing_is_deleted_by_itself(cluster, before)


@pytest.mark.parametrize("changed", ["pc-a", "pc-c"], ids=["od2", "od5"])
def test_od2_od5_a_pod_deleted_by_hand_comes_back_with_the_new_template(changed: str) -> None:
    cluster = settled(workload_ondelete(), replace(QUICK, nodes=nodes(10))).update("app:v2", changed).settle()
    victim = next(pod for pod in cluster.live_pods() if pod.clique.endswith(changed))
    cluster.world.delete(Kind.POD, victim.name)
    cluster.actions.clear()
    cluster.settle()
    (created,) = [one for one in cluster.actions if isinstance(one, Create) and one.kind is Kind.POD]
    assert created.manifest["spec"]["containers"][0]["image"] == "app:v2"
    assert len([pod for pod in cluster.live_pods() if pod.ready]) == 10
    status = next(one.status for one in cluster.world.observed().cliques if one.name == victim.clique)
    assert status["updatedReplicas"] == 1


def test_od3_scaling_in_keeps_the_updated_pod() -> None:
    cluster = settled(workload_ondelete(), replace(QUICK, nodes=nodes(10))).update("app:v2", "pc-a").settle()
    cluster.world.delete(Kind.POD, cluster.live_pods("w-0-pc-a")[0].name)
    cluster.settle()
    cluster.world.scale(Kind.CLIQUE, "w-0-pc-a", 1)
    cluster.settle()
    (survivor,) = cluster.live_pods("w-0-pc-a")
    assert survivor.template_hash == cluster.view.hashes["pc-a"]
    assert len(cluster.live_pods()) == 9


def test_gs1_a_gang_is_placed_whole_or_not_at_all() -> None:
    cluster = Cluster(workload1(), replace(QUICK, nodes=nodes(9))).settle()
    assert Counter(bool(pod.node) for pod in cluster.live_pods()) == {False: 10}
    in_room(cluster, 10).settle()
    assert len({pod.node for pod in cluster.live_pods()}) == 10
    assert all(pod.ready for pod in cluster.live_pods())


def test_gs5_the_minimum_of_the_base_gang_runs_first() -> None:
    cluster = Cluster(workload2(), replace(QUICK, nodes=nodes(2))).settle()
    assert Counter(bool(pod.node) for pod in cluster.live_pods()) == {False: 10}
    in_room(cluster, 3).settle()
    running = Counter(pod.clique for pod in cluster.live_pods() if pod.node)
    assert running == {"w-0-pc-a": 1, "w-0-sg-x-0-pc-b": 1, "w-0-sg-x-0-pc-c": 1}
    in_room(cluster, 10).settle()
    assert sum(pod.ready for pod in cluster.live_pods()) == 10


def kill(cluster: Cluster, pod: str) -> None:
    """Delete a pod and its node."""
    gone = cluster.world.pods[pod].node
    left = tuple(node for node in cluster.world._behaviour.nodes if node.name != gone)
    cluster.world.set_behaviour(replace(QUICK, nodes=left))
    cluster.world.delete(Kind.POD, pod)


def test_gt1_a_replica_below_its_minimum_is_recreated_after_the_delay() -> None:
    cluster = settled(workload1(termination_delay=10.0), replace(QUICK, nodes=nodes(10)))
    before = {pod.uid for pod in cluster.live_pods()}
    kill(cluster, cluster.live_pods("w-0-pc-a")[0].name)
    cluster.run_for(40.0)
    after = {pod.uid for pod in cluster.live_pods()}
    assert len(after) == 10
    assert not before & after
    in_room(cluster, 10).settle()
    assert sum(pod.ready for pod in cluster.live_pods()) == 10


def test_gt3_a_replica_above_its_minimum_is_left_alone() -> None:
    cluster = settled(workload2(termination_delay=10.0), replace(QUICK, nodes=nodes(10)))
    before = {pod.uid for pod in cluster.live_pods()}
    first, second = (pod.name for pod in cluster.live_pods("w-0-pc-a"))
    kill(cluster, first)
    cluster.run_for(40.0)
    assert len({pod.uid for pod in cluster.live_pods()} & before) == 9
    assert sum(pod.ready for pod in cluster.live_pods()) == 9
    kill(cluster, second)
    cluster.run_for(40.0)
    assert not {pod.uid for pod in cluster.live_pods()} & before
    in_room(cluster, 10).settle()
    assert sum(pod.ready for pod in cluster.live_pods()) == 10


def test_nothing_that_was_never_scheduled_is_terminated() -> None:
    cluster = Cluster(workload1(termination_delay=10.0), replace(QUICK, nodes=nodes(9)))
    cluster.run_for(100.0)
    assert not cluster.deleted()
    assert not cluster.deleted(Kind.CLIQUE)


def test_nothing_is_terminated_in_a_replica_while_an_update_is_at_work_in_it() -> None:
    cluster = settled(workload1(termination_delay=10.0)).update("broken", "pc-a")
    cluster.world.set_behaviour(replace(QUICK, never_ready=frozenset({cluster.view.hashes["pc-a"]})))
    cluster.run_for(300.0)
    assert [pod.ready for pod in cluster.live_pods("w-0-pc-a")].count(False) == 1
    assert [action.reason for action in cluster.deleted()] == ["Outdated"]
    assert not cluster.deleted(Kind.CLIQUE)


def test_on_delete_what_is_below_its_minimum_is_terminated_all_the_same() -> None:
    cluster = settled(replace(workload_ondelete(), termination_delay=10.0)).update("app:v2", "pc-c")
    cluster.settle()
    before = {pod.uid for pod in cluster.live_pods()}
    for pod in cluster.live_pods("w-0-pc-a"):
        cluster.world.set_ready(pod.name, ready=False)
    cluster.run_for(60.0)
    assert not before & {pod.uid for pod in cluster.live_pods()}
    assert all(pod.ready for pod in cluster.live_pods())


def test_a_group_replica_that_is_not_needed_is_terminated_alone() -> None:
    cluster = settled(workload2(termination_delay=10.0))
    before = {pod.uid for pod in cluster.live_pods()}
    for pod in cluster.live_pods("w-0-sg-x-1-pc-c"):
        cluster.world.set_ready(pod.name, ready=False)
    cluster.run_for(60.0)
    replaced = before - {pod.uid for pod in cluster.live_pods()}
    assert len(replaced) == 4
    assert cluster.view.group_text("w-0-sg-x", "sg-x") == "0 1"
