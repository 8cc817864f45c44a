"""Create, get, update and delete of whole objects."""

import re

import pytest

from rollouts.cluster import (
    AlreadyExists,
    BadRequest,
    ClusterClient,
    Conflict,
    Invalid,
    NotFound,
    Resource,
    UnknownResource,
)
from rollouts.cluster.resources import NAMESPACES, PODCLIQUES, PODS
from tests.builtin_resources import CONFIGMAPS
from tests.contract.manifests import config_map, gated_pod, minimal, pod_clique


def test_the_server_tells_its_version(cluster: ClusterClient) -> None:
    assert re.fullmatch(r"v1\.\d+\..+", cluster.version()["gitVersion"])


def test_a_created_object_is_read_back_as_it_was_stored(cluster: ClusterClient, namespace: str) -> None:
    created = cluster.create(CONFIGMAPS, config_map(namespace, "a", data={"k": "v"}, labels={"l": "1"}))
    read = cluster.get(CONFIGMAPS, "a", namespace=namespace)
    assert read == created
    assert read["data"] == {"k": "v"}
    metadata = read["metadata"]
    assert metadata["labels"] == {"l": "1"}
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", metadata["uid"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    assert int(metadata["resourceVersion"]) > 0


def test_a_kind_that_has_no_spec_has_no_generation(cluster: ClusterClient, namespace: str) -> None:
    assert "generation" not in cluster.create(CONFIGMAPS, config_map(namespace, "a"))["metadata"]


def test_what_the_client_says_about_identity_is_overruled(cluster: ClusterClient, namespace: str) -> None:
    forged = config_map(namespace, "a", uid="mine", creationTimestamp="2001-01-01T00:00:00Z", generation=7)
    metadata = cluster.create(CONFIGMAPS, forged)["metadata"]
    assert metadata["uid"] != "mine"
    assert not metadata["creationTimestamp"].startswith("2001")


def test_an_object_cannot_be_created_with_a_resource_version(cluster: ClusterClient, namespace: str) -> None:
    # kube-apiserver rejects this with an internal error, 500.
    with pytest.raises(Exception, match="resourceVersion should not be set on objects to be created"):
        cluster.create(CONFIGMAPS, config_map(namespace, "a", resourceVersion="1"))
    with pytest.raises(NotFound):
        cluster.get(CONFIGMAPS, "a", namespace=namespace)


