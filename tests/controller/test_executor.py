"""The executor: the preconditions of each write, and what errors teach it."""

from typing import Any

import pytest

from rollouts.cluster import ClusterClient, Invalid, NotFound, Obj
from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESETS, PODS, SERVICES
from rollouts.controller.executor import (
    ExecutionContext,
    ExecutionResult,
    WriteRecord,
    WriteResult,
    make_unconfirmed_write,
    resolve_unconfirmed,
)
from rollouts.engine.model import names
from rollouts.engine.model.actions import Action, Create, Delete, Kind, Patch, RemoveGate, WriteStatus
from rollouts.engine.model.observed import Clique, Observed, Pod
from tests.controller.writes import NOTHING, bare, observed_clique, result_of
from tests.engine.manifests import pod as pod_spec
from tests.engine.manifests import small


@pytest.fixture
def owner(cluster: ClusterClient, namespace: str) -> Obj:
    """A stored PodCliqueSet that owns what the test makes."""
    return cluster.create(PODCLIQUESETS, small({"metadata.namespace": namespace}))


def owned(owner: Obj, kind: str, name: str, api: str = "v1", **parts: Any) -> Obj:
    """Return a manifest of something that the set owns."""
    reference = {"kind": "PodCliqueSet", "apiVersion": owner["apiVersion"], "name": owner["metadata"]["name"]}
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": owner["metadata"]["namespace"],
            "labels": {"app": "chat"},
            "ownerReferences": [{**reference, "uid": owner["metadata"]["uid"], "controller": True}],
        },
        **parts,
    }


def make_pod(owner: Obj, name: str, *gates: str) -> Obj:
    """Return a pod that no scheduler takes, as it has gates."""
    gated = {"schedulingGates": [{"name": gate} for gate in gates or ("test.example/held",)]}
    return owned(owner, "Pod", name, spec=pod_spec() | gated)


def make_clique(owner: Obj, name: str = "chat-0-c") -> Obj:
    """Return a PodClique."""
    spec = {"roleName": "c", "replicas": 1, "minAvailable": 1, "podSpec": pod_spec()}
    return owned(owner, "PodClique", name, "grove.io/v1alpha1", spec=spec)


def send(cluster: ClusterClient, owner: Obj, *actions: Action, observed: Observed = NOTHING) -> ExecutionResult:
    """Send writes in the namespace of the set."""
    metadata = owner["metadata"]
    context = ExecutionContext(metadata["namespace"], observed, metadata["resourceVersion"])
    return result_of(cluster, actions, context)


def only(applied: ExecutionResult) -> WriteRecord:
    """Return the only answer."""
    (answer,) = applied.writes
    return answer


# ---- creates


def test_what_is_created_is_answered_as_stored(cluster: ClusterClient, owner: Obj) -> None:
    answer = only(send(cluster, owner, Create(Kind.POD, make_pod(owner, "a"))))
    assert answer.result is WriteResult.APPLIED
    assert answer.current is not None
    assert answer.current["metadata"]["uid"]


def test_many_creates_go_side_by_side(cluster: ClusterClient, owner: Obj) -> None:
    creates = [Create(Kind.POD, make_pod(owner, f"p{number}")) for number in range(40)]
    applied = send(cluster, owner, *creates)
    assert len(applied.with_result(WriteResult.APPLIED)) == 40
    (changes,) = applied.changes()
    assert changes.resource == PODS
    assert {obj["metadata"]["name"] for obj in changes.objects} == {f"p{number}" for number in range(40)}


def test_a_create_that_happened_before_brings_what_is_there(cluster: ClusterClient, owner: Obj) -> None:
    create = Create(Kind.POD, make_pod(owner, "a"))
    first = only(send(cluster, owner, create))
    again = only(send(cluster, owner, create))
    assert again.result is WriteResult.CONFLICT
    assert again.current is not None
    assert first.current is not None
    assert again.current["metadata"]["uid"] == first.current["metadata"]["uid"]


def test_a_name_that_somebody_else_has_taken_is_a_rejection_and_stays_theirs(
    cluster: ClusterClient, owner: Obj
) -> None:
    theirs = make_pod(owner, "a")
    del theirs["metadata"]["ownerReferences"]
    stored = cluster.create(PODS, theirs)
    answer = only(send(cluster, owner, Create(Kind.POD, make_pod(owner, "a"))))
    assert answer.result is WriteResult.REJECTED
    assert "the existing object has another owner" in str(answer.error)
    assert cluster.get(PODS, "a", namespace=owner["metadata"]["namespace"])["metadata"] == stored["metadata"]


