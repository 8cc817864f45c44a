"""The acceptance sequences of `docs/semantics.md` 14 as tables of exact states, through the whole planner.

A table has the state after each pass that changed something: `0*` outdated, `3s` surge, `1?` not available; leaving
units are not written.
"""

from dataclasses import replace

import pytest

from rollouts.engine.model.actions import Kind, WriteStatus
from rollouts.engine.model.workload import BudgetSpec, Strategy
from rollouts.engine.simulation.scheduler import SimulatedNode
from tests.engine.simulated import Cluster, View, clique, group, settled, workload

SURGE_ONE_OF_THREE = [
    "0* 1* 2*",
    "0* 1* 2* 3s?",
    "1* 2* 3s",
    "0? 1* 2* 3s",
    "0 2* 3s",
    "0 1? 2* 3s",
    "0 1 3s",
    "0 1 2? 3s",
    "0 1 2",
]


def a_pods(view: View) -> str:
    return view.pods_text("w-0-a", "a")


def g_replicas(view: View) -> str:
    return view.group_text("w-0-g", "g")


def set_replicas(view: View) -> str:
    return view.set_text()


def rolling_update_of_group(replicas: int, min_available: int, budget: tuple[int, int]) -> Cluster:
    parts = (clique("l", 1), clique("k", 2), group("g", ("l", "k"), replicas, min_available, budget))
    return settled(workload(*parts, strategy=Strategy.ROLLING_UPDATE)).update()


def replica_recreate(replicas: int, budget: tuple[int, int]) -> Cluster:
    parts = (clique("a", 2, 1), clique("l", 1), clique("k", 2), group("g", ("l", "k"), 2))
    recreate = workload(*parts, replicas=replicas, strategy=Strategy.REPLICA_RECREATE, budget=budget)
    return settled(recreate).update()


def lowest(cluster: Cluster, units: str) -> int:
    """Run on and return the lowest number of available units seen."""
    found = []
    for _ in cluster.passes():
        view = cluster.view
        seen = view.pod_units("w-0-a", "a") if units == "pods" else view.set_units()
        found.append(sum(unit.available for unit in seen))
    return min(found)


# Pods of a clique.


def surge_of_one_pod() -> Cluster:
    return settled(workload(clique("a", 3, budget=(0, 1)), strategy=Strategy.ROLLING_UPDATE)).update()


def test_pods_with_a_surge_of_one_are_replaced_one_at_a_time_and_the_surge_goes_last() -> None:
    assert surge_of_one_pod().states(a_pods) == SURGE_ONE_OF_THREE


def test_surge_goes_last_also_when_nobody_noted_that_the_clique_was_complete_before() -> None:
    cluster = settled(workload(clique("a", 3, budget=(0, 1)), strategy=Strategy.ROLLING_UPDATE))
    observed = cluster.world.observed()
    (only,) = observed.cliques
    status = {name: value for name, value in only.status.items() if not name.startswith("current")}
    cluster.begin_from(replace(observed, cliques=(replace(only, status=status),)))
    assert cluster.update().states(a_pods) == SURGE_ONE_OF_THREE


def test_surge_goes_last_also_when_nothing_was_noted_on_the_clique_until_the_last_outdated_pod_is_gone() -> None:
    cluster = settled(workload(clique("a", 3, budget=(0, 1)), strategy=Strategy.ROLLING_UPDATE)).update()
    while "*" in a_pods(cluster.view):
        actions = cluster.plan().actions
        done = [action for action in actions if not (isinstance(action, WriteStatus) and action.kind is Kind.CLIQUE)]
        cluster.carry_out(done)
        if not done:
            assert cluster.wait()
    assert "3s" in a_pods(cluster.view)
    assert cluster.settle().states(a_pods) == ["0 1 2"]
    assert cluster.progress["updateEndedAt"]


def test_pods_with_nothing_unavailable_are_never_fewer_than_wanted() -> None:
    assert lowest(surge_of_one_pod(), "pods") == 3


