"""Whole passes on a cluster: a workload is deployed, updated, changed meanwhile, meets strangers and is deleted."""

import contextlib
import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from redis import Redis

from rollouts import mirror
from rollouts.cluster import ClusterClient, Forbidden, NotFound, Obj, Resource
from rollouts.cluster.resources import (
    EVENTS,
    PODCLIQUES,
    PODCLIQUESCALINGGROUPS,
    PODCLIQUESETS,
    PODGANGS,
    PODS,
    SERVICES,
)
from rollouts.controller import reconciler, rounds
from rollouts.controller.executor import WriteRecord
from rollouts.controller.reconciler import reconcile
from rollouts.controller.rounds import Round, RoundsEnd, plan_rounds
from rollouts.engine.manifest.validation import find_unsupported
from rollouts.engine.model import names
from rollouts.engine.model.observed import Observed
from rollouts.models import Pod, Revision, Rollout, Sample, Step, StrategyOverride
from rollouts.queue.results import Done, Requeue, RequeueAfter, Retry, Stop
from rollouts.telemetry import heartbeats
from tests.controller.interruptions import Interrupted, Way, is_first_time
from tests.controller.loop import Loop
from tests.engine.manifests import pod as pod_spec
from tests.engine.manifests import small
from tests.project.running import wait_until

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]

ONE_REPLICA: Final = {"spec.replicas": 1, "spec.template.podCliqueScalingGroups.0.replicas": 1}
PODS_OF_ONE: Final = 3 + 3
ON_REAL: Final = pytest.mark.parametrize(
    "target", [pytest.param("kube-apiserver", marks=pytest.mark.apiserver)], indirect=True
)


def make(cluster: ClusterClient, namespace: str, edits: dict[str, Any] | None = None) -> Loop:
    """Create a small set and return the loop over it."""
    cluster.create(PODCLIQUESETS, small({"metadata.namespace": namespace, **ONE_REPLICA, **(edits or {})}))
    return Loop(cluster, namespace, "chat")


@pytest.fixture
def loop(cluster: ClusterClient, namespace: str) -> Loop:
    """A small set that is deployed."""
    deployed = make(cluster, namespace)
    deployed.run(deployed.is_complete)
    return deployed


def change_image(loop: Loop, image: str) -> None:
    """Give the frontend another image."""
    cliques = loop.stored()["spec"]["template"]["cliques"]
    cliques[0]["spec"]["podSpec"]["containers"][0]["image"] = image
    change = {"spec": {"template": {"cliques": cliques}}}
    loop.cluster.patch_merge(PODCLIQUESETS, loop.name, change, namespace=loop.namespace)


def images(loop: Loop) -> list[str]:
    """Return the images of the frontend's pods."""
    mine = [pod for pod in loop.pods() if pod["metadata"]["labels"][names.CLIQUE].endswith("frontend")]
    return sorted(pod["spec"]["containers"][0]["image"] for pod in mine)


def is_updated(loop: Loop, image: str) -> bool:
    """Return whether an update to an image has ended."""
    return set(images(loop)) == {image} and loop.is_complete()


def outcomes() -> list[str]:
    """Return the outcomes of the rollouts, oldest first."""
    return [row.outcome for row in Rollout.objects.order_by("started", "id")]


def told(loop: Loop) -> list[str]:
    """Return the reasons of the Events about the set, in their order."""
    events = loop.cluster.list(EVENTS, namespace=loop.namespace).items
    mine = [event for event in events if event["involvedObject"].get("kind") == "PodCliqueSet"]
    return [event["reason"] for event in sorted(mine, key=lambda one: int(one["metadata"]["resourceVersion"]))]


# ---- the way things go


def test_a_set_deploys_and_settles(cluster: ClusterClient, namespace: str) -> None:
    loop = make(cluster, namespace, {"spec.replicas": 2})
    loop.run(loop.is_complete)
    assert len(loop.pods()) == 2 * PODS_OF_ONE
    loop.observe()
    assert loop.take_pass() == Done()
    (rollout,) = Rollout.objects.all()
    assert (rollout.from_hash, rollout.outcome) == ("", "Complete")
    assert [row.number for row in Revision.objects.all()] == [1]


