"""What the answer to a delete says: the object still exists, or it is gone, or nothing is known."""

from typing import Any

import pytest

from rollouts.cluster import ClusterClient, Conflict, NotFound, Unavailable
from rollouts.cluster.deletion import Deletion, delete_object, fetch_deletion
from rollouts.cluster.resources import PODS
from tests.cluster.faults import FaultServer, failure, json

REFERENCE = {"metadata": {"namespace": "n", "name": "a", "uid": "u"}}


def pod(**metadata: Any) -> dict[str, Any]:
    """Return a pod as the answer to a delete contains it."""
    own = {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "2"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": own | metadata}


LEAVING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
IN_GRACE = pod(**LEAVING, deletionGracePeriodSeconds=30)
HELD = pod(**LEAVING, deletionGracePeriodSeconds=0, finalizers=["a.example/held"])
LAST_STATE = pod(**LEAVING, deletionGracePeriodSeconds=0)
STATUS = {"kind": "Status", "status": "Success", "details": {"name": "a", "uid": "u"}}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (IN_GRACE, Deletion(current=IN_GRACE)),
        (HELD, Deletion(current=HELD)),
        (LAST_STATE, Deletion(gone=LAST_STATE)),
        (pod(), Deletion(gone=pod())),
        (STATUS, Deletion(gone=REFERENCE)),
    ],
    ids=["grace period", "finalizers", "last state", "without a deletion timestamp", "status"],
)
def test_the_answer_says_whether_the_object_still_exists(
    cluster: ClusterClient, server: FaultServer, answer: dict[str, Any], expected: Deletion
) -> None:
    server.answers(json(200, answer))
    assert delete_object(cluster, PODS, "a", namespace="n", uid="u") == expected


def test_a_delete_that_met_another_object_is_a_conflict(cluster: ClusterClient, server: FaultServer) -> None:
    server.answers(failure(409, "Conflict"))
    with pytest.raises(Conflict):
        delete_object(cluster, PODS, "a", namespace="n", uid="u")


def test_what_is_not_found_is_gone_if_it_was_known(cluster: ClusterClient, server: FaultServer) -> None:
    missing = failure(404, "NotFound", details={"name": "a"})
    server.answers(missing, missing, missing)
    with pytest.raises(NotFound):
        delete_object(cluster, PODS, "a", namespace="n", uid="u")
    assert fetch_deletion(cluster, PODS, "a", namespace="n", uid="u") == Deletion(gone=REFERENCE)
    assert fetch_deletion(cluster, PODS, "a", namespace="n", uid="") == Deletion()


def test_what_has_the_name_now_is_current_whoever_made_it(cluster: ClusterClient, server: FaultServer) -> None:
    server.answers(json(200, pod(uid="another")))
    assert fetch_deletion(cluster, PODS, "a", namespace="n", uid="u") == Deletion(current=pod(uid="another"))


def test_without_an_answer_nothing_is_known(cluster: ClusterClient, server: FaultServer) -> None:
    server.answers(failure(503, "ServiceUnavailable"))
    with pytest.raises(Unavailable):
        fetch_deletion(cluster, PODS, "a", namespace="n", uid="u", retry=False)
