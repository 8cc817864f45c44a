"""Taking a workload over from Grove's own operator: nothing is replaced, everything is ours, and it comes to rest."""

import time
from typing import Any

import pytest

from rollouts import mirror
from rollouts.accounts.errors import ClusterUnavailable, InvalidState, VersionConflict
from rollouts.cluster import ClusterClient, NotFound, Obj
from rollouts.cluster.resources import (
    PODCLIQUES,
    PODCLIQUESCALINGGROUPS,
    PODCLIQUESETS,
    PODGANGS,
    PODS,
)
from rollouts.engine.model import names
from rollouts.models import AuditEntry, Rollout
from rollouts.queue.results import Done, Stop
from rollouts.runtime import connections
from rollouts.services.audit import Caller
from rollouts.services.changes import execute
from rollouts.services.deletion import PodRef
from rollouts.services.pods import pods_delete
from rollouts.services.takeover import TakeoverResult, cluster_take_over, workload_take_over
from rollouts.services.workload_client import translate_operator_check_errors
from rollouts.services.workloads import restart
from tests.controller.interruptions import Interrupted, Way
from tests.engine.manifests import small
from tests.project.running import wait_until
from tests.services.grove import (
    ALL,
    FINALIZERS,
    GROVES_HASH,
    hand_to_grove,
    list_objects,
    patch,
    put_status,
    write_as_grove,
)
from tests.services.stage import Stage

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

REPLICAS = 5
PODS_OF_ALL = 30


@pytest.fixture
def stage(cluster: ClusterClient, namespace: str, redis: Any) -> Stage:
    """A workload of 30 pods that runs, as Grove's operator has left it behind."""
    stage = Stage(cluster, namespace, "chat", connections.cluster_names()[0])
    edits = {"spec.replicas": REPLICAS, "spec.template.podCliqueScalingGroups.0.replicas": 1}
    cluster.create(PODCLIQUESETS, small({"metadata.namespace": namespace, **edits}))
    stage.deploy()
    hand_to_grove(cluster, namespace)
    stage.observe()
    Rollout.objects.all().delete()
    return stage


def uids(stage: Stage) -> set[str]:
    """Return the uids of the pods."""
    return {pod["metadata"]["uid"] for pod in list_objects(stage.cluster, stage.namespace, PODS)}


def versions(stage: Stage) -> dict[tuple[str, str], str]:
    """Return the resourceVersion of everything there is."""
    return {
        (resource.kind, obj["metadata"]["name"]): obj["metadata"]["resourceVersion"]
        for resource in ALL
        for obj in list_objects(stage.cluster, stage.namespace, resource)
    }


def take_over(caller: Caller, stage: Stage, **options: Any) -> TakeoverResult:
    """Take the workload over, a while after Grove's operator has written anything."""
    return workload_take_over(caller, stage.place, now=lambda: time.time() + 120, **options)


def settle(stage: Stage) -> None:
    """Take passes until nothing is left to do."""
    stage.loop.run(lambda: bool(stage.loop.outcomes) and stage.loop.outcomes[-1] == Done())


def count_writes(stage: Stage, passes: int) -> list[str]:
    """Take passes and return everything that they write."""
    watched = Interrupted(stage.cluster, Way.CUT_BEFORE, lambda _number, _call: False)
    stage.loop.cluster = watched.as_cluster()
    for _ in range(passes):
        stage.observe()
        stage.loop.take_pass()
    stage.loop.cluster = stage.cluster
    return watched.writes


def test_a_dry_run_shows_everything_and_changes_nothing(stage: Stage, caller: Caller) -> None:
    before = versions(stage)
    told = take_over(caller, stage, dry_run=True)
    assert versions(stage) == before
    assert (told.pods, told.outdated, told.left) == (PODS_OF_ALL, 0, ())
    # 30 pods, 5 × 3 PodCliques, 5 groups, 5 gangs, the set
    assert told.objects == PODS_OF_ALL + 15 + 5 + 5 + 1
    fields = {change.field: (change.before, change.after) for change in told.changed.changes}
    assert fields["PodGang chat-3: metadata.labels[grove.io/podcliqueset-replica-index]"] == (None, "3")
    assert fields["PodCliqueSet chat: metadata.finalizers"] == ([FINALIZERS[PODCLIQUESETS]], [])
    assert fields["PodCliqueSet chat: status.currentGenerationHash"][0] == GROVES_HASH
    assert not AuditEntry.objects.exists()


