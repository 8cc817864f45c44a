"""What a simulated machine reports as its Node, and which taints follow from it.

A Node without a status — fresh from `kubectl apply` or from `seed` — gets capacity, addresses and conditions by its
instance type. The annotation `sandbox.grove.io/down: "true"` takes the machine down and its removal brings it back; a
Ready condition that a client sets to anything but True does the same until it is set back. As on a real cluster, a node
that is not ready or is cordoned has the taint for it. `controllers.node_lifecycle` writes what is computed here.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from rollouts.engine.scheduling.constraints import NOT_READY_KEY, UNREACHABLE_KEY, UNSCHEDULABLE_KEY
from rollouts.sandbox.cluster.node_info import choose_capacity
from rollouts.sandbox.conditions import find_condition, merge_conditions
from rollouts.sandbox.times import render_time

Obj = dict[str, Any]

DOWN_ANNOTATION: Final = "sandbox.grove.io/down"
DOWN_REASON: Final = "NodeStatusUnknown"

_HEALTHY: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


def compute_node_status(node: Obj, address: str, version: str, now: datetime) -> Obj:
    """Return what the machine reports now; keep what a client has set."""
    status = node.get("status") or {}
    if not status.get("nodeInfo"):
        status = {**_compute_initial_status(node["metadata"], status.get("capacity"), address, version), **status}
    return {**status, "conditions": _compute_conditions(node, now)}


def compute_node_taints(node: Obj, now: datetime) -> list[Obj]:
    """Return the taints the node must have: the system's by its state, all others unchanged.

    Tolerations of a NoExecute taint count from when it was added, so a taint without that time gets the current one.
    """
    spec = node.get("spec") or {}
    present: list[Obj] = [_with_time_added(taint, now) for taint in spec.get("taints") or ()]
    wanted = _compute_condition_taints(node)
    kept = [taint for taint in present if (taint["key"], taint["effect"]) in wanted or not _is_condition_taint(taint)]
    there = {(taint["key"], taint["effect"]) for taint in kept}
    added = [
        {"key": key, "effect": effect, "timeAdded": render_time(now)}
        for key, effect in wanted
        if (key, effect) not in there
    ]
    return kept + added


def _with_time_added(taint: Obj, now: datetime) -> Obj:
    undated = taint["effect"] == "NoExecute" and not taint.get("timeAdded")
    return {**taint, "timeAdded": render_time(now)} if undated else taint


def _compute_condition_taints(node: Obj) -> list[tuple[str, str]]:
    wanted: list[tuple[str, str]] = []
    if (node.get("spec") or {}).get("unschedulable"):
        wanted.append((UNSCHEDULABLE_KEY, "NoSchedule"))
    ready = find_condition(node, "Ready").get("status", "True")
    if ready != "True":
        key = UNREACHABLE_KEY if ready == "Unknown" else NOT_READY_KEY
        wanted += [(key, "NoSchedule"), (key, "NoExecute")]
    return wanted


def _is_condition_taint(taint: Obj) -> bool:
    return taint["key"] in (NOT_READY_KEY, UNREACHABLE_KEY, UNSCHEDULABLE_KEY)


def _compute_conditions(node: Obj, now: datetime) -> list[Obj]:
    present = (node.get("status") or {}).get("conditions") or []
    if (node["metadata"].get("annotations") or {}).get(DOWN_ANNOTATION) == "true":
        message = f"Kubelet stopped posting node status: annotation {DOWN_ANNOTATION}"
        down = {"type": "Ready", "status": "Unknown", "reason": DOWN_REASON, "message": message}
        return merge_conditions(present, [down], render_time(now))
    ready = find_condition(node, "Ready")
    if ready and ready.get("reason") != DOWN_REASON:
        return list(present)
    # The heartbeat time is never renewed: that would be the only write in an idle cluster, every few seconds.
    heard = {"lastHeartbeatTime": render_time(now)}
    healthy = [
        {"type": kind, "status": status, "reason": reason, "message": message, **heard}
        for kind, status, reason, message in _HEALTHY
    ]
    known = {condition["type"] for condition in present} - {"Ready"}
    return merge_conditions(present, [entry for entry in healthy if entry["type"] not in known], render_time(now))


def _compute_initial_status(metadata: Mapping[str, Any], capacity: Obj | None, address: str, version: str) -> Obj:
    name = metadata["name"]
    capacity = capacity or choose_capacity(metadata.get("labels") or {})
    return {
        "capacity": capacity,
        "allocatable": dict(capacity),
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": metadata["uid"],
            "containerRuntimeVersion": "containerd://2.0.0",
            "kernelVersion": "6.1.0",
            "kubeProxyVersion": version,
            "kubeletVersion": version,
            "machineID": metadata["uid"],
            "operatingSystem": "linux",
            "osImage": "Simulated machine",
            "systemUUID": metadata["uid"],
        },
    }