def test_pods_without_settings_go_one_at_a_time() -> None:
    cluster = settled(workload(clique("a", 3))).update()
    assert cluster.states(a_pods) == [
        "0* 1* 2*",
        "1* 2*",
        "0? 1* 2*",
        "0 2*",
        "0 1? 2*",
        "0 1",
        "0 1 2?",
        "0 1 2",
    ]


def test_a_quarter_of_ten_pods_is_two_missing_and_three_extra() -> None:
    parts = clique("a", 10, 5, budget=("25%", "25%"))
    cluster = settled(workload(parts, strategy=Strategy.ROLLING_UPDATE)).update()
    assert cluster.states(a_pods)[:4] == [
        "0* 1* 2* 3* 4* 5* 6* 7* 8* 9*",
        "2* 3* 4* 5* 6* 7* 8* 9* 10s? 11s? 12s?",
        "0? 1? 2* 3* 4* 5* 6* 7* 8* 9* 10s? 11s? 12s?",
        "0 1 7* 8* 9* 10s 11s 12s",
    ]
    assert a_pods(cluster.view) == "0 1 2 3 4 5 6 7 8 9"


# Replicas of a scaling group.


def test_group_replicas_with_a_surge_of_one_are_replaced_one_at_a_time_and_the_surge_goes_last() -> None:
    assert rolling_update_of_group(3, 3, (0, 1)).states(g_replicas) == SURGE_ONE_OF_THREE


def test_the_surge_of_a_group_whose_replicas_are_all_needed_is_in_a_scaled_gang() -> None:
    cluster = rolling_update_of_group(3, 3, (0, 1))
    cluster.run_until(lambda cluster: "3s" in g_replicas(cluster.view).split())
    gangs = {gang.name: set(gang.pod_groups) for gang in cluster.world.observed().gangs}
    base = {f"w-0-g-{replica}-{name}" for replica in range(3) for name in ("l", "k")}
    assert gangs == {"w-0": base, "w-0-g-0": {"w-0-g-3-l", "w-0-g-3-k"}}
    assert set(cluster_gangs(cluster.settle())) == {"w-0"}


def test_group_replicas_beyond_the_minimum_and_surge_are_in_scaled_gangs() -> None:
    cluster = rolling_update_of_group(3, 2, (0, 1))
    cluster.run_until(lambda cluster: "3s" in g_replicas(cluster.view).split())
    assert cluster_gangs(cluster) == {
        "w-0": {"w-0-g-0-l", "w-0-g-0-k", "w-0-g-1-l", "w-0-g-1-k"},
        "w-0-g-0": {"w-0-g-2-l", "w-0-g-2-k"},
        "w-0-g-1": {"w-0-g-3-l", "w-0-g-3-k"},
    }
    assert g_replicas(cluster.settle().view) == "0 1 2"
    assert set(cluster_gangs(cluster)) == {"w-0", "w-0-g-0"}


def cluster_gangs(cluster: Cluster) -> dict[str, set[str]]:
    return {gang.name: set(gang.pod_groups) for gang in cluster.world.observed().gangs if not gang.leaving}


def test_group_replicas_with_two_unavailable_of_four_go_in_pairs() -> None:
    assert rolling_update_of_group(4, 1, (2, 0)).states(g_replicas) == [
        "0* 1* 2* 3*",
        "2* 3*",
        "0? 1? 2* 3*",
        "0 1",
        "0 1 2? 3?",
        "0 1 2 3",
    ]


def test_a_group_of_three_with_two_needed_and_surge_rolls_like_any_other() -> None:
    assert rolling_update_of_group(3, 2, (0, 1)).states(g_replicas) == SURGE_ONE_OF_THREE


def test_a_group_replica_is_replaced_whole_when_one_of_its_cliques_changed() -> None:
    parts = (clique("l", 1), clique("k", 2), group("g", ("l", "k"), 2))
    cluster = settled(workload(*parts))
    before = {pod.uid for pod in cluster.live_pods()}
    cluster.update("app:v2", "l").settle()
    assert not before & {pod.uid for pod in cluster.live_pods()}


