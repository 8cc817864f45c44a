"""The life of a pod on its node, as a function of time.

Given a bound pod and the time of its binding, `compute_status` returns its status now and when it will next change.
Nothing but time drives it, so nothing has to be remembered: a sandbox that was killed computes the same status after
its restart. `controllers.kubelets` calls it, writes a changed status, and calls it again at `next_change_at`.

With R seconds from binding to Ready (R is `KubeletTimings.ready` give or take a tenth, always the same for one pod, or
exactly what the annotation says):

    0 ──────── R/4 ───────────────────────────────── R
    creating   containers run (init containers first,   Ready
               each another R/4)

The tag of an image chooses a fault: `:broken` runs and never becomes Ready, `:slow` takes ten times as long, `:crash`
exits with code 1 at R/2 and is restarted after a back-off that doubles from 10 s to 5 min, `:crash-ready` does the same
and is Ready while it runs, as a container without a readiness probe is, `:oom` does the same as `:crash` but is
OOMKilled, `:missing` is never pulled (ErrImagePull and ImagePullBackOff in turn, with the same back-off), and a
container of `:misconfigured` cannot be created.

An init container with an argument `--podcliques=<name>:<count>`, with which Grove starts cliques in order, ends only
when so many pods of that clique are Ready. Nothing else depends on other pods; the caller passes since when the
dependencies are met (`PodContext.dependencies_met_at`).
"""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import chain
from typing import Any, Final

from rollouts.sandbox.conditions import find_condition, is_true, make_condition, merge_conditions
from rollouts.sandbox.times import parse_stored_time, render_time

Obj = dict[str, Any]

READY_SECONDS_ANNOTATION: Final = "sandbox.grove.io/ready-seconds"
POD_CONDITIONS: Final = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
BROKEN, SLOW, CRASH, CRASH_READY = "broken", "slow", "crash", "crash-ready"
OUT_OF_MEMORY, MISSING, MISCONFIGURED = "oom", "missing", "misconfigured"

_FAULTS: Final = (BROKEN, SLOW, CRASH, CRASH_READY, OUT_OF_MEMORY, MISSING, MISCONFIGURED)
_SLOW_FACTOR: Final = 10
_CREATING_SHARE: Final = 0.25  # of R
_CRASH_SHARE: Final = 0.5  # of R, the time a crashing container runs
_JITTER: Final = 0.1
_DEPENDENCIES_FLAG: Final = "--podcliques="


@dataclass(frozen=True, slots=True)
class KubeletTimings:
    """How fast simulated kubelets are, in seconds."""

    ready: float = 2.0  # from binding to Ready
    termination: float = 1.0  # from the delete to the end, never more than the pod's grace period
    first_backoff: float = 10.0
    last_backoff: float = 300.0


@dataclass(frozen=True, slots=True)
class Dependency:
    """A clique that must have so many Ready pods before the pod's containers start."""

    clique: str
    ready: int


@dataclass(frozen=True, slots=True)
class PodContext:
    """The input to a pod's status besides its manifest."""

    now: datetime
    bound_at: datetime
    dependencies_met_at: datetime | None  # since when the pod's dependencies are met; None: they are not
    node_ready: bool
    host_ip: str
    pod_ip: str


@dataclass(frozen=True, slots=True)
class ComputedStatus:
    """A pod's status now, and when it changes next."""

    status: Obj
    next_change_at: datetime | None  # None: time alone does not change it


@dataclass(frozen=True, slots=True)
class PodEvent:
    """An Event to record on the pod."""

    type: str  # Normal or Warning
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class _Timeline:
    """The fixed times of a pod's start."""

    created_at: datetime  # the sandbox is up; init containers begin
    init_seconds: float  # each init container runs this long
    started_at: datetime | None  # the containers run; None: an init container is blocked
    ready_seconds: float  # from there to Ready
    crash_seconds: float  # from there to the exit of a crashing container


@dataclass(frozen=True, slots=True)
class _ContainerRun:
    """One container at one time."""

    state: Obj
    last_state: Obj
    running: bool
    ready: bool
    restarts: int
    next_change_at: datetime | None


