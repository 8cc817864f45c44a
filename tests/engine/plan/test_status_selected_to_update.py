"""Which pods and replicas a status calls selected: while they are replaced, and no longer."""

from typing import Any

import pytest

from rollouts.engine.model.actions import Delete, Kind, WriteStatus
from rollouts.engine.model.hashing import compute_generation_hash
from rollouts.engine.model.workload import Strategy
from rollouts.engine.simulation.cluster import ClusterBehaviour
from tests.engine.simulated import QUICK, Cluster, clique, group, settled, workload

SELECTIONS = ("readyPodsSelectedToUpdate", "readyReplicaIndicesSelectedToUpdate")


def progress_of(cluster: Cluster, name: str) -> Any:
    observed = cluster.world.observed()
    stored = {one.name: one.status for one in observed.cliques} | {one.name: one.status for one in observed.groups}
    assert stored[name].get("rollingUpdateProgress") == stored[name].get("updateProgress")
    return stored[name].get("updateProgress") or {}


def selected_pods(cluster: Cluster, name: str = "w-0-a") -> Any:
    return progress_of(cluster, name).get("readyPodsSelectedToUpdate") or {}


def five_with_a_slow_surge(slow: tuple[int, ...]) -> tuple[Cluster, list[str]]:
    """Return R5 U2 S1 at the beginning of an update, pod 2 the oldest, and the names of its pods by index.

    New pods with the slow indices do not become Ready.
    """
    cluster = settled(workload(clique("frontend", 5, 1, (2, 1)), strategy=Strategy.ROLLING_UPDATE))
    for pod in cluster.live_pods():
        if pod.index != 2:
            cluster.world.delete(Kind.POD, pod.name)
    cluster.settle()
    names = [pod.name for pod in cluster.live_pods()]
    never = frozenset(f"w-0-frontend-{index}" for index in slow)
    cluster.world.set_behaviour(
        ClusterBehaviour(ready_seconds=QUICK.ready_seconds, termination_seconds=2.0, never_ready=never)
    )
    return cluster.update(), names


def test_the_example_of_the_proposal_for_five_pods_two_unavailable_and_one_surge() -> None:
    cluster, names = five_with_a_slow_surge(slow=(0, 1, 5))
    cluster.settle()
    assert cluster.view.pods_text("w-0-frontend", "frontend") == "0? 1? 2 3* 4* 5s?"
    progress = progress_of(cluster, "w-0-frontend")
    assert progress["readyPodsSelectedToUpdate"] == {
        "current": [names[0], names[1]],
        "currentIndices": [0, 1],
        "completed": [names[2]],
    }
    assert progress["updatedReplicas"] == 1


def test_surge_that_is_ready_completes_nobody() -> None:
    cluster, names = five_with_a_slow_surge(slow=(0, 1, 2))
    cluster.settle()
    assert cluster.view.pods_text("w-0-frontend", "frontend") == "0? 1? 2? 3* 4* 5s"
    selected = selected_pods(cluster, "w-0-frontend")
    assert (sorted(selected["current"]), selected["completed"]) == (sorted(names[:3]), [])
    assert progress_of(cluster, "w-0-frontend")["updatedReplicas"] == 0


def test_in_every_pass_current_are_the_pods_whose_replacement_is_not_ready() -> None:
    cluster = settled(workload(clique("a", 5, 1, (2, 1)), strategy=Strategy.ROLLING_UPDATE))
    index_of = {pod.name: pod.index for pod in cluster.live_pods()}
    cluster.update()
    for planned in cluster.passes():
        if planned.actions:
            continue
        selected = selected_pods(cluster)
        ready = {pod.index for pod in cluster.live_pods() if pod.ready and pod.name not in index_of}
        assert all(index_of[name] in ready for name in selected.get("completed", ()))
        assert not any(index_of[name] in ready for name in selected.get("current", ()))
        assert [index_of[name] for name in selected.get("current", ())] == selected.get("currentIndices", [])
    assert not selected_pods(cluster)


def test_in_every_pass_current_are_the_replicas_of_a_group_whose_replacement_is_not_available() -> None:
    parts = (clique("l", 1), clique("k", 2), group("g", ("l", "k"), 3, 1, (1, 1)))
    cluster = settled(workload(*parts, strategy=Strategy.ROLLING_UPDATE)).update()
    seen = set()
    for planned in cluster.passes():
        if planned.actions:
            continue
        selected = progress_of(cluster, "w-0-g").get("readyReplicaIndicesSelectedToUpdate") or {}
        current, completed = selected.get("current", []), selected.get("completed", [])
        units = {unit.index: unit for unit in cluster.view.group_units("w-0-g", cluster.workload.groups[0])}
        updated = {index for index, unit in units.items() if unit.available and not unit.outdated}
        # Surge (index 3) replaces nobody, so it is never selected.
        assert {*completed} <= updated - {3}
        assert not {*current} & (updated | {3})
        assert len({*current, *completed}) == len(current) + len(completed)
        seen.add((tuple(current), tuple(completed)))
    assert ((1, 2), (0,)) in seen


