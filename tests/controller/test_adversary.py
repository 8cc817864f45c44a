"""Passes under bad conditions: a mirror that is being listed, very long texts, malformed rows."""

import time
from typing import Any

import pytest

from rollouts import mirror, models
from rollouts.cluster import ClusterClient, Conflict, Forbidden, Obj, Resource
from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESETS, PODS
from rollouts.controller import reconciler
from rollouts.engine.model import names
from rollouts.engine.model.conditions import BREACHED, make_condition
from rollouts.engine.model.times import render_time
from rollouts.models import Rollout, StrategyOverride
from rollouts.queue.results import RequeueAfter
from tests.controller.loop import SECONDS, Loop
from tests.controller.small_set import ONE_REPLICA, change_image, is_updated, make
from tests.engine.manifests import small
from tests.project.running import wait_until

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]

ON_SANDBOX = pytest.mark.parametrize("target", [pytest.param("sandbox")], indirect=True)


@ON_SANDBOX
def test_a_mirror_that_is_dropped_as_a_pass_begins_ends_no_rollout(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    change_image(loop, "b:2")
    loop.observe()
    loop.take_pass()
    assert Rollout.objects.filter(ended=None).count() == 1
    models.Cluster.objects.update(complete=True)
    read = mirror.fetch_workload

    def forgetful(row: models.Cluster, namespace: str, name: str) -> Any:
        mirror.delete_objects(row)
        return read(row, namespace, name)

    monkeypatch.setattr(mirror, "fetch_workload", forgetful)
    monkeypatch.setattr(reconciler, "shared_cluster", lambda *_: loop.cluster)
    assert isinstance(reconciler.reconcile(loop.key), RequeueAfter)
    assert Rollout.objects.filter(ended=None).count() == 1


@ON_SANDBOX
def test_words_without_end_do_not_keep_a_status_from_being_written(loop: Loop) -> None:
    change_image(loop, "b:2")
    cluster = loop.cluster

    class Wordy:
        def __getattr__(self, name: str) -> Any:
            return getattr(cluster, name)

        def create(self, resource: Any, obj: Any) -> Any:
            if resource == PODS:
                raise Forbidden("no " * 20_000, code=403, reason="Forbidden")
            return cluster.create(resource, obj)

    loop.cluster = Wordy()  # type: ignore[assignment]
    loop.run(lambda: loop.condition("WriteDenied").get("status") == "True")


@ON_SANDBOX
def test_an_override_that_makes_no_sense_stops_nobody(loop: Loop) -> None:
    StrategyOverride.objects.create(reason="x", components={"frontend": {"maxSurge": "9" * 5000}})
    StrategyOverride.objects.create(
        reason="x", components={"frontend": {"maxSurge": "-" * 50_000}}, selector={"a": ["b"]}
    )
    change_image(loop, "b:2")
    loop.run(lambda: is_updated(loop, "b:2"))


@ON_SANDBOX
def test_a_template_that_holds_a_nul_is_deployed(cluster: ClusterClient, namespace: str) -> None:
    env = [{"name": "ODD", "value": "nul\0in it"}]
    odd = make(cluster, namespace, {"spec.template.cliques.0.spec.podSpec.containers.0.env": env})
    odd.run(odd.is_complete)


@ON_SANDBOX
def test_a_set_recreated_at_once_under_its_name_deploys(loop: Loop) -> None:
    former = loop.stored()["metadata"]["uid"]
    loop.cluster.delete(PODCLIQUESETS, loop.name, namespace=loop.namespace)
    loop.cluster.create(PODCLIQUESETS, small({"metadata.namespace": loop.namespace, **ONE_REPLICA}))
    # What the former one had is collected meanwhile, at its own pace.
    loop.run(lambda: loop.is_complete() and len(loop.pods()) == 6)
    assert loop.stored()["metadata"]["uid"] != former
    assert list(Rollout.objects.filter(ended=None)) == []


@ON_SANDBOX
def test_a_hand_made_replica_of_any_number_harms_nobody(loop: Loop) -> None:
    model = loop.cluster.get(PODCLIQUES, "chat-0-frontend", namespace=loop.namespace)
    made = {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodClique",
        "metadata": {
            "namespace": loop.namespace,
            "name": "chat-2147483647-frontend",
            "labels": model["metadata"]["labels"] | {names.REPLICA_INDEX: "2147483647"},
            "ownerReferences": model["metadata"]["ownerReferences"],
        },
        "spec": model["spec"],
    }
    loop.cluster.create(PODCLIQUES, made)
    change_image(loop, "b:2")
    loop.run(lambda: is_updated(loop, "b:2"))


def count_conflicts(cluster: ClusterClient, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that collects the status writes that met a conflict."""
    update, met = cluster.update, []

    def watched(resource: Resource, obj: Obj, **options: Any) -> Obj:
        try:
            return update(resource, obj, **options)
        except Conflict as error:
            met.append(str(error))
            raise

    monkeypatch.setattr(cluster, "update", watched)
    return met


@ON_SANDBOX
def test_what_is_made_anew_within_a_pass_has_nothing_of_the_former_one(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pass deletes and creates a scaling group's replica without pods: it waits for nothing."""
    member, long_ago = "chat-0-decode-0-leader", render_time(time.time() - 3600)

    def found() -> Obj:
        there = loop.cluster.list(PODCLIQUES, namespace=loop.namespace, fields=f"metadata.name={member}").items
        return there[0] if there else {}

    for pod in loop.pods():
        loop.cluster.delete(PODS, pod["metadata"]["name"], namespace=loop.namespace, grace_seconds=0)
    wait_until(lambda: not loop.pods(), SECONDS)
    former = loop.cluster.get(PODCLIQUES, member, namespace=loop.namespace)
    breached = make_condition(BREACHED, "True", "InsufficientReadyPods", "Long since.", long_ago)
    former["status"]["conditions"] = [breached]
    loop.cluster.update(PODCLIQUES, former, subresource="status")
    template = loop.stored()["spec"]["template"]
    for clique in template["cliques"]:
        clique["spec"]["podSpec"]["containers"][0]["image"] = "b:2"
    loop.cluster.patch_merge(PODCLIQUESETS, loop.name, {"spec": {"template": template}}, namespace=loop.namespace)
    conflicts = count_conflicts(loop.cluster, monkeypatch)
    loop.run(lambda: bool(found().get("status")) and found()["metadata"]["uid"] != former["metadata"]["uid"])
    made = loop.cluster.get(PODCLIQUES, member, namespace=loop.namespace)
    assert made["metadata"]["uid"] != former["metadata"]["uid"]
    assert long_ago not in [one["lastTransitionTime"] for one in made["status"]["conditions"]]
    assert conflicts == []
