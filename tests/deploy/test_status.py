"""The status that the three resources can hold: ours with lists, and Grove's with single selections."""

from typing import Any

import pytest

from tests.deploy.manifests import Obj, complete
from tests.deploy.sets import UNPROCESSABLE, Sets

NOW = "2026-01-15T10:00:00Z"
AVAILABLE = {
    "type": "Available",
    "status": "True",
    "reason": "MinimumAvailable",
    "message": "All replicas are available.",
    "lastTransitionTime": NOW,
}

OF_SET: Obj = {
    "observedGeneration": 1,
    "replicas": 5,
    "updatedReplicas": 2,
    "availableReplicas": 4,
    "surgeReplicas": 1,
    "hpaPodSelector": "app.kubernetes.io/part-of=complete",
    "currentGenerationHash": "h2",
    "lastErrors": [{"code": "Conflict", "description": "A write was too late.", "observedAt": NOW}],
    "conditions": [AVAILABLE],
    "updateProgress": {
        "updateStartedAt": NOW,
        "updatedReplicas": 2,
        "updatedPodCliquesCount": 1,
        "totalPodCliquesCount": 5,
        "updatedPodCliqueScalingGroupsCount": 2,
        "totalPodCliqueScalingGroupsCount": 10,
        "updatedPodCliques": ["complete-0-frontend"],
        "updatedPodCliqueScalingGroups": ["complete-0-decode", "complete-0-store"],
        "updatingReplicas": [{"replicaIndex": 0, "updateStartedAt": NOW}, {"replicaIndex": 1, "updateStartedAt": NOW}],
        "currentlyUpdating": [{"replicaIndex": 0, "updateStartedAt": NOW, "updateEndedAt": NOW}],
    },
}
OF_CLIQUE: Obj = {
    "replicas": 5,
    "readyReplicas": 4,
    "updatedReplicas": 1,
    "surgeReplicas": 1,
    "scheduledReplicas": 5,
    "scheduleGatedReplicas": 0,
    "currentPodTemplateHash": "t1",
    "currentPodCliqueSetGenerationHash": "h1",
    "conditions": [AVAILABLE | {"type": "MinAvailableBreached", "status": "False"}],
    "updateProgress": {
        "updateStartedAt": NOW,
        "podCliqueSetGenerationHash": "h2",
        "podTemplateHash": "t2",
        "updatedReplicas": 1,
        "readyPodsSelectedToUpdate": {
            "current": ["c-0-web-rsfk7", "c-0-web-cccj7"],
            "currentIndices": [0, 1],
            "completed": ["c-0-web-rrxwz"],
        },
    },
}
OF_GROUP: Obj = {
    "replicas": 3,
    "scheduledReplicas": 3,
    "availableReplicas": 2,
    "updatedReplicas": 1,
    "surgeReplicas": 1,
    "selector": "grove.io/podcliquescalinggroup=complete-0-decode",
    "updateProgress": {
        "updateStartedAt": NOW,
        "podCliqueSetGenerationHash": "h2",
        "updatedPodCliquesCount": 2,
        "totalPodCliquesCount": 6,
        "updatedPodCliques": ["complete-0-decode-0-leader", "complete-0-decode-0-worker"],
        "readyReplicaIndicesSelectedToUpdate": {"current": [1, 2], "completed": [0]},
    },
}
POD_CLIQUE: Obj = {
    "apiVersion": "grove.io/v1alpha1",
    "kind": "PodClique",
    "metadata": {"name": "complete"},
    "spec": {"roleName": "web", "replicas": 5, "podSpec": {"containers": [{"name": "main", "image": "app:v1"}]}},
}
GROUP: Obj = {
    "apiVersion": "grove.io/v1alpha1",
    "kind": "PodCliqueScalingGroup",
    "metadata": {"name": "complete"},
    "spec": {"replicas": 3, "cliqueNames": ["leader", "worker"]},
}

KINDS = {
    "podcliquesets": (complete(), OF_SET),
    "podcliques": (POD_CLIQUE, OF_CLIQUE),
    "podcliquescalinggroups": (GROUP, OF_GROUP),
}


def store(sets: Sets, plural: str) -> str:
    """Create an object of the kind and return its path."""
    path = f"/apis/grove.io/v1alpha1/namespaces/{sets.namespace}/{plural}"
    _ = sets.raw.call("POST", path, KINDS[plural][0]).obj
    return f"{path}/complete"


def write_status(sets: Sets, path: str, status: Obj) -> Any:
    """Merge a status into the stored one."""
    return sets.raw.call("PATCH", f"{path}/status", {"status": status}, content_type="application/merge-patch+json")


@pytest.mark.parametrize("plural", KINDS)
def test_a_status_is_kept_whole_under_both_names_of_the_progress(sets: Sets, plural: str) -> None:
    status = KINDS[plural][1]
    status = status | {"rollingUpdateProgress": status["updateProgress"]}
    assert write_status(sets, store(sets, plural), status).obj["status"] == status


@pytest.mark.parametrize(
    ("plural", "selection", "current"),
    [
        ("podcliques", "readyPodsSelectedToUpdate", "c-0-web-rsfk7"),
        ("podcliquescalinggroups", "readyReplicaIndicesSelectedToUpdate", 1),
    ],
)
def test_the_single_selection_of_groves_operator_is_kept_too(
    sets: Sets, plural: str, selection: str, current: object
) -> None:
    progress = {"updateStartedAt": NOW, "podCliqueSetGenerationHash": "h2", selection: {"current": current}}
    if plural == "podcliques":
        progress |= {"podTemplateHash": "t2"}
    stored = write_status(sets, store(sets, plural), {"updateProgress": progress}).obj
    assert stored["status"]["updateProgress"][selection] == {"current": current}


@pytest.mark.parametrize("plural", KINDS)
def test_a_status_is_not_written_with_the_spec(sets: Sets, plural: str) -> None:
    path = store(sets, plural)
    with_status = sets.raw.call("GET", path).obj | {"status": KINDS[plural][1]}
    assert "updateProgress" not in sets.raw.call("PUT", path, with_status).obj.get("status", {})


def test_a_condition_may_not_appear_twice(sets: Sets) -> None:
    path = store(sets, "podcliquesets")
    assert write_status(sets, path, {"conditions": [AVAILABLE, AVAILABLE]}).code == UNPROCESSABLE


def test_a_clique_and_a_group_may_be_scaled_to_nothing_but_not_below(sets: Sets) -> None:
    for plural in ("podcliques", "podcliquescalinggroups"):
        path = f"{store(sets, plural)}/scale"
        merge = "application/merge-patch+json"
        assert sets.raw.call("PATCH", path, {"spec": {"replicas": 0}}, content_type=merge).code == 200
        assert sets.raw.call("PATCH", path, {"spec": {"replicas": -1}}, content_type=merge).code == UNPROCESSABLE
