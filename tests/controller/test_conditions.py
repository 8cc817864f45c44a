"""Conditions and Events of a set say what keeps its pods from running: nodes, names, fields and rules."""

import time
from typing import Any, Final

import pytest

from rollouts.cluster import ClusterClient, Obj
from rollouts.cluster.resources import EVENTS, PODCLIQUESETS, PODS, SERVICES
from rollouts.engine.manifest.validation import find_unsupported
from rollouts.queue.results import Done, RequeueAfter, Stop
from tests.controller.loop import Loop
from tests.controller.small_set import PODS_OF_ONE, change_image, is_updated, listed, make, told
from tests.engine.manifests import pod as pod_spec
from tests.engine.manifests import small

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]
ON_REAL: Final = pytest.mark.parametrize(
    "target", [pytest.param("kube-apiserver", marks=pytest.mark.apiserver)], indirect=True
)


# ---- what finds no place


def test_a_first_deployment_that_finds_no_node_is_told_by_an_event(cluster: ClusterClient, namespace: str) -> None:
    pods = "spec.template.cliques.0.spec.podSpec.nodeSelector"
    loop = make(cluster, namespace, {pods: {"example.com/pool": "nowhere"}})
    loop.run(lambda: "Unschedulable" in {reason_of_no_node(pod) for pod in loop.pods()})
    for seconds in (3600.0, 3630.0):
        loop.observe()
        loop.take_pass(time.time() + seconds)
        assert loop.condition("Progressing")["reason"] == "ReplicaUnschedulable"
        assert told(loop) == ["ReplicaUnschedulable"]
    (event,) = [one for one in listed(loop, EVENTS) if one["reason"] == "ReplicaUnschedulable"]
    assert event["type"] == "Warning"
    assert "chat-0-frontend" in event["message"]


