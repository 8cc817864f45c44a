"""What the status of the three kinds says, on the way and in the end."""

from typing import Any

import pytest

from rollouts.engine.model.actions import Kind, WriteStatus
from rollouts.engine.model.hashing import compute_generation_hash
from rollouts.engine.model.times import parse_time
from rollouts.engine.model.workload import Strategy
from rollouts.engine.plan.planner import plan
from tests.engine.simulated import Cluster, clique, conditions, group, settled, workload

PARTS = (clique("a", 3, 2), clique("l", 1), clique("k", 2), group("g", ("l", "k"), 3, 2))


def pclq(cluster: Cluster, name: str) -> Any:
    return next(one for one in cluster.world.observed().cliques if one.name == name).status


def pcsg(cluster: Cluster, name: str) -> Any:
    return next(one for one in cluster.world.observed().groups if one.name == name).status


@pytest.fixture(scope="module")
def calm() -> Cluster:
    return settled(workload(*PARTS, replicas=2))


def test_a_settled_set_says_so(calm: Cluster) -> None:
    status = dict(calm.status)
    assert conditions(status) == {
        "Available": ("True", "AllReplicasAvailable"),
        "Progressing": ("False", "Complete"),
        "UpdateStuck": ("False", "NothingInTheWay"),
    }
    counts = {name: status[name] for name in ("replicas", "availableReplicas", "updatedReplicas")}
    assert set(counts.values()) == {2}
    assert status["observedGeneration"] == 1
    assert status["currentGenerationHash"] == compute_generation_hash(calm.workload)
    assert status["hpaPodSelector"] == "app.kubernetes.io/managed-by=grove-operator,app.kubernetes.io/part-of=w"


def test_the_first_templates_are_no_update(calm: Cluster) -> None:
    assert "updateProgress" not in calm.status
    assert "updateProgress" not in pclq(calm, "w-0-a")
    assert "updateProgress" not in pcsg(calm, "w-0-g")


def test_a_settled_podclique_says_so(calm: Cluster) -> None:
    status = pclq(calm, "w-1-a")
    names = ("replicas", "readyReplicas", "updatedReplicas", "scheduledReplicas", "scheduleGatedReplicas")
    assert [status[name] for name in names] == [3, 3, 3, 3, 0]
    assert conditions(status) == {
        "PodCliqueScheduled": ("True", "SufficientScheduledPods"),
        "MinAvailableBreached": ("False", "SufficientReadyPods"),
    }
    assert status["currentPodCliqueSetGenerationHash"] == compute_generation_hash(calm.workload)
    assert status["currentPodTemplateHash"] == calm.view.hashes["a"]
    assert status["hpaPodSelector"] == "app.kubernetes.io/part-of=w,grove.io/podclique=w-1-a"
    assert "hpaPodSelector" not in pclq(calm, "w-1-g-0-l")


def test_a_settled_scaling_group_says_so(calm: Cluster) -> None:
    status = pcsg(calm, "w-0-g")
    names = ("replicas", "scheduledReplicas", "availableReplicas", "updatedReplicas")
    assert [status[name] for name in names] == [3, 3, 3, 3]
    assert conditions(status) == {"MinAvailableBreached": ("False", "SufficientAvailablePodCliqueScalingGroupReplicas")}
    assert status["selector"] == "app.kubernetes.io/part-of=w,grove.io/podcliquescalinggroup=w-0-g"


def test_nothing_is_written_when_nothing_changed(calm: Cluster) -> None:
    assert plan(calm.workload, calm.world.observed(), calm.world.now + 1e6).actions == ()


def test_what_others_put_into_a_status_stays() -> None:
    cluster = settled(workload(*PARTS))
    foreign = {"type": "Theirs", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "x"}
    status = {**cluster.status, "podGangStatuses": [1], "conditions": [foreign, *cluster.status["conditions"]]}
    cluster.world.apply([WriteStatus(Kind.SET, "w", "set-uid", status)])
    cluster.update().settle()
    assert cluster.status["podGangStatuses"] == [1]
    assert cluster.status["conditions"][0] == foreign


def test_an_update_of_a_clique_is_told_from_beginning_to_end() -> None:
    cluster = settled(workload(clique("a", 3))).update()
    seen: list[tuple[int, int, bool]] = []
    for _ in cluster.passes():
        progress = pclq(cluster, "w-0-a").get("updateProgress")
        if progress:
            selected = progress.get("readyPodsSelectedToUpdate") or {"current": [], "completed": []}
            state = (len(selected["current"]), len(selected["completed"]), "updateEndedAt" in progress)
            seen += [state] if state not in seen else []
    assert seen == [(1, 0, False), (1, 1, False), (1, 2, False), (0, 0, True)]
    status = pclq(cluster, "w-0-a")
    assert status["updateProgress"]["podTemplateHash"] == cluster.view.hashes["a"]
    assert status["updateProgress"]["podCliqueSetGenerationHash"] == compute_generation_hash(cluster.workload)
    assert status["rollingUpdateProgress"] == status["updateProgress"]


