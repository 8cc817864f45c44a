"""Events as pages show them: what the cluster tells of a workload and its objects, and nothing of others."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings

from rollouts.cluster import ClusterClient, Obj
from rollouts.cluster.resources import EVENTS, PODCLIQUESETS, PODS
from rollouts.engine.model.times import render_time
from rollouts.runtime import connections
from rollouts.selectors import events
from rollouts.selectors.events import MAX_SHOWN, event_list
from tests.engine.manifests import small
from tests.scenarios.running_clusters import TargetCluster
from tests.services.stage import Stage

pytestmark = [pytest.mark.django_db(transaction=True)]


def ago(seconds: float) -> str:
    """Return a moment of the past: clusters forget what is older than an hour."""
    return render_time(time.time() - seconds)


def tell(stage: Stage, kind: str, obj: Obj, reason: str, message: str = "", **fields: Any) -> None:
    """Have the cluster tell something about an object, as its scheduler or a kubelet does."""
    metadata = obj["metadata"]
    involved = {"kind": kind, "name": metadata["name"], "namespace": stage.namespace, "uid": metadata["uid"]}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.{reason.lower()}", "namespace": stage.namespace},
        "involvedObject": involved,
        "type": "Warning",
        "reason": reason,
        "message": message,
        "source": {"component": "scheduler"},
        "firstTimestamp": ago(300),
        "lastTimestamp": ago(300),
        "count": 1,
    }
    stage.cluster.create(EVENTS, {**event, **fields})


def pods_of(stage: Stage) -> list[Obj]:
    """Return the pods of the workload."""
    return list(stage.cluster.list(PODS, namespace=stage.namespace).items)


def test_events_of_the_set_and_of_its_pods_are_shown_the_newest_first(deployed: Stage) -> None:
    tell(deployed, "PodCliqueSet", deployed.stored(), "Older", count=3)
    tell(deployed, "Pod", pods_of(deployed)[0], "Between", "no room", lastTimestamp=ago(200))
    # As schedulers of today write it.
    today: Obj = {"eventTime": ago(100).replace("Z", ".000000Z"), "lastTimestamp": None, "firstTimestamp": None}
    who: Obj = {"reportingComponent": "scheduler", "reportingInstance": "scheduler-0", "action": "Binding"}
    tell(deployed, "Pod", pods_of(deployed)[1], "Newest", **today, **who, source={}, count=None, type="Normal")
    found = event_list(deployed.place)
    ours = [one for one in found.items if one.reason in ("Older", "Between", "Newest")]
    assert [(one.reason, one.kind, one.count, one.is_warning) for one in ours] == [
        ("Newest", "Pod", 1, False),
        ("Between", "Pod", 1, True),
        ("Older", "PodCliqueSet", 3, True),
    ]
    assert (found.problem, found.is_partial) == ("", False)


def test_events_of_other_objects_of_the_namespace_are_not_shown(deployed: Stage) -> None:
    pod = pods_of(deployed)[0]
    former = {"metadata": {**deployed.stored()["metadata"], "uid": "of-a-set-that-was-deleted"}}
    neighbour = {"metadata": {**pod["metadata"], "name": "batch-7ghxq", "uid": "somebody-else"}}
    tell(deployed, "PodCliqueSet", former, "Former")
    tell(deployed, "Pod", neighbour, "Foreign")
    tell(deployed, "ConfigMap", {"metadata": {**pod["metadata"], "uid": "of-another-kind"}}, "Namesake")
    tell(deployed, "Pod", pod, "Own")
    reasons = {one.reason for one in event_list(deployed.place).items}
    assert "Own" in reasons
    assert reasons.isdisjoint({"Former", "Foreign", "Namesake"})


def test_what_was_told_of_a_pod_is_still_shown_when_the_pod_is_gone(deployed: Stage) -> None:
    pod = pods_of(deployed)[0]
    tell(deployed, "Pod", pod, "Evicted")
    deployed.cluster.delete(PODS, pod["metadata"]["name"], namespace=deployed.namespace, grace_seconds=0)
    deployed.observe()
    assert pod["metadata"]["name"] not in {one["metadata"]["name"] for one in pods_of(deployed)}
    assert "Evicted" in {one.reason for one in event_list(deployed.place).items}


def test_what_was_told_of_a_pod_is_still_shown_when_another_one_has_its_name(deployed: Stage) -> None:
    pod = pods_of(deployed)[0]
    tell(deployed, "Pod", pod, "Evicted")
    deployed.cluster.delete(PODS, pod["metadata"]["name"], namespace=deployed.namespace, grace_seconds=0)
    deployed.deploy()
    there = {one["metadata"]["name"]: one["metadata"]["uid"] for one in pods_of(deployed)}
    assert there[pod["metadata"]["name"]] != pod["metadata"]["uid"]
    assert "Evicted" in {one.reason for one in event_list(deployed.place).items}


def test_the_newest_are_shown_and_all_are_counted(stage: Stage) -> None:
    for number in range(MAX_SHOWN + 5):
        tell(stage, "PodCliqueSet", stage.stored(), f"Reason{number}")
    found = event_list(stage.place)
    assert len(found.items) == MAX_SHOWN
    assert found.count >= MAX_SHOWN + 5


def test_so_few_are_made_ready_as_are_asked_for_and_the_manifest_is_gone_through_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        tell(stage, "PodCliqueSet", stage.stored(), f"Reason{number}", f"said {number}", lastTimestamp=ago(60 * number))
    walks: list[Any] = []
    masked: list[str] = []

    def note(*manifests: Any) -> Callable[[str], str]:
        walks.append(manifests)

        def mask(text: str) -> str:
            masked.append(text)
            return text

        return mask

    monkeypatch.setattr(events, "make_text_mask", note)
    found = event_list(stage.place, 2)
    assert [one.message for one in found.items] == masked == ["said 0", "said 1"]
    assert found.count >= 3
    assert len(walks) == 1


def test_what_may_be_secret_is_hidden_in_their_words(stage: Stage) -> None:
    tell(stage, "PodCliqueSet", stage.stored(), "Failed", "cannot pull with --password=correct-horse-battery")
    [message] = [one.message for one in event_list(stage.place).items if one.reason == "Failed"]
    assert "correct-horse" not in message
    assert message.startswith("cannot pull with --password=")


def test_a_cluster_in_trouble_is_not_asked(stage: Stage) -> None:
    stage.loop.row.trouble_code, stage.loop.row.trouble = "Unreachable", "does not answer."
    stage.loop.row.save()
    stage.cluster.delete(PODCLIQUESETS, stage.name, namespace=stage.namespace)
    found = event_list(stage.place)
    assert found.items == ()
    assert "does not answer." in found.problem


@pytest.fixture
def _restricted(target: TargetCluster) -> Iterator[None]:
    """Somebody who may do nothing by himself, under the name by which the mirror knows the cluster."""
    environment = replace(
        settings.ENVIRONMENT,
        clusters=("kubeconfig",),
        kubeconfig=target.kubeconfig,
        kube_contexts=("restricted",),
    )
    with override_settings(ENVIRONMENT=environment):
        connections._shared_cluster.cache_clear()
        yield
    connections._shared_cluster.cache_clear()


@pytest.mark.usefixtures("_restricted", "redis")
@pytest.mark.parametrize("target", [pytest.param("kube-apiserver", marks=pytest.mark.apiserver)], indirect=True)
def test_a_cluster_that_does_not_let_us_is_said_to_need_the_role(cluster: ClusterClient, namespace: str) -> None:
    stage = Stage(cluster, namespace, "chat", connections.cluster_names()[0])
    cluster.create(PODCLIQUESETS, small({"metadata.namespace": namespace}))
    stage.observe()
    assert "deploy/rbac" in event_list(stage.place).problem
