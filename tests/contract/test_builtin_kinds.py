"""The built-in kinds that the product creates beside pods: the rules that a mistake of ours would break."""

from typing import Any

import pytest

from rollouts.cluster import ClusterClient, Invalid, Obj, Resource
from rollouts.cluster.resources import EVENTS, LEASES, SERVICES
from tests.builtin_resources import CONFIGMAPS, HORIZONTALPODAUTOSCALERS, PODDISRUPTIONBUDGETS, SECRETS
from tests.contract.manifests import config_map, disruption_budget


def _of(resource: Resource, namespace: str, spec: Obj) -> Obj:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": "a", "namespace": namespace},
        "spec": spec,
    }


def _autoscaler(namespace: str, **spec: Any) -> Obj:
    target = {"apiVersion": "grove.io/v1alpha1", "kind": "PodClique", "name": "a"}
    return _of(HORIZONTALPODAUTOSCALERS, namespace, {"scaleTargetRef": target, "maxReplicas": 3} | spec)


def _fields(refusal: pytest.ExceptionInfo[Invalid]) -> set[str]:
    return {cause.field for cause in refusal.value.causes}


def test_a_headless_service_has_no_address(cluster: ClusterClient, namespace: str) -> None:
    spec = {"clusterIP": "None", "selector": {"app": "a"}, "publishNotReadyAddresses": True}
    created = cluster.create(SERVICES, _of(SERVICES, namespace, spec))["spec"]
    assert (created["clusterIP"], created["clusterIPs"]) == ("None", ["None"])
    assert (created["type"], created["publishNotReadyAddresses"]) == ("ClusterIP", True)


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_is_between_1_and_65535(cluster: ClusterClient, namespace: str, port: int) -> None:
    with pytest.raises(Invalid) as refusal:
        cluster.create(SERVICES, _of(SERVICES, namespace, {"clusterIP": "None", "ports": [{"port": port}]}))
    assert "spec.ports[0].port" in _fields(refusal)


def test_an_autoscaler_gets_its_defaults(cluster: ClusterClient, namespace: str) -> None:
    created = cluster.create(HORIZONTALPODAUTOSCALERS, _autoscaler(namespace))
    assert created["spec"]["minReplicas"] == 1


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"maxReplicas": 0}, "spec.maxReplicas"),
        ({"minReplicas": 4}, "spec.maxReplicas"),
        ({"minReplicas": 0}, "spec.minReplicas"),
        ({"metrics": [{"type": "Luck"}]}, "spec.metrics[0].type"),
    ],
    ids=["no most", "fewest over most", "fewest of none", "unknown metric"],
)
def test_the_bounds_of_an_autoscaler_must_make_sense(
    cluster: ClusterClient, namespace: str, spec: dict[str, Any], field: str
) -> None:
    with pytest.raises(Invalid) as refusal:
        cluster.create(HORIZONTALPODAUTOSCALERS, _autoscaler(namespace, **spec))
    assert field in _fields(refusal)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"minAvailable": -1}, "spec.minAvailable"),
        ({"minAvailable": "half"}, "spec.minAvailable"),
        ({"minAvailable": 1, "maxUnavailable": 1}, "spec"),
    ],
    ids=["negative", "in words", "both"],
)
def test_a_disruption_budget_must_make_sense(
    cluster: ClusterClient, namespace: str, spec: dict[str, Any], field: str
) -> None:
    manifest = disruption_budget(namespace, "a", {"app": "a"}, 1)
    manifest["spec"] |= spec
    with pytest.raises(Invalid) as refusal:
        cluster.create(PODDISRUPTIONBUDGETS, manifest)
    assert field in _fields(refusal)


def test_a_lease_lasts_longer_than_nothing(cluster: ClusterClient, namespace: str) -> None:
    with pytest.raises(Invalid) as refusal:
        cluster.create(LEASES, _of(LEASES, namespace, {"holderIdentity": "me", "leaseDurationSeconds": 0}))
    assert _fields(refusal) == {"spec.leaseDurationSeconds"}


def test_a_lease_changes_hands_only_if_nobody_was_faster(cluster: ClusterClient, namespace: str) -> None:
    lease = cluster.create(LEASES, _of(LEASES, namespace, {"holderIdentity": "one", "leaseDurationSeconds": 5}))
    taken = cluster.update(LEASES, lease | {"spec": lease["spec"] | {"holderIdentity": "two"}})
    assert taken["spec"]["holderIdentity"] == "two"
    with pytest.raises(Exception, match="the object has been modified"):
        cluster.update(LEASES, lease | {"spec": lease["spec"] | {"holderIdentity": "three"}})


def test_a_lease_that_is_put_is_created(cluster: ClusterClient, namespace: str) -> None:
    put = cluster.update(LEASES, _of(LEASES, namespace, {"holderIdentity": "me"}))
    assert cluster.get(LEASES, "a", namespace=namespace) == put


def test_the_keys_of_a_config_map_are_file_names(cluster: ClusterClient, namespace: str) -> None:
    with pytest.raises(Invalid) as refusal:
        cluster.create(CONFIGMAPS, config_map(namespace, "a", data={"not a name": "x"}))
    assert _fields(refusal) == {"data[not a name]"}


def test_a_config_map_that_is_final_stays_as_it_is(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(CONFIGMAPS, config_map(namespace, "a", data={"k": "1"}) | {"immutable": True})
    with pytest.raises(Invalid):
        cluster.patch_merge(CONFIGMAPS, "a", {"data": {"k": "2"}}, namespace=namespace)


def test_the_text_of_a_secret_is_stored_as_data(cluster: ClusterClient, namespace: str) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": namespace}}
    created = cluster.create(SECRETS, secret | {"stringData": {"k": "v"}})
    assert created["data"] == {"k": "dg=="}
    assert "stringData" not in created
    assert created["type"] == "Opaque"


def test_an_event_is_about_an_object_of_its_namespace(cluster: ClusterClient, namespace: str) -> None:
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "a.", "namespace": namespace},
        "involvedObject": {"kind": "PodCliqueSet", "name": "a", "namespace": "default"},
        "reason": "Because",
        "message": "told by a test",
        "type": "Normal",
    }
    with pytest.raises(Invalid) as refusal:
        cluster.create(EVENTS, event)
    assert _fields(refusal) == {"involvedObject.namespace"}


def test_a_finalizer_of_a_built_in_kind_names_its_owner(cluster: ClusterClient, namespace: str) -> None:
    with pytest.raises(Invalid) as refusal:
        cluster.create(CONFIGMAPS, config_map(namespace, "a", finalizers=["held"]))
    assert _fields(refusal) == {"metadata.finalizers[0]"}
