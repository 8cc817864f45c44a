"""Which parts of an object the mirror keeps: one function for each kind, from the API's JSON to the columns of a table.

After it: `writing`, which stores the columns, and `reading`, which decides what an empty value means. The invariant:
every function accepts every object. A field that is missing or has the wrong form becomes empty, 0 or -1, so that one
malformed object never keeps the others from being stored.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from dataclasses import field as default
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final

import orjson
from django.db import models
from django.db.models.fields import Field
from django.db.models.options import Options

from rollouts.cluster import Obj, Resource
from rollouts.cluster.resources import (
    NODES,
    PODCLIQUES,
    PODCLIQUESCALINGGROUPS,
    PODCLIQUESETS,
    PODGANGS,
    PODS,
    SERVICES,
)
from rollouts.engine.manifest.defaults import with_defaults
from rollouts.engine.model import names
from rollouts.engine.model.conditions import (
    AVAILABLE,
    NOTHING_IN_THE_WAY,
    PROGRESSING,
    SCALED_BELOW,
    STUCK,
    VALID,
    WRITE_DENIED,
)
from rollouts.engine.model.container_faults import CRASH_LOOP_RESTARTS, ContainerFault
from rollouts.engine.model.template_keys import TEMPLATE_KEYS, TEMPLATE_REPLICAS
from rollouts.engine.model.times import parse_time
from rollouts.engine.scheduling.resources import compute_requests
from rollouts.engine.simulation.pod_behaviour import join_images
from rollouts.mirror.other_operator import GROVE_FINALIZER, find_grove_write_time, is_written_by_grove
from rollouts.models import Clique, Gang, Mirrored, Node, Pod, ScalingGroup, Service, Workload

Row = dict[str, Any]

_GROVE_GROUP_PREFIX: Final = "grove.io/"
_LARGEST_INT: Final = 2**31 - 1
_LARGEST_VERSION: Final = 2**63 - 1


@dataclass(frozen=True)
class Table:
    """A kind of objects and the table that mirrors it."""

    model: type[Mirrored]
    parse: Callable[[Obj], Row]  # the columns that only this kind has
    # The values that columns without a counterpart in the object have in a new row.
    initial_values: Mapping[str, Any] = default(default_factory=dict, hash=False)

    @cached_property
    def name(self) -> str:
        """The table's name in the database."""
        return self._options.db_table

    @cached_property
    def fields(self) -> tuple["Field[Any, Any]", ...]:
        """All columns except the primary key."""
        return tuple(field for field in self._options.concrete_fields if not field.primary_key)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(field.attname for field in self.fields)

    @cached_property
    def limits(self) -> Mapping[str, int]:
        """The maximum length of text columns."""
        return {
            field.attname: field.max_length
            for field in self.fields
            if isinstance(field, models.CharField) and field.max_length is not None
        }

    @property
    def _options(self) -> "Options[Mirrored]":
        return self.model._meta  # noqa: SLF001 (public in all but name)

    @property
    def has_workload(self) -> bool:
        """Whether its rows name their workload."""
        return "workload" in self.columns


def make_row(table: Table, obj: Obj) -> Row:
    """Return the columns of an object, except those that only the writer knows."""
    metadata = obj["metadata"]
    row: Row = {
        "namespace": metadata.get("namespace") or "",
        "name": metadata["name"],
        "uid": metadata.get("uid") or "",
        "created": parse_time(metadata.get("creationTimestamp")) or 0.0,
        "leaving": metadata.get("deletionTimestamp") is not None,
        **table.parse(obj),
    }
    for column, limit in table.limits.items():
        text = row.get(column)
        if text and (len(text) > limit or "\0" in text):
            row[column] = _without_nul(text)[:limit]
    row["digest"] = _compute_digest(row)
    row["resource_version"] = parse_resource_version(obj)
    row.update(table.initial_values)
    return row


