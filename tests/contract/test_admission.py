"""What a server does to an object before it stores it: defaults, pruning, schema and CEL rules.

`tests/deploy` tests the messages of our definitions' rules. These tests are about the mechanism: that each kind of rule
is enforced by each kind of write, and names the field.
"""

from typing import Any

import pytest

from rollouts.cluster import ClusterClient, Invalid, NotFound, Obj
from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESETS, PODGANGS, PODS
from tests.contract.manifests import gated_pod, pod_clique, pod_clique_set
from tests.contract.raw import Raw


def _fields(refusal: pytest.ExceptionInfo[Invalid]) -> set[str]:
    """Return the fields that an error names.

    kube-apiserver reports a wrong replica count twice, once with a leading dot (as the scale subresource names it), and
    may add that some rules were not evaluated, which is about no field.
    """
    found = refusal.value.causes
    return {cause.field.removeprefix(".") for cause in found if "were not checked" not in cause.message} - {"<nil>"}


def _refused(cluster: ClusterClient, manifest: Obj) -> pytest.ExceptionInfo[Invalid]:
    with pytest.raises(Invalid) as refusal:
        cluster.create(PODCLIQUES, manifest)
    with pytest.raises(NotFound):
        cluster.get(PODCLIQUES, "a", namespace=manifest["metadata"]["namespace"])
    return refusal


def test_defaults_are_filled_in(cluster: ClusterClient, namespace: str) -> None:
    created = cluster.create(PODCLIQUESETS, pod_clique_set(namespace, "a"))
    assert created["spec"]["template"]["cliqueStartupType"] == "CliqueStartupTypeAnyOrder"
    assert cluster.get(PODCLIQUESETS, "a", namespace=namespace) == created


def test_fields_that_no_schema_knows_are_dropped(cluster: ClusterClient, namespace: str) -> None:
    manifest = pod_clique(namespace, "a")
    manifest["spec"]["nonsense"] = {"deep": True}
    manifest["extra"] = 1
    created = cluster.create(PODCLIQUES, manifest)
    assert "nonsense" not in created["spec"]
    assert "extra" not in created


def test_fields_are_kept_where_the_schema_says_so(cluster: ClusterClient, namespace: str) -> None:
    manifest = pod_clique(namespace, "a")
    manifest["spec"]["podSpec"]["hostNetwork"] = True
    manifest["spec"]["podSpec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "8"}}
    assert cluster.create(PODCLIQUES, manifest)["spec"]["podSpec"] == manifest["spec"]["podSpec"]


def test_a_strict_write_refuses_unknown_fields(cluster: ClusterClient, raw: Raw, namespace: str) -> None:
    manifest = pod_clique(namespace, "a")
    manifest["spec"]["nonsense"] = True
    path = f"/apis/grove.io/v1alpha1/namespaces/{namespace}/podcliques?fieldValidation=Strict"
    answer = raw.call("POST", path, manifest)
    assert answer.code == 400
    assert 'strict decoding error: unknown field "spec.nonsense"' in answer.status["message"]
    with pytest.raises(NotFound):
        cluster.get(PODCLIQUES, "a", namespace=namespace)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("replicas", -1, "FieldValueInvalid"),
        ("replicas", "two", "FieldValueTypeInvalid"),
        ("replicas", 1.5, "FieldValueTypeInvalid"),
        ("minAvailable", 0, "FieldValueInvalid"),
        ("startsAfter", "x", "FieldValueTypeInvalid"),
        ("podSpec", {}, "FieldValueRequired"),
    ],
)
def test_the_schema_is_enforced_and_names_the_field(
    cluster: ClusterClient, namespace: str, field: str, value: Any, reason: str
) -> None:
    manifest = pod_clique(namespace, "a")
    manifest["spec"][field] = value
    refusal = _refused(cluster, manifest)
    expected = "spec.podSpec.containers" if field == "podSpec" else f"spec.{field}"
    assert _fields(refusal) == {expected}
    assert refusal.value.causes[0].reason == reason
    assert refusal.value.reason == "Invalid"


def test_every_finding_is_told(cluster: ClusterClient, namespace: str) -> None:
    manifest = pod_clique(namespace, "a", replicas=-1)
    manifest["spec"]["minAvailable"] = 0
    assert _fields(_refused(cluster, manifest)) == {"spec.replicas", "spec.minAvailable"}


def test_a_missing_field_is_required(cluster: ClusterClient, namespace: str) -> None:
    manifest = pod_clique(namespace, "a")
    del manifest["spec"]["replicas"]
    refusal = _refused(cluster, manifest)
    assert [(c.reason, c.field) for c in refusal.value.causes if c.field] == [("FieldValueRequired", "spec.replicas")]