def test_a_settled_set_costs_no_call(loop: Loop) -> None:
    # A pass that has taken long writes the status of the set alone, and leaves the others to the next one.
    loop.run(lambda: loop.outcomes[-1] == Done())
    loop.observe()
    watched = Interrupted(loop.cluster, Way.CUT_BEFORE, lambda _number, _call: False)
    loop.cluster = watched.as_cluster()
    assert loop.take_pass() == Done()
    assert watched.writes == []


def test_a_set_settles_whose_planning_takes_longer_than_a_pass_should(
    cluster: ClusterClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "MAX_SECONDS", 0.0)
    loop = make(cluster, namespace)
    loop.run(lambda: loop.is_complete() and loop.outcomes[-1] == Done())
    cliques = cluster.list(PODCLIQUES, namespace=namespace).items
    assert [one["status"]["readyReplicas"] for one in cliques] == [one["spec"]["replicas"] for one in cliques]


def test_a_pass_that_ends_early_names_the_pods_that_it_has_replaced(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "MAX_SECONDS", 0.0)
    assert count_true_selections(loop) > 0


def test_a_pass_whose_write_somebody_forestalls_names_the_pods_that_it_has_replaced(loop: Loop) -> None:
    first_times = is_first_time()
    conflicting = Interrupted(
        loop.cluster, Way.CONFLICT, lambda number, call: call.startswith("create pods") and first_times(number, call)
    )
    loop.cluster = conflicting.as_cluster()
    assert count_true_selections(loop) > 0
    assert conflicting.interruptions >= 3


@pytest.mark.parametrize("way", [*Way], ids=lambda way: way.name)
def test_an_interrupted_pass_loses_no_name_of_a_pod_that_it_has_replaced(loop: Loop, way: Way) -> None:
    first_times, calls = is_first_time(), ("delete pods ", "create pods ", "update podcliques ")
    interrupted = Interrupted(
        loop.cluster, way, lambda number, call: call.startswith(calls) and first_times(number, call)
    )
    loop.cluster = interrupted.as_cluster()
    assert count_true_selections(loop, interrupted) > 0
    assert interrupted.interruptions >= 3


class WithoutStatuses(Interrupted):
    """A cluster that rejects the statuses of PodCliques."""

    def update(self, resource: Resource, obj: Obj, **options: Any) -> Obj:
        if resource == PODCLIQUES:
            self.interruptions += 1
            raise Forbidden('podcliques "chat-0-frontend" is forbidden: not allowed to update podcliques/status')
        return super().update(resource, obj, **options)


def test_an_update_goes_on_though_the_cluster_refuses_the_status_that_names_what_it_replaces(loop: Loop) -> None:
    change_image(loop, "two")
    refusing = WithoutStatuses(loop.cluster, Way.CUT_BEFORE, lambda _number, _call: False)
    loop.cluster = refusing.as_cluster()
    loop.run(lambda: set(images(loop)) == {"two"})
    assert refusing.interruptions > 0
    assert loop.condition("WriteDenied")["reason"] == "Forbidden"


def count_true_selections(loop: Loop, interrupted: Interrupted | None = None) -> int:
    """Update the frontend and return how often its status named pods; it must name all that were replaced so far.

    Pods are named before they are deleted. After an interruption one pass learns what was deleted; from the next pass
    on no existing pod is named.
    """

    def frontends() -> dict[str, str]:
        mine = [pod for pod in loop.pods() if pod["metadata"]["labels"][names.CLIQUE].endswith("frontend")]
        return {pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in mine}

    originals, found, former, calm = {*frontends()}, list[int](), 0, 0

    def look() -> None:
        nonlocal former, calm
        interruptions = 0 if interrupted is None else interrupted.interruptions
        former, calm = interruptions, calm + 1 if interruptions == former else 0
        clique = loop.cluster.get(PODCLIQUES, "chat-0-frontend", namespace=loop.namespace)
        progress = (clique.get("status") or {}).get("updateProgress") or {}
        if "updateEndedAt" not in progress:
            selected = progress.get("readyPodsSelectedToUpdate") or {}
            told = [*selected.get("current", ()), *selected.get("completed", ())]
            gone = originals - {*frontends()}
            assert len(told) == len({*told})
            assert originals >= {*told} >= gone
            assert {*told} == gone or calm < 2
            found.append(len(told))

    change_image(loop, "two")
    process = contextlib.nullcontext if interrupted is None else interrupted.one_process
    loop.run(lambda: is_updated(loop, "two"), look, process=process)
    return sum(map(bool, found))


