"""Deletion: preconditions, grace period, finalizers, owners, eviction.

A kube-apiserver alone has no garbage collector, so these tests check only what the API itself does about owners (the
finalizers that a policy sets); `tests/sandbox/cluster` tests the garbage collector of the sandbox.
"""

from typing import Any

import pytest

from rollouts.cluster import ClusterClient, Conflict, Forbidden, Invalid, NotFound, Resource, Throttled
from rollouts.cluster.resources import NODES, PODCLIQUES, PODS
from tests.builtin_resources import CONFIGMAPS, PODDISRUPTIONBUDGETS
from tests.contract.manifests import config_map, disruption_budget, gated_pod, minimal, pod_clique

SOMEBODY = "00000000-0000-0000-0000-000000000000"
HELD = ["example.com/held"]


KINDS = pytest.mark.parametrize("resource", [CONFIGMAPS, PODCLIQUES, PODS], ids=str)


@KINDS
def test_a_deleted_object_is_gone(cluster: ClusterClient, namespace: str, resource: Resource) -> None:
    cluster.create(resource, minimal(resource, namespace, "a"))
    cluster.delete(resource, "a", namespace=namespace)
    with pytest.raises(NotFound):
        cluster.get(resource, "a", namespace=namespace)


def test_deleting_a_custom_object_answers_with_a_status_that_names_it(cluster: ClusterClient, namespace: str) -> None:
    created = cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    answer = cluster.delete(PODCLIQUES, "a", namespace=namespace)
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    assert answer["details"]["name"] == "a"
    assert answer["details"]["uid"] == created["metadata"]["uid"]


@KINDS
def test_a_delete_with_another_uid_is_refused(cluster: ClusterClient, namespace: str, resource: Resource) -> None:
    created = cluster.create(resource, minimal(resource, namespace, "a"))
    with pytest.raises(Conflict, match="the UID in the precondition"):
        cluster.delete(resource, "a", namespace=namespace, uid=SOMEBODY)
    assert cluster.get(resource, "a", namespace=namespace) == created
    cluster.delete(resource, "a", namespace=namespace, uid=created["metadata"]["uid"])
    with pytest.raises(NotFound):
        cluster.get(resource, "a", namespace=namespace)


@KINDS
def test_a_delete_with_an_old_resource_version_is_refused(
    cluster: ClusterClient, namespace: str, resource: Resource
) -> None:
    created = cluster.create(resource, minimal(resource, namespace, "a"))
    patched = cluster.patch_merge(resource, "a", {"metadata": {"labels": {"l": "1"}}}, namespace=namespace)
    with pytest.raises(Conflict, match="the ResourceVersion in the precondition"):
        cluster.delete(resource, "a", namespace=namespace, resource_version=created["metadata"]["resourceVersion"])
    assert cluster.get(resource, "a", namespace=namespace) == patched
    cluster.delete(resource, "a", namespace=namespace, resource_version=patched["metadata"]["resourceVersion"])
    with pytest.raises(NotFound):
        cluster.get(resource, "a", namespace=namespace)


@KINDS
def test_finalizers_hold_a_deleted_object_until_the_last_is_removed(
    cluster: ClusterClient, namespace: str, resource: Resource
) -> None:
    both = ["example.com/one", "example.com/two"]
    created = cluster.create(resource, minimal(resource, namespace, "a", finalizers=both))
    deleted = cluster.delete(resource, "a", namespace=namespace)
    assert deleted["metadata"]["deletionTimestamp"]
    assert deleted["metadata"]["uid"] == created["metadata"]["uid"]
    assert cluster.get(resource, "a", namespace=namespace) == deleted
    one = {"metadata": {"finalizers": ["example.com/two"]}}
    assert cluster.patch_merge(resource, "a", one, namespace=namespace)["metadata"]["deletionTimestamp"]
    cluster.patch_merge(resource, "a", {"metadata": {"finalizers": None}}, namespace=namespace)
    with pytest.raises(NotFound):
        cluster.get(resource, "a", namespace=namespace)


