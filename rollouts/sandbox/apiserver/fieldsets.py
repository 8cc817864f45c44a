"""Sets of fields, in the form objects carry them (fieldsV1), and the walks that make them.

A set is a tree of dicts whose keys are path elements: `f:name` a member of an object, `k:{"name":"a"}` an item of a
list-map, `v:"x"` an item of a set. A node is in the set when it is empty or has the key `.`; otherwise only nodes below
it are. Trees are values: every function returns a new one and may share parts of what it was given.

`managed_fields` keeps such sets per manager, `server_side_apply` compares, merges and removes by them.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from rollouts.sandbox.apiserver.schema import ANYTHING, MISSING, Schema

FieldSet = dict[str, Any]

# Members of metadata without an owner: the server sets them, or they name the object.
UNOWNED_METADATA = frozenset(
    (
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "generation",
        "managedFields",
        "resourceVersion",
    )
)
_UNOWNED_ROOT = frozenset(("apiVersion", "kind"))


# --- algebra -------------------------------------------------------------------------------------------------------


def is_member(node: FieldSet) -> bool:
    return not node or "." in node


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    if not left or not right:
        return left or right
    result = dict(left)
    for key, node in right.items():
        result[key] = _union_node(result[key], node) if key in result else node
    return result


def _union_node(left: FieldSet, right: FieldSet) -> FieldSet:
    if not left and not right:
        return {}
    joined = union(left, right)
    return {**joined, ".": {}} if is_member(left) or is_member(right) else joined


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the fields of the left set that the right one lacks."""
    result: FieldSet = {}
    for key, node in left.items():
        if key not in right:
            result[key] = node
        elif key != ".":
            _add_node(
                result, key, difference(_children(node), _children(right[key])), _is_only_in_left(node, right[key])
            )
    return result


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the fields of both sets."""
    result: FieldSet = {}
    for key, node in left.items():
        if key in right and key != ".":
            other = right[key]
            both = is_member(node) and is_member(other)
            _add_node(result, key, intersection(_children(node), _children(other)), both)
    return result


def _is_only_in_left(node: FieldSet, other: FieldSet) -> bool:
    return is_member(node) and not is_member(other)


def _children(node: FieldSet) -> FieldSet:
    return {key: child for key, child in node.items() if key != "."} if "." in node else node


def _add_node(result: FieldSet, key: str, below: FieldSet, member: bool) -> None:
    if member:
        result[key] = {**below, ".": {}} if below else {}
    elif below:
        result[key] = below


def render_paths(fields: FieldSet, prefix: str = "") -> Iterator[str]:
    """Yield the fields of a set in the notation of errors, a level's own fields before those below."""
    ordered = sorted((key, node) for key, node in fields.items() if key != ".")
    for key, node in ordered:
        if is_member(node):
            yield prefix + render_element(key)
    for key, node in ordered:
        if node:
            yield from render_paths(_children(node), prefix + render_element(key))


def render_element(key: str) -> str:
    """Render one path element: `.name`, `[name="a"]` or `[="x"]`."""
    kind, text = key[0], key[2:]
    if kind == "f":
        return f".{text}"
    if kind == "v":
        return f"[={text}]"
    parts = json.loads(text)
    return "[" + ",".join(f"{name}={json.dumps(value)}" for name, value in parts.items()) + "]"


# --- path elements of list items -----------------------------------------------------------------------------------


def item_key(schema: Schema, item: Any) -> str:
    """Return the path element of a list item: by its keys in a list-map, by its value in a set."""
    if schema.list_type == "set" or not isinstance(item, dict):
        return "v:" + _compact(item)
    members = (schema.items.properties if schema.items is not None else None) or {}
    keys: dict[str, Any] = {}
    for name in schema.list_map_keys:
        if name in item:
            keys[name] = item[name]
        elif name in members and members[name].default is not MISSING:
            keys[name] = members[name].default
    return "k:" + _compact(keys)


