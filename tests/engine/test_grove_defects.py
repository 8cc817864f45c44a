"""Known defects in the decisions of Grove's operator: each test creates the situation and shows that we decide right.

Each test is named by its number in our list of defects, with the issues of Grove.
"""

from dataclasses import replace

from rollouts.engine.model.actions import Delete, Kind
from rollouts.engine.model.workload import Strategy
from tests.engine.simulated import QUICK, Cluster, clique, group, settled, workload


def ready(cluster: Cluster, prefix: str = "w-0-a") -> int:
    return sum(pod.ready for pod in cluster.live_pods(prefix))


def test_b1_ready_pods_with_a_bad_past_are_not_deleted_in_bulk() -> None:
    """#697, #698, #765, #766: a Ready pod that had once crashed was called unhealthy and deleted without budget."""
    cluster = settled(workload(clique("a", 4)))
    for pod in cluster.live_pods():  # they crash and recover: what is left is a message
        cluster.world.set_ready(pod.name, ready=False)
        cluster.world.set_ready(pod.name, ready=True)
        crashed = replace(cluster.world.pods[pod.name], message="last state: terminated, exit code 137")
        cluster.world._store(Kind.POD, crashed)
    cluster.update()
    lowest = min(ready(cluster) for _ in cluster.passes())
    assert lowest == 3


def test_b2_no_deletion_brings_availability_below_what_is_allowed() -> None:
    """#766: with exactly as many Ready as needed the next deletion went through."""
    cluster = settled(workload(clique("a", 3, 2, budget=(1, 0)), strategy=Strategy.ROLLING_UPDATE)).update()
    cluster.run_until(lambda cluster: ready(cluster) == 2)
    for _ in cluster.passes():
        assert ready(cluster) >= 2
    assert len(cluster.deleted()) == 3


def test_b3_an_update_ends_only_when_the_replacements_are_ready() -> None:
    """#786, #785: the update of a clique ended when no old pod was left."""
    cluster = settled(workload(clique("a", 2), clique("l", 1), group("g", ("l",), 2))).update()
    ended_early = False
    for _ in cluster.passes():
        current = cluster.view.hashes
        unready = [pod for pod in cluster.live_pods() if not (pod.ready and pod.template_hash in current.values())]
        ended_early |= bool(cluster.progress.get("updateEndedAt") and (unready or len(cluster.live_pods()) < 4))
    assert cluster.progress["updateEndedAt"]
    assert not ended_early


def test_b3_the_update_of_one_clique_ends_only_when_its_replacements_are_ready() -> None:
    cluster = settled(workload(clique("a", 2))).update()
    for _ in cluster.passes():
        (seen,) = cluster.world.observed().cliques
        if seen.status.get("updateProgress", {}).get("updateEndedAt"):
            assert ready(cluster) == 2
    (seen,) = cluster.world.observed().cliques
    assert seen.status["updateProgress"]["updateEndedAt"]


def test_b4_updated_replicas_rise_and_do_not_stay_at_nothing() -> None:
    """#671, #672: updatedReplicas stayed 0."""
    cluster = settled(workload(clique("a", 3), replicas=2)).update()
    seen = [cluster.status["updatedReplicas"] for _ in cluster.passes()]
    assert sorted(set(seen)) == [0, 1, 2]
    assert seen[-1] == 2
    assert [one.status["updatedReplicas"] for one in cluster.world.observed().cliques] == [3, 3]


def test_b5_a_change_during_an_update_converges_to_the_newest_at_every_step() -> None:
    """#400, #315: a new change in the middle of an update could hang."""
    parts = (clique("a", 2), clique("l", 1), group("g", ("l",), 1))
    undisturbed = settled(workload(*parts, replicas=2)).update("app:v2")
    for number, _ in enumerate(undisturbed.passes()):
        cluster = undisturbed.fork().update("app:v3").settle()
        assert cluster.view.set_text() == "0 1", f"interrupted after pass {number}"
        assert cluster.progress["updateEndedAt"]


def test_b6_scaling_in_does_not_spend_itself_on_pods_that_leave_anyway() -> None:
    """#758, #759: pods that were leaving were chosen again, so too many stayed; or counted twice, so too many went."""
    cluster = settled(workload(clique("a", 5, 1)))
    leaving = cluster.live_pods()[2]
    cluster.world.delete(Kind.POD, leaving.name)
    cluster.world.scale(Kind.CLIQUE, "w-0-a", 3)
    cluster.settle()
    assert len(cluster.live_pods()) == 3
    assert len(cluster.deleted()) == 1
    assert leaving.uid not in {action.uid for action in cluster.deleted()}


def test_b7_quick_successive_edits_replace_a_pod_once_when_they_come_before_its_turn() -> None:
    """#565: every edit rolled the whole gang again."""
    cluster = settled(workload(clique("a", 2), clique("l", 1), clique("k", 3), group("g", ("l", "k"), 2)))
    for image in ("app:v2", "app:v3", "app:v4"):
        cluster.update(image)
    cluster.settle()
    assert len(cluster.deleted(Kind.POD)) == 2
    assert len(cluster.deleted(Kind.CLIQUE)) == 4