def test_a_second_delete_of_a_held_object_changes_nothing(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(PODCLIQUES, pod_clique(namespace, "a", finalizers=HELD))
    first = cluster.delete(PODCLIQUES, "a", namespace=namespace)
    assert cluster.delete(PODCLIQUES, "a", namespace=namespace) == first
    assert cluster.get(PODCLIQUES, "a", namespace=namespace) == first


def test_a_leaving_object_can_lose_finalizers_and_not_gain_any(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(PODCLIQUES, pod_clique(namespace, "a", finalizers=HELD))
    cluster.delete(PODCLIQUES, "a", namespace=namespace)
    more = {"metadata": {"finalizers": [*HELD, "example.com/more"]}}
    with pytest.raises((Forbidden, Invalid)):
        cluster.patch_merge(PODCLIQUES, "a", more, namespace=namespace)


def test_removing_the_last_finalizer_of_a_living_object_does_not_delete_it(
    cluster: ClusterClient, namespace: str
) -> None:
    cluster.create(PODCLIQUES, pod_clique(namespace, "a", finalizers=HELD))
    cluster.patch_merge(PODCLIQUES, "a", {"metadata": {"finalizers": None}}, namespace=namespace)
    assert "deletionTimestamp" not in cluster.get(PODCLIQUES, "a", namespace=namespace)["metadata"]


def test_the_deletion_timestamp_cannot_be_written(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(PODCLIQUES, pod_clique(namespace, "a", finalizers=HELD))
    deleted = cluster.delete(PODCLIQUES, "a", namespace=namespace)
    revive = {"metadata": {"deletionTimestamp": None}}
    kept = cluster.patch_merge(PODCLIQUES, "a", revive, namespace=namespace)
    assert kept["metadata"]["deletionTimestamp"] == deleted["metadata"]["deletionTimestamp"]


def test_a_foreground_delete_waits_for_the_dependents(cluster: ClusterClient, namespace: str) -> None:
    owner = cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    reference = {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodClique",
        "name": "a",
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": True,
    }
    held = config_map(namespace, "dependent", ownerReferences=[reference], finalizers=HELD)
    cluster.create(CONFIGMAPS, held)
    deleted = cluster.delete(PODCLIQUES, "a", namespace=namespace, propagation="Foreground")
    assert deleted["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert deleted["metadata"]["deletionTimestamp"]
    assert "foregroundDeletion" in cluster.get(PODCLIQUES, "a", namespace=namespace)["metadata"]["finalizers"]


def test_an_orphaning_delete_leaves_a_finalizer_for_the_collector(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    deleted = cluster.delete(PODCLIQUES, "a", namespace=namespace, propagation="Orphan")
    assert deleted["metadata"]["finalizers"] == ["orphan"]


def test_a_background_delete_removes_the_owner_at_once(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    cluster.delete(PODCLIQUES, "a", namespace=namespace, propagation="Background")
    with pytest.raises(NotFound):
        cluster.get(PODCLIQUES, "a", namespace=namespace)


def test_an_owner_reference_must_be_complete(cluster: ClusterClient, namespace: str) -> None:
    reference = {"apiVersion": "grove.io/v1alpha1", "kind": "PodClique", "name": "a", "uid": ""}
    with pytest.raises(Invalid) as refusal:
        cluster.create(PODCLIQUES, pod_clique(namespace, "b", ownerReferences=[reference]))
    assert refusal.value.causes[0].field.startswith("metadata.ownerReferences")


def test_an_object_has_at_most_one_controller(cluster: ClusterClient, namespace: str) -> None:
    owners = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": f"{SOMEBODY[:-1]}{n}", "controller": True}
        for n, name in enumerate("xy")
    ]
    with pytest.raises(Invalid, match="Only one reference can have Controller set to true"):
        cluster.create(PODCLIQUES, pod_clique(namespace, "a", ownerReferences=owners))


@pytest.fixture
def node(cluster: ClusterClient, namespace: str) -> str:
    """A node that nothing is scheduled to; pods name it themselves.

    It is down: the sandbox has a kubelet for each node that is up, which would remove a terminating pod after a second.
    """
    name = f"node-of-{namespace}"
    metadata = {"name": name, "annotations": {"sandbox.grove.io/down": "true"}}
    cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"unschedulable": True}})
    return name


def test_a_pod_on_a_node_leaves_with_grace(cluster: ClusterClient, namespace: str, node: str) -> None:
    cluster.create(PODS, gated_pod(namespace, "a", node=node, finalizers=HELD))
    deleted = cluster.delete(PODS, "a", namespace=namespace)
    assert deleted["metadata"]["deletionGracePeriodSeconds"] == 30
    assert deleted["metadata"]["deletionTimestamp"] > deleted["metadata"]["creationTimestamp"]
    assert "deletionTimestamp" in cluster.get(PODS, "a", namespace=namespace)["metadata"]


def test_the_grace_of_a_leaving_pod_can_be_shortened_and_not_extended(
    cluster: ClusterClient, namespace: str, node: str
) -> None:
    cluster.create(PODS, gated_pod(namespace, "a", node=node, finalizers=HELD))
    first = cluster.delete(PODS, "a", namespace=namespace, grace_seconds=600)
    assert first["metadata"]["deletionGracePeriodSeconds"] == 600
    shorter = cluster.delete(PODS, "a", namespace=namespace, grace_seconds=300)
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 300
    longer = cluster.delete(PODS, "a", namespace=namespace, grace_seconds=900)
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 300


def test_a_pod_on_a_node_goes_at_once_without_grace(cluster: ClusterClient, namespace: str, node: str) -> None:
    cluster.create(PODS, gated_pod(namespace, "a", node=node))
    cluster.delete(PODS, "a", namespace=namespace, grace_seconds=0)
    with pytest.raises(NotFound):
        cluster.get(PODS, "a", namespace=namespace)


def test_a_pod_without_a_node_goes_at_once(cluster: ClusterClient, namespace: str) -> None:
    created = cluster.create(PODS, gated_pod(namespace, "a"))
    answer = cluster.delete(PODS, "a", namespace=namespace, grace_seconds=30)
    assert answer["kind"] == "Pod"
    assert answer["metadata"]["uid"] == created["metadata"]["uid"]
    with pytest.raises(NotFound):
        cluster.get(PODS, "a", namespace=namespace)


def _running(cluster: ClusterClient, namespace: str, name: str, **labels: str) -> dict[str, Any]:
    """A pod that a budget counts: Running and Ready, though nothing runs it."""
    cluster.create(PODS, gated_pod(namespace, name, labels=labels))
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return cluster.patch_merge(PODS, name, {"status": status}, namespace=namespace, subresource="status")


def _budget(cluster: ClusterClient, namespace: str, *, healthy: int, needed: int) -> None:
    """A budget with the status that the disruption controller would give it."""
    cluster.create(PODDISRUPTIONBUDGETS, disruption_budget(namespace, "budget", {"app": "a"}, needed))
    status = {
        "observedGeneration": 1,
        "expectedPods": healthy,
        "currentHealthy": healthy,
        "desiredHealthy": needed,
        "disruptionsAllowed": max(0, healthy - needed),
    }
    cluster.patch_merge(PODDISRUPTIONBUDGETS, "budget", {"status": status}, namespace=namespace, subresource="status")


def test_an_evicted_pod_is_deleted(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(PODS, gated_pod(namespace, "a"))
    cluster.evict("a", namespace=namespace)
    with pytest.raises(NotFound):
        cluster.get(PODS, "a", namespace=namespace)


def test_an_eviction_of_another_uid_or_version_is_refused(cluster: ClusterClient, namespace: str) -> None:
    created = cluster.create(PODS, gated_pod(namespace, "a"))
    with pytest.raises(Conflict):
        cluster.evict("a", namespace=namespace, uid=SOMEBODY)
    with pytest.raises(Conflict):
        cluster.evict("a", namespace=namespace, resource_version="1")
    assert cluster.get(PODS, "a", namespace=namespace) == created
    metadata = created["metadata"]
    cluster.evict("a", namespace=namespace, uid=metadata["uid"], resource_version=metadata["resourceVersion"])
    with pytest.raises(NotFound):
        cluster.get(PODS, "a", namespace=namespace)


def test_an_eviction_of_a_missing_pod_is_not_found(cluster: ClusterClient, namespace: str) -> None:
    with pytest.raises(NotFound):
        cluster.evict("a", namespace=namespace)


def test_an_eviction_beyond_the_budget_is_throttled(cluster: ClusterClient, namespace: str) -> None:
    pod = _running(cluster, namespace, "a", app="a")
    _budget(cluster, namespace, healthy=1, needed=1)
    with pytest.raises(Throttled, match="would violate the pod's disruption budget") as refusal:
        cluster.evict("a", namespace=namespace)
    assert [cause.reason for cause in refusal.value.causes] == ["DisruptionBudget"]
    kept = cluster.get(PODS, "a", namespace=namespace)["metadata"]
    assert (kept["uid"], "deletionTimestamp" in kept) == (pod["metadata"]["uid"], False)


def test_an_eviction_within_the_budget_is_carried_out(cluster: ClusterClient, namespace: str) -> None:
    _running(cluster, namespace, "a", app="a")
    _running(cluster, namespace, "b", app="a")
    _budget(cluster, namespace, healthy=2, needed=1)
    cluster.evict("a", namespace=namespace)
    with pytest.raises(NotFound):
        cluster.get(PODS, "a", namespace=namespace)
    with pytest.raises(Throttled):
        cluster.evict("b", namespace=namespace)


def test_a_pod_outside_the_budget_is_evicted(cluster: ClusterClient, namespace: str) -> None:
    _running(cluster, namespace, "other", app="other")
    _budget(cluster, namespace, healthy=0, needed=1)
    cluster.evict("other", namespace=namespace)
    with pytest.raises(NotFound):
        cluster.get(PODS, "other", namespace=namespace)


def test_a_pending_pod_is_evicted_whatever_the_budget(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(PODS, gated_pod(namespace, "a", labels={"app": "a"}))
    _budget(cluster, namespace, healthy=0, needed=1)
    cluster.evict("a", namespace=namespace)
    with pytest.raises(NotFound):
        cluster.get(PODS, "a", namespace=namespace)


def test_a_dry_run_of_an_eviction_evicts_nothing(cluster: ClusterClient, namespace: str) -> None:
    created = cluster.create(PODS, gated_pod(namespace, "a"))
    cluster.evict("a", namespace=namespace, dry_run=True)
    assert cluster.get(PODS, "a", namespace=namespace) == created