def test_what_the_cluster_finds_invalid_is_rejected_and_the_rest_is_sent(cluster: ClusterClient, owner: Obj) -> None:
    wrong = make_pod(owner, "wrong")
    wrong["spec"]["containers"] = []
    service = owned(owner, "Service", "chat-0", spec={"clusterIP": "None"})
    applied = send(cluster, owner, Create(Kind.POD, wrong), Create(Kind.SERVICE, service))
    assert [answer.result for answer in applied.writes] == [WriteResult.REJECTED, WriteResult.APPLIED]
    assert isinstance(applied.writes[0].error, Invalid)
    assert applied.failure is None


# ---- deletes


def delete_of(obj: Obj, kind: Kind = Kind.POD, uid: str = "") -> Delete:
    """Return the deletion of a stored object."""
    return Delete(kind, obj["metadata"]["name"], uid or obj["metadata"]["uid"], "Outdated")


def observe(*pods: Obj, cliques: tuple[Clique, ...] = (), ready: bool = False) -> Observed:
    """Return stored pods as the mirror has them, as far as writes need them."""
    values = [
        Pod(
            name=pod["metadata"]["name"],
            uid=pod["metadata"]["uid"],
            clique="chat-0-c",
            index=0,
            template_hash="h",
            created=0.0,
            node="",
            phase="Pending",
            ready=ready,
            leaving=False,
            gated=True,
            resource_version=pod["metadata"]["resourceVersion"],
        )
        for pod in pods
    ]
    return Observed(pods=tuple(values), cliques=cliques)


def test_a_pod_on_no_node_is_gone_at_once(cluster: ClusterClient, owner: Obj) -> None:
    pod = cluster.create(PODS, make_pod(owner, "a"))
    answer = only(send(cluster, owner, delete_of(pod), observed=observe(pod)))
    assert (answer.result, answer.current) == (WriteResult.APPLIED, None)
    assert answer.deleted is not None
    assert answer.deleted["metadata"]["uid"] == pod["metadata"]["uid"]


def test_a_pod_that_takes_its_time_is_answered_as_leaving(cluster: ClusterClient, owner: Obj) -> None:
    manifest = make_pod(owner, "a")
    manifest["metadata"]["finalizers"] = ["test.example/held"]
    pod = cluster.create(PODS, manifest)
    answer = only(send(cluster, owner, delete_of(pod), observed=observe(pod)))
    assert answer.deleted is None
    assert answer.current is not None
    assert "deletionTimestamp" in answer.current["metadata"]
    cluster.patch_merge(PODS, "a", {"metadata": {"finalizers": None}}, namespace=owner["metadata"]["namespace"])


def test_a_custom_resource_is_answered_as_gone_with_its_uid(cluster: ClusterClient, owner: Obj) -> None:
    clique = cluster.create(PODCLIQUES, make_clique(owner))
    observed = Observed(cliques=(observed_clique(clique),))
    answer = only(send(cluster, owner, delete_of(clique, Kind.CLIQUE), observed=observed))
    assert answer.deleted is not None
    assert answer.deleted["metadata"]["uid"] == clique["metadata"]["uid"]
    with pytest.raises(NotFound):
        cluster.get(PODCLIQUES, "chat-0-c", namespace=owner["metadata"]["namespace"])


def test_another_pod_of_that_name_is_not_deleted_but_told(cluster: ClusterClient, owner: Obj) -> None:
    former = cluster.create(PODS, make_pod(owner, "a"))
    only(send(cluster, owner, delete_of(former), observed=observe(former)))
    present = cluster.create(PODS, make_pod(owner, "a"))
    answer = only(send(cluster, owner, delete_of(former), observed=observe(former)))
    assert answer.result is WriteResult.CONFLICT
    assert answer.current is not None
    assert answer.current["metadata"]["uid"] == present["metadata"]["uid"]


def become_ready(cluster: ClusterClient, pod: Obj) -> Obj:
    """Write the status of a pod as a kubelet does when the pod is Ready."""
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return cluster.update(PODS, {**pod, "status": status}, subresource="status")


def test_a_pod_that_serves_since_it_was_seen_idle_is_not_deleted_but_told(cluster: ClusterClient, owner: Obj) -> None:
    seen = cluster.create(PODS, make_pod(owner, "a"))
    present = become_ready(cluster, seen)
    answer = only(send(cluster, owner, delete_of(seen), observed=observe(seen)))
    assert answer.result is WriteResult.CONFLICT
    assert answer.current is not None
    assert answer.current["metadata"]["resourceVersion"] == present["metadata"]["resourceVersion"]
    assert "deletionTimestamp" not in answer.current["metadata"]


