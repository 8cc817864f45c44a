"""The rules of the verbs: names, generations, subresources, preconditions, graceful deletion, binding, eviction."""

import re
from typing import Any

import pytest

from rollouts.sandbox.apiserver.errors import ApiError
from rollouts.sandbox.apiserver.patch import PatchType
from rollouts.sandbox.apiserver.storage import StorageChange
from rollouts.sandbox.apiserver.verbs import Verbs
from tests.sandbox.apiserver.conftest import Api
from tests.sandbox.apiserver.objects import pod, widget

Obj = dict[str, Any]


def _refused(code: int, match: str | None = None) -> Any:
    return pytest.raises(ApiError, match=match, check=lambda error: error.code == code)


def _merge(api: Api, patch: Obj, *, subresource: str | None = None, name: str = "w") -> Obj:
    return api.verbs.patch(api.widgets, "default", name, PatchType.MERGE, patch, subresource=subresource)


# --- names and new objects -----------------------------------------------------------------------------------------


def test_a_generated_name_has_five_safe_characters_and_stays_a_label(api: Api) -> None:
    body = {**widget(), "metadata": {"generateName": "w-"}}
    names = {api.verbs.create(api.widgets, "default", body)["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20
    assert all(re.fullmatch(r"w-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)
    long = {**widget(), "metadata": {"generateName": "a" * 80}}
    assert len(api.verbs.create(api.widgets, "default", long)["metadata"]["name"]) == 63


def test_a_new_object_gets_what_the_server_sets_and_nothing_a_client_claims(api: Api) -> None:
    claimed = widget(uid="mine", generation=7, deletionTimestamp="2020-01-01T00:00:00Z", selfLink="/x")
    made = api.verbs.create(api.widgets, "default", {**claimed, "status": {"replicas": 9}})
    metadata = made["metadata"]
    assert metadata["uid"] != "mine"
    assert metadata["generation"] == 1
    assert metadata["creationTimestamp"] == "2030-01-01T00:00:00Z"
    assert metadata["resourceVersion"] == str(api.store.revision)
    assert not {"deletionTimestamp", "selfLink"} & set(metadata)
    assert "status" not in made


def test_the_callers_body_is_left_alone(api: Api) -> None:
    body = widget()
    before = repr(body)
    api.verbs.create(api.widgets, "default", body)
    assert repr(body) == before


def test_objects_need_their_namespace_and_a_leaving_one_takes_nothing_new(api: Api) -> None:
    namespaces = api.registry.kind("namespaces")
    with _refused(404, 'namespaces "other" not found'):
        api.verbs.create(api.widgets, "other", widget())
    api.verbs.create(namespaces, None, {"metadata": {"name": "other"}})
    api.verbs.create(api.widgets, "other", widget())
    leaving = api.verbs.delete(namespaces, None, "other")
    assert leaving["status"]["phase"] == "Terminating"
    with _refused(403, "because it is being terminated"):
        api.verbs.create(api.widgets, "other", widget("late"))
    emptied = {**leaving, "spec": {"finalizers": []}}
    api.verbs.update(namespaces, None, "other", emptied, subresource="finalize")
    with _refused(404):
        api.verbs.get(namespaces, None, "other")


def test_the_default_namespace_stays(api: Api) -> None:
    with _refused(403):
        api.verbs.delete(api.registry.kind("namespaces"), None, "default")


# --- subresources, generations, no-ops --------------------------------------------------------------------------------


def test_only_a_change_of_what_is_wanted_counts_a_generation(api: Api) -> None:
    api.verbs.create(api.widgets, "default", widget())
    assert _merge(api, {"metadata": {"labels": {"a": "b"}}})["metadata"]["generation"] == 1
    assert _merge(api, {"status": {"replicas": 1}}, subresource="status")["metadata"]["generation"] == 1
    assert _merge(api, {"spec": {"replicas": 3}})["metadata"]["generation"] == 2


def test_each_subresource_changes_only_its_own_part(api: Api) -> None:
    api.verbs.create(api.widgets, "default", widget())
    main = _merge(api, {"status": {"replicas": 5}})
    assert "status" not in main
    patch = {"status": {"replicas": 5}, "spec": {"size": "large"}, "metadata": {"labels": {"a": "b"}}}
    status = _merge(api, patch, subresource="status")
    assert status["status"] == {"replicas": 5}
    assert status["spec"]["size"] == "small"
    assert "labels" not in status["metadata"]


def test_a_write_that_changes_nothing_keeps_the_revision_and_tells_nobody(api: Api) -> None:
    made = api.verbs.create(api.widgets, "default", widget())
    heard: list[Any] = []
    api.store.subscribe(heard.append)
    api.clock.move(60)
    assert api.verbs.update(api.widgets, "default", "w", made) is made
    assert _merge(api, {"spec": {"size": "small"}}) is made
    assert _merge(api, {"status": None}, subresource="status") is made
    assert heard == []


def test_a_dry_run_answers_and_stores_nothing(api: Api) -> None:
    revision = api.store.revision
    assert api.verbs.create(api.widgets, "default", widget(), dry_run=True)["metadata"]["uid"]
    made = api.verbs.create(api.widgets, "default", widget())
    large = {"spec": {"size": "large"}}
    api.verbs.update(api.widgets, "default", "w", {**made, **large}, dry_run=True)
    api.verbs.patch(api.widgets, "default", "w", PatchType.MERGE, large, dry_run=True)
    api.verbs.delete(api.widgets, "default", "w", dry_run=True)
    assert api.store.revision == revision + 1
    assert api.verbs.get(api.widgets, "default", "w") is made


def test_a_stale_writer_is_refused_whatever_it_writes(api: Api) -> None:
    old = api.verbs.create(api.widgets, "default", widget())
    _merge(api, {"spec": {"replicas": 2}})
    stale = "the object has been modified; please apply your changes to the latest version and try again"
    for subresource in (None, "status"):
        with _refused(409, stale):
            api.verbs.update(api.widgets, "default", "w", {**old, "status": {"replicas": 1}}, subresource=subresource)
    with _refused(409, stale):
        _merge(api, {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}})
    with _refused(422, "must be specified for an update"):
        api.verbs.update(api.widgets, "default", "w", widget())


def test_a_built_in_object_may_be_replaced_without_a_revision(api: Api) -> None:
    kind = api.registry.kind("configmaps")
    body = {"metadata": {"name": "c"}, "data": {"a": "1"}}
    api.verbs.create(kind, "default", body)
    assert api.verbs.update(kind, "default", "c", {**body, "data": {"a": "2"}})["data"] == {"a": "2"}


def test_scale_reads_and_writes_at_the_definitions_paths(api: Api) -> None:
    api.verbs.create(api.widgets, "default", widget())
    _merge(api, {"status": {"replicas": 1, "selector": "a=b"}}, subresource="status")
    scale = api.verbs.get_scale(api.widgets, "default", "w")
    assert (scale["spec"], scale["status"]) == ({"replicas": 1}, {"replicas": 1, "selector": "a=b"})
    scaled = _merge(api, {"spec": {"replicas": 0}}, subresource="scale")
    assert scaled["spec"] == {}, "no replicas are left out, as in the real Scale"
    assert api.verbs.get(api.widgets, "default", "w")["spec"]["replicas"] == 0
    assert api.verbs.get(api.widgets, "default", "w")["metadata"]["generation"] == 2
    with _refused(409):
        api.verbs.update(api.widgets, "default", "w", {**scale, "spec": {"replicas": 4}}, subresource="scale")


# --- deleting ------------------------------------------------------------------------------------------------------


def test_a_delete_with_another_uid_or_revision_is_refused(api: Api) -> None:
    made = api.verbs.create(api.widgets, "default", widget())
    with _refused(409, "the UID in the precondition"):
        api.verbs.delete(api.widgets, "default", "w", uid="another")
    with _refused(409, "the ResourceVersion in the precondition"):
        api.verbs.delete(api.widgets, "default", "w", resource_version="1")
    metadata = made["metadata"]
    api.verbs.delete(api.widgets, "default", "w", uid=metadata["uid"], resource_version=metadata["resourceVersion"])
    with _refused(404):
        api.verbs.get(api.widgets, "default", "w")


def test_finalizers_hold_an_object_until_the_last_one_goes(api: Api) -> None:
    api.verbs.create(api.widgets, "default", widget(finalizers=["a.io/x", "a.io/y"]))
    leaving = api.verbs.delete(api.widgets, "default", "w")
    assert leaving["metadata"]["deletionTimestamp"] == "2030-01-01T00:00:00Z"
    api.clock.move(60)
    assert api.verbs.delete(api.widgets, "default", "w")["metadata"] == leaving["metadata"]
    with _refused(422, "no new finalizers can be added"):
        _merge(api, {"metadata": {"finalizers": ["a.io/x", "a.io/z"]}})
    _merge(api, {"metadata": {"finalizers": ["a.io/y"]}})
    heard: list[str] = []
    api.store.subscribe(lambda change: heard.append(change.type))
    _merge(api, {"metadata": {"finalizers": []}})
    assert heard == ["DELETED"]


@pytest.mark.parametrize(
    ("propagation", "finalizers"),
    [("Foreground", ["foregroundDeletion"]), ("Orphan", ["orphan"])],
)
def test_propagation_leaves_a_finalizer_for_the_collector(api: Api, propagation: str, finalizers: list[str]) -> None:
    api.verbs.create(api.widgets, "default", widget())
    left = api.verbs.delete(api.widgets, "default", "w", propagation=propagation)
    assert left["metadata"]["finalizers"] == finalizers
    api.verbs.delete(api.widgets, "default", "w", propagation="Background")
    with _refused(404):
        api.verbs.get(api.widgets, "default", "w")


def test_a_bound_pod_leaves_gracefully_and_only_ever_sooner(api: Api) -> None:
    api.verbs.create(api.pods, "default", pod())
    api.verbs.bind("default", "p", "n1")
    leaving = api.verbs.delete(api.pods, "default", "p")["metadata"]
    assert (leaving["deletionTimestamp"], leaving["deletionGracePeriodSeconds"]) == ("2030-01-01T00:00:30Z", 30)
    assert leaving["generation"] == 2
    sooner = api.verbs.delete(api.pods, "default", "p", grace_seconds=5)["metadata"]
    assert sooner["deletionTimestamp"] == "2030-01-01T00:00:05Z"
    later = api.verbs.delete(api.pods, "default", "p", grace_seconds=60)["metadata"]
    assert later["deletionTimestamp"] == "2030-01-01T00:00:05Z"
    api.verbs.delete(api.pods, "default", "p", grace_seconds=0)
    assert api.verbs.list(api.pods) == []


def test_what_watches_see_of_an_end(api: Api) -> None:
    seen: list[tuple[str, int | None, list[str]]] = []

    def note(change: StorageChange) -> None:
        metadata = change.obj["metadata"]
        seen.append((change.type, metadata.get("deletionGracePeriodSeconds"), metadata.get("finalizers", [])))

    api.verbs.create(api.widgets, "default", widget("plain"))
    api.verbs.create(api.widgets, "default", widget("held", finalizers=["a.io/x"]))
    api.verbs.create(api.pods, "default", pod())
    api.store.subscribe(note)
    api.verbs.delete(api.widgets, "default", "plain")
    assert seen == [("DELETED", None, [])], "as it was stored last"
    seen.clear()
    api.verbs.delete(api.widgets, "default", "held")
    _merge(api, {"metadata": {"finalizers": None}}, name="held")
    assert seen == [("MODIFIED", 0, ["a.io/x"]), ("DELETED", 0, ["a.io/x"])]
    seen.clear()
    api.verbs.delete(api.pods, "default", "p")
    assert seen == [("MODIFIED", 0, []), ("DELETED", 0, [])], "a pod is seen leaving first"


def test_a_pod_that_was_left_half_deleted_by_a_crash_is_gone_after_the_restart(api: Api) -> None:
    made = api.verbs.create(api.pods, "default", pod())
    stamp = {"deletionTimestamp": "2030-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}
    api.store.put(api.pods, {**made, "metadata": {**made["metadata"], **stamp}})
    Verbs(api.store, api.registry, api.clock)
    assert api.verbs.list(api.pods) == []


def test_a_pod_without_a_node_or_at_its_end_goes_at_once(api: Api) -> None:
    api.verbs.create(api.pods, "default", pod("pending"))
    api.verbs.delete(api.pods, "default", "pending")
    api.verbs.create(api.pods, "default", pod("done"))
    api.verbs.bind("default", "done", "n1")
    done = api.verbs.get(api.pods, "default", "done")
    api.verbs.update(api.pods, "default", "done", {**done, "status": {"phase": "Succeeded"}}, subresource="status")
    api.verbs.delete(api.pods, "default", "done")
    assert api.verbs.list(api.pods) == []


# --- pods ----------------------------------------------------------------------------------------------------------


def test_a_pod_gets_the_defaults_and_the_first_status_of_a_real_one(api: Api) -> None:
    made = api.verbs.create(api.pods, "default", pod(schedulingGates=[{"name": "g"}]))
    spec, status = made["spec"], made["status"]
    assert (spec["restartPolicy"], spec["schedulerName"]) == ("Always", "default-scheduler")
    assert [one["tolerationSeconds"] for one in spec["tolerations"]] == [300, 300]
    assert status["phase"] == "Pending"
    assert status["conditions"][0]["reason"] == "SchedulingGated"


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"nvidia.com/gpu": 1}}, "BestEffort"),
    ],
)
def test_the_quality_of_service_follows_the_resources(api: Api, resources: Obj, quality: str) -> None:
    made = api.verbs.create(api.pods, "default", pod(containers=[{"name": "c", "image": "x", "resources": resources}]))
    assert made["status"]["qosClass"] == quality