def parse_dependencies(pod: Obj) -> tuple[Dependency, ...]:
    """Read from the arguments of the init containers which cliques a pod depends on."""
    arguments = chain.from_iterable(c.get("args") or () for c in pod["spec"].get("initContainers") or ())
    found: list[Dependency] = []
    for argument in arguments:
        if not argument.startswith(_DEPENDENCIES_FLAG):
            continue
        for entry in argument.removeprefix(_DEPENDENCIES_FLAG).split(","):
            clique, _, count = entry.rpartition(":")
            if clique and count.isdigit():
                found.append(Dependency(clique, int(count)))
    return tuple(found)


def compute_status(pod: Obj, context: PodContext, timings: KubeletTimings) -> ComputedStatus:
    """Return the status of a bound pod at `context.now`."""
    if not context.node_ready:
        return ComputedStatus(_compute_node_lost_status(pod, context.now), None)
    timeline = _compute_timeline(pod, context, timings)
    runs = {c["name"]: _compute_container(c, timeline, context.now, pod, timings) for c in pod["spec"]["containers"]}
    status = {
        **(pod.get("status") or {}),
        "phase": _compute_phase(pod, runs.values()),
        "startTime": (pod.get("status") or {}).get("startTime") or render_time(context.bound_at),
        "hostIP": context.host_ip,
        "hostIPs": [{"ip": context.host_ip}],
        "containerStatuses": [_render_container_status(pod, c, runs[c["name"]]) for c in pod["spec"]["containers"]],
        "conditions": _compute_conditions(pod, timeline, runs, context.now),
    }
    if pod["spec"].get("initContainers"):
        status["initContainerStatuses"] = list(_render_init_statuses(pod, timeline, context.now))
    if context.now >= timeline.created_at:
        status |= {"podIP": context.pod_ip, "podIPs": [{"ip": context.pod_ip}]}
    moments = chain(_list_start_times(pod, timeline), (run.next_change_at for run in runs.values()))
    return ComputedStatus(status, min((at for at in moments if at is not None and at > context.now), default=None))


def find_bound_at(pod: Obj) -> datetime:
    """Return when a stored pod was bound, to the second."""
    scheduled = find_condition(pod, "PodScheduled")
    return parse_stored_time(scheduled.get("lastTransitionTime") or pod["metadata"]["creationTimestamp"])


def find_initialized_at(pod: Obj) -> datetime | None:
    """Return when the init containers of a stored pod had ended, to the second."""
    initialized = find_condition(pod, "Initialized")
    since = initialized.get("lastTransitionTime")
    return parse_stored_time(since) if since and initialized.get("status") == "True" else None


def find_deleted_at(pod: Obj) -> datetime:
    """Return when a stored pod was deleted, to the second."""
    return parse_stored_time(pod["metadata"]["deletionTimestamp"]) - timedelta(seconds=_grace_seconds(pod))


def compute_stopped_at(pod: Obj, deleted_at: datetime, timings: KubeletTimings) -> datetime:
    """Return when the containers of a terminating pod have stopped."""
    return deleted_at + timedelta(seconds=min(_grace_seconds(pod), timings.termination))


def compute_final_status(pod: Obj, now: datetime) -> Obj:
    """Return the last status of a pod whose containers have stopped; a pod with finalizers keeps it for a while."""
    status = pod.get("status") or {}
    done = {"exitCode": 0, "reason": "Completed", "finishedAt": render_time(now)}
    stopped = [
        {**entry, "ready": False, "started": False, "state": {"terminated": done}}
        for entry in status.get("containerStatuses") or ()
    ]
    conditions = [make_condition(kind, holds=False, reason="PodCompleted") for kind in ("Ready", "ContainersReady")]
    return {
        **status,
        "phase": "Succeeded",
        "containerStatuses": stopped,
        "conditions": merge_conditions(status.get("conditions"), conditions, render_time(now)),
    }


def compute_events(before: Obj, after: Obj) -> Iterator[PodEvent]:
    """Yield the Events that a kubelet would record about a change of status."""
    old = {entry["name"]: entry for entry in before.get("containerStatuses") or ()}
    for entry in after.get("containerStatuses") or ():
        was, is_now = (old.get(entry["name"]) or {}).get("state") or {}, entry.get("state") or {}
        if "running" in is_now and "running" not in was:
            yield PodEvent("Normal", "Started", f"Started container {entry['name']}")
        waiting = is_now.get("waiting") or {}
        if waiting.get("reason") != (was.get("waiting") or {}).get("reason"):
            yield from _compute_waiting_events(entry["name"], waiting)
        if "running" in is_now and "running" not in was and _find_fault(entry["image"]) == BROKEN:
            yield PodEvent("Warning", "Unhealthy", f"Readiness probe failed: {entry['name']} does not answer")