def test_what_a_pass_wrote_the_next_one_sees_without_looking(cluster: ClusterClient, namespace: str) -> None:
    loop = make(cluster, namespace)
    loop.observe()
    for _ in range(8):
        if loop.take_pass() != Requeue():
            break
    # Without a watcher no pass learns that pods are scheduled and Ready; everything before that is done.
    assert Pod.objects.filter(gated=False).count() == PODS_OF_ONE
    assert not isinstance(loop.outcomes[-1], Retry)


def test_an_update_replaces_the_pods_and_is_on_record(loop: Loop) -> None:
    change_image(loop, "two")
    loop.run(lambda: is_updated(loop, "two"))
    assert outcomes() == ["Complete", "Complete"]
    first, second = Rollout.objects.order_by("started", "id")
    assert (second.from_hash, second.to_hash) == (first.to_hash, loop.status()["currentGenerationHash"])
    reasons = [step.reason for step in Step.objects.filter(rollout=second).order_by("at", "id")]
    assert (reasons[0], reasons[-1]) == ("UpdateStarted", "UpdateEnded")
    assert reasons.count("Outdated") == 3
    assert told(loop) == ["UpdateStarted", "ReplicaSelected", "UpdateEnded"]
    counts = Sample.objects.filter(rollout=second)
    assert all(sample.available >= sample.floor == PODS_OF_ONE - 1 - 3 for sample in counts)
    last = counts.order_by("at").last()
    assert last is not None
    assert (last.desired, last.available, last.surge) == (PODS_OF_ONE, PODS_OF_ONE, 0)


def test_another_spelling_of_an_amount_replaces_no_pod_and_starts_no_update(
    cluster: ClusterClient, namespace: str
) -> None:
    frontend = "spec.template.cliques.0.spec.podSpec.containers.0.resources"
    loop = make(cluster, namespace, {frontend: {"requests": {"cpu": "1"}, "limits": {"cpu": "1", "memory": "1Gi"}}})
    loop.run(lambda: loop.is_complete() and loop.outcomes[-1] == Done())
    before, pods = loop.status(), {pod["metadata"]["uid"] for pod in loop.pods()}
    change_amounts(loop, {"requests": {"cpu": "1000m"}, "limits": {"cpu": 1, "memory": "1024Mi"}})
    generation = loop.stored()["metadata"]["generation"]
    loop.run(lambda: loop.status()["observedGeneration"] == generation and loop.outcomes[-1] == Done())
    assert {pod["metadata"]["uid"] for pod in loop.pods()} == pods
    after = loop.status()
    assert (after["currentGenerationHash"], after.get("updateProgress")) == (
        before["currentGenerationHash"],
        before.get("updateProgress"),
    )
    assert (outcomes(), told(loop), Revision.objects.count()) == (["Complete"], [], 1)
    change_amounts(loop, {"requests": {"cpu": "1001m"}, "limits": {"cpu": "1001m", "memory": "1024Mi"}})
    loop.run(lambda: outcomes() == ["Complete", "Complete"])
    assert len({pod["metadata"]["uid"] for pod in loop.pods()} - pods) == 3


def test_a_clique_without_a_minimum_is_scaled_out_in_the_template_and_back(loop: Loop) -> None:
    for replicas, minimum in ((5, 3), (2, 2)):
        cliques = loop.stored()["spec"]["template"]["cliques"]
        cliques[0]["spec"]["replicas"] = replicas
        change = {"spec": {"template": {"cliques": cliques}}}
        loop.cluster.patch_merge(PODCLIQUESETS, loop.name, change, namespace=loop.namespace)
        generation = loop.stored()["metadata"]["generation"]
        loop.run(
            lambda: (
                loop.status()["observedGeneration"] == generation  # noqa: B023 (asked before the next round)
                and loop.is_complete()
                and loop.outcomes[-1] == Done()
            )
        )
        frontend = loop.cluster.get(PODCLIQUES, "chat-0-frontend", namespace=loop.namespace)
        assert (frontend["spec"]["replicas"], frontend["spec"]["minAvailable"]) == (replicas, minimum)
        assert len(images(loop)) == replicas
    assert outcomes() == ["Complete"]