def test_b7_an_edit_and_its_reversal_before_anything_moved_replace_nothing() -> None:
    cluster = settled(workload(clique("a", 2), clique("l", 1), group("g", ("l",), 2)))
    before = {pod.uid for pod in cluster.live_pods()}
    cluster.update("app:v2").update("app:v1").settle()
    assert {pod.uid for pod in cluster.live_pods()} == before


def test_b7_changes_of_what_is_in_no_template_replace_nothing() -> None:
    cluster = settled(workload(clique("a", 2), clique("l", 1), group("g", ("l",), 2)))
    before = {pod.uid for pod in cluster.live_pods()}
    cluster.edit(strategy=Strategy.REPLICA_RECREATE, termination_delay=60.0).settle()
    assert {pod.uid for pod in cluster.live_pods()} == before
    assert not cluster.progress


def test_b10_a_broken_group_replica_does_not_eat_the_budget_that_would_repair_it() -> None:
    """#840: replicas that were unavailable already used up maxUnavailable, and the update stood still."""
    parts = (clique("l", 1), clique("k", 2), group("g", ("l", "k"), 3))
    cluster = settled(workload(*parts))
    for pod in cluster.live_pods("w-0-g-2-k"):
        cluster.world.set_ready(pod.name, ready=False)
    assert cluster.view.group_text("w-0-g", "g") == "0 1 2?"
    cluster.update()
    cluster.step()
    cluster.run_until(lambda cluster: bool(cluster.deleted(Kind.CLIQUE)))
    assert {action.name for action in cluster.deleted(Kind.CLIQUE)} == {"w-0-g-2-l", "w-0-g-2-k"}
    cluster.settle()
    assert cluster.view.group_text("w-0-g", "g") == "0 1 2"
    assert cluster.progress["updateEndedAt"]


def test_b11_what_is_leaving_counts_nowhere() -> None:
    """The counters of ready, scheduled and updated pods included those that were leaving."""
    cluster = settled(workload(clique("a", 3, 1)), replace(QUICK, termination_seconds=500.0))
    for pod in cluster.live_pods()[:2]:
        cluster.world.delete(Kind.POD, pod.name)
    assert sum(pod.leaving and pod.ready for pod in cluster.world.pods.values()) == 2
    cluster.run_until(lambda cluster: not cluster.plan().actions)
    (seen,) = cluster.world.observed().cliques
    live = cluster.live_pods()
    assert seen.status["replicas"] == len(live)
    assert seen.status["readyReplicas"] == sum(pod.ready for pod in live) == 1
    assert seen.status["scheduledReplicas"] == sum(bool(pod.node) for pod in live)
    assert seen.status["updatedReplicas"] == len(live)


def test_b12_replicas_set_by_others_survive_a_recreation_of_the_gang() -> None:
    """#826: recovery started from the numbers of the template, and what an autoscaler had set was lost."""
    parts = (clique("a", 2), clique("l", 1), group("g", ("l",), 2, 2))
    cluster = settled(workload(*parts, termination_delay=60.0))
    cluster.world.scale(Kind.CLIQUE, "w-0-a", 4)
    cluster.world.scale(Kind.GROUP, "w-0-g", 3)
    cluster.settle()
    before = {pod.uid for pod in cluster.live_pods()}
    assert len(before) == 7
    for pod in cluster.live_pods("w-0-a")[:3]:
        cluster.world.set_ready(pod.name, ready=False)
    cluster.run_for(300.0)
    assert len(cluster.live_pods("w-0-a")) == 4
    assert cluster.view.group_text("w-0-g", "g") == "0 1 2"
    assert not before & {pod.uid for pod in cluster.live_pods()}, "the replica was recreated"


def test_b12_replicas_set_by_others_survive_an_update_that_recreates_the_replica() -> None:
    parts = (clique("a", 2), clique("l", 1), group("g", ("l",), 2))
    cluster = settled(workload(*parts, strategy=Strategy.REPLICA_RECREATE, budget=(1, 0)))
    cluster.world.scale(Kind.CLIQUE, "w-0-a", 3)
    cluster.world.scale(Kind.GROUP, "w-0-g", 4)
    cluster.settle().update().settle()
    assert len(cluster.live_pods("w-0-a")) == 3
    assert cluster.view.group_text("w-0-g", "g") == "0 1 2 3"


def test_no_deletion_is_without_a_uid_and_a_reason() -> None:
    cluster = settled(workload(clique("a", 2), clique("l", 1), group("g", ("l",), 2))).update().settle()
    deletions = [action for action in cluster.actions if isinstance(action, Delete)]
    assert deletions
    assert all(action.uid and action.reason for action in deletions)