def _compute_waiting_events(container: str, waiting: Obj) -> Iterator[PodEvent]:
    reason = waiting.get("reason")
    if reason == "CrashLoopBackOff":
        yield PodEvent("Warning", "BackOff", f"Back-off restarting failed container {container}")
    elif reason == "ImagePullBackOff":
        yield PodEvent("Warning", "BackOff", waiting["message"])
    elif reason in ("ErrImagePull", "CreateContainerConfigError"):
        yield PodEvent("Warning", "Failed", waiting["message"])


def _grace_seconds(pod: Obj) -> float:
    return float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)


def _compute_timeline(pod: Obj, context: PodContext, timings: KubeletTimings) -> _Timeline:
    seconds = _compute_ready_seconds(pod, timings)
    share = seconds * _CREATING_SHARE
    created_at = context.bound_at + timedelta(seconds=share)
    inits = pod["spec"].get("initContainers") or ()
    started_at: datetime | None = created_at + timedelta(seconds=share * len(inits))
    if parse_dependencies(pod):
        started_at = (
            max(started_at, context.dependencies_met_at) if started_at and context.dependencies_met_at else None
        )
    return _Timeline(created_at, share, started_at, seconds - share, seconds * _CRASH_SHARE)


def _compute_ready_seconds(pod: Obj, timings: KubeletTimings) -> float:
    annotated = (pod["metadata"].get("annotations") or {}).get(READY_SECONDS_ANNOTATION)
    try:
        seconds = max(0.0, float(annotated)) if annotated is not None else timings.ready * _compute_jitter(pod)
    except ValueError:
        seconds = timings.ready * _compute_jitter(pod)
    slow = any(_find_fault(container.get("image") or "") == SLOW for container in pod["spec"]["containers"])
    return seconds * _SLOW_FACTOR if slow else seconds


def _compute_jitter(pod: Obj) -> float:
    """Return a factor around 1, always the same for one pod, so that pods do not all become Ready at once."""
    fraction = (zlib.crc32(pod["metadata"]["uid"].encode()) % 1001) / 1000
    return 1 - _JITTER + 2 * _JITTER * fraction


def _find_fault(image: str) -> str | None:
    """Return the fault that an image stands for: the tag of `registry:5000/team/app:broken@sha256:…` is broken."""
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    return tag if tag in _FAULTS else None


def _list_start_times(pod: Obj, timeline: _Timeline) -> Iterator[datetime]:
    """Yield the times at which something begins before the containers run."""
    yield timeline.created_at
    for number in range(1, len(pod["spec"].get("initContainers") or ())):
        yield timeline.created_at + timedelta(seconds=timeline.init_seconds * number)
    if timeline.started_at is not None:
        yield timeline.started_at


def _compute_container(
    container: Obj, timeline: _Timeline, now: datetime, pod: Obj, timings: KubeletTimings
) -> _ContainerRun:
    started_at = timeline.started_at
    if started_at is None or now < started_at:
        initializing = pod["spec"].get("initContainers") and now >= timeline.created_at
        reason = "PodInitializing" if initializing else "ContainerCreating"
        return _ContainerRun(
            {"waiting": {"reason": reason}}, {}, running=False, ready=False, restarts=0, next_change_at=started_at
        )
    fault = _find_fault(container.get("image") or "")
    if fault in (CRASH, CRASH_READY, OUT_OF_MEMORY):
        return _compute_crashing_container(timeline, started_at, now, pod, timings, fault=fault)
    if fault == MISSING:
        return _compute_unpullable_container(container["image"], timeline, started_at, now, timings)
    if fault == MISCONFIGURED:
        waiting = {"reason": "CreateContainerConfigError", "message": f'secret "{container["name"]}" not found'}
        return _ContainerRun({"waiting": waiting}, {}, running=False, ready=False, restarts=0, next_change_at=None)
    state = {"running": {"startedAt": render_time(started_at)}}
    ready_at = started_at + timedelta(seconds=timeline.ready_seconds)
    ready = fault != BROKEN and now >= ready_at
    wake_at = None if ready or fault == BROKEN else ready_at
    return _ContainerRun(state, {}, running=True, ready=ready, restarts=0, next_change_at=wake_at)