def test_quantities_are_stored_in_their_canonical_form(api: Api) -> None:
    resources = {"requests": {"cpu": 0.5, "memory": "1.5Gi", "nvidia.com/gpu": 2, "ephemeral-storage": "1000Ki"}}
    made = api.verbs.create(api.pods, "default", pod(containers=[{"name": "c", "image": "x", "resources": resources}]))
    assert made["spec"]["containers"][0]["resources"]["requests"] == {
        "cpu": "500m",
        "memory": "1536Mi",
        "nvidia.com/gpu": "2",
        "ephemeral-storage": "1000Ki",
    }


def test_a_pod_is_bound_once_and_not_behind_gates(api: Api) -> None:
    api.verbs.create(api.pods, "default", pod("gated", schedulingGates=[{"name": "g"}]))
    with _refused(409, "non-empty .spec.schedulingGates"):
        api.verbs.bind("default", "gated", "n1")
    api.verbs.patch(api.pods, "default", "gated", PatchType.JSON, [{"op": "remove", "path": "/spec/schedulingGates/0"}])
    api.verbs.bind("default", "gated", "n1")
    bound = api.verbs.get(api.pods, "default", "gated")
    assert bound["spec"]["nodeName"] == "n1"
    assert [(one["type"], one["status"]) for one in bound["status"]["conditions"]] == [("PodScheduled", "True")]
    with _refused(409, 'already assigned to node "n1"'):
        api.verbs.bind("default", "gated", "n2")