def test_what_no_template_covers_follows_its_edits_through_everything_and_then_costs_no_call(loop: Loop) -> None:
    template = loop.stored()["spec"]["template"]
    template["priorityClassName"] = "system-cluster-critical"
    template["podCliqueScalingGroups"][0]["annotations"] = {"example.com/team": "red"}
    template["cliques"][0]["spec"]["autoScalingConfig"] = {"minReplicas": 3, "maxReplicas": 7}
    loop.cluster.patch_merge(PODCLIQUESETS, loop.name, {"spec": {"template": template}}, namespace=loop.namespace)
    generation = loop.stored()["metadata"]["generation"]
    loop.run(
        lambda: loop.status()["observedGeneration"] == generation and loop.is_complete() and loop.outcomes[-1] == Done()
    )
    # The sandbox's scheduler writes the phase of a gang a moment after the last pod is Ready.
    loop.run(lambda: all(gang["status"]["phase"] == "Running" for gang in listed(loop, PODGANGS)))
    loop.run(lambda: loop.outcomes[-1] == Done())
    group = loop.cluster.get(PODCLIQUESCALINGGROUPS, "chat-0-decode", namespace=loop.namespace)
    assert group["metadata"]["annotations"]["example.com/team"] == "red"
    frontend = loop.cluster.get(PODCLIQUES, "chat-0-frontend", namespace=loop.namespace)
    assert frontend["spec"]["autoScalingConfig"] == {"minReplicas": 3, "maxReplicas": 7}
    for gang in listed(loop, PODGANGS):
        assert gang["spec"]["priorityClassName"] == "system-cluster-critical"
        assert gang["status"]["phase"] == "Running"
        (initialized,) = [one for one in gang["status"]["conditions"] if one["type"] == "Initialized"]
        assert (initialized["status"], initialized["reason"]) == ("True", "PodGangPodsCreated")
    loop.observe()
    watched = Interrupted(loop.cluster, Way.CUT_BEFORE, lambda _number, _call: False)
    loop.cluster = watched.as_cluster()
    assert loop.take_pass() == Done()
    assert watched.writes == []


def change_amounts(loop: Loop, resources: dict[str, Any]) -> None:
    """Give the frontend other requests and limits, or the same in another notation."""
    cliques = loop.stored()["spec"]["template"]["cliques"]
    cliques[0]["spec"]["podSpec"]["containers"][0]["resources"] = resources
    change = {"spec": {"template": {"cliques": cliques}}}
    loop.cluster.patch_merge(PODCLIQUESETS, loop.name, change, namespace=loop.namespace)


def test_an_update_on_the_way_is_superseded_by_another(loop: Loop) -> None:
    change_image(loop, "two")
    loop.run(lambda: "two" in images(loop))
    change_image(loop, "three")
    loop.run(lambda: is_updated(loop, "three"))
    assert outcomes() == ["Complete", "Superseded", "Complete"]


def test_an_interruption_whose_write_met_a_conflict_drops_the_former_progress_at_once(
    cluster: ClusterClient, namespace: str
) -> None:
    surge = {"spec.template.cliques.0.updateStrategy": {"maxUnavailable": 0, "maxSurge": 1}}
    loop = make(cluster, namespace, {"spec.replicas": 2, "spec.updateStrategy": {"type": "RollingUpdate"}, **surge})
    loop.run(loop.is_complete)

    def progress() -> Any:
        return cluster.get(PODCLIQUES, "chat-1-frontend", namespace=namespace)["status"].get("updateProgress") or {}

    change_image(loop, "two")
    loop.run(lambda: "readyPodsSelectedToUpdate" in progress())
    change_image(loop, "three")
    loop.observe()
    noted = {"metadata": {"annotations": {"example.com/note": "written by another"}}}
    cluster.patch_merge(PODCLIQUES, "chat-1-frontend", noted, namespace=namespace)
    interrupted = progress()
    loop.take_pass()
    started = loop.status()
    assert started["currentGenerationHash"] != interrupted["podCliqueSetGenerationHash"]
    assert progress() == interrupted
    loop.run(lambda: progress() != interrupted)
    assert progress() == {}
    assert [one["replicaIndex"] for one in loop.status()["updateProgress"].get("updatingReplicas") or ()] in ([], [0])
    loop.run(lambda: is_updated(loop, "three"))


def test_an_update_on_the_way_is_rolled_back(loop: Loop) -> None:
    (before,) = set(images(loop))
    change_image(loop, "two")
    loop.run(lambda: "two" in images(loop))
    change_image(loop, before)
    loop.run(lambda: is_updated(loop, before))
    assert outcomes() == ["Complete", "RolledBack", "Complete"]
    assert sorted(row.number for row in Revision.objects.all()) == [2, 3]