def _compute_unpullable_container(
    image: str, timeline: _Timeline, first: datetime, now: datetime, timings: KubeletTimings
) -> _ContainerRun:
    """Compute a container whose image cannot be pulled: attempts as long as a crashing one runs, then back-off."""
    loop = _compute_restart_cycle((now - first).total_seconds(), timeline.crash_seconds, timings)
    pauses_at = first + timedelta(seconds=loop.started_after + timeline.crash_seconds)
    waiting = {"reason": "ErrImagePull", "message": f'failed to pull image "{image}": not found'}
    if now >= pauses_at:
        waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{image}"'}
    wake_at = pauses_at if now < pauses_at else pauses_at + timedelta(seconds=loop.backoff)
    return _ContainerRun({"waiting": waiting}, {}, running=False, ready=False, restarts=0, next_change_at=wake_at)


def _compute_crashing_container(
    timeline: _Timeline, first: datetime, now: datetime, pod: Obj, timings: KubeletTimings, *, fault: str
) -> _ContainerRun:
    """Compute a container that exits, waits and restarts; its back-off is 10, 20, 40 … 300 s."""
    is_killed, ready = fault == OUT_OF_MEMORY, fault == CRASH_READY
    loop = _compute_restart_cycle((now - first).total_seconds(), timeline.crash_seconds, timings)
    started_at, restarts = first + timedelta(seconds=loop.started_after), loop.restarts
    policy = pod["spec"].get("restartPolicy") or "Always"
    if policy == "Never":
        started_at, restarts = first, 0
    run = timedelta(seconds=timeline.crash_seconds)
    exits_at = started_at + run
    exited = _render_terminated_state(started_at, exits_at, is_killed=is_killed)
    if now < exits_at:
        ended_at = started_at - timedelta(seconds=loop.previous_backoff)
        before = _render_terminated_state(ended_at - run, ended_at, is_killed=is_killed) if restarts else {}
        state = {"running": {"startedAt": render_time(started_at)}}
        return _ContainerRun(state, before, running=True, ready=ready, restarts=restarts, next_change_at=exits_at)
    if policy == "Never":
        return _ContainerRun(exited, {}, running=False, ready=False, restarts=0, next_change_at=None)
    waiting = {"reason": "CrashLoopBackOff", "message": f"back-off {loop.backoff:.0f}s restarting failed container"}
    again_at = exits_at + timedelta(seconds=loop.backoff)
    return _ContainerRun(
        {"waiting": waiting}, exited, running=False, ready=False, restarts=restarts, next_change_at=again_at
    )


@dataclass(frozen=True, slots=True)
class _RestartCycle:
    """One attempt of something that is retried with back-off."""

    started_after: float  # seconds after the first attempt
    restarts: int  # how many attempts came before
    backoff: float  # seconds after this attempt
    previous_backoff: float