def parse_resource_version(obj: Obj) -> int:
    """Return the resourceVersion as a number; 0 if there is none."""
    text = obj["metadata"].get("resourceVersion")
    return min(int(text), _LARGEST_VERSION) if isinstance(text, str) and text.isascii() and text.isdigit() else 0


def _compute_digest(row: Row) -> int:
    return int.from_bytes(blake2b(orjson.dumps(row), digest_size=8).digest(), "big", signed=True)


def _parse_workload(obj: Obj) -> Row:
    metadata, spec, status = obj["metadata"], _mapping(obj.get("spec")), _mapping(obj.get("status"))
    # The resourceVersion changes with every write and has its own column; nothing here reads managedFields.
    kept = {key: value for key, value in metadata.items() if key not in ("managedFields", "resourceVersion")}
    progress = _mapping(status.get("updateProgress"))
    conditions = _conditions_by_type(status)
    stuck = _text(_find_condition(conditions, STUCK, "True").get("reason"))
    unavailable = _text(_find_condition(conditions, AVAILABLE, "False").get("reason"))
    waits_for = _text(_find_condition(conditions, STUCK, "False").get("reason"))
    return {
        "manifest": _render_json(obj | {"metadata": kept}),
        **_parse_grove_write(obj),
        "written_by_grove": _is_kept_by_grove(obj),
        "labels": _render_json(metadata.get("labels") or {}),
        "generation": _int(metadata.get("generation")),
        "observed_generation": _int(status.get("observedGeneration")),
        "replicas": _int(spec.get("replicas")),
        "strategy": _parse_strategy(obj),
        "generation_hash": _text(status.get("currentGenerationHash")),
        "updated_replicas": _int(status.get("updatedReplicas")),
        "available_replicas": _int(status.get("availableReplicas")),
        "update_started_at": parse_time(progress.get("updateStartedAt")),
        "update_ended_at": parse_time(progress.get("updateEndedAt")),
        "progressing_reason": _text(conditions.get(PROGRESSING, {}).get("reason")),
        "stuck_reason": stuck,
        "waits_for": "" if waits_for == NOTHING_IN_THE_WAY else waits_for,
        "fault_reason": _text(_find_condition(conditions, VALID, "False").get("reason"))
        or _text(_find_condition(conditions, WRITE_DENIED, "True").get("reason"))
        # Also during an update, which is not stuck for this reason.
        or (SCALED_BELOW if unavailable == SCALED_BELOW and not stuck else ""),
    }


def _parse_strategy(obj: Obj) -> str:
    spec = _mapping(_mapping(with_defaults(obj)).get("spec"))
    return _text(_mapping(spec.get("updateStrategy")).get("type"))


def _parse_group(obj: Obj) -> Row:
    spec, owned = _mapping(obj.get("spec")), _parse_owner(obj, "PodCliqueSet")
    return {
        **owned,
        "template": obj["metadata"]["name"].removeprefix(f"{owned['workload']}-{owned['replica']}-"),
        **_parse_scale(obj, spec),
        "status": _render_json(_mapping(obj.get("status"))),
        **_parse_grove_write(obj),
    }


def _parse_clique(obj: Obj) -> Row:
    spec, labels = _mapping(obj.get("spec")), _labels(obj)
    owned = _parse_owner(obj, "PodCliqueSet", "PodCliqueScalingGroup")
    group, group_replica = labels.get(names.GROUP, ""), _parse_index(labels.get(names.GROUP_REPLICA_INDEX))
    prefix = f"{group}-{group_replica}-" if group else f"{owned['workload']}-{owned['replica']}-"
    return {
        **owned,
        "template": obj["metadata"]["name"].removeprefix(prefix),
        "group": group,
        "group_replica": group_replica if group else -1,
        "template_hash": labels.get(names.TEMPLATE_HASH, ""),
        **_parse_scale(obj, spec),
        "status": _render_json(_mapping(obj.get("status"))),
        **_parse_grove_write(obj),
    }