def test_a_group_whose_surge_is_slow_tells_what_is_replaced_and_what_is_back() -> None:
    parts = (clique("l", 1), group("g", ("l",), 3, 1, (1, 1)))
    cluster = settled(workload(*parts, strategy=Strategy.ROLLING_UPDATE))
    never = frozenset({"w-0-g-3-l-0", "w-0-g-1-l-0"})
    cluster.world.set_behaviour(
        ClusterBehaviour(ready_seconds=QUICK.ready_seconds, termination_seconds=2.0, never_ready=never)
    )
    cluster.update().settle()
    assert cluster.view.group_text("w-0-g", "g") == "0 1? 2* 3s?"
    progress = progress_of(cluster, "w-0-g")
    assert progress["readyReplicaIndicesSelectedToUpdate"] == {"current": [1], "completed": [0]}
    stored = next(one.status for one in cluster.world.observed().groups)
    assert [stored[name] for name in ("replicas", "updatedReplicas", "availableReplicas", "surgeReplicas")] == [
        3,
        1,
        2,
        1,
    ]


def test_a_pod_that_is_no_longer_wanted_is_no_longer_selected() -> None:
    cluster = settled(workload(clique("a", 3, 1, (3, 0)), strategy=Strategy.ROLLING_UPDATE)).update()
    cluster.run_until(lambda cluster: len(selected_pods(cluster).get("current", ())) == 3)
    cluster.world.scale(Kind.CLIQUE, "w-0-a", 2)
    cluster.step()
    assert selected_pods(cluster)["currentIndices"] == [0, 1]


def write_statuses_only(cluster: Cluster) -> None:
    """Carry out of the next plan that replaces anything what is written before it."""
    while not any(isinstance(action, Delete) for action in cluster.plan().actions):
        cluster.step()
    cluster.carry_out([one for one in cluster.plan().actions if isinstance(one, WriteStatus)])


def test_a_pod_that_was_named_and_not_deleted_is_no_longer_selected() -> None:
    cluster = settled(workload(clique("a", 3, 1, (1, 0)), strategy=Strategy.ROLLING_UPDATE)).update()
    write_statuses_only(cluster)
    (named,) = selected_pods(cluster)["current"]
    other = next(pod for pod in cluster.live_pods() if pod.name != named)
    cluster.world.set_ready(other.name, ready=False)
    cluster.step()  # the other pod is freed, and the budget is spent
    assert named in {pod.name for pod in cluster.live_pods()}
    assert not selected_pods(cluster)


def test_a_replica_of_a_group_that_was_named_and_not_deleted_is_no_longer_selected() -> None:
    parts = (clique("l", 1), group("g", ("l",), 3, 1, (1, 0)))
    cluster = settled(workload(*parts, strategy=Strategy.ROLLING_UPDATE)).update()
    write_statuses_only(cluster)
    assert progress_of(cluster, "w-0-g")["readyReplicaIndicesSelectedToUpdate"]["current"] == [0]
    cluster.world.set_ready(next(pod.name for pod in cluster.live_pods() if "-g-1-" in pod.name), ready=False)
    cluster.step()
    assert cluster.view.group_text("w-0-g", "g").startswith("0* ")
    assert "readyReplicaIndicesSelectedToUpdate" not in progress_of(cluster, "w-0-g")


BOTH = (clique("a", 3), clique("l", 1), group("g", ("l",), 3))


@pytest.mark.parametrize("strategy", list(Strategy))
def test_nothing_is_selected_once_an_update_has_ended(strategy: Strategy) -> None:
    cluster = settled(workload(*BOTH, replicas=2, strategy=strategy, budget=(1, 0))).update().settle()
    for replica in range(2):
        for name in (f"w-{replica}-a", f"w-{replica}-g"):
            progress = progress_of(cluster, name)
            assert progress["updateEndedAt"]
            assert not {*SELECTIONS, "updatedReplicas"} & {*progress}
    assert "updatedReplicas" not in cluster.progress


def test_a_switch_to_on_delete_in_mid_update_selects_nothing_any_more() -> None:
    cluster = settled(workload(*BOTH)).update()
    cluster.run_until(lambda cluster: bool(selected_pods(cluster)) and "w-0-g" in str(cluster.deleted(Kind.CLIQUE)))
    assert progress_of(cluster, "w-0-g")["readyReplicaIndicesSelectedToUpdate"]["current"] == [0]
    cluster.edit(strategy=Strategy.ON_DELETE)
    cluster.step()
    for name in ("w-0-a", "w-0-g"):
        assert progress_of(cluster, name)["updateEndedAt"]
        assert not {*SELECTIONS} & {*progress_of(cluster, name)}
    cluster.settle()
    assert not {*SELECTIONS} & {*progress_of(cluster, "w-0-a")}


