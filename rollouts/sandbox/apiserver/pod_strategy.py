"""What the API server does for pods alone: defaults, first status, graceful deletion, binding, immutability.

Pure functions on pods, called by `strategies` and `verbs`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from rollouts.engine.model.observed import TERMINAL_PHASES
from rollouts.engine.scheduling.constraints import NOT_READY_KEY, UNREACHABLE_KEY
from rollouts.engine.scheduling.resources import quantity_to_decimal
from rollouts.sandbox.apiserver import objectmeta
from rollouts.sandbox.apiserver.errors import StatusCause
from rollouts.sandbox.apiserver.formats import render_json
from rollouts.sandbox.conditions import make_condition, merge_conditions

Obj = dict[str, Any]

# A pod stays five minutes on a node that stopped answering, unless its own tolerations set another time.
_DEFAULT_TOLERATION_SECONDS = 300
_GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"


def containers_of(spec: Obj) -> Iterator[tuple[str, Obj]]:
    """Yield all containers of a pod with their field paths."""
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or ()):
            if isinstance(container, dict):
                yield f"spec.{group}[{index}]", container


# --- new pods ------------------------------------------------------------------------------------------------------


def set_defaults(pod: Obj) -> None:
    """Fill in what depends on other fields: pull policies by image tag, requests by limits."""
    for _, container in containers_of(_spec(pod)):
        if "image" in container:
            container.setdefault("imagePullPolicy", _pull_policy(str(container["image"])))
        resources = container.get("resources")
        limits = resources.get("limits") if isinstance(resources, dict) else None
        if isinstance(resources, dict) and isinstance(limits, dict):
            resources["requests"] = {**limits, **(resources.get("requests") or {})}


def set_status_defaults(status: Obj) -> None:
    """Set podIPs from podIP: a pod's address is the first of its addresses."""
    if status.get("podIP") and not status.get("podIPs"):
        status["podIPs"] = [{"ip": status["podIP"]}]


def _spec(pod: Obj) -> Obj:
    spec = pod.get("spec")
    return spec if isinstance(spec, dict) else {}


def _pull_policy(image: str) -> str:
    tag = image.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in {"", "latest"} and "@" not in image else "IfNotPresent"


def prepare_for_create(pod: Obj, now: str) -> None:
    """Give a new pod what admission adds, and the status every pod starts with."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return
    status: Obj = {"phase": "Pending", "qosClass": compute_qos_class(spec)}
    if spec.get("schedulingGates"):
        gated = make_condition("PodScheduled", holds=False, reason="SchedulingGated", message=_GATED_MESSAGE)
        status["conditions"] = merge_conditions((), [{**gated, "lastProbeTime": None}], now)
    pod["status"] = status


def assign_priority(pod: Obj, classes: Iterable[Obj]) -> str | None:
    """Give a new pod the priority of its class; return the error if there is no such class or it has another."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return None
    known = {one["metadata"]["name"]: one for one in classes}
    name = spec.get("priorityClassName")
    chosen = known.get(name) if name else next((one for one in known.values() if one.get("globalDefault")), None)
    if name and chosen is None:
        return f"no PriorityClass with name {name} was found"
    priority = (chosen or {}).get("value", 0)
    given = spec.get("priority", priority)
    if given != priority:
        return (
            f"the integer value of priority ({given}) must not be provided in pod spec; priority admission controller "
            f"computed {priority} from the given PriorityClass name"
        )
    if chosen is not None:
        spec["priorityClassName"] = chosen["metadata"]["name"]
    spec["priority"] = priority
    spec.setdefault("preemptionPolicy", (chosen or {}).get("preemptionPolicy", "PreemptLowerPriority"))
    return None


