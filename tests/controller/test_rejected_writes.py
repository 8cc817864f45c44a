"""Writes that the cluster rejects again and again: their number stops growing, a condition shows them, and they end."""

import math
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from rollouts.cluster import AlreadyExists, ClusterClient, ClusterError, Forbidden, Obj
from rollouts.cluster.resources import PODCLIQUESETS, PODGANGS, PODS, SERVICES
from rollouts.controller.executor import ExecutionResult, WriteRecord, WriteResult
from rollouts.controller.rejected_writes import (
    MAX_BACKOFF_SECONDS,
    MAX_REJECTIONS,
    MAX_SAME_REJECTIONS,
    RejectedWrites,
    parse_rejected_writes,
    render_rejected_writes,
)
from rollouts.engine.model import names
from rollouts.engine.model.actions import Create, Kind
from rollouts.models import StrategyOverride, Workload
from rollouts.queue.results import RequeueAfter
from tests.controller.interruptions import Interrupted, Way
from tests.controller.loop import Loop
from tests.controller.small_set import ONE_REPLICA, PODS_OF_ONE, make, told
from tests.engine.manifests import small

NOW = 1_000_000.0
FORBIDDEN = Forbidden("create pods: exceeded quota", code=403, reason="Forbidden")
EXISTS = AlreadyExists("create podgangs: exists", code=409, reason="AlreadyExists")


# ---- the record


def create(name: str) -> Create:
    """Return the create of a pod."""
    return Create(Kind.POD, {"metadata": {"name": name, "ownerReferences": []}})


def pass_of(
    *refused: str, accepted: tuple[str, ...] = (), unsent: tuple[str, ...] = (), error: ClusterError = FORBIDDEN
) -> ExecutionResult:
    """Return the results of the writes of a pass."""
    return ExecutionResult(
        [
            *(WriteRecord(create(name), WriteResult.REJECTED, error=error) for name in refused),
            *(WriteRecord(create(name), WriteResult.APPLIED) for name in accepted),
            *(WriteRecord(create(name), WriteResult.SKIPPED) for name in unsent),
        ]
    )


def count_often(*refused: str, times: int = MAX_SAME_REJECTIONS) -> RejectedWrites:
    """Return the record after the same rejections in several passes."""
    record = RejectedWrites("uid.1")
    for _ in range(times):
        record = record.after_pass(pass_of(*refused), NOW, is_whole=True)
    return record


def test_a_write_is_backed_off_when_it_was_rejected_three_times_in_a_row() -> None:
    assert count_often("a", times=MAX_SAME_REJECTIONS - 1).compute_backed_off(NOW) == frozenset()
    assert count_often("a").compute_backed_off(NOW) == {"create Pod a"}


def test_another_reason_begins_the_count_anew() -> None:
    record = count_often("a", times=MAX_SAME_REJECTIONS - 1).after_pass(pass_of("a", error=EXISTS), NOW, is_whole=True)
    assert record.compute_backed_off(NOW) == frozenset()


def refuse_by_turns(record: RejectedWrites, times: int) -> tuple[RejectedWrites, list[bool]]:
    """Reject a write for two alternating reasons; return also after which rejections it was backed off."""
    held = []
    for number in range(times):
        record = record.after_pass(pass_of("a", error=(FORBIDDEN, EXISTS)[number % 2]), NOW, is_whole=True)
        held.append(record.compute_backed_off(NOW) == {"create Pod a"})
    return record, held


def test_a_write_that_is_rejected_for_changing_reasons_is_backed_off_too() -> None:
    record, held = refuse_by_turns(RejectedWrites("uid.1"), 20)
    assert held == [False] * (MAX_REJECTIONS - 1) + [True] * (20 - MAX_REJECTIONS + 1)
    assert (record.has_backed_off, record.backoff_until) == (True, NOW + 60.0)
    assert record.problem is not None
    assert parse_rejected_writes(render_rejected_writes(record), "uid.1") == record


def test_a_write_that_is_accepted_ends_the_row_of_rejections_for_whatever_reason() -> None:
    record, _ = refuse_by_turns(RejectedWrites("uid.1"), MAX_REJECTIONS - 1)
    record = record.after_pass(pass_of(accepted=("a",)), NOW, is_whole=True)
    assert refuse_by_turns(record, MAX_REJECTIONS - 1)[1] == [False] * (MAX_REJECTIONS - 1)


