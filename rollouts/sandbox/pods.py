"""What the API server does for pods alone: first status, graceful deletion, binding.

Pure functions from pods to pods, called by `verbs`.
"""

from typing import Any

Obj = dict[str, Any]


def begin(pod: Obj) -> None:
    """Complete a new pod: what its containers leave open, and the status every pod starts with."""
    spec = pod.get("spec") or {}
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        if isinstance(container, dict):
            container.setdefault("imagePullPolicy", _pull_policy(str(container.get("image", ""))))
    pod["status"] = {"phase": "Pending", "qosClass": quality_of_service(spec)}


def _pull_policy(image: str) -> str:
    tag = image.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in {"", "latest"} and "@" not in image else "IfNotPresent"


def quality_of_service(spec: Obj) -> str:
    """Guaranteed, Burstable or BestEffort, from the containers' cpu and memory."""
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    every: list[bool] = []
    any_set = False
    for container in containers:
        resources = container.get("resources") or {} if isinstance(container, dict) else {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            any_set = any_set or name in requests or name in limits
            every.append(name in limits and requests.get(name, limits[name]) == limits[name])
    if not any_set:
        return "BestEffort"
    return "Guaranteed" if all(every) else "Burstable"


def grace_period(pod: Obj, asked: int | None) -> int:
    """How many seconds a pod may take to leave; 0 removes it at once.

    A pod that never got a node, or has finished, has nothing to wind down.
    """
    if asked is None:
        asked = pod["spec"].get("terminationGracePeriodSeconds", 30)
    if asked < 0:
        asked = 1
    phase = pod.get("status", {}).get("phase")
    if not pod["spec"].get("nodeName") or phase in {"Failed", "Succeeded"}:
        return 0
    return int(asked)


def bound(pod: Obj, node: str, now: str) -> Obj | None:
    """The pod on that node with its PodScheduled condition; None when it already is on a node."""
    if pod["spec"].get("nodeName"):
        return None
    status = pod.get("status") or {}
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    conditions = [one for one in status.get("conditions") or () if one["type"] != "PodScheduled"]
    return {
        **pod,
        "metadata": {**pod["metadata"]},
        "spec": {**pod["spec"], "nodeName": node},
        "status": {**status, "conditions": [*conditions, scheduled]},
    }