def test_a_pod_that_was_allowed_for_goes_however_it_has_changed_since(cluster: ClusterClient, owner: Obj) -> None:
    seen = become_ready(cluster, cluster.create(PODS, make_pod(owner, "a")))
    label = {"metadata": {"labels": {"seen": "by-somebody"}}}
    cluster.patch_merge(PODS, "a", label, namespace=owner["metadata"]["namespace"])
    answer = only(send(cluster, owner, delete_of(seen), observed=observe(seen, ready=True)))
    assert answer.result is WriteResult.APPLIED


def test_a_pod_that_is_gone_already_is_told_as_gone(cluster: ClusterClient, owner: Obj) -> None:
    pod = cluster.create(PODS, make_pod(owner, "a"))
    send(cluster, owner, delete_of(pod), observed=observe(pod))
    answer = only(send(cluster, owner, delete_of(pod), observed=observe(pod)))
    assert answer.result is WriteResult.CONFLICT
    assert answer.deleted is not None
    assert answer.deleted["metadata"]["uid"] == pod["metadata"]["uid"]


def test_what_became_of_writes_can_be_found_out(cluster: ClusterClient, owner: Obj) -> None:
    there, gone = (cluster.create(PODS, make_pod(owner, name)) for name in ("there", "gone"))
    send(cluster, owner, delete_of(gone), observed=observe(gone))
    doubts = [make_unconfirmed_write(action) for action in (delete_of(there), delete_of(gone), bare("never"))]
    answers = resolve_unconfirmed(cluster, owner["metadata"]["namespace"], doubts).writes
    assert answers[0].current is not None
    assert (answers[2].current, answers[2].deleted) == (None, None)
    assert answers[1].deleted == {"metadata": {key: gone["metadata"][key] for key in ("namespace", "name", "uid")}}


# ---- patches


def test_a_patch_merges_and_replaces_whole_what_it_says_is_whole(cluster: ClusterClient, owner: Obj) -> None:
    manifest = make_clique(owner)
    manifest["metadata"]["annotations"] = {"theirs": "stays"}
    manifest["spec"]["podSpec"] |= {"nodeSelector": {"disk": "ssd", "zone": "a"}, "hostNetwork": True}
    clique = cluster.create(PODCLIQUES, manifest)
    wanted = pod_spec() | {"nodeSelector": {"zone": "b"}}
    patch = Patch(
        Kind.CLIQUE,
        "chat-0-c",
        clique["metadata"]["uid"],
        clique["metadata"]["resourceVersion"],
        {"metadata": {"annotations": {"ours": "new"}}, "spec": {"podSpec": wanted}},
        ("spec.podSpec",),
    )
    answer = only(send(cluster, owner, patch))
    assert answer.current is not None
    assert answer.current["spec"]["podSpec"] == wanted
    assert answer.current["spec"]["replicas"] == 1
    assert answer.current["metadata"]["annotations"] == {"theirs": "stays", "ours": "new"}


@pytest.mark.parametrize("whole", [(), ("spec.podSpec",)])
def test_a_patch_over_another_version_is_a_conflict_and_brings_the_current_object(
    cluster: ClusterClient, owner: Obj, whole: tuple[str, ...]
) -> None:
    clique = cluster.create(PODCLIQUES, make_clique(owner))
    place = {"namespace": owner["metadata"]["namespace"]}
    cluster.patch_merge(PODCLIQUES, "chat-0-c", {"spec": {"replicas": 5}}, **place)
    change = {"spec": {"replicas": 2, "podSpec": pod_spec()}}
    metadata = clique["metadata"]
    patch = Patch(Kind.CLIQUE, "chat-0-c", metadata["uid"], metadata["resourceVersion"], change, whole)
    answer = only(send(cluster, owner, patch))
    assert answer.result is WriteResult.CONFLICT
    assert answer.current is not None
    assert answer.current["spec"]["replicas"] == 5


def test_a_patch_of_any_version_still_needs_the_same_object(cluster: ClusterClient, owner: Obj) -> None:
    service = cluster.create(SERVICES, owned(owner, "Service", "chat-0", spec={"clusterIP": "None"}))
    change = {"spec": {"publishNotReadyAddresses": True}}
    other = only(send(cluster, owner, Patch(Kind.SERVICE, "chat-0", "another-uid", "", change)))
    same = only(send(cluster, owner, Patch(Kind.SERVICE, "chat-0", service["metadata"]["uid"], "", change)))
    assert (other.result, same.result) == (WriteResult.CONFLICT, WriteResult.APPLIED)