def _compute_restart_cycle(elapsed: float, run: float, timings: KubeletTimings) -> _RestartCycle:
    """Return the current attempt, or during a back-off the last one."""
    began, restarts, pause, before = 0.0, 0, timings.first_backoff, 0.0
    while pause < timings.last_backoff:
        if elapsed < began + run + pause:
            return _RestartCycle(began, restarts, pause, before)
        began, restarts, before = began + run + pause, restarts + 1, pause
        pause = min(2 * pause, timings.last_backoff)
    cycle = max(run + pause, 1.0)
    further = int((elapsed - began) // cycle)
    return _RestartCycle(began + further * cycle, restarts + further, pause, pause if further else before)


def _render_terminated_state(started_at: datetime, exited_at: datetime, *, is_killed: bool) -> Obj:
    times = {"startedAt": render_time(started_at), "finishedAt": render_time(exited_at)}
    end = {"exitCode": 137, "reason": "OOMKilled"} if is_killed else {"exitCode": 1, "reason": "Error"}
    return {"terminated": {**end, **times}}


def _compute_phase(pod: Obj, runs: Iterable[_ContainerRun]) -> str:
    runs = list(runs)
    if any(run.running or run.last_state for run in runs):
        return "Running"
    ended = bool(runs) and all("terminated" in run.state for run in runs)
    return "Failed" if ended else "Pending"


def _compute_conditions(pod: Obj, timeline: _Timeline, runs: dict[str, _ContainerRun], now: datetime) -> list[Obj]:
    initialized = timeline.started_at is not None and now >= timeline.started_at
    if not pod["spec"].get("initContainers"):
        initialized = True
    unready = [name for name, run in runs.items() if not run.ready]
    why = {"reason": "ContainersNotReady", "message": f"containers with unready status: [{' '.join(unready)}]"}
    waits = (
        {} if initialized else {"reason": "ContainersNotInitialized", "message": "init containers are still running"}
    )
    computed = [
        make_condition("PodReadyToStartContainers", holds=now >= timeline.created_at),
        make_condition("Initialized", holds=initialized, **waits),
        _compute_ready_condition(pod, why if unready else {}),
        make_condition("ContainersReady", holds=not unready, **(why if unready else {})),
        make_condition("PodScheduled", holds=True),
    ]
    merged = merge_conditions((pod.get("status") or {}).get("conditions"), computed, render_time(now))
    known = {kind: place for place, kind in enumerate(POD_CONDITIONS)}
    return sorted(merged, key=lambda condition: known.get(condition["type"], -1))


def _compute_ready_condition(pod: Obj, why_containers: dict[str, str]) -> Obj:
    if why_containers:
        return make_condition("Ready", holds=False, **why_containers)
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates") or ()]
    closed = [gate for gate in gates if not is_true(pod, gate)]
    if closed:
        message = f'the status of pod readiness gate "{closed[0]}" is not "True"'
        return make_condition("Ready", holds=False, reason="ReadinessGatesNotReady", message=message)
    return make_condition("Ready", holds=True)


def _compute_node_lost_status(pod: Obj, now: datetime) -> Obj:
    """Return the last known status with Ready False: the node of this pod does not report."""
    status = pod.get("status") or {}
    lost = make_condition("Ready", holds=False, reason="NodeNotReady", message="the node of this pod is not ready")
    return {**status, "conditions": merge_conditions(status.get("conditions"), [lost], render_time(now))}


def _render_init_statuses(pod: Obj, timeline: _Timeline, now: datetime) -> Iterator[Obj]:
    inits = pod["spec"]["initContainers"]
    for number, container in enumerate(inits):
        begins = timeline.created_at + timedelta(seconds=timeline.init_seconds * number)
        ends: datetime | None = begins + timedelta(seconds=timeline.init_seconds)
        if number == len(inits) - 1:
            ends = timeline.started_at
        yield _render_container_status(pod, container, _compute_init_container(container, begins, ends, now))


def _compute_init_container(container: Obj, begins: datetime, ends: datetime | None, now: datetime) -> _ContainerRun:
    if now < begins:
        waiting = {"waiting": {"reason": "PodInitializing"}}
        return _ContainerRun(waiting, {}, running=False, ready=False, restarts=0, next_change_at=None)
    stays = container.get("restartPolicy") == "Always"
    if ends is None or now < ends or stays:
        running = {"running": {"startedAt": render_time(begins)}}
        return _ContainerRun(running, {}, running=True, ready=stays, restarts=0, next_change_at=None)
    times = {"startedAt": render_time(begins), "finishedAt": render_time(ends)}
    done = {"terminated": {"exitCode": 0, "reason": "Completed", **times}}
    return _ContainerRun(done, {}, running=False, ready=True, restarts=0, next_change_at=None)


def _render_container_status(pod: Obj, container: Obj, run: _ContainerRun) -> Obj:
    image = container.get("image") or ""
    status: Obj = {
        "name": container["name"],
        "image": image,
        "imageID": "",
        "state": _keep_stored_times(pod, container, run),
        "lastState": run.last_state,
        "ready": run.ready,
        "started": run.running,
        "restartCount": run.restarts,
    }
    if "waiting" not in run.state:
        identity = f"{pod['metadata']['uid']}/{container['name']}/{run.restarts}"
        status["containerID"] = f"containerd://{sha256(identity.encode()).hexdigest()}"
        status["imageID"] = f"{image.partition('@')[0]}@sha256:{sha256(image.encode()).hexdigest()}"
    return status


def _keep_stored_times(pod: Obj, container: Obj, run: _ContainerRun) -> Obj:
    """Return the state with the times that the stored status has for this run of the container.

    A restarted sandbox knows the binding only to the second: bound at 11.9 and started 0.2 s later is 12 at first
    and 11 after the restart.
    """
    status = pod.get("status") or {}
    stored = chain(status.get("containerStatuses") or (), status.get("initContainerStatuses") or ())
    for entry in stored:
        if entry["name"] == container["name"] and entry["restartCount"] == run.restarts:
            known: Obj = entry["state"]
            return known if "waiting" not in known and known.keys() == run.state.keys() else run.state
    return run.state