def reason_of_no_node(pod: Obj) -> str:
    """Return the reason why a pod has no node."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return next((one.get("reason", "") for one in conditions if one["type"] == "PodScheduled"), "")


# ---- what has no effect


def test_a_set_says_which_of_its_fields_have_no_effect_until_none_has(cluster: ClusterClient, namespace: str) -> None:
    edits = {"spec.progressDeadlineSeconds": 600, "spec.template.cliques.0.spec.autoScalingConfig": {"maxReplicas": 5}}
    loop = make(cluster, namespace, edits)
    loop.run(lambda: loop.is_complete() and loop.outcomes[-1] == Done())
    condition = loop.condition("Unsupported")
    assert (condition["status"], condition["reason"]) == ("True", "FieldsWithoutEffect")
    fields = "spec.progressDeadlineSeconds, spec.template.cliques[0].spec.autoScalingConfig"
    assert condition["message"].startswith(f"These fields have no effect: {fields}. ")
    assert "no HorizontalPodAutoscaler" in condition["message"]
    assert told(loop).count("Unsupported") == 1
    change_image(loop, "two")
    loop.run(lambda: is_updated(loop, "two"))
    assert told(loop).count("Unsupported") == 1
    assert loop.condition("Unsupported") == condition
    cliques = loop.stored()["spec"]["template"]["cliques"]
    del cliques[0]["spec"]["autoScalingConfig"]
    change = {"spec": {"progressDeadlineSeconds": None, "template": {"cliques": cliques}}}
    cluster.patch_merge(PODCLIQUESETS, "chat", change, namespace=namespace)
    loop.run(lambda: not loop.condition("Unsupported"))
    assert told(loop).count("Unsupported") == 1


def test_a_set_of_many_cliques_names_every_field_that_has_no_effect(cluster: ClusterClient, namespace: str) -> None:
    cliques = [
        {
            "name": f"c{index}",
            "topologyConstraint": {"pack": {"required": "rack"}},
            "spec": {"roleName": f"c{index}", "autoScalingConfig": {"maxReplicas": 3}, "podSpec": pod_spec()},
        }
        for index in range(20)
    ]
    edits = {"spec.replicas": 0, "spec.template.podCliqueScalingGroups": [], "spec.template.cliques": cliques}
    manifest = small({"metadata.namespace": namespace, **edits})
    cluster.create(PODCLIQUESETS, manifest)
    loop = Loop(cluster, namespace, "chat")
    loop.run(lambda: bool(loop.condition("Unsupported")) and loop.outcomes[-1] == Done())
    found = find_unsupported(manifest)
    message = loop.condition("Unsupported")["message"]
    assert len(found) == 40
    assert all(message.count(one.field) == 1 for one in found)
    patch_clique(loop, {"annotations": {"example.com/team": "red"}})
    loop.run(lambda: loop.status()["observedGeneration"] == 2 and loop.outcomes[-1] == Done())
    assert told(loop).count("Unsupported") == 1


# ---- a name that is taken


def is_held(loop: Loop) -> bool:
    """Return whether a write is backed off."""
    outcome = loop.outcomes[-1] if loop.outcomes else None
    return isinstance(outcome, RequeueAfter) and outcome.reason == "WriteDenied"


def test_a_name_that_somebody_has_taken_is_told_on_the_set_until_it_is_free(
    cluster: ClusterClient, namespace: str
) -> None:
    theirs = {"metadata": {"name": "chat-0", "namespace": namespace}, "spec": {"clusterIP": "None"}}
    cluster.create(SERVICES, theirs)
    loop = make(cluster, namespace)
    loop.run(lambda: len(loop.pods()) == PODS_OF_ONE and is_held(loop))
    denied = loop.condition("WriteDenied")
    assert (denied["status"], denied["reason"]) == ("True", "AlreadyExists")
    assert "the existing object has another owner" in denied["message"]
    assert told(loop).count("WriteDenied") == 1
    cluster.delete(SERVICES, "chat-0", namespace=namespace)
    loop.run(lambda: not loop.condition("WriteDenied") and loop.is_complete())
    assert cluster.get(SERVICES, "chat-0", namespace=namespace)["metadata"]["ownerReferences"]


# ---- bad input


# A tenth of three pods is none, which only the webhook and Grove UI can compute.
NOTHING_TO_SPEND: Final = {"spec.template.cliques.0.updateStrategy": {"maxUnavailable": "10%", "maxSurge": 0}}


def patch_clique(loop: Loop, change: dict[str, Any]) -> None:
    """Change the first clique of the set."""
    cliques = loop.stored()["spec"]["template"]["cliques"]
    cliques[0] |= change
    patch = {"spec": {"template": {"cliques": cliques}}}
    loop.cluster.patch_merge(PODCLIQUESETS, loop.name, patch, namespace=loop.namespace)


def clique_with(**pod: Any) -> dict[str, Any]:
    """Return a first clique with other fields in its pods."""
    return {"spec": {"roleName": "frontend", "replicas": 3, "minAvailable": 3, "podSpec": pod_spec() | pod}}


@ON_REAL
def test_a_set_that_breaks_the_rules_is_told_so_and_left_alone_until_it_is_repaired(
    cluster: ClusterClient, namespace: str
) -> None:
    loop = make(cluster, namespace, NOTHING_TO_SPEND)
    for _ in range(3):
        loop.observe()
        outcome = loop.take_pass()
        assert isinstance(outcome, Stop)
        assert outcome.reason == "InvalidSpec"
    found = loop.condition("Valid")
    assert (found["status"], found["reason"]) == ("False", "InvalidSpec")
    assert found["message"].startswith("spec.template.cliques[0].updateStrategy: of 3 replicas")
    assert told(loop) == ["InvalidSpec"]
    assert loop.pods() == []
    patch_clique(loop, {"updateStrategy": {"maxUnavailable": "40%"}})
    loop.run(loop.is_complete)
    assert loop.condition("Valid") == {}


@ON_REAL
def test_a_set_that_breaks_a_rule_later_is_told_so_and_looked_after(loop: Loop) -> None:
    patch_clique(loop, clique_with(containers=[{"name": "No Such Name", "image": "one"}]))
    worker = next(pod["metadata"] for pod in loop.pods() if "worker" in pod["metadata"]["name"])
    loop.cluster.delete(PODS, worker["name"], namespace=loop.namespace)
    loop.run(lambda: bool(loop.condition("Valid")) and len(workers(loop) - {worker["uid"]}) == 2)
    assert "name of a container" in loop.condition("Valid")["message"]
    assert told(loop).count("InvalidSpec") == 1
    patch_clique(loop, clique_with())
    loop.run(lambda: loop.is_complete() and not loop.condition("Valid"))


def workers(loop: Loop) -> set[str]:
    """Return the uids of the workers."""
    return {pod["metadata"]["uid"] for pod in loop.pods() if "worker" in pod["metadata"]["name"]}


@ON_REAL
def test_pods_that_the_cluster_will_not_have_are_told_on_the_set(loop: Loop) -> None:
    patch_clique(loop, clique_with(dnsPolicy="Nowhere"))
    loop.run(lambda: bool(loop.condition("WriteDenied")) and is_held(loop))
    assert loop.condition("WriteDenied")["reason"] == "Invalid"
    assert "dnsPolicy" in loop.condition("WriteDenied")["message"]
    assert len(loop.pods()) == PODS_OF_ONE - 1
    patch_clique(loop, clique_with(dnsPolicy="Default"))
    loop.run(lambda: loop.is_complete() and len(loop.pods()) == PODS_OF_ONE)
    assert loop.condition("WriteDenied") == {}