def test_a_clique_that_is_being_updated_is_not_called_breached() -> None:
    cluster = settled(workload(clique("a", 2))).update()
    found = {conditions(pclq(cluster, "w-0-a"))["MinAvailableBreached"] for _ in cluster.passes()}
    assert found == {("False", "SufficientReadyPods"), ("Unknown", "UpdateInProgress")}


def test_an_update_of_a_group_is_told_by_index() -> None:
    cluster = settled(workload(*PARTS)).update("app:v2", "l")
    seen: list[tuple[list[int], list[int]]] = []
    for _ in cluster.passes():
        progress = pcsg(cluster, "w-0-g").get("updateProgress") or {}
        selected = progress.get("readyReplicaIndicesSelectedToUpdate")
        if selected and (selected["current"], selected["completed"]) not in seen:
            seen.append((selected["current"], selected["completed"]))
    assert seen == [([0], []), ([1], [0]), ([2], [0, 1])]
    progress = pcsg(cluster, "w-0-g")["updateProgress"]
    assert progress["updatedPodCliquesCount"] == progress["totalPodCliquesCount"] == 6
    assert len(progress["updatedPodCliques"]) == 6
    assert progress["updateEndedAt"]


def test_the_set_tells_which_replica_is_updated_and_what_is_done() -> None:
    cluster = settled(workload(*PARTS, replicas=2)).update()
    cluster.run_until(lambda cluster: [one["replicaIndex"] for one in updating(cluster)] == [1])
    progress = cluster.progress
    assert progress["updatedPodCliques"] == ["w-0-a"]
    assert (progress["updatedPodCliquesCount"], progress["totalPodCliquesCount"]) == (1, 2)
    assert progress["updatedPodCliqueScalingGroups"] == ["w-0-g"]
    assert progress["totalPodCliqueScalingGroupsCount"] == 2
    assert progress["currentlyUpdating"] == progress["updatingReplicas"]
    assert cluster.status["rollingUpdateProgress"] == progress
    assert cluster.status["updatedReplicas"] == 1
    assert conditions(cluster.status)["Progressing"] == ("True", "UpdateInProgress")
    cluster.settle()
    assert cluster.status["updatedReplicas"] == 2
    assert "updatingReplicas" not in cluster.progress
    assert conditions(cluster.status)["Progressing"] == ("False", "Complete")


def updating(cluster: Cluster) -> list[Any]:
    found: list[Any] = cluster.progress.get("updatingReplicas") or []
    return found


def test_an_update_starts_before_anything_is_deleted() -> None:
    cluster = settled(workload(*PARTS)).update()
    planned = cluster.step()
    (write,) = planned.actions
    assert isinstance(write, WriteStatus)
    assert [moment.reason for moment in planned.timeline_events] == ["UpdateStarted"]
    assert (write.kind, cluster.status["updatedReplicas"]) == (Kind.SET, 0)
    assert parse_time(cluster.progress["updateStartedAt"]) == cluster.world.now


def test_under_on_delete_an_update_ends_when_it_begins() -> None:
    cluster = settled(workload(*PARTS, strategy=Strategy.ON_DELETE)).update().settle()
    everyone = [cluster.status, pclq(cluster, "w-0-a"), pclq(cluster, "w-0-g-1-k"), pcsg(cluster, "w-0-g")]
    for status in everyone:
        progress = status["updateProgress"]
        assert progress["updateStartedAt"] == progress["updateEndedAt"]
        assert status["rollingUpdateProgress"] == progress
        for name in ("currentlyUpdating", "readyPodsSelectedToUpdate", "readyReplicaIndicesSelectedToUpdate"):
            assert name not in progress
    assert pclq(cluster, "w-0-a")["updatedReplicas"] == 0
    assert conditions(cluster.status)["Progressing"] == ("False", "AwaitingDeletion")


def test_current_hashes_advance_when_everything_runs_them() -> None:
    cluster = settled(workload(*PARTS, strategy=Strategy.ON_DELETE))
    former = pclq(cluster, "w-0-a")["currentPodTemplateHash"]
    cluster.update().settle()
    assert pclq(cluster, "w-0-a")["currentPodTemplateHash"] == former
    for pod in cluster.live_pods("w-0-a"):
        cluster.world.delete(Kind.POD, pod.name)
    cluster.settle()
    assert pclq(cluster, "w-0-a")["currentPodTemplateHash"] == cluster.view.hashes["a"]


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    cluster = settled(workload(clique("a", 3, 1)))

    def since() -> Any:
        return {one["type"]: one["lastTransitionTime"] for one in pclq(cluster, "w-0-a")["conditions"]}

    before = since()
    cluster.world.advance(cluster.world.now + 100.0)
    cluster.world.delete(Kind.POD, cluster.live_pods()[0].name)
    cluster.settle()
    assert since() == before
    for pod in cluster.live_pods():
        cluster.world.delete(Kind.POD, pod.name)
    cluster.settle()
    assert since() != before