def _parse_scale(obj: Obj, spec: Mapping[str, Any]) -> Row:
    annotations = _mapping(obj["metadata"].get("annotations"))
    template_replicas = _parse_index(annotations.get(TEMPLATE_REPLICAS))
    return {
        "generation": _int(obj["metadata"].get("generation")),
        "replicas": _int(spec.get("replicas")),
        "min_available": _int(spec.get("minAvailable")),
        "template_replicas": None if template_replicas < 0 else template_replicas,
        "template_keys": _without_nul(_text(annotations.get(TEMPLATE_KEYS))),
    }


def _parse_gang(obj: Obj) -> Row:
    spec = _mapping(obj.get("spec"))
    groups = _mappings(spec.get("podgroups"))
    pod_groups = {
        _text(group.get("name")): [
            _int(group.get("minReplicas")),
            [_text(reference.get("name")) for reference in _mappings(group.get("podReferences"))],
        ]
        for group in groups
    }
    return {
        **_parse_owner(obj, "PodCliqueSet"),
        "pod_groups": _render_json(pod_groups),
        "priority_class": _text(spec.get("priorityClassName")),
        "scheduler": _text(_labels(obj).get(names.SCHEDULER)),
        "status": _render_json(_mapping(obj.get("status"))),
        **_parse_grove_write(obj),
    }


def _parse_service(obj: Obj) -> Row:
    publish = _mapping(obj.get("spec")).get("publishNotReadyAddresses")
    return {**_parse_owner(obj, "PodCliqueSet"), "publish_not_ready_addresses": bool(publish)}


def _parse_pod(obj: Obj) -> Row:
    spec, status, labels = _mapping(obj.get("spec")), _mapping(obj.get("status")), _labels(obj)
    conditions = _conditions_by_type(status)
    ready = conditions.get("Ready", {})
    is_ready = ready.get("status") == "True"
    containers = [*_mappings(status.get("initContainerStatuses")), *_mappings(status.get("containerStatuses"))]
    reason, message = ("", "") if is_ready else _explain_not_ready(status, containers)
    return {
        **_parse_owner(obj, "PodClique"),
        "clique": labels.get(names.CLIQUE, ""),
        "index": _parse_pod_index(labels, spec),
        "template_hash": labels.get(names.TEMPLATE_HASH, ""),
        "gang": labels.get(names.GANG, ""),
        "node": _text(spec.get("nodeName")),
        "ip": _text(status.get("podIP")),
        "phase": _text(status.get("phase")),
        "ready": is_ready,
        "ready_since": parse_time(ready.get("lastTransitionTime")),
        "gated": any(gate.get("name") == names.SCHEDULING_GATE for gate in _mappings(spec.get("schedulingGates"))),
        "gone_by": parse_time(obj["metadata"].get("deletionTimestamp")),
        "failing": not is_ready and _has_failed(status),
        "reason": reason,
        "message": _without_nul(message),
        "restarts": sum(_int(container.get("restartCount")) for container in containers),
        "scheduled_at": parse_time(_find_condition(conditions, "PodScheduled", "True").get("lastTransitionTime")),
        "fault": "" if is_ready else _without_nul(_find_fault(containers, ready)),
        "images": _without_nul(join_images(spec)),
        "requests": _render_json(dict(sorted(compute_requests(spec).items()))),
    }


def _parse_node(obj: Obj) -> Row:
    spec, status = _mapping(obj.get("spec")), _mapping(obj.get("status"))
    return {
        "ready": _conditions_by_type(status).get("Ready", {}).get("status") == "True",
        "unschedulable": bool(spec.get("unschedulable")),
        "labels": _render_json(_labels(obj)),
        "taints": _render_json(spec.get("taints") or []),
        "allocatable": _render_json(_mapping(status.get("allocatable"))),
    }