def test_people_command_nothing_to_a_workload_of_grove_until_it_is_taken_over(stage: Stage, caller: Caller) -> None:
    before = versions(stage)
    with pytest.raises(InvalidState, match="Grove's own operator manages this set"):
        execute(caller, stage.place, restart())
    with pytest.raises(InvalidState, match="Grove's own operator manages this set"):
        pods_delete(caller, stage.place, [PodRef(stage.loop.pods()[0]["metadata"]["name"])])
    assert versions(stage) == before
    take_over(caller, stage)
    execute(caller, stage.place, restart(), dry_run=True)


def test_a_takeover_replaces_no_pod_and_comes_to_rest(stage: Stage, caller: Caller) -> None:
    before = uids(stage)
    assert isinstance(stage.loop.take_pass(), Stop)
    told = take_over(caller, stage)
    assert told.pods == PODS_OF_ALL
    # The next pass sees what was changed without a look at the cluster.
    seen = mirror.fetch_workload(stage.loop.row, stage.namespace, "chat")
    assert seen is not None
    assert GROVES_HASH not in str(seen.observed)
    settle(stage)
    assert uids(stage) == before
    assert count_writes(stage, 5) == []
    assert stage.loop.is_complete()
    assert not Rollout.objects.exclude(outcome="Complete").exists()
    assert [entry.result for entry in AuditEntry.objects.order_by("id")] == ["Begun", "Done"]


def test_what_was_taken_over_is_updated_and_goes_like_everything_else(stage: Stage, caller: Caller) -> None:
    take_over(caller, stage)
    settle(stage)
    before = uids(stage)
    cliques = stage.stored()["spec"]["template"]["cliques"]
    cliques[0]["spec"]["podSpec"]["containers"][0]["image"] = "two"
    patch(stage.cluster, PODCLIQUESETS, stage.stored(), {"spec": {"template": {"cliques": cliques}}})
    stage.deploy()
    assert len(before & uids(stage)) == PODS_OF_ALL // 2
    stage.cluster.delete(PODCLIQUESETS, "chat", namespace=stage.namespace, propagation="Background")
    kinds = (PODS, PODCLIQUES, PODCLIQUESCALINGGROUPS, PODGANGS)
    stage.loop.run(lambda: not any(listed(stage, kind) for kind in kinds))
    with pytest.raises(NotFound):
        stage.stored()


def listed(stage: Stage, resource: Any) -> list[Obj]:
    """Return the objects of a kind in the namespace."""
    return list(stage.cluster.list(resource, namespace=stage.namespace).items)


def test_a_takeover_that_was_cut_off_is_finished_by_another(stage: Stage, caller: Caller) -> None:
    """Pods first, then their PodCliques: wherever it ends, the rest is recognised."""
    before = uids(stage)
    pods = list_objects(stage.cluster, stage.namespace, PODS)
    told = take_over(caller, stage, dry_run=True)
    ours = {one.field: one.after for one in told.changed.changes}
    for pod in pods[:11]:
        name = pod["metadata"]["name"]
        label = ours[f"Pod {name}: metadata.labels[{names.TEMPLATE_HASH}]"]
        patch(stage.cluster, PODS, pod, {"metadata": {"labels": {names.TEMPLATE_HASH: label}}})
    stage.observe()
    assert isinstance(stage.loop.take_pass(), Stop)
    told = take_over(caller, stage)
    assert (told.objects, told.outdated) == (PODS_OF_ALL - 11 + 15 + 5 + 5 + 1, 0)
    settle(stage)
    assert uids(stage) == before
    assert take_over(caller, stage).changed.changes == ()


