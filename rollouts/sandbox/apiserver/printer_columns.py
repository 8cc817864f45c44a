"""The columns of the built-in kinds in `kubectl get`.

A table from plural to columns, each with the function that reads its cell; `tables` adds the custom kinds'
columns, which come from their definitions. `kubectl` shows columns of priority 1 only with `-o wide`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rollouts.sandbox.apiserver.ages import render_age, render_duration
from rollouts.sandbox.times import parse_time

Obj = dict[str, Any]
CellReader = Callable[[Obj, datetime], Any]
NONE = "<none>"


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """A column and how its cell is read."""

    name: str
    read: CellReader
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""


def read_age(obj: Obj, now: datetime) -> str:
    return render_age(obj["metadata"].get("creationTimestamp"), now)


def _read_name(obj: Obj, _now: datetime) -> str:
    return str(obj["metadata"]["name"])


NAME = PrinterColumn("Name", _read_name, format="name")
AGE = PrinterColumn("Age", read_age)


def _read_path(*path: str, empty: Any = NONE) -> CellReader:
    def read(obj: Obj, _now: datetime) -> Any:
        value: Any = obj
        for member in path:
            value = value.get(member) if isinstance(value, dict) else None
        return empty if value in {None, ""} else value

    return read


# --- pods ----------------------------------------------------------------------------------------------------------


def _pod_ready(pod: Obj, _now: datetime) -> str:
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    ready = sum(1 for one in statuses if one.get("ready"))
    return f"{ready}/{len(pod['spec'].get('containers') or ())}"


def pod_status(pod: Obj) -> str:
    """Return the status of a pod in `kubectl get pods`."""
    status = pod.get("status", {})
    word = _initializing_reason(status) or _container_reason(status) or status.get("reason") or status.get("phase", "")
    if "deletionTimestamp" in pod["metadata"]:
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return str(word)


def _initializing_reason(status: Obj) -> str:
    """Return what keeps a pod from starting its containers: a gate, or an init container."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            return "SchedulingGated"
    statuses = status.get("initContainerStatuses") or ()
    for index, one in enumerate(statuses):
        state = one.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if terminated is not None and terminated.get("exitCode") == 0:
            continue
        if terminated is not None:
            return f"Init:{_terminated_reason(terminated)}"
        if waiting is not None and waiting.get("reason") not in {None, "", "PodInitializing"}:
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{len(statuses)}"
    return ""


def _container_reason(status: Obj) -> str:
    word, running = "", False
    for one in reversed(status.get("containerStatuses") or ()):
        state = one.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            word = waiting["reason"]
        elif terminated is not None:
            word = _terminated_reason(terminated)
        elif one.get("ready") and "running" in state:
            running = True
    if word == "Completed" and running:
        ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())
        return "Running" if ready else "NotReady"
    return word