@pytest.mark.parametrize("strategy", [one for one in Strategy if one is not Strategy.ON_DELETE])
def test_an_interruption_resets_the_progress_of_every_component_in_the_same_pass(strategy: Strategy) -> None:
    cluster = settled(workload(*BOTH, replicas=3, strategy=strategy, budget=(1, 0))).update("app:v2")
    cluster.run_until(lambda cluster: [one["replicaIndex"] for one in updating(cluster)] == [1])
    cluster.run_until(lambda cluster: bool(progress_of(cluster, "w-1-a")) and bool(progress_of(cluster, "w-1-g")))
    superseded = compute_generation_hash(cluster.workload)
    assert progress_of(cluster, "w-0-a")["podCliqueSetGenerationHash"] == superseded
    planned = cluster.update("app:v3").step()
    assert all(isinstance(action, WriteStatus) for action in planned.actions)
    assert planned.actions[-1].kind is Kind.SET  # type: ignore[union-attr]
    assert not [name for name in ("w-0-a", "w-0-g", "w-1-a", "w-1-g") if progress_of(cluster, name)]
    assert [cluster.status["updatedReplicas"], cluster.progress["updatedReplicas"]] == [0, 0]
    assert {one.status["updatedReplicas"] for one in cluster.world.observed().cliques if not one.group} == {0}
    cluster.settle()
    current = compute_generation_hash(cluster.workload)
    for replica in range(3):
        assert progress_of(cluster, f"w-{replica}-a")["podCliqueSetGenerationHash"] == current
        assert progress_of(cluster, f"w-{replica}-g")["updateEndedAt"]


def test_an_interruption_resets_the_cliques_of_scaling_groups_too() -> None:
    cluster = settled(workload(*BOTH, strategy=Strategy.ON_DELETE)).update("app:v2").settle()
    (member, *_) = [one.name for one in cluster.world.observed().cliques if one.group]
    assert progress_of(cluster, member)["updateEndedAt"]
    cluster.edit(strategy=Strategy.ROLLING_RECREATE)
    cluster.step()
    cluster.update("app:v3").step()
    assert not [name for name in ("w-0-a", "w-0-g", member) if progress_of(cluster, name)]


@pytest.mark.parametrize("lost", ["w-1-a", "w-1-g"])
def test_an_interrupted_progress_whose_write_was_lost_goes_with_the_next_pass(lost: str) -> None:
    parts = (clique("a", 3, 1, (0, 1)), clique("l", 1), group("g", ("l",), 3, 1, (0, 1)))
    cluster = settled(workload(*parts, replicas=4, strategy=Strategy.ROLLING_UPDATE)).update("app:v2")
    cluster.run_until(lambda cluster: [one["replicaIndex"] for one in updating(cluster)] == [1])
    cluster.run_until(lambda cluster: bool({*SELECTIONS} & {*progress_of(cluster, lost)}))
    planned = cluster.update("app:v3").plan()
    cluster.carry_out([one for one in planned.actions if getattr(one, "name", "") != lost])
    assert is_open(progress_of(cluster, lost))
    cluster.step()
    assert not progress_of(cluster, lost)
    cluster.run_until(lambda cluster: [one["replicaIndex"] for one in updating(cluster)] == [1]).settle()
    assert progress_of(cluster, lost)["updateEndedAt"]


def test_an_update_back_to_templates_of_a_lost_write_begins_with_no_progress() -> None:
    cluster = settled(workload(*BOTH)).update("app:v2")
    cluster.run_until(lambda cluster: bool(selected_pods(cluster)))
    began = progress_of(cluster, "w-0-a")
    cluster.carry_out([one for one in cluster.update("app:v3").plan().actions if getattr(one, "name", "") != "w-0-a"])
    assert progress_of(cluster, "w-0-a") == began
    cluster.update("app:v2").step()
    assert not progress_of(cluster, "w-0-a")


def is_open(progress: Any) -> bool:
    return bool(progress) and not progress.get("updateEndedAt")


def updating(cluster: Cluster) -> list[Any]:
    found: list[Any] = cluster.progress.get("updatingReplicas") or []
    return found


def test_going_back_in_mid_update_is_told_from_beginning_to_end() -> None:
    cluster = settled(workload(clique("a", 3, 1, (0, 1)), strategy=Strategy.ROLLING_UPDATE)).update("app:v2")
    cluster.run_until(lambda cluster: cluster.view.pods_text("w-0-a", "a") == "0 1? 2* 3s")
    cluster.update("app:v1").settle()
    progress = progress_of(cluster, "w-0-a")
    assert progress["podTemplateHash"] == cluster.view.hashes["a"]
    assert progress["updateEndedAt"]
    assert cluster.view.pods_text("w-0-a", "a") == "0 1 2"