def test_two_versions_never_meet_inside_a_group_replica() -> None:
    cluster = rolling_update_of_group(3, 2, (0, 1))
    for _ in cluster.passes():
        found: dict[tuple[str, int], set[bool]] = {}
        for pod in cluster.world.pods.values():
            current = pod.template_hash == cluster.view.hashes[pod.clique.rpartition("-")[2]]
            found.setdefault((pod.clique.rpartition("-")[0], 0), set()).add(current)
        assert all(len(versions) == 1 for versions in found.values())


# Replicas of the set.


def test_replicas_one_after_the_other_each_with_its_components_at_once() -> None:
    parts = (clique("a", 2, 1), clique("l", 1), group("g", ("l",), 2))
    cluster = settled(workload(*parts, replicas=3)).update()
    assert cluster.states(set_replicas) == ["0* 1* 2*", "0 1* 2*", "0 1 2*", "0 1 2"]


def test_recreated_replicas_with_a_surge_of_one_of_three() -> None:
    assert replica_recreate(3, (0, 1)).states(set_replicas) == SURGE_ONE_OF_THREE


def test_recreated_replicas_with_a_surge_of_one_of_two_keep_full_capacity() -> None:
    cluster = replica_recreate(2, (0, 1))
    assert cluster.states(set_replicas) == [
        "0* 1*",
        "0* 1* 2s?",
        "1* 2s",
        "0? 1* 2s",
        "0 2s",
        "0 1? 2s",
        "0 1",
    ]
    assert lowest(replica_recreate(2, (0, 1)), "replicas") == 2


def test_recreated_replicas_go_both_at_once_when_both_may_be_unavailable() -> None:
    assert replica_recreate(2, (2, 0)).states(set_replicas) == ["0* 1*", "", "0? 1?", "0 1"]


def test_recreated_replicas_go_one_at_a_time_when_one_may_be_unavailable() -> None:
    assert replica_recreate(2, (1, 0)).states(set_replicas) == ["0* 1*", "1*", "0? 1*", "0", "0 1?", "0 1"]


def test_recreated_replicas_with_unavailable_and_surge() -> None:
    assert replica_recreate(5, (2, 1)).states(set_replicas) == [
        "0* 1* 2* 3* 4*",
        "2* 3* 4*",  # the surge begins with what holds it; pods come in the next pass
        "2* 3* 4* 5s?",
        "0? 1? 2* 3* 4* 5s?",
        "0? 1? 3* 4* 5s",
        "0 1 2? 5s",
        "0 1 2? 3? 4? 5s",
        "0 1 2 3? 4? 5s",
        "0 1 2 3 4",
    ]


def test_two_replicas_recreated_at_once_are_both_in_the_progress() -> None:
    cluster = replica_recreate(5, (2, 1))
    cluster.run_until(lambda cluster: "0?" in set_replicas(cluster.view))
    updating = cluster.progress["updatingReplicas"]
    assert [entry["replicaIndex"] for entry in updating] == [0, 1]
    assert all(entry["updateStartedAt"] for entry in updating)
    assert cluster.status["rollingUpdateProgress"] == cluster.progress


def test_a_recreated_replica_goes_whole_and_comes_back_whole() -> None:
    cluster = replica_recreate(2, (1, 0))
    cluster.run_until(lambda cluster: set_replicas(cluster.view) == "1*")
    assert not cluster.live_pods("w-0")
    cluster.run_until(lambda cluster: "0?" in set_replicas(cluster.view))
    assert all(pod.template_hash in cluster.view.hashes.values() for pod in cluster.live_pods("w-0"))