def test_a_record_of_an_earlier_version_backs_off_the_same_writes() -> None:
    stored = render_rejected_writes(count_often("a"))
    stored["writes"] = {key: one[:2] for key, one in stored["writes"].items()}
    assert parse_rejected_writes(stored, "uid.1").compute_backed_off(NOW) == {"create Pod a"}


def test_after_a_pause_one_write_of_its_group_is_tried_and_each_has_its_turn() -> None:
    record = count_often("a", "b", "c")
    tried = []
    for _ in range(6):
        held = record.compute_backed_off(record.backoff_until)
        (probe,) = record.writes.keys() - held
        tried.append(probe.rpartition(" ")[2])
        unsent = tuple(key.rpartition(" ")[2] for key in held)
        record = record.after_pass(pass_of(tried[-1], unsent=unsent), record.backoff_until, is_whole=True)
    assert tried == ["a", "b", "c", "a", "b", "c"]


def test_pauses_double_up_to_a_minute() -> None:
    record, pauses = count_often("a"), []
    for _ in range(9):
        pauses.append(record.backoff_until - NOW)
        record = record.after_pass(pass_of("a"), NOW, is_whole=True)
    assert pauses == [1, 2, 4, 8, 16, 32, MAX_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS]


def test_a_write_that_is_accepted_releases_its_group() -> None:
    record = count_often("a", "b").after_pass(pass_of(accepted=("a",), unsent=("b",)), NOW, is_whole=True)
    assert (record.writes, record.problem, record.backoff_until) == ({}, None, 0.0)


def test_what_the_plan_wants_no_more_is_forgotten_but_not_by_a_pass_that_was_cut_short() -> None:
    record = count_often("a")
    assert record.after_pass(ExecutionResult(), NOW, is_whole=False).writes == record.writes
    assert record.after_pass(ExecutionResult(), NOW, is_whole=True).writes == {}


def test_what_was_not_sent_because_others_like_it_were_rejected_is_backed_off_with_them() -> None:
    record = RejectedWrites("uid.1")
    for _ in range(MAX_SAME_REJECTIONS):
        record = record.after_pass(pass_of("a", unsent=("b", "c")), NOW, is_whole=True)
    assert record.compute_backed_off(NOW) == {"create Pod a", "create Pod b", "create Pod c"}
    assert "create Pod d" not in record.compute_backed_off(NOW)
    assert record.problem is not None
    assert record.problem[1].endswith("The same applies to 2 more.")


def test_a_record_is_read_back_and_counts_for_the_spec_it_was_made_for() -> None:
    record = count_often("a")
    assert parse_rejected_writes(render_rejected_writes(record), "uid.1") == record
    assert parse_rejected_writes(render_rejected_writes(record), "uid.2") == RejectedWrites("uid.2")
    assert render_rejected_writes(RejectedWrites("uid.1")) == {}


# ---- on a cluster

database = pytest.mark.django_db(transaction=True)


def made_by_grove(cluster: ClusterClient, namespace: str, replicas: int) -> Loop:
    """Create a set whose PodGangs exist already as Grove creates them: without the index of their replica."""
    stored = cluster.create(
        PODCLIQUESETS, small({"metadata.namespace": namespace, **ONE_REPLICA, "spec.replicas": replicas})
    )
    owner = {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodCliqueSet",
        "name": "chat",
        "uid": stored["metadata"]["uid"],
    }
    for index in range(replicas):
        cluster.create(
            PODGANGS,
            {
                "apiVersion": "scheduler.grove.io/v1alpha1",
                "kind": "PodGang",
                "metadata": {
                    "name": f"chat-{index}",
                    "namespace": namespace,
                    "labels": {names.PART_OF: "chat", names.MANAGED_BY: names.OPERATOR},
                    "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
                },
                "spec": {"podgroups": []},
            },
        )
    return Loop(cluster, namespace, "chat")


def count_creates(loop: Loop, resource: str) -> tuple[Interrupted, Callable[[], int]]:
    """Count the creates of a loop from now on."""
    watched = Interrupted(loop.cluster, Way.CUT_BEFORE, lambda _number, _call: False)
    loop.cluster = watched.as_cluster()
    return watched, lambda: sum(call.startswith(f"create {resource} ") for call in watched.writes)


