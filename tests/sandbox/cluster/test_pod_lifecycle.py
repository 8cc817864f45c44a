"""The life of a pod as a function of time."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rollouts.sandbox.cluster.pod_lifecycle import (
    READY_SECONDS_ANNOTATION,
    ComputedStatus,
    Dependency,
    KubeletTimings,
    PodContext,
    compute_events,
    compute_status,
    compute_stopped_at,
    find_bound_at,
    find_deleted_at,
    parse_dependencies,
)

Obj = dict[str, Any]
BOUND_AT = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
PACE = KubeletTimings(ready=4.0, termination=1.0)


def a_pod(*images: str, ready: str | None = "4", init: int = 0, **spec: Any) -> Obj:
    annotations = {} if ready is None else {READY_SECONDS_ANNOTATION: ready}
    containers = [{"name": f"c{i}", "image": image} for i, image in enumerate(images or ("app:v1",))]
    inits = {"initContainers": [{"name": f"i{i}", "image": "init:v1"} for i in range(init)]} if init else {}
    return {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u1", "annotations": annotations},
        "spec": {"containers": containers, **inits, **spec},
        "status": {"phase": "Pending"},
    }


def at(pod: Obj, seconds: float, *, node_ready: bool = True, unblocked: float | None = None) -> ComputedStatus:
    moment = BOUND_AT + timedelta(seconds=seconds)
    unblocked_at = None if unblocked is None else BOUND_AT + timedelta(seconds=unblocked)
    return compute_status(pod, PodContext(moment, BOUND_AT, unblocked_at, node_ready, "10.0.0.1", "10.244.0.1"), PACE)


def wakes_after(outlook: ComputedStatus) -> float | None:
    return None if outlook.next_change_at is None else (outlook.next_change_at - BOUND_AT).total_seconds()


def conditions(outlook: ComputedStatus) -> dict[str, str]:
    return {entry["type"]: entry["status"] for entry in outlook.status["conditions"]}


def container(outlook: ComputedStatus, index: int = 0) -> Obj:
    found: Obj = outlook.status["containerStatuses"][index]
    return found


def test_a_bound_pod_is_creating_then_runs_then_is_ready() -> None:
    pod = a_pod()
    creating, running, ready = at(pod, 0), at(pod, 1), at(pod, 4)
    assert creating.status["phase"] == "Pending"
    assert container(creating)["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert "podIP" not in creating.status
    assert wakes_after(creating) == 1
    assert (running.status["phase"], running.status["podIP"]) == ("Running", "10.244.0.1")
    assert container(running)["state"] == {"running": {"startedAt": "2026-01-01T12:00:01Z"}}
    assert conditions(running)["Ready"] == "False"
    assert wakes_after(running) == 4
    assert set(conditions(ready).values()) == {"True"}
    assert container(ready)["ready"]
    assert ready.next_change_at is None


def test_a_pod_that_is_not_ready_says_which_containers_are_not() -> None:
    outlook = at(a_pod("app:v1", "app:broken"), 4)
    ready = next(entry for entry in outlook.status["conditions"] if entry["type"] == "Ready")
    assert ready["reason"] == "ContainersNotReady"
    assert ready["message"] == "containers with unready status: [c1]"


def test_the_same_moment_always_gives_the_same_status_however_one_came_there() -> None:
    direct = at(a_pod(init=1), 9)
    walked = a_pod(init=1)
    for quarter in range(37):
        walked["status"] = at(walked, quarter / 4).status
    without_times = [{**entry, "lastTransitionTime": ""} for entry in walked["status"]["conditions"]]
    assert without_times == [{**entry, "lastTransitionTime": ""} for entry in direct.status["conditions"]]
    assert walked["status"]["containerStatuses"] == direct.status["containerStatuses"]
    assert walked["status"]["initContainerStatuses"] == direct.status["initContainerStatuses"]


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    pod = a_pod()
    pod["status"] = at(pod, 4).status
    later = at(pod, 400).status
    assert later == pod["status"]


@pytest.mark.parametrize("init", [0, 1])
def test_a_running_container_keeps_its_start_time_when_the_binding_is_known_only_to_the_second(init: int) -> None:
    bound_at = BOUND_AT + timedelta(seconds=0.9)
    pod, now = a_pod(ready="0.8", init=init), BOUND_AT + timedelta(seconds=5)
    facts = PodContext(now, bound_at, None, node_ready=True, host_ip="10.0.0.1", pod_ip="10.244.0.1")
    pod["status"] = compute_status(pod, facts, PACE).status
    assert compute_status(pod, replace(facts, bound_at=BOUND_AT), PACE).status == pod["status"]


def test_the_ready_time_differs_a_little_between_pods_and_never_for_one() -> None:
    pods = [a_pod(ready=None) for _ in range(50)]
    for number, pod in enumerate(pods):
        pod["metadata"]["uid"] = f"uid-{number}"
    starts = [wakes_after(at(pod, 0)) for pod in pods]
    assert starts == [wakes_after(at(pod, 0)) for pod in pods]
    assert len(set(starts)) > 10
    assert all(start is not None and 0.9 <= start <= 1.1 for start in starts)


def test_an_annotation_that_is_no_number_is_as_good_as_none() -> None:
    assert wakes_after(at(a_pod(ready="soon"), 0)) == wakes_after(at(a_pod(ready=None), 0))


def test_init_containers_run_one_after_the_other_before_the_containers() -> None:
    pod = a_pod(init=2)
    first, second, started = at(pod, 1), at(pod, 2), at(pod, 3)
    states = [[next(iter(e["state"])) for e in o.status["initContainerStatuses"]] for o in (first, second, started)]
    assert states == [["running", "waiting"], ["terminated", "running"], ["terminated", "terminated"]]
    assert container(first)["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert (conditions(second)["Initialized"], conditions(started)["Initialized"]) == ("False", "True")
    assert started.status["phase"] == "Running"
    assert [wakes_after(outlook) for outlook in (first, second, started)] == [2, 3, 6]


def test_a_sidecar_keeps_running() -> None:
    pod = a_pod(init=1)
    pod["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    entry = at(pod, 10).status["initContainerStatuses"][0]
    assert ("running" in entry["state"], entry["ready"]) == (True, True)


def test_an_init_container_that_waits_for_cliques_blocks_until_they_are_ready() -> None:
    pod = a_pod(init=1)
    pod["spec"]["initContainers"][0]["args"] = ["--podcliques=my-0-a:2,my-0-b:1"]
    assert parse_dependencies(pod) == (Dependency("my-0-a", 2), Dependency("my-0-b", 1))
    blocked = at(pod, 100)
    assert (blocked.status["phase"], blocked.next_change_at) == ("Pending", None)
    assert "running" in blocked.status["initContainerStatuses"][0]["state"]
    unblocked = at(pod, 100, unblocked=100)
    assert unblocked.status["phase"] == "Running"
    assert wakes_after(unblocked) == 103
    met_early = at(pod, 2, unblocked=0)
    assert met_early.status["phase"] == "Running"


@pytest.mark.parametrize("image", ["app:broken", "registry.local:5000/team/app:broken", "app:broken@sha256:00"])
def test_a_broken_image_runs_and_never_becomes_ready(image: str) -> None:
    outlook = at(a_pod(image), 10_000)
    assert (outlook.status["phase"], outlook.next_change_at) == ("Running", None)
    assert conditions(outlook)["Ready"] == "False"


@pytest.mark.parametrize("image", ["app:v1", "broken/app", "broken:5000/app:v2", "app:broken-not", "app"])
def test_only_the_tag_makes_an_image_faulty(image: str) -> None:
    assert conditions(at(a_pod(image), 4))["Ready"] == "True"


def test_a_slow_image_takes_ten_times_as_long() -> None:
    pod = a_pod("app:slow")
    assert conditions(at(pod, 39))["Ready"] == "False"
    assert conditions(at(pod, 40))["Ready"] == "True"


def test_a_crashing_image_restarts_after_a_pause_that_doubles() -> None:
    pod = a_pod("app:crash")  # starts at 1, runs 2 seconds
    exited = at(pod, 3)
    assert container(exited)["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert container(exited)["lastState"]["terminated"]["exitCode"] == 1
    assert (container(exited)["restartCount"], wakes_after(exited), exited.status["phase"]) == (0, 13, "Running")
    again = at(pod, 13)
    assert "running" in container(again)["state"]
    assert (container(again)["restartCount"], wakes_after(again)) == (1, 15)
    assert container(again)["lastState"]["terminated"]["exitCode"] == 1
    assert wakes_after(at(pod, 15)) == 35
    assert conditions(again)["Ready"] == "False"


def test_a_crashing_container_without_a_readiness_probe_is_ready_as_long_as_it_runs() -> None:
    pod = a_pod("app:crash-ready")  # runs from 1 to 3, and from 13 to 15
    assert [conditions(at(pod, moment))["Ready"] for moment in (0, 1, 3, 13, 15)] == [
        *("False", "True", "False", "True", "False")
    ]
    assert container(at(pod, 35))["restartCount"] == 2


def test_a_container_that_was_started_again_tells_when_it_ended_before() -> None:
    pod = a_pod("app:crash")  # ends at 3 for the first time, is started again at 13 and ends at 15, then at 35
    for moment, started, ended in ((13, 13, 3), (35, 35, 15)):
        told = container(at(pod, moment))
        assert told["state"]["running"]["startedAt"] == f"2026-01-01T12:00:{started:02}Z"
        assert told["lastState"]["terminated"]["finishedAt"] == f"2026-01-01T12:00:{ended:02}Z"


def test_an_image_that_takes_too_much_memory_is_killed_again_and_again() -> None:
    pod = a_pod("app:oom")
    exited = container(at(pod, 3))
    assert exited["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert (exited["lastState"]["terminated"]["reason"], exited["lastState"]["terminated"]["exitCode"]) == (
        "OOMKilled",
        137,
    )
    again = container(at(pod, 13))
    assert ("running" in again["state"], again["lastState"]["terminated"]["reason"]) == (True, "OOMKilled")


def test_an_image_that_is_missing_is_never_pulled() -> None:
    pod = a_pod("app:missing")
    for moment, reason, wakes in ((1, "ErrImagePull", 3), (3, "ImagePullBackOff", 13), (13, "ErrImagePull", 15)):
        outlook = at(pod, moment)
        assert container(outlook)["state"]["waiting"]["reason"] == reason
        assert "app:missing" in container(outlook)["state"]["waiting"]["message"]
        assert (outlook.status["phase"], wakes_after(outlook)) == ("Pending", wakes)
        assert conditions(outlook)["Ready"] == "False"


def test_a_container_that_is_misconfigured_is_never_created() -> None:
    outlook = at(a_pod("app:misconfigured"), 50)
    assert container(outlook)["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    assert (outlook.status["phase"], outlook.next_change_at) == ("Pending", None)


def test_the_pause_between_crashes_stops_growing_at_five_minutes() -> None:
    pod = a_pod("app:crash")
    for _ in range(3):
        day = at(pod, 86_400.0)
        assert day.next_change_at is not None
        assert 0 < (day.next_change_at - BOUND_AT).total_seconds() - 86_400 <= 302
    assert container(day)["restartCount"] > 280


def test_a_crash_without_restart_policy_ends_the_pod() -> None:
    outlook = at(a_pod("app:crash", restartPolicy="Never"), 50)
    assert (outlook.status["phase"], outlook.next_change_at) == ("Failed", None)
    assert container(outlook)["state"]["terminated"]["exitCode"] == 1


def test_pods_of_a_node_that_is_down_are_not_ready_and_come_back_with_it() -> None:
    pod = a_pod()
    pod["status"] = at(pod, 4).status
    lost = at(pod, 10, node_ready=False)
    assert conditions(lost)["Ready"] == "False"
    assert container(lost)["ready"]
    pod["status"] = lost.status
    back = at(pod, 20)
    assert conditions(back)["Ready"] == "True"
    ready = next(entry for entry in back.status["conditions"] if entry["type"] == "Ready")
    assert (ready["lastTransitionTime"], "reason" in ready) == ("2026-01-01T12:00:20Z", False)


def test_a_readiness_gate_keeps_a_pod_from_being_ready_until_it_opens() -> None:
    pod = a_pod(readinessGates=[{"conditionType": "example.com/in-service"}])
    closed = at(pod, 4)
    assert (conditions(closed)["Ready"], conditions(closed)["ContainersReady"]) == ("False", "True")
    pod["status"]["conditions"] = [{"type": "example.com/in-service", "status": "True"}]
    opened = at(pod, 4)
    assert conditions(opened)["Ready"] == "True"
    assert "example.com/in-service" in conditions(opened)


def test_a_pod_ends_after_the_termination_time_but_never_after_its_grace_period() -> None:
    def deleted(grace: int) -> Obj:
        when = (BOUND_AT + timedelta(seconds=grace)).isoformat()
        return {"metadata": {"deletionTimestamp": when, "deletionGracePeriodSeconds": grace}}

    for grace, seconds in ((30, 5), (3, 3), (0, 0)):
        pod = deleted(grace)
        assert find_deleted_at(pod) == BOUND_AT
        assert compute_stopped_at(pod, BOUND_AT, KubeletTimings(termination=5)) == BOUND_AT + timedelta(seconds=seconds)


def test_the_moment_of_binding_is_read_from_the_stored_pod() -> None:
    pod = a_pod()
    pod["metadata"]["creationTimestamp"] = "2026-01-01T11:00:00Z"
    assert find_bound_at(pod) == BOUND_AT - timedelta(hours=1)
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}
    pod["status"]["conditions"] = [scheduled]
    assert find_bound_at(pod) == BOUND_AT


def test_events_tell_of_starts_crashes_and_failing_probes() -> None:
    def told(image: str, *moments: float) -> list[str]:
        pod, reasons = a_pod(image), []
        for moment in moments:
            status = at(pod, moment).status
            reasons += [incident.reason for incident in compute_events(pod["status"], status)]
            pod["status"] = status
        return reasons

    assert told("app:v1", 0, 1, 4) == ["Started"]
    assert told("app:broken", 0, 1, 4) == ["Started", "Unhealthy"]
    assert told("app:crash", 0, 1, 3, 13, 15) == ["Started", "BackOff", "Started", "BackOff"]
    assert told("app:missing", 0, 1, 3, 13) == ["Failed", "BackOff", "Failed"]
    assert told("app:misconfigured", 0, 1, 4) == ["Failed"]