def test_deleting_a_set_ends_its_rollout_and_leaves_nothing_behind(loop: Loop) -> None:
    change_image(loop, "two")
    loop.run(lambda: "two" in images(loop))
    loop.cluster.delete(PODCLIQUESETS, loop.name, namespace=loop.namespace, propagation="Background")
    loop.observe()
    assert loop.take_pass() == Done()
    assert outcomes() == ["Complete", "Deleted"]
    loop.run(lambda: not any(listed(loop, kind) for kind in (PODS, PODCLIQUES, PODGANGS, SERVICES)))
    loop.observe()
    assert loop.take_pass() == Done()


def listed(loop: Loop, resource: Resource) -> list[Obj]:
    """Return the objects of a kind in the namespace of the loop."""
    return list(loop.cluster.list(resource, namespace=loop.namespace).items)


def test_a_set_that_is_held_while_it_leaves_gets_nothing_new(loop: Loop) -> None:
    held = {"metadata": {"finalizers": ["a.example/held"]}}
    loop.cluster.patch_merge(PODCLIQUESETS, loop.name, held, namespace=loop.namespace)
    loop.cluster.delete(PODCLIQUESETS, loop.name, propagation="Background", namespace=loop.namespace)
    victim = loop.pods()[0]["metadata"]["name"]
    loop.cluster.delete(PODS, victim, grace_seconds=0, namespace=loop.namespace)
    loop.observe()
    assert loop.take_pass() == Done()
    assert len(loop.pods()) == PODS_OF_ONE - 1
    let_go = {"metadata": {"finalizers": None}}
    loop.cluster.patch_merge(PODCLIQUESETS, loop.name, let_go, namespace=loop.namespace)