def test_pods_of_an_older_template_are_left_to_the_update(stage: Stage, caller: Caller) -> None:
    old = next(
        pod for pod in list_objects(stage.cluster, stage.namespace, PODS) if "frontend" in pod["metadata"]["name"]
    )
    patch(stage.cluster, PODS, old, {"metadata": {"labels": {names.TEMPLATE_HASH: "older"}}})
    started = {"updateStartedAt": "2026-01-01T00:00:00Z"}
    put_status(stage.cluster, stage.namespace, updateProgress=started)
    before = uids(stage)
    told = take_over(caller, stage, dry_run=True)
    assert told.outdated == 1
    assert "1 of 30 pods run another template" in told.changed.warnings[0].message
    take_over(caller, stage)
    assert uids(stage) == before
    stage.deploy()
    settle(stage)
    assert before - uids(stage) == {old["metadata"]["uid"]}


def test_an_object_that_grove_wrote_after_us_stops_us_until_it_is_taken_over(stage: Stage, caller: Caller) -> None:
    take_over(caller, stage)
    settle(stage)
    for resource, name in ((PODCLIQUES, "chat-0-frontend"), (PODGANGS, "chat-1"), (PODCLIQUESETS, "chat")):
        write_as_grove(stage.cluster, stage.namespace, resource, name)
        patch(
            stage.cluster,
            PODCLIQUES,
            list_objects(stage.cluster, stage.namespace, PODCLIQUES)[1],
            {"spec": {"replicas": 4}},
        )
        assert count_writes(stage, 2) == []
        outcome = stage.loop.outcomes[-1]
        assert isinstance(outcome, Stop)
        assert outcome.reason == "OtherOperator"
        assert f"wrote {resource.kind} {name} after Grove UI" in outcome.error
        # Which object it names is open: managed fields tell the second, and Grove has written several in one.
        with pytest.raises(InvalidState, match=r"wrote Pod\w+ chat\S* \d+ s ago, so it seems to run"):
            workload_take_over(caller, stage.place)
        take_over(caller, stage)
        stage.observe()
        assert not isinstance(stage.loop.take_pass(), Stop)


# The real cluster is shared with tests that keep workloads for Grove.
@pytest.mark.parametrize("target", ["sandbox"], indirect=True)
def test_all_workloads_of_a_cluster_are_taken_over_and_one_in_trouble_keeps_no_other(
    stage: Stage, caller: Caller
) -> None:
    other = small({"metadata.namespace": stage.namespace, "metadata.name": "other", "spec.replicas": 1})
    other["metadata"]["finalizers"] = [FINALIZERS[PODCLIQUESETS]]
    stage.cluster.create(PODCLIQUESETS, other)
    stage.cluster.delete(PODCLIQUESETS, "other", namespace=stage.namespace)
    told = cluster_take_over(caller, stage.cluster_name, dry_run=True)
    mine = {one.place.name: one for one in told.outcomes if one.place.namespace == stage.namespace}
    assert (mine["chat"].pods, mine["chat"].problem) == (PODS_OF_ALL, "")
    assert "is being deleted" in mine["other"].problem
    before = uids(stage)
    cluster_take_over(caller, stage.cluster_name)
    assert "finalizers" not in stage.stored()["metadata"]
    assert uids(stage) == before
    assert stage.cluster.get(PODCLIQUESETS, "other", namespace=stage.namespace)["metadata"]["finalizers"]