def add_default_tolerations(pod: Obj) -> None:
    """Let a pod stay five minutes on a node that stops answering, unless its own tolerations say how long."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return
    tolerations = [one for one in spec.get("tolerations") or () if isinstance(one, dict)]
    for key in (NOT_READY_KEY, UNREACHABLE_KEY):
        if not any(_tolerates(one, key) for one in tolerations):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _DEFAULT_TOLERATION_SECONDS,
                }
            )
    if tolerations != spec.get("tolerations"):
        pod["spec"] = {**spec, "tolerations": tolerations}


def _tolerates(toleration: Obj, key: str) -> bool:
    named = toleration.get("key") in {key, None, ""}
    return named and toleration.get("effect") in {"NoExecute", None, ""}


def compute_qos_class(spec: Obj) -> str:
    """Compute Guaranteed, Burstable or BestEffort from the containers' cpu and memory."""
    asked, fixed = False, True
    for _, container in containers_of(spec):
        resources = container.get("resources")
        resources = resources if isinstance(resources, dict) else {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            asked = asked or name in requests or name in limits
            fixed = fixed and name in limits and requests.get(name, limits[name]) == limits[name]
    if not asked:
        return "BestEffort"
    return "Guaranteed" if fixed else "Burstable"


# --- deletion and binding -------------------------------------------------------------------------------------------


def compute_grace_period(pod: Obj, asked: int | None) -> int:
    """Return how many seconds a pod may take to terminate; 0 removes it at once.

    A pod that never got a node, or has ended, has no containers to stop.
    """
    spec = _spec(pod)
    if asked is None:
        asked = spec.get("terminationGracePeriodSeconds", 30)
    phase = pod.get("status", {}).get("phase")
    if not spec.get("nodeName") or phase in TERMINAL_PHASES:
        return 0
    return 1 if asked < 0 else int(asked)


def find_bind_conflict(pod: Obj) -> str | None:
    """Return why a pod cannot be bound to a node now; None when it can."""
    name, spec = pod["metadata"]["name"], pod["spec"]
    if "deletionTimestamp" in pod["metadata"]:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return None


def with_node(pod: Obj, node: str, now: str) -> Obj:
    """Return the pod bound to that node, with its PodScheduled condition."""
    status = pod.get("status") or {}
    scheduled = {**make_condition("PodScheduled", holds=True), "lastProbeTime": None}
    conditions = merge_conditions(status.get("conditions"), [scheduled], now)
    return {
        **pod,
        "metadata": {**pod["metadata"]},
        "spec": {**pod["spec"], "nodeName": node},
        "status": {**status, "conditions": conditions},
    }


# --- rules ---------------------------------------------------------------------------------------------------------


def findings(pod: Obj, old: Obj | None) -> Iterator[StatusCause]:
    """Find what the server rejects in a pod beyond its schema."""
    spec = _spec(pod)
    if old is not None:
        if spec != old["spec"]:
            yield from _update_findings(spec, old["spec"])
        return
    if spec.get("containers") == []:
        yield StatusCause("FieldValueRequired", "Required value", "spec.containers")
    deadline = spec.get("activeDeadlineSeconds")
    if isinstance(deadline, int) and not 1 <= deadline <= _MAX_SECONDS:
        sentence = f"must be between 1 and {_MAX_SECONDS}, inclusive"
        yield StatusCause("FieldValueInvalid", f"Invalid value: {deadline}: {sentence}", "spec.activeDeadlineSeconds")
    names: set[str] = set()
    for path, container in containers_of(spec):
        yield from _container_findings(path, container, names)


def _container_findings(path: str, container: Obj, names: set[str]) -> Iterator[StatusCause]:
    name = container.get("name")
    if name:
        for finding in objectmeta.label_findings(name):
            yield StatusCause("FieldValueInvalid", f"Invalid value: {render_json(name)}: {finding}", f"{path}.name")
        if name in names:
            yield StatusCause("FieldValueDuplicate", f"Duplicate value: {render_json(name)}", f"{path}.name")
        names.add(name)
    if not container.get("image"):
        yield StatusCause("FieldValueRequired", "Required value", f"{path}.image")
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    for resource, amount in (resources.get("requests") or {}).items():
        if resource in limits and quantity_to_decimal(amount) > quantity_to_decimal(limits[resource]):
            sentence = f"must be less than or equal to {resource} limit of {limits[resource]}"
            yield StatusCause(
                "FieldValueInvalid", f"Invalid value: {render_json(amount)}: {sentence}", f"{path}.resources.requests"
            )


_MAX_SECONDS = 2**31 - 1
_IMMUTABLE_MESSAGE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
# While a pod waits behind gates, these may still be made stricter; the sandbox lets them change freely then.
_MUTABLE_WHILE_GATED = ("nodeSelector", "affinity")


def _update_findings(spec: Obj, old: Obj) -> Iterator[StatusCause]:
    for group in ("containers", "initContainers"):
        if [one["name"] for one in spec.get(group) or ()] != [one["name"] for one in old.get(group) or ()]:
            sentence = "Forbidden: pod updates may not add or remove containers"
            yield StatusCause("FieldValueForbidden", sentence, f"spec.{group}")
            return
    before = {gate["name"] for gate in old.get("schedulingGates") or ()}
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate["name"] not in before:
            sentence = f"Forbidden: only deletion is allowed, but found new scheduling gate '{gate['name']}'"
            yield StatusCause("FieldValueForbidden", sentence, f"spec.schedulingGates[{index}].name")
            return
    tolerations = spec.get("tolerations") or []
    if any(one not in tolerations for one in old.get("tolerations") or ()):
        sentence = "Forbidden: existing toleration can not be modified except its tolerationSeconds"
        yield StatusCause("FieldValueForbidden", sentence, "spec.tolerations")
        return
    for path, container in containers_of(spec):
        if not container.get("image"):
            yield StatusCause("FieldValueRequired", "Required value", f"{path}.image")
    if _immutable_part(spec, gated=bool(before)) != _immutable_part(old, gated=bool(before)):
        yield StatusCause("FieldValueForbidden", f"Forbidden: {_IMMUTABLE_MESSAGE}", "spec")


def _immutable_part(spec: Obj, *, gated: bool) -> Obj:
    """Return a pod's spec without what an update may change."""
    loose = {"activeDeadlineSeconds", "tolerations", "schedulingGates", "ephemeralContainers"}
    loose.update(_MUTABLE_WHILE_GATED if gated else ())
    fixed = {key: value for key, value in spec.items() if key not in loose}
    for group in ("containers", "initContainers"):
        if group in fixed:
            fixed[group] = [{**one, "image": "", "resources": None} for one in fixed[group]]
    return fixed
