"""The scale subresource: an autoscaling/v1 Scale as a view of an object, at the paths its definition names."""

from typing import Any

from rollouts.sandbox.apiserver.admission import get_nested_field
from rollouts.sandbox.apiserver.registry import ScalePaths
from rollouts.sandbox.apiserver.schema import type_name

Obj = dict[str, Any]

_SHARED_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def to_scale(paths: ScalePaths, obj: Obj) -> Obj:
    """Return the Scale of an object."""
    status: Obj = {"replicas": get_nested_field(obj, paths.status_replicas) or 0}
    selector = get_nested_field(obj, paths.selector) if paths.selector else None
    if selector:
        status["selector"] = selector
    replicas = get_nested_field(obj, paths.replicas)
    metadata = obj["metadata"]
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in _SHARED_METADATA if key in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def find_scale_problem(scale: Any) -> str | None:
    """Return why a body is no Scale, None if it is one."""
    if not isinstance(scale, dict):
        return "json: cannot unmarshal into Go value of type v1.Scale"
    replicas = get_nested_field(scale, ("spec", "replicas"))
    if replicas is None or (isinstance(replicas, int) and not isinstance(replicas, bool)):
        return None
    shape = {"boolean": "bool", "integer": "number"}.get(type_name(replicas), type_name(replicas))
    return f"json: cannot unmarshal {shape} into Go struct field ScaleSpec.spec.replicas of type int32"


def from_scale(paths: ScalePaths, obj: Obj, scale: Obj) -> Obj:
    """Return the object with the replicas, and the preconditions, of a Scale."""
    sent = scale.get("metadata") or {}
    metadata = {**obj["metadata"]}
    for key in ("uid", "resourceVersion"):
        if sent.get(key):
            metadata[key] = sent[key]
    return _with_value(obj, paths.replicas, get_nested_field(scale, ("spec", "replicas")) or 0) | {"metadata": metadata}


def _with_value(obj: Obj, path: tuple[str, ...], value: Any) -> Obj:
    """Return a copy with one value at a path set."""
    name, rest = path[0], path[1:]
    return {**obj, name: _with_value(obj.get(name) or {}, rest, value) if rest else value}
