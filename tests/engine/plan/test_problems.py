"""What is a problem at once, what becomes one by the measured times, and that no status goes to and fro with it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from rollouts.engine.model.actions import Kind, Plan, Wait, WriteStatus
from rollouts.engine.model.container_faults import STABLE_AFTER
from rollouts.engine.model.observed import Observed, Pod, ReadyTime
from rollouts.engine.model.workload import Strategy
from rollouts.engine.plan.deadlines import LATE_AFTER, LATE_FACTOR, SCHEDULED_WITHIN
from rollouts.engine.plan.planner import plan
from rollouts.engine.rollout.ready_times import READY_WITHIN
from rollouts.engine.simulation.scheduler import SimulatedNode
from tests.engine.simulated import QUICK, Cluster, clique, conditions, group, settled, workload

SLOW = 100.0  # seconds to Ready


def planned(cluster: Cluster, seen: Observed | None = None, after: float = 0.0) -> Plan:
    return plan(cluster.workload, seen or cluster.world.observed(), cluster.world.now + after)


def status_in(made: Plan, seen: Observed) -> Mapping[str, Any]:
    written = [one.status for one in made.actions if isinstance(one, WriteStatus) and one.kind is Kind.SET]
    return written[-1] if written else seen.status


def problems(made: Plan) -> list[Wait]:
    return [wait for wait in made.waits if wait.is_problem]


def with_fault(cluster: Cluster, fault: str, detail: str = "", *, ready: bool = False) -> Observed:
    """Return what is there, with every pod that is not Ready (or every pod) failing."""
    seen = cluster.world.observed()
    change: dict[str, Any] = {"ready": False, "failing": True, "fault": fault, "fault_detail": detail}
    return replace(seen, pods=tuple(replace(pod, **change) if ready or not pod.ready else pod for pod in seen.pods))


def updating(**more: Any) -> Cluster:
    """Return a cluster in the middle of an update, a replacement on its node and not Ready."""
    cluster = settled(workload(clique("a", 3, 1), **more)).update()
    cluster.world.set_behaviour(replace(QUICK, never_ready=frozenset(cluster.view.hashes.values())))
    return cluster.run_for(6.0)


# ---- at once


FAULTS = {
    "ImagePullBackOff": ("app:nope", "cannot pull its image: app:nope."),
    "CreateContainerConfigError": ('configmap "c" not found', 'cannot create its container: configmap "c" not found.'),
    "OOMKilled": ("", "runs out of memory and is killed."),
    "CrashLoopBackOff": ("exit code 1", "crash-loops: exit code 1."),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_container_that_fails_is_a_problem_at_once_during_an_update(fault: str) -> None:
    cluster = updating()
    assert problems(planned(cluster)) == []
    detail, sentence = FAULTS[fault]
    seen = with_fault(cluster, fault, detail)
    made = planned(cluster, seen)
    (wait,) = problems(made)
    assert (wait.code, wait.component) == (fault, "w-0-a")
    assert wait.text == f"{wait.units[0]} of w-0-a {sentence}"
    assert wait.remedies == ("LookAtPods", "RollBack")
    assert conditions(status_in(made, seen))["UpdateStuck"] == ("True", fault)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_container_that_fails_is_a_problem_at_once_without_any_update(fault: str) -> None:
    cluster = settled(workload(clique("a", 3)))
    seen = with_fault(cluster, fault, ready=True)
    made = planned(cluster, seen)
    (wait,) = problems(made)
    assert (wait.code, wait.remedies) == (fault, ("LookAtPods",))
    told = conditions(status_in(made, seen))
    assert (told["Progressing"], told["UpdateStuck"][0]) == (("False", fault), "False")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_container_that_fails_is_a_problem_at_once_while_others_wait_to_be_deleted(fault: str) -> None:
    cluster = settled(workload(clique("a", 3, 1), strategy=Strategy.ON_DELETE)).update().settle()
    assert conditions(cluster.status)["Progressing"] == ("False", "AwaitingDeletion")
    cluster.world.delete(Kind.POD, cluster.live_pods()[0].name)
    cluster.run_for(6.0)
    seen = with_fault(cluster, fault)
    told = conditions(status_in(planned(cluster, seen), seen))
    assert (told["Progressing"], told["UpdateStuck"][0]) == (("False", fault), "False")


def test_surge_whose_container_fails_can_be_done_without() -> None:
    cluster = settled(workload(clique("a", 3, budget=(0, 1)), strategy=Strategy.ROLLING_UPDATE)).update().run_for(6.0)
    (wait,) = problems(planned(cluster, with_fault(cluster, "CrashLoopBackOff", "exit code 1")))
    assert wait.text == f"Surge {wait.units[0]} of w-0-a crash-loops: exit code 1."
    assert wait.remedies == ("LookAtPods", "RollBack", "SetMaxSurgeToZero", "DeleteSurge")


def test_a_fault_that_nobody_knows_is_waited_for_like_any_other_pod() -> None:
    cluster = updating()
    waits = planned(cluster, with_fault(cluster, "SomethingElse")).waits
    assert {wait.code for wait in waits} == {"WaitingForReady", "BudgetExhausted"}
    assert not any(wait.is_problem for wait in waits)


def test_several_pods_that_fail_alike_are_one_wait_and_others_are_told_after_it() -> None:
    cluster = Cluster(workload(clique("a", 3)), replace(QUICK, ready_seconds=SLOW)).run_for(20.0)
    seen = cluster.world.observed()
    first, *others = seen.pods
    failing = [replace(pod, fault="CrashLoopBackOff", fault_detail="exit code 2") for pod in others]
    waits = planned(cluster, replace(seen, pods=(first, *failing))).waits
    assert [(wait.code, len(wait.units)) for wait in waits] == [("CrashLoopBackOff", 2), ("WaitingForReady", 1)]
    assert waits[0].text.endswith(" of w-0-a crash-loop: exit code 2.")


def test_what_a_status_says_of_a_crash_loop_stays_the_same_while_the_container_is_started_again() -> None:
    cluster = updating()
    told = set()
    for restarts, message, seconds in ((0, "back-off 10s", 0.0), (1, "", 11.0), (2, "back-off 20s", 12.0)):
        seen = with_fault(cluster, "CrashLoopBackOff", "exit code 1")
        pods = tuple(pod if pod.ready else replace(pod, restarts=restarts, message=message) for pod in seen.pods)
        seen = replace(seen, pods=pods)
        (stuck,) = [
            (one["status"], one["reason"], one["message"])
            for one in status_in(planned(cluster, seen, after=seconds), seen)["conditions"]
            if one["type"] == "UpdateStuck"
        ]
        told.add(stuck)
    assert len(told) == 1


# ---- a container without a readiness probe is Ready as long as it runs


def restarted(cluster: Cluster, count: int = 2, *, ready: bool = True) -> Observed:
    """Return what is there, with the first pod started again so often, and Ready since just now."""
    first, *others = cluster.world.observed().pods
    first = replace(first, restarts=count, ready_since=cluster.world.now, ready=ready)
    return replace(cluster.world.observed(), pods=(first, *others))


@pytest.mark.parametrize(
    ("restarts", "seconds", "expected"),
    [
        (1, 5.0, []),
        (2, 5.0, ["CrashLoopBackOff"]),
        (2, STABLE_AFTER - 1.0, ["CrashLoopBackOff"]),
        (2, STABLE_AFTER, []),
    ],
)
def test_a_pod_that_was_restarted_twice_and_is_ready_for_a_moment_is_a_problem(
    restarts: int, seconds: float, expected: list[str]
) -> None:
    parts = (clique("a", 3), clique("l", 1), clique("k", 2), group("g", ("l", "k"), 2))
    for one in (workload(clique("a", 3), replicas=2), workload(*parts), workload(*parts, strategy=Strategy.ON_DELETE)):
        cluster = settled(one)
        seen = restarted(cluster, restarts)
        made = planned(cluster, seen, after=seconds)
        assert [wait.code for wait in problems(made)] == expected
        status = status_in(made, seen)
        assert conditions(status)["Progressing"] == ("False", *(expected or ["Complete"]))
        # It serves as long as it is Ready.
        assert status["availableReplicas"] == one.replicas
        assert [action for action in made.actions if not isinstance(action, WriteStatus)] == []


def test_a_pod_in_a_replica_of_a_scaling_group_that_is_ready_for_a_moment_is_a_problem() -> None:
    cluster = settled(workload(clique("l", 1), clique("k", 2), group("g", ("l", "k"), 3)))
    (wait,) = problems(planned(cluster, restarted(cluster), after=5.0))
    assert (wait.code, len(wait.units)) == ("CrashLoopBackOff", 1)
    assert wait.text == f"{wait.units[0]} of {wait.component} crash-loops."


def test_an_update_whose_pod_is_ready_between_two_crashes_is_stuck() -> None:
    cluster = updating()
    seen = cluster.world.observed()
    current = cluster.view.hashes["a"]
    pods = [
        replace(pod, ready=True, restarts=2, ready_since=cluster.world.now) if pod.template_hash == current else pod
        for pod in seen.pods
    ]
    seen = replace(seen, pods=tuple(pods))
    assert conditions(status_in(planned(cluster, seen), seen))["UpdateStuck"] == ("True", "CrashLoopBackOff")


def test_a_crash_loop_is_one_problem_whether_its_container_runs_or_waits_and_ends_after_a_minute() -> None:
    cluster = settled(workload(clique("a", 3)))
    told = []
    for seconds, ready in ((0.0, True), (4.0, False), (44.0, True), (48.0, False), (128.0, True)):
        seen = restarted(cluster, ready=ready)
        fault: dict[str, Any] = (
            {} if ready else {"failing": True, "fault": "CrashLoopBackOff", "fault_detail": "exit code 1"}
        )
        since = cluster.world.now + seconds
        seen = replace(seen, pods=(replace(seen.pods[0], ready_since=since, **fault), *seen.pods[1:]))
        made = planned(cluster, seen, after=seconds)
        told.append(conditions(status_in(made, seen))["Progressing"])
    assert set(told) == {("False", "CrashLoopBackOff")}
    assert made.requeue_at == cluster.world.now + 128.0 + STABLE_AFTER
    assert problems(planned(cluster, seen, after=128.0 + STABLE_AFTER)) == []


# ---- too few replicas


def with_pods_of(cluster: Cluster, replicas: set[int], **change: Any) -> Observed:
    seen = cluster.world.observed()
    names = {f"w-{index}-a" for index in replicas}
    return replace(seen, pods=tuple(replace(pod, **change) if pod.clique in names else pod for pod in seen.pods))


def lost(cluster: Cluster, *replicas: int) -> Observed:
    """Return what is there when all pods of some replicas have just stopped being Ready."""
    return with_pods_of(cluster, {*replicas}, ready=False, failing=True, ready_since=cluster.world.now)


RECREATED: dict[str, Any] = {"strategy": Strategy.REPLICA_RECREATE}


@pytest.mark.parametrize(
    ("more", "down", "expected"),
    [
        ({}, (1,), []),
        ({}, (1, 2), ["TooFewAvailable"]),
        (RECREATED | {"budget": (2, 0)}, (1, 2), []),
        (RECREATED | {"budget": (2, 0)}, (0, 1, 2), ["TooFewAvailable"]),
        (RECREATED | {"budget": (0, 1)}, (1,), ["TooFewAvailable"]),
        ({"strategy": Strategy.ON_DELETE}, (1, 2), []),
    ],
)
def test_fewer_available_replicas_than_the_budget_allows_are_a_problem_at_once(
    more: dict[str, Any], down: tuple[int, ...], expected: list[str]
) -> None:
    cluster = settled(workload(clique("a", 1), replicas=3, **more))
    seen = lost(cluster, *down)
    made = planned(cluster, seen)
    assert [wait.code for wait in problems(made)] == expected
    reason = conditions(status_in(made, seen))["Progressing"]
    assert reason == (("False", *expected) if expected else ("True", "Deploying"))


@pytest.mark.parametrize(
    ("budgets", "expected"),
    [
        (((0, 1), (0, 1)), ["TooFewAvailable"]),
        (((0, 1), ("0%", 1)), ["TooFewAvailable"]),
        (((0, 1), (1, 0)), []),
        (((0, 1), None), []),
    ],
)
def test_no_replica_may_be_down_where_no_component_may(budgets: Any, expected: list[str]) -> None:
    parts = (clique("a", 1, budget=budgets[0]), clique("l", 1), group("g", ("l",), 2, budget=budgets[1]))
    cluster = settled(workload(*parts, strategy=Strategy.ROLLING_UPDATE))
    waits = problems(planned(cluster, lost(cluster, 0)))
    assert [wait.code for wait in waits] == expected
    if waits:
        assert waits[0].text == (
            "w-0 is not available. An update may make at most 0 of 1 replicas unavailable at a time."
        )
    # Their update takes none down either.
    cluster.update()
    for _ in cluster.passes():
        assert problems(planned(cluster)) == []
    assert "updateEndedAt" in cluster.progress


def test_too_few_replicas_are_named_with_the_budget() -> None:
    cluster = settled(workload(clique("a", 1), replicas=3))
    (wait,) = problems(planned(cluster, lost(cluster, 1, 2)))
    assert (wait.component, wait.units) == ("w", ("w-1", "w-2"))
    assert wait.text == (
        "w-1 and w-2 are not available. An update may make at most 1 of 3 replicas unavailable at a time."
    )


def test_replicas_that_were_never_up_are_not_missed() -> None:
    cluster = Cluster(workload(clique("a", 1), clique("l", 1), group("g", ("l",), 2), replicas=3))
    for _ in cluster.passes():
        assert problems(planned(cluster)) == []
    cluster = settled(workload(clique("a", 1), replicas=2))
    cluster.edit(replicas=6).run_for(5.0)
    assert problems(planned(cluster)) == []
    assert planned(cluster).waits


def test_no_update_by_itself_has_too_few_replicas() -> None:
    parts = (clique("a", 2), clique("l", 1), clique("k", 2), group("g", ("l", "k"), 2))
    for strategy in (Strategy.ROLLING_RECREATE, Strategy.ROLLING_UPDATE, Strategy.REPLICA_RECREATE):
        cluster = settled(workload(*parts, replicas=3, strategy=strategy)).update()
        for _ in cluster.passes():
            assert problems(planned(cluster)) == [], strategy
        assert "updateEndedAt" in cluster.progress


def test_the_cause_is_told_and_not_what_follows_from_it() -> None:
    cluster = settled(workload(clique("a", 1), replicas=3))
    seen = with_pods_of(cluster, {1, 2}, ready=False, failing=True, fault="OOMKilled")
    made = planned(cluster, seen)
    assert {wait.code for wait in problems(made)} == {"OOMKilled"}
    assert conditions(status_in(made, seen))["Progressing"] == ("False", "OOMKilled")


def test_a_status_says_what_is_the_matter_and_not_who_waits_for_it() -> None:
    cluster = settled(workload(clique("a", 1), replicas=3)).update().run_for(1.0)
    seen = with_pods_of(cluster, {2}, ready=False, failing=True, fault="CrashLoopBackOff")
    seen = replace(seen, pods=tuple(pod for pod in seen.pods if pod.clique != "w-0-a"))
    waits = planned(cluster, seen).waits
    assert waits[0].code in ("WaitingForReplica", "WaitingForReady", "CrashLoopBackOff")
    assert conditions(status_in(planned(cluster, seen), seen))["UpdateStuck"] == ("True", "CrashLoopBackOff")


# ---- by the measured times


def unready(pod: Pod, **more: Any) -> Pod:
    return replace(pod, ready=False, **more)


def test_a_pod_that_takes_much_longer_than_usual_is_a_problem() -> None:
    cluster = updating()
    (wait,) = [wait for wait in planned(cluster).waits if wait.code == "WaitingForReady"]
    (late,) = [pod for pod in cluster.world.pods.values() if pod.name in wait.units]
    due = late.started_at + LATE_AFTER
    assert (planned(cluster).requeue_at, wait.usual_seconds) == (due, 10.0)
    assert problems(planned(cluster, after=due - cluster.world.now - 1.0)) == []
    (wait,) = problems(planned(cluster, after=due - cluster.world.now + 28.0))
    assert (wait.code, wait.waited_seconds, wait.usual_seconds) == ("WaitingForReady", 58.0, 10.0)


def test_pods_that_are_usually_slow_are_given_three_times_as_long() -> None:
    cluster = Cluster(workload(clique("a", 3, 1)), replace(QUICK, ready_seconds=SLOW)).settle().update()
    cluster.world.set_behaviour(replace(QUICK, never_ready=frozenset(cluster.view.hashes.values())))
    cluster.run_for(LATE_AFTER + 6.0)
    made = planned(cluster)
    assert problems(made) == []
    (late,) = [pod for pod in cluster.world.pods.values() if not pod.ready]
    assert made.requeue_at == late.started_at + LATE_FACTOR * SLOW


def test_without_a_measurement_a_pod_is_given_ten_minutes_from_its_node() -> None:
    full = replace(QUICK, nodes=(SimulatedNode("full", pods=0),), ready_seconds=SLOW)
    cluster = Cluster(workload(clique("a", 1)), full).run_for(1000.0)
    assert [wait.code for wait in problems(planned(cluster))] == ["ReplicaUnschedulable"]
    cluster.world.set_behaviour(replace(QUICK, ready_seconds=10_000.0))
    cluster.run_for(10.0)
    (pod,) = cluster.world.pods.values()
    assert pod.started_at > pod.created + SCHEDULED_WITHIN
    made = planned(cluster)
    assert (problems(made), made.requeue_at) == ([], pod.started_at + READY_WITHIN)


def test_a_pod_is_late_by_what_was_noted_where_no_pod_is_left_to_measure() -> None:
    cluster = settled(workload(clique("a", 2), strategy=Strategy.REPLICA_RECREATE)).update()
    cluster.world.set_behaviour(replace(QUICK, never_ready=frozenset(cluster.view.hashes.values())))
    cluster.run_for(LATE_AFTER + 15.0)
    seen = cluster.world.observed()
    assert problems(planned(cluster, seen)) == []
    (late,) = problems(planned(cluster, replace(seen, ready_times=(ReadyTime("a", "former", 2.0, 2),))))
    assert (late.code, len(late.units), late.usual_seconds) == ("WaitingForReady", 2, 2.0)


def test_a_pod_that_was_ready_and_is_not_any_more_is_a_problem_soon() -> None:
    cluster = settled(workload(clique("a", 1)))
    cluster.run_for(5000.0)
    seen = cluster.world.observed()
    seen = replace(seen, pods=tuple(unready(pod, ready_since=cluster.world.now) for pod in seen.pods))
    made = planned(cluster, seen)
    assert (problems(made), made.requeue_at) == ([], cluster.world.now + LATE_AFTER)
    assert [wait.code for wait in problems(planned(cluster, seen, after=LATE_AFTER))] == ["WaitingForReady"]


def test_no_text_of_a_wait_changes_by_the_clock() -> None:
    cluster = updating()
    texts = {tuple(wait.text for wait in planned(cluster, after=seconds).waits) for seconds in (1.0, 2.0, 40.0, 41.0)}
    assert len(texts) == 1


def test_the_reason_of_a_status_changes_seldom_while_pod_after_pod_is_replaced() -> None:
    large = workload(clique("a", 30, 1))
    groups = workload(clique("a", 2), clique("l", 1), clique("k", 2), group("g", ("l", "k"), 3), replicas=3)
    for one, most in ((large, 3), (groups, 14)):
        cluster = settled(one).update()
        told = [conditions(cluster.status).get("UpdateStuck")]
        for made in cluster.passes():
            reason = conditions(cluster.status)["UpdateStuck"]
            if reason != told[-1] and not made.actions:  # a pass of the controller writes a status when all is done
                told.append(reason)
        assert len(told) - 1 <= most
        assert {status for status, _ in filter(None, told)} == {"False"}