@pytest.mark.parametrize(
    ("replicas", "budget"), [(3, (0, 1)), (2, (0, 1)), (2, (2, 0)), (2, (1, 0)), (5, (2, 1))], ids=str
)
def test_an_update_ends_with_the_replicas_wanted_and_says_so(replicas: int, budget: tuple[int, int]) -> None:
    cluster = replica_recreate(replicas, budget).settle()
    assert set_replicas(cluster.view) == " ".join(str(index) for index in range(replicas))
    assert cluster.progress["updateEndedAt"]
    assert cluster.status["updatedReplicas"] == replicas
    assert not cluster.progress.get("updatingReplicas")


# Who goes first.


def test_replicas_with_nothing_scheduled_go_first_then_breached_ones_then_the_lowest_index() -> None:
    parts = (clique("a", 2, 2),)
    cluster = settled(workload(*parts, replicas=3))
    # Its broken pod is replaced at once, and what takes its place is slow.
    slow = replace(cluster.behaviour, never_ready=frozenset({"w-1-a-0"}))
    cluster.world.set_ready(cluster.live_pods("w-1-a")[0].name, ready=False)
    empty_nodes(cluster, "w-2-a")
    cluster.settle()
    cluster.update()
    order: list[int] = []
    for _ in cluster.passes():
        chosen = [entry["replicaIndex"] for entry in cluster.progress.get("updatingReplicas") or ()]
        if chosen and chosen != order[-1:]:
            order += chosen
        if chosen == [2]:
            cluster.world.set_behaviour(slow)
        if chosen == [1]:
            cluster.world.set_ready(cluster.live_pods("w-1-a")[0].name, ready=True)
    assert order == [2, 1, 0]


def empty_nodes(cluster: Cluster, prefix: str) -> None:
    """Take all room away and delete the pods with this prefix: their replacements are not scheduled."""
    cluster.world.set_behaviour(replace(cluster.behaviour, nodes=(SimulatedNode("full", pods=0),)))
    for pod in cluster.live_pods(prefix):
        cluster.world.delete(Kind.POD, pod.name)


def test_the_oldest_pod_goes_first() -> None:
    cluster = settled(workload(clique("a", 3)))
    cluster.world.delete(Kind.POD, cluster.live_pods()[0].name)
    cluster.settle().update()
    assert cluster.states(a_pods)[1] == "0* 2*"


# A change during a change.


def test_a_new_template_during_an_update_resets_the_progress_and_starts_over() -> None:
    parts = (clique("a", 1), clique("l", 1), group("g", ("l",), 1))
    cluster = settled(workload(*parts, replicas=3)).update("app:v2")
    cluster.run_until(lambda cluster: set_replicas(cluster.view).startswith("0 1?"))
    assert cluster.status["updatedReplicas"] == 1
    assert cluster.progress["updatedPodCliques"] == ["w-0-a"]
    assert cluster.progress["updatedPodCliqueScalingGroups"] == ["w-0-g"]
    assert cluster.progress["currentlyUpdating"][0]["replicaIndex"] == 1
    started = cluster.progress["updateStartedAt"]
    cluster.world.advance(cluster.world.now + 60)
    cluster.update("app:v3").run_until(lambda cluster: cluster.progress["updateStartedAt"] != started)
    assert cluster.status["updatedReplicas"] == 0
    assert not cluster.progress.get("updateEndedAt")
    assert not cluster.progress.get("updatedPodCliques")
    assert not cluster.progress.get("updatedPodCliqueScalingGroups")
    seen = cluster.states(set_replicas)
    assert seen[-1] == "0 1 2"
    assert seen[0].startswith("0*")


def test_surge_for_a_superseded_template_goes_first_and_comes_again() -> None:
    cluster = surge_of_one_pod()
    cluster.run_until(lambda cluster: a_pods(cluster.view) == "0? 1* 2* 3s")
    cluster.update("app:v3")
    assert cluster.states(a_pods) == [
        "0*? 1* 2* 3s*",
        "1* 2* 3s*",
        "0? 1* 2* 3s*",
        "0 1* 2*",
        "0 1* 2* 3s?",
        "0 2* 3s",
        "0 1? 2* 3s",
        "0 1 3s",
        "0 1 2? 3s",
        "0 1 2",
    ]


