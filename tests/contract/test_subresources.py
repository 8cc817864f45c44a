"""Spec, status and scale of one object: who may change which, and what counts as a new generation."""

from typing import Any

import pytest

from rollouts.cluster import ClusterClient, Conflict, Invalid, NotFound
from rollouts.cluster.resources import NODES, PODCLIQUES, PODCLIQUESETS, PODGANGS, PODS
from tests.contract.manifests import gated_pod, pod_clique, pod_clique_set


def test_the_status_given_at_creation_is_dropped(cluster: ClusterClient, namespace: str) -> None:
    created = cluster.create(PODCLIQUES, pod_clique(namespace, "a") | {"status": {"replicas": 7}})
    assert created.get("status", {}).get("replicas") is None


def test_a_write_of_the_object_leaves_its_status(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    cluster.patch_merge(PODCLIQUES, "a", {"status": {"replicas": 1}}, namespace=namespace, subresource="status")
    patch = {"spec": {"replicas": 3}, "status": {"replicas": 7}}
    patched = cluster.patch_merge(PODCLIQUES, "a", patch, namespace=namespace)
    assert (patched["spec"]["replicas"], patched["status"]["replicas"]) == (3, 1)
    patched["status"]["replicas"] = 8
    assert cluster.update(PODCLIQUES, patched)["status"]["replicas"] == 1


def test_a_write_of_the_status_leaves_spec_and_labels(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(PODCLIQUES, pod_clique(namespace, "a", labels={"l": "1"}))
    patch = {"metadata": {"labels": {"l": "2"}}, "spec": {"replicas": 9}, "status": {"replicas": 1}}
    patched = cluster.patch_merge(PODCLIQUES, "a", patch, namespace=namespace, subresource="status")
    assert (patched["spec"]["replicas"], patched["status"]["replicas"]) == (2, 1)
    assert patched["metadata"]["labels"] == {"l": "1"}
    patched["spec"]["replicas"] = 9
    patched["status"]["replicas"] = 2
    updated = cluster.update(PODCLIQUES, patched, subresource="status")
    assert (updated["spec"]["replicas"], updated["status"]["replicas"]) == (2, 2)


def test_a_status_write_with_an_old_resource_version_is_a_conflict(cluster: ClusterClient, namespace: str) -> None:
    created = cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    seen = {"metadata": {"resourceVersion": created["metadata"]["resourceVersion"]}}
    cluster.patch_merge(PODCLIQUES, "a", {"metadata": {"labels": {"l": "1"}}}, namespace=namespace)
    with pytest.raises(Conflict):
        cluster.patch_merge(
            PODCLIQUES, "a", seen | {"status": {"replicas": 1}}, namespace=namespace, subresource="status"
        )


def test_a_status_that_breaks_the_schema_is_refused(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    with pytest.raises(Invalid) as refusal:
        cluster.patch_merge(
            PODCLIQUES, "a", {"status": {"replicas": "many"}}, namespace=namespace, subresource="status"
        )
    assert refusal.value.causes[0].field == "status.replicas"


def test_the_status_is_read_by_its_own_path(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    status = {"status": {"replicas": 1}}
    patched = cluster.patch_merge(PODCLIQUES, "a", status, namespace=namespace, subresource="status")
    assert cluster.get(PODCLIQUES, "a", namespace=namespace, subresource="status") == patched


def test_only_a_change_of_the_spec_makes_a_new_generation(cluster: ClusterClient, namespace: str) -> None:
    def generation(patch: dict[str, Any], subresource: str | None = None) -> int:
        patched = cluster.patch_merge(PODCLIQUES, "a", patch, namespace=namespace, subresource=subresource)
        value: int = patched["metadata"]["generation"]
        return value

    created = cluster.create(PODCLIQUES, pod_clique(namespace, "a", generation=7))
    assert created["metadata"]["generation"] == 1
    assert generation({"spec": {"replicas": 3}}) == 2
    assert generation({"spec": {"replicas": 3}}) == 2
    assert generation({"metadata": {"labels": {"l": "1"}, "annotations": {"n": "1"}}}) == 2
    assert generation({"metadata": {"generation": 9}}) == 2
    assert generation({"status": {"replicas": 1}}, "status") == 2
    assert generation({"spec": {"replicas": 4}}) == 3


def test_a_deletion_that_is_held_back_makes_a_new_generation(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(PODCLIQUES, pod_clique(namespace, "a", finalizers=["example.com/held"]))
    deleted = cluster.delete(PODCLIQUES, "a", namespace=namespace)
    assert deleted["metadata"]["generation"] == 2


def test_the_scale_shows_wanted_and_present_replicas_and_the_selector(cluster: ClusterClient, namespace: str) -> None:
    created = cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    status = {"status": {"replicas": 1, "hpaPodSelector": "app=a"}}
    patched = cluster.patch_merge(PODCLIQUES, "a", status, namespace=namespace, subresource="status")
    scale = cluster.get(PODCLIQUES, "a", namespace=namespace, subresource="scale")
    assert (scale["apiVersion"], scale["kind"]) == ("autoscaling/v1", "Scale")
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 1, "selector": "app=a"}
    assert scale["metadata"]["uid"] == created["metadata"]["uid"]
    assert scale["metadata"]["resourceVersion"] == patched["metadata"]["resourceVersion"]


@pytest.mark.parametrize("resource", [PODCLIQUES, PODCLIQUESETS], ids=str)
def test_scaling_changes_the_replicas_and_nothing_else(cluster: ClusterClient, namespace: str, resource: Any) -> None:
    build = pod_clique if resource is PODCLIQUES else pod_clique_set
    created = cluster.create(resource, build(namespace, "a"))
    scaled = cluster.patch_merge(resource, "a", {"spec": {"replicas": 5}}, namespace=namespace, subresource="scale")
    assert scaled["spec"]["replicas"] == 5
    read = cluster.get(resource, "a", namespace=namespace)
    assert read["spec"] == created["spec"] | {"replicas": 5}
    assert read["metadata"]["generation"] == 2
    assert read["metadata"]["resourceVersion"] == scaled["metadata"]["resourceVersion"]


def test_a_scale_can_be_replaced_unless_it_has_moved_on(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    scale = cluster.get(PODCLIQUES, "a", namespace=namespace, subresource="scale")
    scale["spec"]["replicas"] = 4
    assert cluster.update(PODCLIQUES, scale, subresource="scale")["spec"]["replicas"] == 4
    with pytest.raises(Conflict):
        cluster.update(PODCLIQUES, scale, subresource="scale")


def test_a_scale_below_zero_is_refused(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    with pytest.raises(Invalid) as refusal:
        cluster.patch_merge(PODCLIQUES, "a", {"spec": {"replicas": -1}}, namespace=namespace, subresource="scale")
    assert refusal.value.causes[0].field == "spec.replicas"


def test_a_kind_without_scale_has_none(cluster: ClusterClient, namespace: str) -> None:
    gang = {
        "apiVersion": "scheduler.grove.io/v1alpha1",
        "kind": "PodGang",
        "metadata": {"name": "a", "namespace": namespace},
        "spec": {"podgroups": []},
    }
    cluster.create(PODGANGS, gang)
    with pytest.raises(Exception, match="404"):
        cluster.get(PODGANGS, "a", namespace=namespace, subresource="scale")


def test_the_subresource_of_a_missing_object_is_not_found(cluster: ClusterClient, namespace: str) -> None:
    with pytest.raises(NotFound):
        cluster.get(PODCLIQUES, "a", namespace=namespace, subresource="scale")
    with pytest.raises(NotFound):
        cluster.patch_merge(PODCLIQUES, "a", {"status": {"replicas": 1}}, namespace=namespace, subresource="status")


def test_the_status_of_a_pod_is_written_apart_from_it(cluster: ClusterClient, namespace: str) -> None:
    created = cluster.create(PODS, gated_pod(namespace, "a") | {"status": {"phase": "Running"}})
    assert created["status"]["phase"] == "Pending"
    ready = {"type": "Ready", "status": "True"}
    status = {"status": {"phase": "Running", "conditions": [ready]}}
    patched = cluster.patch_merge(PODS, "a", status, namespace=namespace, subresource="status")
    assert patched["status"]["phase"] == "Running"
    (condition,) = patched["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("Ready", "True")
    assert patched["spec"] == created["spec"]


def test_cordoning_a_node_is_a_change_of_its_spec(cluster: ClusterClient, namespace: str) -> None:
    name = f"node-of-{namespace}"
    cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    assert cluster.patch_merge(NODES, name, {"spec": {"unschedulable": True}})["spec"]["unschedulable"] is True
    read = cluster.patch_merge(NODES, name, {"spec": {"unschedulable": None}})
    assert "unschedulable" not in read["spec"]
    cluster.delete(NODES, name)