@pytest.mark.parametrize(
    ("patch", "match"),
    [
        ({"spec": {"hostNetwork": True}}, "pod updates may not change fields other than"),
        ({"spec": {"nodeName": "n2"}}, "pod updates may not change fields other than"),
        ({"spec": {"containers": [{"name": "c", "command": ["x"]}]}}, "pod updates may not change fields other than"),
        ({"spec": {"containers": [{"name": "d", "image": "x"}]}}, "may not add or remove containers"),
        ({"spec": {"schedulingGates": [{"name": "new"}]}}, "only deletion is allowed"),
    ],
)
def test_most_of_a_pods_spec_is_fixed(api: Api, patch: Obj, match: str) -> None:
    before = api.verbs.create(api.pods, "default", pod())
    with _refused(422, match):
        api.verbs.patch(api.pods, "default", "p", PatchType.STRATEGIC, patch)
    assert api.verbs.get(api.pods, "default", "p") is before


def test_an_image_and_more_tolerations_may_come_later(api: Api) -> None:
    api.verbs.create(api.pods, "default", pod(tolerations=[{"key": "a", "operator": "Exists"}]))
    made = api.verbs.patch(
        api.pods,
        "default",
        "p",
        PatchType.STRATEGIC,
        {
            "spec": {
                "containers": [{"name": "c", "image": "x:2"}],
                "tolerations": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}],
            }
        },
    )
    assert made["spec"]["containers"][0]["image"] == "x:2"
    assert made["metadata"]["generation"] == 2