def test_what_a_pass_goes_on_with_is_what_the_mirror_then_has(
    cluster: ClusterClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = list[RoundsEnd]()

    def keep_end(*arguments: Any) -> Generator[Round | RoundsEnd, Sequence[WriteRecord], None]:
        steps = plan_rounds(*arguments)
        step = next(steps)
        while isinstance(step, Round):
            step = steps.send((yield step))
        ends.append(step)
        yield step

    monkeypatch.setattr(reconciler, "plan_rounds", keep_end)
    loop = make(cluster, namespace)

    def compare() -> None:
        # After a pass without an answer the next one has no rounds: it fetches what was written.
        ended = [] if isinstance(loop.outcomes[-1], Retry) else [*ends]
        ends.clear()
        for one in ended:
            seen = mirror.fetch_workload(loop.row, namespace, "chat")
            assert seen is not None
            assert _bare(one.observed) == _bare(seen.observed)

    loop.run(loop.is_complete, then=compare)
    change_image(loop, "two")
    loop.run(lambda: is_updated(loop, "two"), then=compare)
    group = loop.stored()["spec"]["template"]["cliques"]
    group[1]["spec"]["podSpec"]["containers"][0]["image"] = "three"
    change = {"spec": {"template": {"cliques": group}, "updateStrategy": {"type": "ReplicaRecreate"}}}
    cluster.patch_merge(PODCLIQUESETS, "chat", change, namespace=namespace)
    loop.run(lambda: outcomes() == ["Complete"] * 3, then=compare)


def _bare(observed: Observed) -> Observed:
    """Return what is observed without statuses, which the API server completes, and without what changes with them."""
    plain: dict[str, Any] = {"status": {}, "resource_version": "", "generation": 0}
    return replace(
        observed,
        status={},
        cliques=tuple(replace(clique, **plain) for clique in observed.cliques),
        groups=tuple(replace(group, **plain) for group in observed.groups),
        gangs=tuple(replace(gang, resource_version="", status={}) for gang in observed.gangs),
    )


# ---- objects that are deleted by hand


def test_a_replica_of_which_only_its_gang_is_left_is_rebuilt(loop: Loop) -> None:
    """No pass runs before all other parts are collected: a pass in between would begin to rebuild them."""
    labels = f"{names.PART_OF}={loop.name}"
    before = {pod["metadata"]["uid"] for pod in loop.pods()}
    owners = (PODCLIQUES, PODCLIQUESCALINGGROUPS, SERVICES)
    for kind in owners:
        for obj in loop.cluster.list(kind, namespace=loop.namespace, labels=labels).items:
            with contextlib.suppress(NotFound):  # its owner may have taken it along
                loop.cluster.delete(kind, obj["metadata"]["name"], namespace=loop.namespace)
    left = (*owners, PODS)
    wait_until(
        lambda: not any(loop.cluster.list(kind, namespace=loop.namespace, labels=labels).items for kind in left), 60
    )
    (gang,) = loop.cluster.list(PODGANGS, namespace=loop.namespace, labels=labels).items
    loop.run(lambda: loop.is_complete() and len(loop.pods()) == PODS_OF_ONE)
    assert not before & {pod["metadata"]["uid"] for pod in loop.pods()}
    (same,) = loop.cluster.list(PODGANGS, namespace=loop.namespace, labels=labels).items
    assert same["metadata"]["uid"] == gang["metadata"]["uid"]


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


# ---- strangers


def stranger(loop_namespace: str, name: str, like: Obj | None = None) -> Obj:
    """Return a pod with our labels and without an owner."""
    labels = like["metadata"]["labels"] if like else {names.PART_OF: "chat", names.MANAGED_BY: names.OPERATOR}
    held = {"schedulingGates": [{"name": names.SCHEDULING_GATE}, {"name": "a.example/theirs"}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": loop_namespace, "labels": labels},
        "spec": pod_spec() | held,
    }


def test_a_pod_with_our_labels_that_is_not_ours_is_never_touched(loop: Loop) -> None:
    theirs = loop.cluster.create(PODS, stranger(loop.namespace, "theirs", like=loop.pods()[0]))
    change_image(loop, "two")
    loop.run(lambda: set(images_of_ours(loop)) == {"two"} and loop.is_complete())
    found = loop.cluster.get(PODS, "theirs", namespace=loop.namespace)
    assert found["metadata"]["resourceVersion"] == theirs["metadata"]["resourceVersion"]


def images_of_ours(loop: Loop) -> list[str]:
    """Return the images of the frontend's pods that have an owner."""
    mine = [pod for pod in loop.pods() if pod["metadata"].get("ownerReferences")]
    front = [pod for pod in mine if pod["metadata"]["labels"][names.CLIQUE].endswith("frontend")]
    return [pod["spec"]["containers"][0]["image"] for pod in front]


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


# ---- overrides


def test_an_override_holds_an_update_back_until_it_runs_out(loop: Loop) -> None:
    expiry = datetime.now(UTC) + timedelta(hours=1)
    override = StrategyOverride.objects.create(
        namespace=loop.namespace, strategy="OnDelete", reason="freeze", expires_at=expiry
    )
    before = images(loop)
    change_image(loop, "two")
    loop.run(lambda: isinstance(loop.outcomes[-1], RequeueAfter))
    assert loop.condition("Progressing")["reason"] == "AwaitingDeletion"
    assert images(loop) == before
    outcome = loop.outcomes[-1]
    assert isinstance(outcome, RequeueAfter)
    assert 3500 < outcome.after_seconds < 3600
    assert loop.stored()["spec"].get("updateStrategy", {}).get("type") != "OnDelete"
    override.expires_at = datetime.now(UTC)
    override.save()
    loop.run(lambda: is_updated(loop, "two"))


# ---- doors


def test_nothing_is_done_for_a_cluster_that_is_not_mirrored_or_in_trouble(loop: Loop, redis: Redis) -> None:
    assert reconcile("elsewhere/web/chat") == Done()
    loop.row.complete = False
    loop.row.save()
    assert isinstance(reconcile(loop.key), RequeueAfter)
    loop.row.complete, loop.row.trouble_code = True, "Unreachable"
    loop.row.save()
    assert reconcile(loop.key) == RequeueAfter(60.0, "Unreachable")
    loop.row.trouble_code = ""
    loop.row.save()
    heartbeats.record_cluster_heartbeat(redis, "here", {})
    redis.hset("grove:heartbeat:cluster:here", "heard", time.time() - 3600)
    assert reconcile(loop.key) == RequeueAfter(60.0, "ClusterNotHeard")


def test_a_set_that_nobody_knows_is_done(loop: Loop) -> None:
    loop.name = "nobody"
    assert loop.take_pass() == Done()
    with pytest.raises(NotFound):
        loop.stored()
