"""Whole passes on a cluster: a workload is deployed, updated, changed meanwhile, meets strangers and is deleted."""

import contextlib
import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis

from rollouts import mirror
from rollouts.cluster import ClusterClient, NotFound, Obj
from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESCALINGGROUPS, PODCLIQUESETS, PODGANGS, PODS, SERVICES
from rollouts.controller import reconciler, rounds
from rollouts.controller.executor import WriteRecord
from rollouts.controller.reconciler import reconcile
from rollouts.controller.rounds import Round, RoundsEnd, plan_rounds
from rollouts.engine.model import names
from rollouts.engine.model.observed import Observed
from rollouts.models import Pod, Revision, Rollout, Sample, Step, StrategyOverride
from rollouts.queue.results import Done, Requeue, RequeueAfter, Retry
from rollouts.telemetry import heartbeats
from tests.controller.interruptions import Interrupted, Way
from tests.controller.loop import Loop
from tests.controller.small_set import PODS_OF_ONE, change_image, images, is_updated, listed, make, outcomes, told
from tests.engine.manifests import pod as pod_spec
from tests.project.running import wait_until

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]


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