# --- evicting ------------------------------------------------------------------------------------------------------


def _budget(api: Api, **status: int) -> None:
    kind = api.registry.kind("poddisruptionbudgets", "policy")
    if not api.verbs.list(kind):
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
        api.verbs.create(kind, "default", {"metadata": {"name": "b"}, "spec": spec})
    current = api.verbs.get(kind, "default", "b")
    told = {**current, "status": {**current["status"], "observedGeneration": 1, **status}}
    api.verbs.update(kind, "default", "b", told, subresource="status")


def _running(api: Api, name: str, *, ready: bool = True) -> None:
    api.verbs.create(api.pods, "default", pod(name, labels={"app": "x"}))
    api.verbs.bind("default", name, "n1")
    current = api.verbs.get(api.pods, "default", name)
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {**current["status"], "phase": "Running", "conditions": conditions}
    api.verbs.update(api.pods, "default", name, {**current, "status": status}, subresource="status")


def test_a_budget_is_spent_by_the_evictions_it_allows(api: Api) -> None:
    for name in "abc":
        _running(api, name)
    _budget(api, disruptionsAllowed=1, currentHealthy=3, desiredHealthy=2)
    api.verbs.evict("default", "a")
    leaving = api.verbs.get(api.pods, "default", "a")
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 30
    assert leaving["status"]["conditions"][-1]["reason"] == "EvictionByEvictionAPI"
    with _refused(429, "Cannot evict pod as it would violate the pod's disruption budget."):
        api.verbs.evict("default", "b")
    assert "deletionTimestamp" not in api.verbs.get(api.pods, "default", "b")["metadata"]
    _budget(api, disruptionsAllowed=1)
    api.verbs.evict("default", "b")


def test_pods_that_serve_nobody_need_no_budget(api: Api) -> None:
    _budget(api, disruptionsAllowed=0, currentHealthy=1, desiredHealthy=1)
    api.verbs.create(api.pods, "default", pod("pending", labels={"app": "x"}))
    api.verbs.evict("default", "pending")
    _running(api, "unready", ready=False)
    api.verbs.evict("default", "unready", grace_seconds=0)
    assert api.verbs.list(api.pods) == []


def test_a_pod_outside_every_budget_is_evicted(api: Api) -> None:
    _running(api, "a")
    with _refused(409, "the UID in the precondition"):
        api.verbs.evict("default", "a", uid="another")
    api.verbs.evict("default", "a", dry_run=True)
    assert "deletionTimestamp" not in api.verbs.get(api.pods, "default", "a")["metadata"]
    api.verbs.evict("default", "a", grace_seconds=0)
    assert api.verbs.list(api.pods) == []