MIRRORED: Final[Mapping[Resource, Table]] = {
    PODCLIQUESETS: Table(
        Workload, _parse_workload, initial_values={"in_doubt": "[]", "refused": "{}", "ready_times": "[]"}
    ),
    PODCLIQUESCALINGGROUPS: Table(ScalingGroup, _parse_group),
    PODCLIQUES: Table(Clique, _parse_clique),
    PODGANGS: Table(Gang, _parse_gang),
    SERVICES: Table(Service, _parse_service),
    PODS: Table(Pod, _parse_pod),
    NODES: Table(Node, _parse_node, initial_values={"foreign_requests": None}),
}
"""The kinds that are mirrored, owners before what they own."""


def _parse_owner(obj: Obj, *kinds: str) -> Row:
    """Return the workload and replica in the labels, and the uid of the controller if it is of these kinds."""
    labels = _labels(obj)
    owner = _find_controller(obj)
    is_grove = _text(owner.get("apiVersion")).startswith(_GROVE_GROUP_PREFIX) and owner.get("kind") in kinds
    return {
        "workload": labels.get(names.PART_OF, ""),
        "owner_uid": _text(owner.get("uid")) if is_grove else "",
        "replica": _parse_index(labels.get(names.REPLICA_INDEX)),
    }


def _find_controller(obj: Obj) -> Mapping[str, Any]:
    owners = _mappings(obj["metadata"].get("ownerReferences"))
    return next((owner for owner in owners if owner.get("controller")), {})


def _parse_pod_index(labels: Mapping[str, str], spec: Mapping[str, Any]) -> int:
    """Return the index of a pod: from its label, or from its hostname if it has no label."""
    if names.POD_INDEX in labels:
        return _parse_index(labels[names.POD_INDEX])
    return _parse_index(_text(spec.get("hostname")).rpartition("-")[2])


def _has_failed(status: Mapping[str, Any]) -> bool:
    """Return whether a container runs and is not ready, or one, init containers included, has ended with an error."""
    containers = _mappings(status.get("containerStatuses"))
    if any(container.get("started") and not container.get("ready") for container in containers):
        return True
    return any(map(_has_exited_with_error, (*containers, *_mappings(status.get("initContainerStatuses")))))


def _has_exited_with_error(container: Mapping[str, Any]) -> bool:
    ends = (_mapping(_mapping(container.get(state)).get("terminated")) for state in ("state", "lastState"))
    return any(end.get("exitCode") for end in ends)


_FAULTS: Final = (*ContainerFault,)
_WAITING_FAULTS: Final[Mapping[str, ContainerFault]] = {
    "ErrImagePull": ContainerFault.IMAGE,
    "ImagePullBackOff": ContainerFault.IMAGE,
    "InvalidImageName": ContainerFault.IMAGE,
    "ErrImageNeverPull": ContainerFault.IMAGE,
    "CreateContainerConfigError": ContainerFault.CONFIG,
    "CreateContainerError": ContainerFault.CONFIG,
    "CrashLoopBackOff": ContainerFault.CRASH,
}
"""The faults behind the kubelet's waiting reasons; a failing pull alternates between two reasons."""


def _find_fault(containers: Iterable[Mapping[str, Any]], ready: Mapping[str, Any]) -> str:
    """Return the fault of a container of an unready pod, and a detail that stays the same while the fault lasts."""
    found = [
        fault for fault in (_find_container_fault(container, ready) for container in containers) if fault is not None
    ]
    return ": ".join(filter(None, min(found, key=lambda one: _FAULTS.index(one[0]), default=())))


def _find_container_fault(container: Mapping[str, Any], ready: Mapping[str, Any]) -> tuple[ContainerFault, str] | None:
    state = _mapping(container.get("state"))
    waiting = _mapping(state.get("waiting"))
    waits_for = _WAITING_FAULTS.get(_text(waiting.get("reason")))
    if waits_for is ContainerFault.IMAGE:
        return ContainerFault.IMAGE, _text(container.get("image"))
    if waits_for is ContainerFault.CONFIG:
        return ContainerFault.CONFIG, _text(waiting.get("message"))
    end = _mapping(state.get("terminated")) or _mapping(_mapping(container.get("lastState")).get("terminated"))
    if not end or _has_recovered(state, ready):
        return (ContainerFault.CRASH, "") if waits_for is ContainerFault.CRASH else None
    if end.get("reason") == ContainerFault.MEMORY:
        return ContainerFault.MEMORY, ""
    is_loop = _int(container.get("restartCount")) >= CRASH_LOOP_RESTARTS or _was_backed_off(state, end)
    if waits_for is ContainerFault.CRASH or is_loop:
        return ContainerFault.CRASH, f"exit code {_int(end.get('exitCode'))}"
    return None


