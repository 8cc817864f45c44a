"""Patches: merge patch, JSON patch, and patches that cannot be applied."""

import pytest

from rollouts.cluster import BadRequest, ClusterClient, Conflict, Invalid, NotFound, Obj, Resource
from rollouts.cluster.resources import PODCLIQUES, PODS
from tests.builtin_resources import CONFIGMAPS
from tests.contract.manifests import config_map, gated_pod, minimal, pod_clique
from tests.contract.raw import Raw

STRATEGIC = "application/strategic-merge-patch+json"


def test_a_merge_patch_sets_and_removes_fields_and_leaves_the_others(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(CONFIGMAPS, config_map(namespace, "a", data={"keep": "1", "change": "1", "remove": "1"}))
    patch = {"data": {"change": "2", "remove": None, "add": "3"}, "metadata": {"labels": {"l": "1"}}}
    patched = cluster.patch_merge(CONFIGMAPS, "a", patch, namespace=namespace)
    assert patched["data"] == {"keep": "1", "change": "2", "add": "3"}
    assert patched["metadata"]["labels"] == {"l": "1"}
    assert cluster.get(CONFIGMAPS, "a", namespace=namespace) == patched


def test_a_merge_patch_replaces_lists_whole(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    containers = [{"name": "other", "image": "registry.example/other:1"}]
    patch = {"spec": {"podSpec": {"containers": containers}}}
    patched = cluster.patch_merge(PODCLIQUES, "a", patch, namespace=namespace)
    assert patched["spec"]["podSpec"]["containers"] == containers


@pytest.mark.parametrize("resource", [CONFIGMAPS, PODCLIQUES], ids=str)
def test_a_merge_patch_with_an_old_resource_version_is_a_conflict(
    cluster: ClusterClient, namespace: str, resource: Resource
) -> None:
    created = cluster.create(resource, minimal(resource, namespace, "a"))
    precondition = {"resourceVersion": created["metadata"]["resourceVersion"]}
    first = {"metadata": precondition | {"labels": {"l": "1"}}}
    patched = cluster.patch_merge(resource, "a", first, namespace=namespace)
    with pytest.raises(Conflict):
        cluster.patch_merge(resource, "a", {"metadata": precondition | {"labels": {"l": "2"}}}, namespace=namespace)
    assert cluster.get(resource, "a", namespace=namespace) == patched


@pytest.mark.parametrize("resource", [CONFIGMAPS, PODCLIQUES], ids=str)
def test_a_merge_patch_with_another_uid_is_a_conflict(
    cluster: ClusterClient, namespace: str, resource: Resource
) -> None:
    created = cluster.create(resource, minimal(resource, namespace, "a"))
    own = {"metadata": {"uid": created["metadata"]["uid"], "labels": {"l": "1"}}}
    patched = cluster.patch_merge(resource, "a", own, namespace=namespace)
    other = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000", "labels": {"l": "2"}}}
    with pytest.raises(Conflict):
        cluster.patch_merge(resource, "a", other, namespace=namespace)
    assert cluster.get(resource, "a", namespace=namespace) == patched


def test_a_patch_cannot_rename_an_object(cluster: ClusterClient, namespace: str) -> None:
    created = cluster.create(CONFIGMAPS, config_map(namespace, "a"))
    with pytest.raises(BadRequest):
        cluster.patch_merge(CONFIGMAPS, "a", {"metadata": {"name": "b"}}, namespace=namespace)
    assert cluster.get(CONFIGMAPS, "a", namespace=namespace) == created


def test_a_json_patch_carries_out_its_operations_in_order(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(PODCLIQUES, pod_clique(namespace, "a", labels={"l": "1"}))
    operations: list[Obj] = [
        {"op": "test", "path": "/spec/replicas", "value": 2},
        {"op": "replace", "path": "/spec/replicas", "value": 3},
        {"op": "add", "path": "/metadata/labels/example.com~1m", "value": "2"},
        {"op": "remove", "path": "/metadata/labels/l"},
        {
            "op": "add",
            "path": "/spec/podSpec/containers/-",
            "value": {"name": "side", "image": "registry.example/side:1"},
        },
    ]
    patched = cluster.patch_json(PODCLIQUES, "a", operations, namespace=namespace)
    assert patched["spec"]["replicas"] == 3
    assert patched["metadata"]["labels"] == {"example.com/m": "2"}
    assert [c["name"] for c in patched["spec"]["podSpec"]["containers"]] == ["main", "side"]


def test_a_json_patch_whose_test_fails_changes_nothing(cluster: ClusterClient, namespace: str) -> None:
    created = cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    operations: list[Obj] = [
        {"op": "replace", "path": "/spec/replicas", "value": 3},
        {"op": "test", "path": "/spec/roleName", "value": "somebody else"},
    ]
    with pytest.raises(Invalid):
        cluster.patch_json(PODCLIQUES, "a", operations, namespace=namespace)
    assert cluster.get(PODCLIQUES, "a", namespace=namespace) == created


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/spec/nowhere"},
        {"op": "replace", "path": "/metadata/labels/l", "value": "1"},
        {"op": "add", "path": "/spec/podSpec/containers/7", "value": {}},
    ],
    ids=["remove", "replace", "add"],
)
def test_a_json_patch_of_a_place_that_is_not_there_is_refused(
    cluster: ClusterClient, namespace: str, operation: dict[str, object]
) -> None:
    created = cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    with pytest.raises(Invalid):
        cluster.patch_json(PODCLIQUES, "a", [operation], namespace=namespace)
    assert cluster.get(PODCLIQUES, "a", namespace=namespace) == created


def test_a_patch_to_an_invalid_object_is_refused(cluster: ClusterClient, namespace: str) -> None:
    created = cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    with pytest.raises(Invalid) as refusal:
        cluster.patch_merge(PODCLIQUES, "a", {"spec": {"replicas": -1}}, namespace=namespace)
    assert refusal.value.causes[0].field == "spec.replicas"
    assert cluster.get(PODCLIQUES, "a", namespace=namespace) == created


def test_a_strategic_merge_patch_merges_the_lists_of_built_in_kinds_by_key(
    cluster: ClusterClient, raw: Raw, namespace: str
) -> None:
    cluster.create(PODS, gated_pod(namespace, "a"))
    patch = {"spec": {"containers": [{"name": "main", "image": "registry.example/app:2"}]}}
    answer = raw.call("PATCH", f"/api/v1/namespaces/{namespace}/pods/a", patch, content_type=STRATEGIC)
    (container,) = answer.obj["spec"]["containers"]
    assert container["image"] == "registry.example/app:2"
    assert container["terminationMessagePath"] == "/dev/termination-log"


def test_a_strategic_merge_patch_of_a_custom_resource_is_unsupported(
    cluster: ClusterClient, raw: Raw, namespace: str
) -> None:
    created = cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    path = f"/apis/grove.io/v1alpha1/namespaces/{namespace}/podcliques/a"
    answer = raw.call("PATCH", path, {"spec": {"replicas": 3}}, content_type=STRATEGIC)
    assert answer.code == 415
    assert answer.status["reason"] == "UnsupportedMediaType"
    assert cluster.get(PODCLIQUES, "a", namespace=namespace) == created


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "application/xml"])
def test_a_patch_of_an_unknown_type_is_unsupported(
    cluster: ClusterClient, raw: Raw, namespace: str, content_type: str
) -> None:
    created = cluster.create(CONFIGMAPS, config_map(namespace, "a"))
    path = f"/api/v1/namespaces/{namespace}/configmaps/a"
    answer = raw.call("PATCH", path, {"data": {"k": "v"}}, content_type=content_type)
    assert answer.code == 415
    assert answer.status["reason"] == "UnsupportedMediaType"
    assert cluster.get(CONFIGMAPS, "a", namespace=namespace) == created


def test_a_merge_patch_never_creates(cluster: ClusterClient, namespace: str) -> None:
    with pytest.raises(NotFound):
        cluster.patch_merge(CONFIGMAPS, "a", {"data": {"k": "v"}}, namespace=namespace)
    with pytest.raises(NotFound):
        cluster.get(CONFIGMAPS, "a", namespace=namespace)
