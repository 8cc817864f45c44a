"""Pods deleted by people: the outdated ones, each for itself, with budgets honoured; others only by force."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.db.models import QuerySet
from django.test.utils import CaptureQueriesContext

from rollouts import mirror
from rollouts.accounts.errors import (
    ClusterUnavailable,
    InvalidState,
    PermissionDenied,
    ValidationFailed,
    VersionConflict,
)
from rollouts.cluster import ClusterClient, Obj, Resource, Unavailable
from rollouts.cluster.resources import PODS
from rollouts.engine.model import names
from rollouts.models import AuditEntry, NamespaceGrant, Pod, StrategyOverride, User
from rollouts.services import deletion
from rollouts.services import pods as pods_service
from rollouts.services.audit import Caller
from rollouts.services.changes import execute
from rollouts.services.deletion import DeletionResult, PodRef, PodsDeleted
from rollouts.services.pods import Selection, pods_delete
from rollouts.services.workloads import edit_strategy, scale
from tests.builtin_resources import PODDISRUPTIONBUDGETS
from tests.services.stage import Stage

pytestmark = [pytest.mark.django_db(transaction=True)]

EVERYTHING = Selection()


def entries() -> QuerySet[AuditEntry]:
    """Return what is on record of deletions, in order."""
    return AuditEntry.objects.filter(command__in=("delete_outdated_pods", "delete_any_pods")).order_by("id")


def pods_of(stage: Stage, clique: str) -> list[Obj]:
    """Return the pods of a clique that stay."""
    return [pod for pod in stage.loop.pods() if pod["metadata"]["labels"][names.CLIQUE].endswith(clique)]


def images(stage: Stage) -> list[str]:
    """Return the images of the pods of the frontend."""
    return [pod["spec"]["containers"][0]["image"] for pod in pods_of(stage, "frontend")]


def uids(stage: Stage, clique: str = "") -> set[str]:
    """Return the uids of pods that stay."""
    return {pod["metadata"]["uid"] for pod in pods_of(stage, clique)}


def fates(deleted: PodsDeleted) -> dict[str, int]:
    """Return how many pods had each fate."""
    told: dict[str, int] = {}
    for one in deleted.outcomes:
        told[one.outcome] = told.get(one.outcome, 0) + 1
    return told


def test_all_outdated_pods_are_evicted_and_come_back_with_the_current_template(outdated: Stage, caller: Caller) -> None:
    before, others = uids(outdated, "frontend"), uids(outdated, "leader") | uids(outdated, "worker")
    deleted = pods_delete(caller, outdated.place, EVERYTHING)
    assert fates(deleted) == {DeletionResult.EVICTED: 3}
    assert {one.uid for one in deleted.outcomes} == before
    assert not uids(outdated, "frontend") & before
    # The mirror knows at once, so that the next pass does not count on them.
    assert not Pod.objects.filter(uid__in=before, leaving=False).exists()
    outdated.loop.run(lambda: images(outdated) == ["app:v2"] * 3)
    assert uids(outdated, "leader") | uids(outdated, "worker") == others
    assert fates(pods_delete(caller, outdated.place, EVERYTHING)) == {}


def test_an_eviction_is_on_record_with_the_fate_of_each_pod(outdated: Stage, caller: Caller) -> None:
    deleted = pods_delete(caller, outdated.place, EVERYTHING)
    begun, done = entries()
    assert (begun.result, done.result, done.command) == ("Begun", "Done", "delete_outdated_pods")
    assert deleted.record == done.pk
    assert done.after is not None
    told = {(pod["name"], pod["uid"], pod["clique"], pod["outcome"]) for pod in done.after["pods"]}
    assert told == {(one.name, one.uid, "chat-0-frontend", "Evicted") for one in deleted.outcomes}
    assert sorted(pod["index"] for pod in done.after["pods"]) == [0, 1, 2]
    assert done.detail == "3 Evicted"


@pytest.mark.parametrize(
    ("selection", "number"),
    [
        (Selection(replica=0), 3),
        (Selection(replica=1), 0),
        (Selection(component="frontend"), 3),
        (Selection(component="chat-0-frontend"), 3),
        (Selection(component="decode"), 0),
        (Selection(component="leader"), 0),
        (Selection(replica=0, component="frontend"), 3),
        (Selection(replica=1, component="frontend"), 0),
        (Selection(node="nowhere"), 0),
    ],
)
def test_a_selection_means_the_outdated_pods_there(
    outdated: Stage, caller: Caller, selection: Selection, number: int
) -> None:
    before = uids(outdated)
    deleted = pods_delete(caller, outdated.place, selection)
    assert fates(deleted) == ({DeletionResult.EVICTED: number} if number else {})
    assert len(before - uids(outdated)) == number


def test_a_node_is_emptied_of_outdated_pods(outdated: Stage, caller: Caller) -> None:
    node = pods_of(outdated, "frontend")[0]["spec"]["nodeName"]
    there = {pod["metadata"]["uid"] for pod in pods_of(outdated, "frontend") if pod["spec"]["nodeName"] == node}
    deleted = pods_delete(caller, outdated.place, Selection(node=node))
    assert {one.uid for one in deleted.outcomes} == there
    assert fates(deleted) == {DeletionResult.EVICTED: len(there)}


def test_a_component_that_nobody_knows_is_refused(outdated: Stage, caller: Caller) -> None:
    before = uids(outdated)
    with pytest.raises(ValidationFailed) as refusal:
        pods_delete(caller, outdated.place, Selection(component="nobody"))
    assert [one.field for one in refusal.value.findings] == ["selection.clique"]
    assert uids(outdated) == before


def test_each_named_pod_has_a_fate_of_its_own(outdated: Stage, caller: Caller) -> None:
    first, second, third = (pod["metadata"] for pod in pods_of(outdated, "frontend"))
    current = pods_of(outdated, "leader")[0]["metadata"]
    before = uids(outdated)
    chosen = [
        PodRef(first["name"], first["uid"]),
        PodRef(second["name"]),
        PodRef(third["name"], "00000000-0000-0000-0000-000000000000"),
        PodRef(current["name"], current["uid"]),
        PodRef("nobody"),
    ]
    deleted = pods_delete(caller, outdated.place, chosen)
    assert {one.name: one.outcome for one in deleted.outcomes} == {
        first["name"]: DeletionResult.EVICTED,
        second["name"]: DeletionResult.EVICTED,
        third["name"]: DeletionResult.GONE,
        current["name"]: DeletionResult.NOT_OUTDATED,
        "nobody": DeletionResult.NOT_THERE,
    }
    assert before - uids(outdated) == {first["uid"], second["uid"]}


def test_a_pod_that_took_the_name_since_the_mirror_looked_is_safe(outdated: Stage, caller: Caller) -> None:
    pod = pods_of(outdated, "frontend")[0]
    name = pod["metadata"]["name"]
    Pod.objects.filter(name=name).update(uid="00000000-0000-0000-0000-000000000000")
    (one,) = pods_delete(caller, outdated.place, [PodRef(name)]).outcomes
    assert one.outcome is DeletionResult.GONE
    assert pod["metadata"]["uid"] in uids(outdated)


def test_a_pod_that_is_leaving_is_left_alone(outdated: Stage, caller: Caller) -> None:
    name = pods_of(outdated, "frontend")[0]["metadata"]["name"]
    Pod.objects.filter(name=name).update(leaving=True)
    (one,) = pods_delete(caller, outdated.place, [PodRef(name)]).outcomes
    assert one.outcome is DeletionResult.LEAVING


def test_a_disruption_budget_refuses_just_the_pods_it_protects(outdated: Stage, caller: Caller) -> None:
    names_ = [pod["metadata"]["name"] for pod in pods_of(outdated, "frontend")]
    protect(outdated, names_[0])
    deleted = pods_delete(caller, outdated.place, EVERYTHING)
    told = {one.name: one for one in deleted.outcomes}
    assert told[names_[0]].outcome is DeletionResult.REFUSED
    assert "budget" in told[names_[0]].message
    assert {told[name].outcome for name in names_[1:]} == {DeletionResult.EVICTED}
    assert {pod["metadata"]["name"] for pod in pods_of(outdated, "frontend")} >= {names_[0]}


def protect(stage: Stage, name: str) -> None:
    """Have a disruption budget that protects one pod."""
    stage.cluster.patch_merge(PODS, name, {"metadata": {"labels": {"protected": "yes"}}}, namespace=stage.namespace)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "budget", "namespace": stage.namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"protected": "yes"}}},
    }
    created = stage.cluster.create(PODDISRUPTIONBUDGETS, budget)
    status = {"observedGeneration": created["metadata"]["generation"], "currentHealthy": 1, "desiredHealthy": 1}
    numbers = {**status, "expectedPods": 1, "disruptionsAllowed": 0}
    stage.cluster.patch_merge(
        PODDISRUPTIONBUDGETS, "budget", {"status": numbers}, namespace=stage.namespace, subresource="status"
    )


@contextlib.contextmanager
def held(stage: Stage, pods: list[str]) -> Iterator[None]:
    """Have pods that are deleted stay on their way out until the block ends."""
    _put_finalizers(stage, pods, ["tests.example/held"])
    try:
        yield
    finally:
        _put_finalizers(stage, pods, None)


def _put_finalizers(stage: Stage, pods: list[str], finalizers: list[str] | None) -> None:
    for name in pods:
        stage.cluster.patch_merge(PODS, name, {"metadata": {"finalizers": finalizers}}, namespace=stage.namespace)


# ---- force


def test_force_deletes_pods_of_the_current_template_past_budgets(outdated: Stage, caller: Caller) -> None:
    leader = pods_of(outdated, "leader")[0]["metadata"]
    protect(outdated, leader["name"])
    (one,) = pods_delete(caller, outdated.place, [PodRef(leader["name"], leader["uid"])], force=True).outcomes
    assert one.outcome is DeletionResult.DELETED
    assert leader["uid"] not in uids(outdated)
    assert entries()[1].command == "delete_any_pods"


def test_the_answer_to_a_forced_deletion_says_that_the_pods_are_terminating(
    outdated: Stage, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    get, fetched = ClusterClient.get, []

    def record(self: ClusterClient, resource: Resource, name: str, **more: Any) -> Obj:
        fetched.append(resource)
        return get(self, resource, name, **more)

    monkeypatch.setattr(ClusterClient, "get", record)
    before = uids(outdated)
    pods_delete(caller, outdated.place, EVERYTHING, force=True)
    assert PODS not in fetched
    assert not Pod.objects.filter(uid__in=before, leaving=False).exists()


def test_force_needs_a_permission_of_its_own(outdated: Stage, caller: Caller) -> None:
    user = User.objects.create(username="olga")
    user.user_permissions.add(Permission.objects.get(codename="delete_outdated_pods"))
    NamespaceGrant.objects.create(user=user)
    olga = Caller(user, "olga", None, "r", "api")
    before = uids(outdated)
    with pytest.raises(PermissionDenied, match="delete_any_pods"):
        pods_delete(olga, outdated.place, EVERYTHING, force=True)
    assert uids(outdated) == before
    assert fates(pods_delete(olga, outdated.place, EVERYTHING)) == {DeletionResult.EVICTED: 3}


def test_force_still_minds_the_uid(outdated: Stage, caller: Caller) -> None:
    leader = pods_of(outdated, "leader")[0]["metadata"]
    other = PodRef(leader["name"], "00000000-0000-0000-0000-000000000000")
    (one,) = pods_delete(caller, outdated.place, [other], force=True).outcomes
    assert one.outcome is DeletionResult.GONE
    assert leader["uid"] in uids(outdated)


# ---- what is refused as a whole


def test_a_strategy_that_replaces_pods_itself_is_left_to_it(outdated: Stage, caller: Caller) -> None:
    execute(caller, outdated.place, edit_strategy({"type": "RollingRecreate"}))
    before = uids(outdated)
    with pytest.raises(InvalidState, match="RollingRecreate"):
        pods_delete(caller, outdated.place, EVERYTHING)
    assert uids(outdated) == before


def test_an_override_to_on_delete_counts(outdated: Stage, caller: Caller) -> None:
    execute(caller, outdated.place, edit_strategy({"type": "RollingRecreate"}))
    StrategyOverride.objects.create(name="chat", strategy="OnDelete", reason="an incident")
    assert fates(pods_delete(caller, outdated.place, EVERYTHING)) == {DeletionResult.EVICTED: 3}


def test_a_state_that_is_no_more_loses_the_race(outdated: Stage, caller: Caller) -> None:
    seen, before = outdated.version(), uids(outdated)
    execute(caller, outdated.place, scale(2))
    with pytest.raises(VersionConflict):
        pods_delete(caller, outdated.place, EVERYTHING, expected=seen)
    assert uids(outdated) == before


def test_nothing_is_concluded_from_a_mirror_that_is_not_complete(outdated: Stage, caller: Caller) -> None:
    outdated.loop.row.complete = False
    outdated.loop.row.save()
    with pytest.raises(ClusterUnavailable):
        pods_delete(caller, outdated.place, EVERYTHING)


def test_a_dry_run_evicts_nobody(outdated: Stage, caller: Caller) -> None:
    before = uids(outdated)
    protect(outdated, pods_of(outdated, "frontend")[0]["metadata"]["name"])
    deleted = pods_delete(caller, outdated.place, EVERYTHING, dry_run=True)
    assert fates(deleted) == {DeletionResult.EVICTED: 2, DeletionResult.REFUSED: 1}
    assert uids(outdated) == before
    assert not entries().exists()


# ---- a cluster that stops answering, and too many pods


def test_a_cluster_that_stops_answering_is_not_asked_further(
    outdated: Stage, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_args: Any, **_kwargs: Any) -> None:
        raise Unavailable("no answer")

    monkeypatch.setattr("rollouts.cluster.ClusterClient.evict", away)
    monkeypatch.setattr(deletion, "_THREADS", 1)
    deleted = pods_delete(caller, outdated.place, EVERYTHING)
    assert [one.outcome for one in deleted.outcomes] == [
        DeletionResult.UNKNOWN,
        DeletionResult.NOT_SENT,
        DeletionResult.NOT_SENT,
    ]
    assert "not known" in deleted.outcomes[0].message


def test_a_command_deletes_a_bounded_number_and_counts_the_rest(
    outdated: Stage, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pods_service, "MAX_PODS", 2)
    deleted = pods_delete(caller, outdated.place, EVERYTHING)
    assert (len(deleted.outcomes), deleted.left) == (2, 1)
    again = pods_delete(caller, outdated.place, EVERYTHING)
    assert (len(again.outcomes), again.left) == (1, 0)


def test_the_mirror_may_be_behind_in_everything_but_uids(outdated: Stage, caller: Caller) -> None:
    before = uids(outdated, "frontend")
    for pod in pods_of(outdated, "frontend"):
        metadata = pod["metadata"]
        outdated.cluster.delete(PODS, metadata["name"], namespace=outdated.namespace, uid=metadata["uid"])
    deleted = pods_delete(caller, outdated.place, EVERYTHING)
    # Some may still be on their way out, and an eviction of those changes nothing.
    assert set(fates(deleted)) <= {DeletionResult.GONE, DeletionResult.EVICTED}
    assert not uids(outdated, "frontend") & before
    assert mirror.fetch_workload(outdated.loop.row, outdated.namespace, "chat") is not None


def test_a_deletion_asks_the_database_as_often_for_one_pod_as_for_many(outdated: Stage, caller: Caller) -> None:
    names_ = [pod["metadata"]["name"] for pod in pods_of(outdated, "frontend")]
    # The mirror takes in those that leave by one statement and those that are gone by another: here all of them leave.
    with held(outdated, names_):
        with CaptureQueriesContext(connection) as one:
            pods_delete(caller, outdated.place, [PodRef(names_[0])])
        with CaptureQueriesContext(connection) as many:
            pods_delete(caller, outdated.place, EVERYTHING)
    assert len(many) == len(one) <= 20, [query["sql"][:80] for query in many.captured_queries]