@pytest.mark.parametrize("target", ["sandbox"], indirect=True)
def test_of_a_cluster_only_what_a_dry_run_has_shown_is_taken_over(stage: Stage, caller: Caller) -> None:
    def make(name: str) -> None:
        manifest = small({"metadata.namespace": stage.namespace, "metadata.name": name, "spec.replicas": 1})
        manifest["metadata"]["finalizers"] = [FINALIZERS[PODCLIQUESETS]]
        stage.cluster.create(PODCLIQUESETS, manifest)

    def is_groves(name: str) -> bool:
        stored = stage.cluster.get(PODCLIQUESETS, name, namespace=stage.namespace)
        return bool(stored["metadata"].get("finalizers"))

    make("changed")
    told = cluster_take_over(caller, stage.cluster_name, dry_run=True)
    seen = {one.place: one.version for one in told.outcomes if one.place.namespace == stage.namespace}
    assert {place.name for place in seen} == {"chat", "changed"}
    make("newcomer")
    change = {"spec": {"replicas": 2}}
    stage.cluster.patch_merge(PODCLIQUESETS, "changed", change, namespace=stage.namespace)
    taken = cluster_take_over(caller, stage.cluster_name, expected=seen)
    assert [(one.place.name, one.problem) for one in taken.outcomes if not one.problem] == [("chat", "")]
    (problem,) = [one.problem for one in taken.outcomes if one.place.name == "changed"]
    assert problem.startswith("changed has been changed")
    assert taken.left >= 1
    assert [is_groves(name) for name in ("chat", "changed", "newcomer")] == [False, True, True]


@pytest.mark.parametrize("target", ["sandbox"], indirect=True)
def test_no_workload_of_a_cluster_is_taken_over_while_grove_writes_to_one(stage: Stage, caller: Caller) -> None:
    edits = {"metadata.namespace": stage.namespace, "metadata.name": "other", "spec.replicas": 1}
    stage.cluster.create(PODCLIQUESETS, small(edits))
    write_as_grove(stage.cluster, stage.namespace, PODCLIQUESETS, "other")
    stage.observe()
    before = versions(stage)
    with pytest.raises(InvalidState, match="wrote PodCliqueSet other"):
        cluster_take_over(caller, stage.cluster_name)
    with pytest.raises(InvalidState, match="wrote PodCliqueSet other"):
        workload_take_over(caller, stage.place)
    assert versions(stage) == before
    take_over(caller, stage, dry_run=True)


def test_what_a_set_of_groves_left_behind_is_taken_over_and_adopted(stage: Stage, caller: Caller) -> None:
    before, manifest = uids(stage), stage.stored()
    patch(stage.cluster, PODCLIQUESETS, manifest, {"metadata": {"finalizers": []}})
    stage.cluster.delete(PODCLIQUESETS, "chat", namespace=stage.namespace, propagation="Orphan")
    wait_until(lambda: not listed(stage, PODCLIQUESETS), 30)
    metadata = {"name": "chat", "namespace": stage.namespace}
    stage.cluster.create(PODCLIQUESETS, {**manifest, "metadata": metadata, "status": {}})
    write_as_grove(stage.cluster, stage.namespace, PODCLIQUES, "chat-0-frontend")
    stage.observe()
    assert isinstance(stage.loop.take_pass(), Stop)
    told = take_over(caller, stage)
    assert (told.pods, told.left) == (PODS_OF_ALL, ())
    settle(stage)
    assert stage.loop.is_complete()
    assert uids(stage) == before


def test_a_takeover_of_another_state_than_was_seen_is_refused(stage: Stage, caller: Caller) -> None:
    version = take_over(caller, stage, dry_run=True).changed.version
    patch(stage.cluster, PODCLIQUESETS, stage.stored(), {"spec": {"replicas": REPLICAS + 1}})
    with pytest.raises(VersionConflict):
        take_over(caller, stage, expected=f'"{version}"')


def test_objects_of_others_are_left_alone_and_named(stage: Stage, caller: Caller) -> None:
    pod = list_objects(stage.cluster, stage.namespace, PODS)[0]
    theirs = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "theirs", "namespace": stage.namespace, "labels": pod["metadata"]["labels"]},
        "spec": {"containers": [{"name": "a", "image": "a"}], "schedulingGates": [{"name": "a.example/held"}]},
    }
    stage.cluster.create(PODS, theirs)
    told = take_over(caller, stage)
    assert [(one.kind, one.name) for one in told.left] == [("Pod", "theirs")]
    assert told.pods == PODS_OF_ALL


def test_a_check_that_fails_does_not_read_as_if_no_other_operator_ran() -> None:
    sentence = "Grove UI cannot check for another operator: get leases: not found"
    with pytest.raises(ClusterUnavailable, match=sentence), translate_operator_check_errors():
        raise NotFound("get leases: not found")