def _terminated_reason(terminated: Obj) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _pod_restarts(pod: Obj, now: datetime) -> str:
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    count = sum(one.get("restartCount", 0) for one in statuses)
    ends = [((one.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for one in statuses]
    moments = [moment for moment in map(parse_time, ends) if moment is not None]
    if not count or not moments:
        return str(count)
    return f"{count} ({render_duration(max(0, int((now - max(moments)).total_seconds())))} ago)"


def _readiness_gates(pod: Obj, _now: datetime) -> str:
    gates = pod["spec"].get("readinessGates") or ()
    if not gates:
        return NONE
    true = {c["type"] for c in pod.get("status", {}).get("conditions") or () if c.get("status") == "True"}
    return f"{sum(1 for gate in gates if gate.get('conditionType') in true)}/{len(gates)}"


# --- nodes ---------------------------------------------------------------------------------------------------------


def _node_status(node: Obj, _now: datetime) -> str:
    conditions = {c["type"]: c.get("status") for c in node.get("status", {}).get("conditions") or ()}
    words = ["Unknown"] if "Ready" not in conditions else ["Ready" if conditions["Ready"] == "True" else "NotReady"]
    if node.get("spec", {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


_ROLE = "node-role.kubernetes.io/"


def _node_roles(node: Obj, _now: datetime) -> str:
    labels = node["metadata"].get("labels") or {}
    roles = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)} - {""}
    return ",".join(sorted(roles)) or NONE


def _node_address(kind: str) -> CellReader:
    def read(node: Obj, _now: datetime) -> str:
        addresses = node.get("status", {}).get("addresses") or ()
        return next((one["address"] for one in addresses if one.get("type") == kind), NONE)

    return read


def _node_info(member: str) -> CellReader:
    return _read_path("status", "nodeInfo", member, empty="<unknown>")


# --- events --------------------------------------------------------------------------------------------------------


def _event_last_seen(event: Obj, now: datetime) -> str:
    last = (event.get("series") or {}).get("lastObservedTime") or event.get("lastTimestamp")
    return render_age(last or event.get("eventTime") or event.get("firstTimestamp"), now)


def _event_first_seen(event: Obj, now: datetime) -> str:
    return render_age(event.get("firstTimestamp") or event.get("eventTime"), now)


def _event_object(event: Obj, _now: datetime) -> str:
    about = event.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


def _event_source(event: Obj, _now: datetime) -> str:
    source = event.get("source") or {}
    return ", ".join(part for part in (source.get("component"), source.get("host")) if part)


# --- services, policies, the rest ----------------------------------------------------------------------------------


def _service_ports(service: Obj, _now: datetime) -> str:
    ports = service.get("spec", {}).get("ports") or ()
    return ",".join(_service_port(one) for one in ports) or NONE


def _service_port(port: Obj) -> str:
    through = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port['port']}{through}/{port.get('protocol', 'TCP')}"


def _service_external(service: Obj, _now: datetime) -> str:
    return ",".join(service.get("spec", {}).get("externalIPs") or ()) or NONE


def _service_selector(service: Obj, _now: datetime) -> str:
    return _pairs(service.get("spec", {}).get("selector") or {})


def _pairs(labels: dict[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or NONE


def _data_count(obj: Obj, _now: datetime) -> int:
    return len(obj.get("data") or {}) + len(obj.get("binaryData") or {})


def _autoscaler_reference(autoscaler: Obj, _now: datetime) -> str:
    target = autoscaler.get("spec", {}).get("scaleTargetRef") or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


def _autoscaler_targets(autoscaler: Obj, _now: datetime) -> str:
    metrics = autoscaler.get("spec", {}).get("metrics") or ()
    shown = []
    for metric in metrics:
        target = (metric.get("resource") or {}).get("target") or {}
        name = (metric.get("resource") or {}).get("name", "")
        wanted = (
            f"{target['averageUtilization']}%" if "averageUtilization" in target else target.get("averageValue", "")
        )
        shown.append(f"{name}: <unknown>/{wanted}" if name else "<unknown>")
    return ", ".join(shown) or NONE


def _subjects(kind: str) -> CellReader:
    def read(binding: Obj, _now: datetime) -> str:
        chosen = [one for one in binding.get("subjects") or () if one.get("kind") == kind]
        return ", ".join(f"{one['namespace']}/{one['name']}" if one.get("namespace") else one["name"] for one in chosen)

    return read


def _role_reference(binding: Obj, _now: datetime) -> str:
    reference = binding.get("roleRef") or {}
    return f"{reference.get('kind')}/{reference.get('name')}"


def _wide(columns: Iterable[tuple[str, CellReader]]) -> tuple[PrinterColumn, ...]:
    return tuple(PrinterColumn(name, read, priority=1) for name, read in columns)


_CREATED_AT = PrinterColumn("Created At", _read_path("metadata", "creationTimestamp"), type="date")

COLUMNS: dict[str, tuple[PrinterColumn, ...]] = {
    "pods": (
        NAME,
        PrinterColumn("Ready", _pod_ready),
        PrinterColumn("Status", lambda pod, _now: pod_status(pod)),
        PrinterColumn("Restarts", _pod_restarts),
        AGE,
        *_wide(
            (
                ("IP", _read_path("status", "podIP")),
                ("Node", _read_path("spec", "nodeName")),
                ("Nominated Node", _read_path("status", "nominatedNodeName")),
                ("Readiness Gates", _readiness_gates),
            )
        ),
    ),
    "nodes": (
        NAME,
        PrinterColumn("Status", _node_status),
        PrinterColumn("Roles", _node_roles),
        AGE,
        PrinterColumn("Version", _read_path("status", "nodeInfo", "kubeletVersion", empty="")),
        *_wide(
            (
                ("Internal-IP", _node_address("InternalIP")),
                ("External-IP", _node_address("ExternalIP")),
                ("OS-Image", _node_info("osImage")),
                ("Kernel-Version", _node_info("kernelVersion")),
                ("Container-Runtime", _node_info("containerRuntimeVersion")),
            )
        ),
    ),
    "namespaces": (NAME, PrinterColumn("Status", _read_path("status", "phase", empty="")), AGE),
    "services": (
        NAME,
        PrinterColumn("Type", _read_path("spec", "type")),
        PrinterColumn("Cluster-IP", _read_path("spec", "clusterIP")),
        PrinterColumn("External-IP", _service_external),
        PrinterColumn("Port(s)", _service_ports),
        AGE,
        PrinterColumn("Selector", _service_selector, priority=1),
    ),
    "events": (
        PrinterColumn("Last Seen", _event_last_seen),
        PrinterColumn("Type", _read_path("type", empty="")),
        PrinterColumn("Reason", _read_path("reason", empty="")),
        PrinterColumn("Object", _event_object),
        PrinterColumn("Subobject", _read_path("involvedObject", "fieldPath", empty=""), priority=1),
        PrinterColumn("Source", _event_source, priority=1),
        PrinterColumn("Message", lambda event, _now: str(event.get("message", "")).strip()),
        PrinterColumn("First Seen", _event_first_seen, priority=1),
        PrinterColumn("Count", _read_path("count", empty=1), priority=1),
        PrinterColumn("Name", _read_name, format="name", priority=1),
    ),
    "serviceaccounts": (NAME, AGE),
    "secrets": (NAME, PrinterColumn("Type", _read_path("type", empty="")), PrinterColumn("Data", _data_count), AGE),
    "configmaps": (NAME, PrinterColumn("Data", _data_count), AGE),
    "leases": (NAME, PrinterColumn("Holder", _read_path("spec", "holderIdentity", empty="")), AGE),
    "horizontalpodautoscalers": (
        NAME,
        PrinterColumn("Reference", _autoscaler_reference),
        PrinterColumn("Targets", _autoscaler_targets),
        PrinterColumn("MinPods", _read_path("spec", "minReplicas", empty="<unset>")),
        PrinterColumn("MaxPods", _read_path("spec", "maxReplicas")),
        PrinterColumn("Replicas", _read_path("status", "currentReplicas", empty=0)),
        AGE,
    ),
    "poddisruptionbudgets": (
        NAME,
        PrinterColumn("Min Available", _read_path("spec", "minAvailable", empty="N/A")),
        PrinterColumn("Max Unavailable", _read_path("spec", "maxUnavailable", empty="N/A")),
        PrinterColumn("Allowed Disruptions", _read_path("status", "disruptionsAllowed", empty=0), type="integer"),
        AGE,
    ),
    "priorityclasses": (
        NAME,
        PrinterColumn("Value", _read_path("value"), type="integer"),
        PrinterColumn("Global-Default", _read_path("globalDefault", empty=False), type="boolean"),
        AGE,
        PrinterColumn("PreemptionPolicy", _read_path("preemptionPolicy")),
    ),
    "roles": (NAME, _CREATED_AT),
    "rolebindings": (
        NAME,
        PrinterColumn("Role", _role_reference),
        AGE,
        *_wide(
            (
                ("Users", _subjects("User")),
                ("Groups", _subjects("Group")),
                ("ServiceAccounts", _subjects("ServiceAccount")),
            )
        ),
    ),
    "customresourcedefinitions": (NAME, _CREATED_AT),
}