def test_surge_replicas_for_a_superseded_template_go_first() -> None:
    cluster = replica_recreate(2, (0, 1))
    cluster.run_until(lambda cluster: set_replicas(cluster.view) == "1* 2s")
    cluster.update("app:v3")
    assert cluster.states(set_replicas) == [
        "1* 2s*",
        "0? 1* 2s*",
        "0 1*",
        "0 1* 3s?",  # the index of the former surge is not free before all of it is gone
        "0 3s",
        "0 1? 3s",
        "0 1",
    ]


# Deleting by hand.


def on_delete() -> Cluster:
    return settled(workload(clique("a", 3, 1), strategy=Strategy.ON_DELETE)).update()


def test_on_delete_nothing_goes_what_is_deleted_comes_back_new_and_scaling_in_takes_the_outdated() -> None:
    cluster = on_delete()
    assert cluster.states(a_pods) == ["0* 1* 2*"]
    assert cluster.progress["updateStartedAt"] == cluster.progress["updateEndedAt"]
    cluster.world.delete(Kind.POD, cluster.live_pods()[1].name)
    assert cluster.states(a_pods) == ["0* 2*", "0* 1? 2*", "0* 1 2*"]
    cluster.world.scale(Kind.CLIQUE, "w-0-a", 2)
    assert cluster.states(a_pods) == ["0* 1 2s*", "0* 1"]
    assert len(cluster.deleted()) == 1
    cluster.edit(strategy=Strategy.ROLLING_RECREATE)
    assert cluster.states(a_pods) == ["0* 1", "1", "0? 1", "0 1"]
    cluster.edit(strategy=Strategy.ON_DELETE).update("app:v3")
    assert cluster.states(a_pods) == ["0* 1*"]


def test_leaving_on_delete_with_surge_ends_with_every_original() -> None:
    # A second clique that is up to date: nothing else keeps the replica busy when the last original is deleted.
    others = (clique("l", 1), group("d", ("l",), 2))
    cluster = settled(workload(clique("a", 3, 1), *others, strategy=Strategy.ON_DELETE)).update("app:v2", "a")
    assert cluster.states(a_pods) == ["0* 1* 2*"]
    template, *rest = cluster.workload.cliques
    cliques = (replace(template, budget=BudgetSpec(0, 1)), *rest)
    cluster.edit(strategy=Strategy.ROLLING_UPDATE, cliques=cliques)
    assert cluster.states(a_pods)[-1] == "0 1 2"
    progress = cluster.world.observed().cliques[0].status["updateProgress"]
    assert progress["updateEndedAt"] > progress["updateStartedAt"]


def test_on_delete_says_what_awaits_deletion_and_that_it_is_no_problem() -> None:
    cluster = on_delete().settle()
    assert [wait.code for wait in cluster.waits] == ["AwaitingDeletion"]
    assert not any(wait.is_problem for wait in cluster.waits)


# Settings changed on the way.


def test_a_surge_taken_back_goes_and_the_update_goes_on_without() -> None:
    cluster = surge_of_one_pod()
    cluster.run_until(lambda cluster: a_pods(cluster.view) == "0* 1* 2* 3s?")
    (template,) = cluster.workload.cliques
    cluster.edit(cliques=(replace(template, budget=BudgetSpec(1, 0)),))
    assert cluster.states(a_pods) == [
        "0* 1* 2* 3s?",
        "1* 2*",
        "0? 1* 2*",
        "0 2*",
        "0 1? 2*",
        "0 1",
        "0 1 2?",
        "0 1 2",
    ]


def test_an_index_that_scaling_moves_below_the_wanted_number_stays() -> None:
    cluster = surge_of_one_pod()
    cluster.run_until(lambda cluster: a_pods(cluster.view) == "1* 2* 3s")
    cluster.world.scale(Kind.CLIQUE, "w-0-a", 4)
    assert cluster.states(a_pods)[-1] == "0 1 2 3"
    assert not [pod for pod in cluster.world.pods.values() if pod.leaving]