def test_a_value_outside_its_enumeration_is_not_supported(cluster: ClusterClient, namespace: str) -> None:
    with pytest.raises(Invalid) as refusal:
        cluster.create(PODCLIQUESETS, pod_clique_set(namespace, "a", updateStrategy={"type": "Magic"}))
    assert _fields(refusal) == {"spec.updateStrategy.type"}
    assert "FieldValueNotSupported" in {cause.reason for cause in refusal.value.causes}


def test_an_entry_that_comes_twice_in_a_list_with_keys_is_refused(cluster: ClusterClient, namespace: str) -> None:
    group = {"name": "same", "podReferences": [], "minReplicas": 1}
    gang = {
        "apiVersion": "scheduler.grove.io/v1alpha1",
        "kind": "PodGang",
        "metadata": {"name": "a", "namespace": namespace},
        "spec": {"podgroups": [group, group]},
    }
    with pytest.raises(Invalid) as refusal:
        cluster.create(PODGANGS, gang)
    assert [(c.reason, c.field) for c in refusal.value.causes] == [("FieldValueDuplicate", "spec.podgroups[1]")]


ZERO = {"type": "ReplicaRecreate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 0}}


def test_a_rule_over_several_fields_is_enforced_with_its_own_words(cluster: ClusterClient, namespace: str) -> None:
    with pytest.raises(Invalid, match="may not both be 0") as refusal:
        cluster.create(PODCLIQUESETS, pod_clique_set(namespace, "a", updateStrategy=ZERO))
    assert _fields(refusal) == {"spec.updateStrategy.rollingUpdate"}


def test_a_rule_is_enforced_at_each_way_of_writing(cluster: ClusterClient, namespace: str) -> None:
    created = cluster.create(PODCLIQUESETS, pod_clique_set(namespace, "a"))
    patch = {"spec": {"updateStrategy": ZERO}}
    with pytest.raises(Invalid):
        cluster.patch_merge(PODCLIQUESETS, "a", patch, namespace=namespace)
    operation = {"op": "add", "path": "/spec/updateStrategy", "value": ZERO}
    with pytest.raises(Invalid):
        cluster.patch_json(PODCLIQUESETS, "a", [operation], namespace=namespace)
    with pytest.raises(Invalid):
        cluster.apply(PODCLIQUESETS, pod_clique_set(namespace, "a", updateStrategy=ZERO), force=True)
    with pytest.raises(Invalid):
        cluster.update(PODCLIQUESETS, created | {"spec": created["spec"] | {"updateStrategy": ZERO}})
    assert cluster.get(PODCLIQUESETS, "a", namespace=namespace) == created


def test_a_rule_about_change_holds_for_changes_only(cluster: ClusterClient, namespace: str) -> None:
    manifest = pod_clique_set(namespace, "a")
    cluster.create(PODCLIQUESETS, manifest)
    renamed = pod_clique_set(namespace, "a")["spec"]["template"]
    renamed["cliques"][0]["name"] = "other"
    patch = {"spec": {"template": renamed}}
    with pytest.raises(Invalid, match="cliques cannot be added, removed or renamed") as refusal:
        cluster.patch_merge(PODCLIQUESETS, "a", patch, namespace=namespace)
    assert _fields(refusal) == {"spec.template.cliques"}


def test_a_status_write_is_not_held_up_by_the_spec(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(PODCLIQUESETS, pod_clique_set(namespace, "a"))
    status = {"status": {"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}}
    patched = cluster.patch_merge(PODCLIQUESETS, "a", status, namespace=namespace, subresource="status")
    assert patched["status"]["availableReplicas"] == 1


def test_a_pod_gets_the_defaults_that_every_cluster_gives(cluster: ClusterClient, namespace: str) -> None:
    spec = cluster.create(PODS, gated_pod(namespace, "a"))["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["dnsPolicy"] == "ClusterFirst"


def test_a_new_pod_is_pending(cluster: ClusterClient, namespace: str) -> None:
    assert cluster.create(PODS, gated_pod(namespace, "a"))["status"]["phase"] == "Pending"


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        ({"containers": []}, "spec.containers"),
        ({"containers": [{"name": "a"}]}, "spec.containers[0].image"),
        ({"containers": [{"name": "A_b", "image": "x"}]}, "spec.containers[0].name"),
        ({"containers": [{"name": "a", "image": "x"}, {"name": "a", "image": "x"}]}, "spec.containers[1].name"),
        ({"restartPolicy": "Perhaps"}, "spec.restartPolicy"),
    ],
)
def test_a_pod_that_could_not_run_is_refused(
    cluster: ClusterClient, namespace: str, edit: dict[str, Any], field: str
) -> None:
    manifest = gated_pod(namespace, "a")
    manifest["spec"] |= edit
    with pytest.raises(Invalid) as refusal:
        cluster.create(PODS, manifest)
    assert field in _fields(refusal)