# The kubelet restarts a container at once the first time; after that it waits for 10 s or more, less what whole seconds
# cut off.
_MIN_BACK_OFF_SECONDS: Final = 9.0


def _was_backed_off(state: Mapping[str, Any], end: Mapping[str, Any]) -> bool:
    """Return whether the kubelet waited before it restarted a running container, as in a crash loop."""
    started = parse_time(_mapping(state.get("running")).get("startedAt"))
    ended = parse_time(end.get("finishedAt"))
    return started is not None and ended is not None and started - ended >= _MIN_BACK_OFF_SECONDS


def _has_recovered(state: Mapping[str, Any], ready: Mapping[str, Any]) -> bool:
    """Return whether the pod has become Ready since the container was last started: then earlier exits do not count."""
    started = parse_time(_mapping(state.get("running")).get("startedAt"))
    changed = parse_time(ready.get("lastTransitionTime"))
    return started is not None and changed is not None and changed > started


def _explain_not_ready(status: Mapping[str, Any], containers: Iterable[Mapping[str, Any]]) -> tuple[str, str]:
    """Return the first reason and message there is: of the pod, its scheduling, a container, its readiness."""
    if status.get("reason"):
        return _text(status["reason"]), _text(status.get("message"))
    conditions = _conditions_by_type(status)
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return _text(scheduled.get("reason")), _text(scheduled.get("message"))
    for container in containers:
        state = _mapping(container.get("state"))
        not_running = _mapping(state.get("waiting")) or _mapping(state.get("terminated"))
        if not_running.get("message") or not_running.get("exitCode"):
            return _text(not_running.get("reason")), _text(not_running.get("message"))
    ready = conditions.get("Ready", {})
    return _text(ready.get("reason")), _text(ready.get("message"))


def _conditions_by_type(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {_text(condition.get("type")): condition for condition in _mappings(status.get("conditions"))}


def _find_condition(conditions: Mapping[str, Mapping[str, Any]], name: str, status: str) -> Mapping[str, Any]:
    """Return a condition if it has this status; else an empty one."""
    condition = conditions.get(name, {})
    return condition if condition.get("status") == status else {}


def _parse_grove_write(obj: Obj) -> Row:
    readable = {"metadata": {"managedFields": _mappings(obj["metadata"].get("managedFields"))}}
    return {"written_by_grove": is_written_by_grove(readable), "grove_wrote_at": find_grove_write_time(readable)}


def _is_kept_by_grove(obj: Obj) -> bool:
    """Return whether a set itself shows that Grove's operator manages it: by its finalizer, or by managed fields."""
    finalizers = obj["metadata"].get("finalizers")
    has_finalizer = isinstance(finalizers, list) and GROVE_FINALIZER in finalizers
    return has_finalizer or _parse_grove_write(obj)["written_by_grove"]


def _labels(obj: Obj) -> Mapping[str, str]:
    return _mapping(obj["metadata"].get("labels"))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _without_nul(text: str) -> str:
    """Return a text without NUL characters, which PostgreSQL does not accept."""
    return text.replace("\0", "")


def _int(value: Any) -> int:
    return max(-_LARGEST_INT, min(_LARGEST_INT, value)) if isinstance(value, int) else 0


def _parse_index(text: Any) -> int:
    """Return the number in a label; -1 if there is none."""
    readable = isinstance(text, str) and text.isascii() and text.isdigit()
    return min(_LARGEST_INT, int(text)) if readable else -1


def _render_json(value: Any) -> str:
    return orjson.dumps(value).decode()