def test_creating_what_is_there_is_refused(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(CONFIGMAPS, config_map(namespace, "a"))
    with pytest.raises(AlreadyExists, match='configmaps "a" already exists') as refusal:
        cluster.create(CONFIGMAPS, config_map(namespace, "a"))
    assert refusal.value.reason == "AlreadyExists"


@pytest.mark.parametrize("resource", [CONFIGMAPS, PODS, PODCLIQUES], ids=str)
def test_what_is_not_there_is_not_found(cluster: ClusterClient, namespace: str, resource: Resource) -> None:
    with pytest.raises(NotFound, match=f'{resource} "gone" not found'):
        cluster.get(resource, "gone", namespace=namespace)
    with pytest.raises(NotFound):
        cluster.delete(resource, "gone", namespace=namespace)
    with pytest.raises(NotFound):
        cluster.patch_merge(resource, "gone", {"metadata": {"labels": {"a": "b"}}}, namespace=namespace)


def test_an_object_needs_a_namespace_that_exists(cluster: ClusterClient) -> None:
    with pytest.raises(NotFound, match='namespaces "nowhere" not found'):
        cluster.create(CONFIGMAPS, config_map("nowhere", "a"))
    with pytest.raises(NotFound, match='namespaces "nowhere" not found'):
        cluster.create(PODCLIQUES, pod_clique("nowhere", "a"))


@pytest.mark.parametrize(
    "resource",
    [
        Resource("", "v1", "widgets", "Widget"),
        Resource("grove.io", "v1alpha1", "widgets", "Widget"),
        Resource("grove.io", "v9", "podcliques", "PodClique"),
        Resource("nowhere.example", "v1", "widgets", "Widget"),
    ],
    ids=["core group", "custom group", "other version", "unknown group"],
)
def test_an_unknown_kind_is_not_mistaken_for_a_missing_object(
    cluster: ClusterClient, namespace: str, resource: Resource
) -> None:
    with pytest.raises(UnknownResource):
        cluster.get(resource, "a", namespace=namespace)
    with pytest.raises(UnknownResource):
        cluster.list(resource)
    with pytest.raises(UnknownResource):
        cluster.create(resource, config_map(namespace, "a"))


def test_an_unknown_subresource_is_not_mistaken_for_a_missing_object(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(CONFIGMAPS, config_map(namespace, "a"))
    with pytest.raises(UnknownResource):
        cluster.get(CONFIGMAPS, "a", namespace=namespace, subresource="status")


def test_a_name_is_generated_from_its_beginning(cluster: ClusterClient, namespace: str) -> None:
    manifest = config_map(namespace, "", generateName="my-0-c-")
    names = {cluster.create(CONFIGMAPS, manifest)["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    # Vowels and look-alikes are left out of the alphabet.
    assert all(re.fullmatch(r"my-0-c-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)


def test_an_object_without_a_name_is_refused(cluster: ClusterClient, namespace: str) -> None:
    with pytest.raises(Invalid, match="name or generateName is required") as refusal:
        cluster.create(PODCLIQUES, pod_clique(namespace, ""))
    assert refusal.value.causes[0].field == "metadata.name"


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "dot.", "x" * 254])
@pytest.mark.parametrize("resource", [CONFIGMAPS, PODCLIQUES], ids=str)
def test_a_name_must_be_a_dns_name(cluster: ClusterClient, namespace: str, resource: Resource, name: str) -> None:
    with pytest.raises(Invalid) as refusal:
        cluster.create(resource, minimal(resource, namespace, name))
    assert "metadata.name" in {cause.field for cause in refusal.value.causes}
    assert "FieldValueInvalid" in {cause.reason for cause in refusal.value.causes}


def test_a_namespace_name_has_no_dots(cluster: ClusterClient) -> None:
    with pytest.raises(Invalid) as refusal:
        cluster.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a.b"}})
    assert refusal.value.causes[0].field == "metadata.name"


@pytest.mark.parametrize(
    ("labels", "field"),
    [({"a b": "c"}, "metadata.labels"), ({"a": "b c"}, "metadata.labels"), ({"a": "x" * 64}, "metadata.labels")],
)
def test_labels_must_be_well_formed(cluster: ClusterClient, namespace: str, labels: dict[str, str], field: str) -> None:
    with pytest.raises(Invalid) as refusal:
        cluster.create(PODCLIQUES, pod_clique(namespace, "a", labels=labels))
    assert {cause.field for cause in refusal.value.causes} == {field}


def test_an_update_replaces_the_object(cluster: ClusterClient, namespace: str) -> None:
    created = cluster.create(CONFIGMAPS, config_map(namespace, "a", data={"old": "1"}, labels={"l": "1"}))
    changed = created | {"data": {"new": "2"}}
    updated = cluster.update(CONFIGMAPS, changed)
    assert updated["data"] == {"new": "2"}
    assert updated["metadata"]["uid"] == created["metadata"]["uid"]
    assert int(updated["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])
    assert cluster.get(CONFIGMAPS, "a", namespace=namespace) == updated


def test_an_update_of_what_has_moved_on_is_a_conflict(cluster: ClusterClient, namespace: str) -> None:
    created = cluster.create(CONFIGMAPS, config_map(namespace, "a"))
    updated = cluster.update(CONFIGMAPS, created | {"data": {"first": "1"}})
    with pytest.raises(Conflict, match="the object has been modified") as refusal:
        cluster.update(CONFIGMAPS, created | {"data": {"second": "2"}})
    assert not isinstance(refusal.value, AlreadyExists)
    assert cluster.get(CONFIGMAPS, "a", namespace=namespace) == updated


def test_an_update_of_another_object_of_that_name_is_a_conflict(cluster: ClusterClient, namespace: str) -> None:
    first = cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    cluster.delete(PODCLIQUES, "a", namespace=namespace)
    cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    del first["metadata"]["resourceVersion"]
    # A custom resource needs the resourceVersion for an update, which then gives the same answer.
    with pytest.raises((Conflict, Invalid)):
        cluster.update(PODCLIQUES, first)


def test_a_custom_object_is_updated_only_with_a_resource_version(cluster: ClusterClient, namespace: str) -> None:
    created = cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    del created["metadata"]["resourceVersion"]
    with pytest.raises(Invalid, match="must be specified for an update") as refusal:
        cluster.update(PODCLIQUES, created)
    assert refusal.value.causes[0].field == "metadata.resourceVersion"


def test_a_built_in_object_is_updated_without_a_resource_version_too(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(CONFIGMAPS, config_map(namespace, "a"))
    assert cluster.update(CONFIGMAPS, config_map(namespace, "a", data={"k": "v"}))["data"] == {"k": "v"}


def test_a_write_that_changes_nothing_keeps_the_resource_version(cluster: ClusterClient, namespace: str) -> None:
    created = cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    assert cluster.update(PODCLIQUES, created)["metadata"]["resourceVersion"] == _version(created)
    patched = cluster.patch_merge(PODCLIQUES, "a", {"spec": {"replicas": 2}}, namespace=namespace)
    assert _version(patched) == _version(created)


def test_a_dry_run_answers_and_stores_nothing(cluster: ClusterClient, namespace: str) -> None:
    dreamt = cluster.create(CONFIGMAPS, config_map(namespace, "a"), dry_run=True)
    assert dreamt["metadata"]["uid"]
    with pytest.raises(NotFound):
        cluster.get(CONFIGMAPS, "a", namespace=namespace)
    created = cluster.create(CONFIGMAPS, config_map(namespace, "a"))
    patched = cluster.patch_merge(CONFIGMAPS, "a", {"data": {"k": "v"}}, namespace=namespace, dry_run=True)
    assert patched["data"] == {"k": "v"}
    cluster.delete(CONFIGMAPS, "a", namespace=namespace, dry_run=True)
    assert cluster.get(CONFIGMAPS, "a", namespace=namespace) == created


def test_a_dry_run_is_validated(cluster: ClusterClient, namespace: str) -> None:
    with pytest.raises(Invalid):
        cluster.create(PODCLIQUES, pod_clique(namespace, "a", replicas=-1), dry_run=True)


def test_namespaces_keep_objects_of_one_name_apart(cluster: ClusterClient, namespace: str) -> None:
    other = f"{namespace}-other"
    cluster.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
    first = cluster.create(CONFIGMAPS, config_map(namespace, "a"))
    second = cluster.create(CONFIGMAPS, config_map(other, "a"))
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    cluster.delete(CONFIGMAPS, "a", namespace=other)
    assert cluster.get(CONFIGMAPS, "a", namespace=namespace) == first


def test_the_body_must_be_of_the_kind_and_place_of_the_path(cluster: ClusterClient, namespace: str) -> None:
    with pytest.raises(BadRequest):
        cluster.create(PODCLIQUES, config_map(namespace, "a"))
    with pytest.raises(BadRequest):
        cluster.create(PODCLIQUES, pod_clique(namespace, "a") | {"apiVersion": "grove.io/v2"})


def test_most_of_a_pod_cannot_be_changed(cluster: ClusterClient, namespace: str) -> None:
    pod = cluster.create(PODS, gated_pod(namespace, "a"))
    image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "registry.example/app:2"}]
    assert cluster.patch_json(PODS, "a", image, namespace=namespace)["spec"]["containers"][0]["image"].endswith("2")
    name = [{"op": "replace", "path": "/spec/containers/0/name", "value": "other"}]
    with pytest.raises(Invalid) as refusal:
        cluster.patch_json(PODS, "a", name, namespace=namespace)
    assert refusal.value.causes
    assert cluster.get(PODS, "a", namespace=namespace)["metadata"]["uid"] == pod["metadata"]["uid"]


def test_a_scheduling_gate_can_be_removed_and_not_added(cluster: ClusterClient, namespace: str) -> None:
    manifest = gated_pod(namespace, "a")
    manifest["spec"]["schedulingGates"].append({"name": "example.com/second"})
    cluster.create(PODS, manifest)
    removed = cluster.patch_json(PODS, "a", [{"op": "remove", "path": "/spec/schedulingGates/1"}], namespace=namespace)
    assert removed["spec"]["schedulingGates"] == [{"name": "example.com/held"}]
    gate = {"op": "add", "path": "/spec/schedulingGates/-", "value": {"name": "example.com/third"}}
    with pytest.raises(Invalid):
        cluster.patch_json(PODS, "a", [gate], namespace=namespace)


def _version(obj: dict[str, dict[str, str]]) -> str:
    return obj["metadata"]["resourceVersion"]


def test_creating_over_an_object_that_is_leaving_says_so(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(PODCLIQUES, pod_clique(namespace, "a", finalizers=["example.com/held"]))
    cluster.delete(PODCLIQUES, "a", namespace=namespace)
    with pytest.raises(AlreadyExists, match="object is being deleted"):
        cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