# ---- gates


@pytest.mark.parametrize(
    "gates",
    [(names.SCHEDULING_GATE, "a.example/theirs"), ("a.example/theirs", names.SCHEDULING_GATE)],
    ids=["first", "behind another"],
)
def test_our_gate_is_taken_off_and_others_stay(cluster: ClusterClient, owner: Obj, gates: tuple[str, str]) -> None:
    pod = cluster.create(PODS, make_pod(owner, "a", *gates))
    answer = only(send(cluster, owner, RemoveGate("a", pod["metadata"]["uid"])))
    assert answer.result is WriteResult.APPLIED
    assert answer.current is not None
    assert answer.current["spec"]["schedulingGates"] == [{"name": "a.example/theirs"}]


def test_a_gate_that_is_off_already_is_a_conflict(cluster: ClusterClient, owner: Obj) -> None:
    pod = cluster.create(PODS, make_pod(owner, "a", "a.example/theirs"))
    assert only(send(cluster, owner, RemoveGate("a", pod["metadata"]["uid"]))).result is WriteResult.CONFLICT


def test_a_gate_of_another_pod_of_that_name_stays(cluster: ClusterClient, owner: Obj) -> None:
    cluster.create(PODS, make_pod(owner, "a", names.SCHEDULING_GATE, "a.example/theirs"))
    answer = only(send(cluster, owner, RemoveGate("a", "another-uid")))
    assert answer.result is WriteResult.CONFLICT
    assert answer.current is not None
    assert len(answer.current["spec"]["schedulingGates"]) == 2


# ---- statuses


def test_a_status_takes_the_place_of_the_former_and_nothing_else_changes(cluster: ClusterClient, owner: Obj) -> None:
    clique = cluster.create(PODCLIQUES, make_clique(owner))
    uid = clique["metadata"]["uid"]
    write = WriteStatus(Kind.CLIQUE, "chat-0-c", uid, {"replicas": 3, "hpaPodSelector": "a=b"})
    first = only(send(cluster, owner, write, observed=Observed(cliques=(observed_clique(clique),))))
    assert first.current is not None
    write = WriteStatus(Kind.CLIQUE, "chat-0-c", uid, {"replicas": 4})
    second = only(send(cluster, owner, write, observed=Observed(cliques=(observed_clique(first.current),))))
    assert second.current is not None
    assert second.current["status"]["replicas"] == 4
    assert "hpaPodSelector" not in second.current["status"]
    for part in ("labels", "ownerReferences", "generation"):
        assert second.current["metadata"][part] == clique["metadata"][part]
    assert second.current["spec"] == clique["spec"]


def test_a_status_that_was_computed_from_an_older_object_is_a_conflict(cluster: ClusterClient, owner: Obj) -> None:
    clique = cluster.create(PODCLIQUES, make_clique(owner))
    place = {"namespace": owner["metadata"]["namespace"]}
    cluster.patch_merge(PODCLIQUES, "chat-0-c", {"spec": {"replicas": 5}}, **place)
    write = WriteStatus(Kind.CLIQUE, "chat-0-c", clique["metadata"]["uid"], {"replicas": 3})
    answer = only(send(cluster, owner, write, observed=Observed(cliques=(observed_clique(clique),))))
    assert answer.result is WriteResult.CONFLICT
    assert answer.current is not None
    assert answer.current["spec"]["replicas"] == 5


def test_a_status_goes_over_a_patch_of_the_same_pass(cluster: ClusterClient, owner: Obj) -> None:
    clique = cluster.create(PODCLIQUES, make_clique(owner))
    metadata = clique["metadata"]
    patch = Patch(Kind.CLIQUE, "chat-0-c", metadata["uid"], metadata["resourceVersion"], {"spec": {"replicas": 2}})
    write = WriteStatus(Kind.CLIQUE, "chat-0-c", metadata["uid"], {"replicas": 2})
    applied = send(cluster, owner, patch, write, observed=Observed(cliques=(observed_clique(clique),)))
    assert [answer.result for answer in applied.writes] == [WriteResult.APPLIED, WriteResult.APPLIED]


def test_the_status_of_the_set_goes_over_the_version_that_the_plan_has_seen(cluster: ClusterClient, owner: Obj) -> None:
    write = WriteStatus(Kind.SET, "chat", owner["metadata"]["uid"], {"replicas": 2})
    assert only(send(cluster, owner, write)).result is WriteResult.APPLIED
    assert only(send(cluster, owner, write)).result is WriteResult.CONFLICT
