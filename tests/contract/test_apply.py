"""Server-side apply: which manager owns which field, and conflicts between managers."""

import itertools
from typing import Any

import pytest

from rollouts.cluster import BadRequest, ClusterClient, Conflict, Invalid, NotFound, Resource
from rollouts.cluster.resources import PODCLIQUES, PODS
from tests.builtin_resources import CONFIGMAPS
from tests.contract.manifests import config_map, gated_pod, pod_clique
from tests.project.running import wait_until


def _cm(namespace: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": "a", "namespace": namespace}, "data": data}


def test_applying_what_is_not_there_creates_it(cluster: ClusterClient, namespace: str) -> None:
    applied = cluster.apply(PODCLIQUES, pod_clique(namespace, "a"))
    assert applied["spec"]["replicas"] == 2
    assert cluster.get(PODCLIQUES, "a", namespace=namespace) == applied


def test_applying_the_same_again_changes_nothing(cluster: ClusterClient, namespace: str) -> None:
    applied = cluster.apply(PODCLIQUES, pod_clique(namespace, "a"))
    again = cluster.apply(PODCLIQUES, pod_clique(namespace, "a"))
    assert again["metadata"]["resourceVersion"] == applied["metadata"]["resourceVersion"]


def test_a_field_left_out_of_the_next_apply_is_removed(cluster: ClusterClient, namespace: str) -> None:
    cluster.apply(CONFIGMAPS, _cm(namespace, keep="1", drop="1"))
    assert cluster.apply(CONFIGMAPS, _cm(namespace, keep="1"))["data"] == {"keep": "1"}


def test_fields_of_others_stay_when_they_are_not_applied(cluster: ClusterClient, namespace: str) -> None:
    cluster.apply(CONFIGMAPS, _cm(namespace, mine="1"), field_manager="one")
    cluster.apply(CONFIGMAPS, _cm(namespace, yours="2"), field_manager="two")
    cluster.patch_merge(CONFIGMAPS, "a", {"data": {"theirs": "3"}}, namespace=namespace)
    applied = cluster.apply(CONFIGMAPS, _cm(namespace, mine="4"), field_manager="one")
    assert applied["data"] == {"mine": "4", "yours": "2", "theirs": "3"}


def test_a_field_that_another_manager_applied_is_a_conflict(cluster: ClusterClient, namespace: str) -> None:
    applied = cluster.apply(CONFIGMAPS, _cm(namespace, k="1"), field_manager="one")
    with pytest.raises(Conflict, match='conflict with "one"') as refusal:
        cluster.apply(CONFIGMAPS, _cm(namespace, k="2"), field_manager="two")
    (cause,) = refusal.value.causes
    assert (cause.reason, cause.field) == ("FieldManagerConflict", ".data.k")
    assert 'conflict with "one"' in cause.message
    assert cluster.get(CONFIGMAPS, "a", namespace=namespace) == applied


def test_a_field_that_an_update_wrote_is_a_conflict(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    wanted = pod_clique(namespace, "a", replicas=5)
    with pytest.raises(Conflict) as refusal:
        cluster.apply(PODCLIQUES, wanted, field_manager="two")
    (cause,) = refusal.value.causes
    assert (cause.reason, cause.field) == ("FieldManagerConflict", ".spec.replicas")
    assert 'conflict with "grove-ui" using grove.io/v1alpha1' in cause.message


def test_the_same_value_is_shared_without_a_conflict(cluster: ClusterClient, namespace: str) -> None:
    cluster.apply(CONFIGMAPS, _cm(namespace, k="1"), field_manager="one")
    cluster.apply(CONFIGMAPS, _cm(namespace, k="1"), field_manager="two")
    # The first gives the field up; the second still owns it.
    assert cluster.apply(CONFIGMAPS, _cm(namespace), field_manager="one")["data"] == {"k": "1"}
    assert "data" not in cluster.apply(CONFIGMAPS, _cm(namespace), field_manager="two")


def test_force_takes_the_field_over(cluster: ClusterClient, namespace: str) -> None:
    cluster.apply(CONFIGMAPS, _cm(namespace, k="1"), field_manager="one")
    forced = cluster.apply(CONFIGMAPS, _cm(namespace, k="2"), field_manager="two", force=True)
    assert forced["data"] == {"k": "2"}
    # The first no longer owns it, so giving it up does not remove it.
    assert cluster.apply(CONFIGMAPS, _cm(namespace), field_manager="one")["data"] == {"k": "2"}
    with pytest.raises(Conflict):
        cluster.apply(CONFIGMAPS, _cm(namespace, k="1"), field_manager="one")


def test_lists_with_keys_are_merged_entry_by_entry(cluster: ClusterClient, namespace: str) -> None:
    def clique(*containers: dict[str, Any]) -> dict[str, Any]:
        return {
            "metadata": {"name": "a", "namespace": namespace},
            "spec": {"replicas": 1, "podSpec": {"containers": list(containers)}},
        }

    main, side = {"name": "main", "image": "m:1"}, {"name": "side", "image": "s:1"}
    cluster.apply(PODCLIQUES, clique(main), field_manager="one")
    both = cluster.apply(PODCLIQUES, clique(side), field_manager="two")
    assert both["spec"]["podSpec"]["containers"] == [main, side]
    env = main | {"env": [{"name": "B", "value": "2"}]}
    changed = cluster.apply(PODCLIQUES, clique(env), field_manager="three")
    assert changed["spec"]["podSpec"]["containers"] == [env, side]
    # Unknown parts of a pod spec (here: a list without a key) are owned whole.
    cluster.apply(PODCLIQUES, clique(main), field_manager="three")
    gone = cluster.apply(PODCLIQUES, clique(), field_manager="two")
    assert gone["spec"]["podSpec"]["containers"] == [main]


def test_lists_without_keys_are_one_value(cluster: ClusterClient, namespace: str) -> None:
    def clique(*after: str) -> dict[str, Any]:
        manifest = pod_clique(namespace, "a")
        manifest["spec"]["startsAfter"] = list(after)
        return manifest

    cluster.apply(PODCLIQUES, clique("x", "y"), field_manager="one")
    with pytest.raises(Conflict) as refusal:
        cluster.apply(PODCLIQUES, clique("x"), field_manager="two")
    assert [cause.field for cause in refusal.value.causes] == [".spec.startsAfter"]
    assert cluster.apply(PODCLIQUES, clique("z"), field_manager="one")["spec"]["startsAfter"] == ["z"]


def test_the_status_is_applied_apart_from_the_spec(cluster: ClusterClient, namespace: str) -> None:
    created = cluster.apply(PODCLIQUES, pod_clique(namespace, "a"))
    status = {
        "metadata": {"name": "a", "namespace": namespace},
        "spec": {"replicas": 9},
        "status": {"replicas": 1},
    }
    applied = cluster.apply(PODCLIQUES, status, subresource="status")
    assert applied["status"]["replicas"] == 1
    assert applied["spec"] == created["spec"]
    # The spec's fields still belong to the apply of the spec.
    respec = cluster.apply(PODCLIQUES, pod_clique(namespace, "a", replicas=3))
    assert respec["status"]["replicas"] == 1


def test_conditions_of_several_managers_live_side_by_side(cluster: ClusterClient, namespace: str) -> None:
    def condition(kind: str, status: str) -> dict[str, Any]:
        entry = {
            "type": kind,
            "status": status,
            "reason": "Because",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        return {"metadata": {"name": "a", "namespace": namespace}, "status": {"conditions": [entry]}}

    cluster.create(PODCLIQUES, pod_clique(namespace, "a"))
    cluster.apply(PODCLIQUES, condition("A", "True"), subresource="status", field_manager="one")
    cluster.apply(PODCLIQUES, condition("B", "True"), subresource="status", field_manager="two")
    applied = cluster.apply(PODCLIQUES, condition("A", "False"), subresource="status", field_manager="one")
    assert [(c["type"], c["status"]) for c in applied["status"]["conditions"]] == [("A", "False"), ("B", "True")]


def test_an_apply_with_another_uid_or_an_old_resource_version_is_a_conflict(
    cluster: ClusterClient, namespace: str
) -> None:
    created = cluster.apply(CONFIGMAPS, _cm(namespace, k="1"))
    stale = _cm(namespace, k="3")
    stale["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"]
    applied = cluster.apply(CONFIGMAPS, _cm(namespace, k="2"))
    with pytest.raises(Conflict):
        cluster.apply(CONFIGMAPS, stale)
    foreign = _cm(namespace, k="3")
    foreign["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
    with pytest.raises(Conflict):
        cluster.apply(CONFIGMAPS, foreign)
    assert cluster.get(CONFIGMAPS, "a", namespace=namespace) == applied


def test_an_apply_with_a_uid_never_creates(cluster: ClusterClient, namespace: str) -> None:
    manifest = _cm(namespace, k="1")
    manifest["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
    with pytest.raises(Conflict):
        cluster.apply(CONFIGMAPS, manifest)
    with pytest.raises(NotFound):
        cluster.get(CONFIGMAPS, "a", namespace=namespace)


def test_an_apply_must_not_carry_managed_fields(cluster: ClusterClient, namespace: str) -> None:
    applied = cluster.apply(CONFIGMAPS, _cm(namespace, k="1"))
    with pytest.raises(BadRequest, match="managedFields must be nil"):
        cluster.apply(CONFIGMAPS, applied)


def test_managed_fields_name_each_manager_once_for_each_way_of_writing(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(CONFIGMAPS, config_map(namespace, "a", data={"k": "1"}))
    cluster.apply(CONFIGMAPS, _cm(namespace, m="1"), field_manager="one")
    cluster.patch_merge(CONFIGMAPS, "a", {"data": {"n": "1"}}, namespace=namespace)
    fields = cluster.get(CONFIGMAPS, "a", namespace=namespace)["metadata"]["managedFields"]
    told = {(entry["manager"], entry["operation"]): entry["fieldsV1"] for entry in fields}
    assert told[("one", "Apply")] == {"f:data": {"f:m": {}}}
    assert told[("grove-ui", "Update")]["f:data"] == {".": {}, "f:k": {}, "f:n": {}}
    assert len(fields) == 2


def test_the_lists_of_built_in_kinds_are_merged_by_their_keys(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(PODS, gated_pod(namespace, "a"))
    manifest = {
        "metadata": {"name": "a", "namespace": namespace},
        "spec": {"containers": [{"name": "main", "image": "registry.example/app:2"}]},
    }
    applied = cluster.apply(PODS, manifest, field_manager="two", force=True)
    (container,) = applied["spec"]["containers"]
    assert container["image"] == "registry.example/app:2"
    assert container["imagePullPolicy"]
    assert applied["spec"]["schedulingGates"] == [{"name": "example.com/held"}]


def test_a_dry_run_of_an_apply_shows_the_result_and_stores_nothing(cluster: ClusterClient, namespace: str) -> None:
    applied = cluster.apply(CONFIGMAPS, _cm(namespace, k="1"))
    assert cluster.apply(CONFIGMAPS, _cm(namespace, k="2"), dry_run=True)["data"] == {"k": "2"}
    assert cluster.get(CONFIGMAPS, "a", namespace=namespace) == applied


@pytest.mark.parametrize("resource", [PODS, PODCLIQUES], ids=str)
def test_applying_the_status_of_what_is_not_there_creates_nothing(
    cluster: ClusterClient, namespace: str, resource: Resource
) -> None:
    status = {"metadata": {"name": "a", "namespace": namespace}, "status": {"message": "m"}}
    with pytest.raises(NotFound):
        cluster.apply(resource, status, subresource="status")
    with pytest.raises(NotFound):
        cluster.get(resource, "a", namespace=namespace)


@pytest.mark.parametrize("resource", [PODS, PODCLIQUES], ids=str)
def test_applying_less_than_an_object_needs_creates_nothing(
    cluster: ClusterClient, namespace: str, resource: Resource
) -> None:
    labels = {"metadata": {"name": "a", "namespace": namespace, "labels": {"l": "1"}}}
    with pytest.raises(Invalid):
        cluster.apply(resource, labels)
    with pytest.raises(NotFound):
        cluster.get(resource, "a", namespace=namespace)


def _time_of(obj: dict[str, Any], manager: str) -> str:
    (entry,) = [entry for entry in obj["metadata"]["managedFields"] if entry["manager"] == manager]
    return str(entry["time"])


def test_managed_fields_tell_when_a_manager_last_changed_a_value(cluster: ClusterClient, namespace: str) -> None:
    first = cluster.apply(CONFIGMAPS, _cm(namespace, applied="0"), field_manager="one")
    patched = cluster.patch_merge(CONFIGMAPS, "a", {"data": {"patched": "0"}}, namespace=namespace)
    numbers = itertools.count(1)

    def change() -> bool:
        """Write another value to the same fields, until the server's clock is a second further."""
        number = str(next(numbers))
        applied = cluster.apply(CONFIGMAPS, _cm(namespace, applied=number), field_manager="one")
        stored = cluster.patch_merge(CONFIGMAPS, "a", {"data": {"patched": number}}, namespace=namespace)
        return _time_of(applied, "one") > _time_of(first, "one") and _time_of(stored, "grove-ui") > _time_of(
            patched, "grove-ui"
        )

    wait_until(change, 10)