@pytest.mark.database
@database
@pytest.mark.usefixtures("redis")
def test_creates_of_gangs_that_exist_already_stop_growing_and_are_shown(cluster: ClusterClient, namespace: str) -> None:
    loop = made_by_grove(cluster, namespace, 2)
    watched, creates = count_creates(loop, "podgangs")
    loop.run(lambda: len(loop.pods()) == 2 * PODS_OF_ONE and bool(loop.condition("WriteDenied")))
    denied, before = loop.condition("WriteDenied"), creates()
    assert denied["reason"] == "AlreadyExists"
    assert "PodGang chat-0 exists already" in denied["message"]
    assert "grove.io/podcliqueset-replica-index=0" in denied["message"]
    # An hour of passes, one every few seconds, as if the workload was enqueued again and again.
    clock = Workload.objects.get(namespace=namespace).refused["until"]
    for second in range(0, 3600, 20):
        outcome = loop.take_pass(clock + second)
    assert creates() - before <= 60 + 12
    assert isinstance(outcome, RequeueAfter)
    assert outcome.reason == "WriteDenied"
    assert told(loop).count("WriteDenied") == 1
    # Nothing else is written either.
    watched.writes.clear()
    loop.take_pass(clock + second)
    assert watched.writes == []


@pytest.mark.database
@database
@pytest.mark.usefixtures("redis")
def test_what_is_no_longer_rejected_is_written_and_no_longer_shown(cluster: ClusterClient, namespace: str) -> None:
    loop = made_by_grove(cluster, namespace, 1)
    loop.run(lambda: bool(loop.condition("WriteDenied")))
    label = {"metadata": {"labels": {names.REPLICA_INDEX: "0"}}}
    cluster.patch_merge(PODGANGS, "chat-0", label, namespace=namespace)
    loop.run(lambda: loop.is_complete() and not loop.condition("WriteDenied"))
    # The sandbox's scheduler writes the status of the gang too: a conflict with it counts until the next pass.
    loop.run(lambda: Workload.objects.get(namespace=namespace).refused == {})


@pytest.mark.database
@database
@pytest.mark.usefixtures("redis")
def test_a_pod_that_is_lost_is_replaced_although_others_are_rejected(cluster: ClusterClient, namespace: str) -> None:
    theirs: Obj = {"metadata": {"name": "chat-0", "namespace": namespace}, "spec": {"clusterIP": "None"}}
    cluster.create(SERVICES, theirs)
    loop = make(cluster, namespace)
    loop.run(lambda: len(loop.pods()) == PODS_OF_ONE and isinstance(loop.outcomes[-1], RequeueAfter))
    lost = loop.pods()[0]["metadata"]
    cluster.delete(PODS, lost["name"], namespace=namespace, grace_seconds=0)
    loop.run(
        lambda: lost["uid"] not in {pod["metadata"]["uid"] for pod in loop.pods()} and len(loop.pods()) == PODS_OF_ONE
    )
    assert loop.condition("WriteDenied")["reason"] == "AlreadyExists"


@pytest.mark.database
@database
@pytest.mark.usefixtures("redis")
@pytest.mark.parametrize("target", ["sandbox"], indirect=True)
def test_what_is_due_sooner_than_the_end_of_a_pause_is_not_late(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(SERVICES, {"metadata": {"name": "chat-0", "namespace": namespace}, "spec": {"clusterIP": "None"}})
    loop = make(cluster, namespace)
    loop.run(lambda: len(loop.pods()) == PODS_OF_ONE and isinstance(loop.outcomes[-1], RequeueAfter))
    # Whole seconds: the expiry of an override is stored in microseconds, which other moments are rounded to.
    clock = math.ceil(Workload.objects.get(namespace=namespace).refused["until"])
    for pause in (1, 2, 4, 8, 16, 32, 60):
        loop.take_pass(clock)
        clock += pause
    expiry = datetime.fromtimestamp(clock + 5, UTC)
    StrategyOverride.objects.create(namespace=namespace, strategy="OnDelete", reason="freeze", expires_at=expiry)
    loop.take_pass(clock)
    outcome = loop.take_pass(clock)
    assert isinstance(outcome, RequeueAfter)
    assert outcome.after_seconds <= 5