def _compact(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def items_by_key(schema: Schema, items: list[Any]) -> dict[str, Any]:
    """Return a granular list's items by path element."""
    return {item_key(schema, item): item for item in items}


def is_granular(schema: Schema, value: Any) -> bool:
    """Return whether the parts of a value have owners of their own."""
    if isinstance(value, dict):
        return schema.map_type != "atomic"
    if isinstance(value, list):
        return schema.list_type in {"map", "set"}
    return False


def member_schema(schema: Schema, name: str) -> Schema:
    return schema.child(name) or ANYTHING


# --- the fields an applied object names ----------------------------------------------------------------------------


def applied_fields(schema: Schema, obj: dict[str, Any]) -> FieldSet:
    """Return the fields of an applied configuration: its leaves, and the items of its granular lists."""
    result = _applied_members(schema, {k: v for k, v in obj.items() if k not in _UNOWNED_ROOT | {"metadata"}})
    named = _applied_members(member_schema(schema, "metadata"), _owned_metadata(obj))
    if named:
        result["f:metadata"] = named
    return result


def _applied_members(schema: Schema, value: dict[str, Any]) -> FieldSet:
    result: FieldSet = {}
    for name, member in value.items():
        declared = schema.properties is not None and name in schema.properties
        node = _applied(member_schema(schema, name), member)
        if node is None:
            if not declared:
                result[f"f:{name}"] = {}
        else:
            result[f"f:{name}"] = node if declared or not node else {**node, ".": {}}
    return result


def _applied(schema: Schema, value: Any) -> FieldSet | None:
    """Return the node of a value; None for an empty granular list (an empty map names itself)."""
    if not is_granular(schema, value):
        return {}
    if isinstance(value, dict):
        return _applied_members(schema, value)
    items: FieldSet = {}
    for key, item in items_by_key(schema, value).items():
        below = _applied(schema.items or ANYTHING, item) if isinstance(item, dict) else None
        items[key] = {**below, ".": {}} if below else {}
    return items or None


# --- what changed between two objects ------------------------------------------------------------------------------


@dataclass(slots=True)
class Comparison:
    """The fields that differ between an object's old and new version."""

    changed: FieldSet = field(default_factory=dict)  # added or given another value
    removed: FieldSet = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.changed or self.removed)


def compare(schema: Schema, old: dict[str, Any], new: dict[str, Any]) -> Comparison:
    """Compare two versions of an object, without the fields that have no owner."""
    result = Comparison()
    for name in {**old, **new}:
        if name in _UNOWNED_ROOT:
            continue
        was, now = old.get(name, MISSING), new.get(name, MISSING)
        if name == "metadata":
            was, now = _owned_metadata(old), _owned_metadata(new)
        _compare(member_schema(schema, name), was, now, f"f:{name}", result)
    return result


def _owned_metadata(obj: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in obj.get("metadata", {}).items() if key not in UNOWNED_METADATA}


def _compare(schema: Schema, old: Any, new: Any, key: str, found: Comparison) -> None:
    if old is new or old == new:
        return  # most of an object is the same after a write, and comparing it whole is quick
    if old is MISSING:
        found.changed[key] = all_fields(schema, new)
    elif new is MISSING:
        found.removed[key] = all_fields(schema, old)
    elif type(old) is not type(new) or not is_granular(schema, new):
        found.changed[key] = {}
    else:
        below = Comparison()
        _compare_parts(schema, old, new, below)
        if below.changed:
            found.changed[key] = below.changed
        if below.removed:
            found.removed[key] = below.removed


def _compare_parts(schema: Schema, old: Any, new: Any, found: Comparison) -> None:
    if isinstance(new, dict):
        for name in {**old, **new}:
            was, now = old.get(name, MISSING), new.get(name, MISSING)
            _compare(member_schema(schema, name), was, now, f"f:{name}", found)
        return
    before, after = items_by_key(schema, old), items_by_key(schema, new)
    for key in {**before, **after}:
        was, now = before.get(key, MISSING), after.get(key, MISSING)
        _compare(schema.items or ANYTHING, was, now, key, found)


def all_fields(schema: Schema, value: Any) -> FieldSet:
    """Return the node of a value with all its parts."""
    if not is_granular(schema, value) or not value:
        return {}
    if isinstance(value, dict):
        node = {f"f:{name}": all_fields(member_schema(schema, name), one) for name, one in value.items()}
    else:
        node = {key: all_fields(schema.items or ANYTHING, item) for key, item in items_by_key(schema, value).items()}
    return {".": {}, **node}
