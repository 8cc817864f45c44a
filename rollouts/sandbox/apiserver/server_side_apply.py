"""Server-side apply: the stored object after a configuration is applied to it.

`verbs.patch` calls `apply_configuration` with the stored object (or none) and treats the result as a create or update.
A field that another manager owns with another value is a conflict, unless forced; a field that this manager applied
before and no longer names is removed, unless another manager owns it.
"""

import copy
from collections.abc import Iterator
from typing import Any

import orjson

from rollouts.sandbox.apiserver.errors import ApiError, StatusCause, invalid
from rollouts.sandbox.apiserver.fieldsets import (
    FieldSet,
    applied_fields,
    compare,
    difference,
    intersection,
    is_granular,
    items_by_key,
    member_schema,
    render_paths,
    union,
)
from rollouts.sandbox.apiserver.formats import render_json
from rollouts.sandbox.apiserver.managed_fields import (
    FieldManager,
    ManagedFields,
    ManagedFieldSet,
    parse_managed_fields,
    set_managed_fields,
    without_reset_fields,
)
from rollouts.sandbox.apiserver.registry import Kind
from rollouts.sandbox.apiserver.schema import ANYTHING, MISSING, Schema, type_name

Obj = dict[str, Any]


def apply_configuration(
    kind: Kind, current: Obj | None, configuration: Obj, manager: FieldManager, *, force: bool, now: str
) -> Obj:
    """Return the stored object with a configuration applied; raise the conflicts with other managers."""
    problem = _find_type_error(kind.schema, configuration, "")
    if problem is not None:
        raise _not_typed(kind, configuration, problem)
    reachable = {"status"} if manager.subresource == "status" else set(configuration) - {"status"}
    named = {key: value for key, value in configuration.items() if key in reachable}
    nulls = list(null_findings(kind.schema, named)) if not kind.builtin else []
    if nulls:
        raise invalid(kind.qualified_kind(configuration["metadata"]["name"]), nulls)
    live: Obj = current or {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}}
    managed = parse_managed_fields(live)
    applied = without_reset_fields(kind, applied_fields(kind.schema, configuration), manager.subresource)
    last_applied = managed[manager].fields if manager in managed else {}
    others: ManagedFields = {one: share for one, share in managed.items() if one != manager}
    merged = _merge(kind.schema, live, configuration)
    kept = applied
    for share in others.values():
        kept = union(kept, share.fields)
    # Metadata itself always stays.
    result: Obj = _remove_unapplied(kind.schema, merged, last_applied, {"f:metadata": {}, **kept})
    return _transfer_ownership(kind, live, result, others, (manager, applied, last_applied), force=force, now=now)


def _transfer_ownership(
    kind: Kind,
    live: Obj,
    result: Obj,
    others: ManagedFields,
    applied: tuple[FieldManager, FieldSet, FieldSet],
    *,
    force: bool,
    now: str,
) -> Obj:
    """Compute the owners after the apply; reject conflicts."""
    owner, mine, last = applied
    found = compare(kind.schema, live, result)
    changed = without_reset_fields(kind, found.changed, owner.subresource)
    conflicting = {one: intersection(share.fields, changed) for one, share in others.items()}
    if not force and any(conflicting.values()) and not _is_client_side_migration(kind, live, owner, conflicting):
        raise _make_conflict_error(conflicting)
    after: ManagedFields = {
        one: ManagedFieldSet(difference(difference(share.fields, conflicting[one]), found.removed), share.time)
        for one, share in others.items()
    }
    previous = parse_managed_fields(live).get(owner)
    is_noop = last == mine and not found.changed and not found.removed
    after[owner] = ManagedFieldSet(mine, previous.time if previous is not None and is_noop else now)
    result = {**result, "metadata": {**result["metadata"]}}
    set_managed_fields(result, after)
    return result


_KUBECTL = "kubectl"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def _is_client_side_migration(
    kind: Kind, live: Obj, owner: FieldManager, conflicting: dict[FieldManager, FieldSet]
) -> bool:
    """Return whether all conflicts are with kubectl's own earlier client-side apply."""
    text = (live["metadata"].get("annotations") or {}).get(_LAST_APPLIED)
    if owner.manager != _KUBECTL or text is None:
        return False
    try:
        before = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    if not isinstance(before, dict) or _find_type_error(kind.schema, before, "") is not None:
        return False
    allowed = applied_fields(kind.schema, before)
    return not any(difference(fields, allowed) for fields in conflicting.values())


def _make_conflict_error(conflicting: dict[FieldManager, FieldSet]) -> ApiError:
    causes = [
        StatusCause("FieldManagerConflict", f"conflict with {_describe_manager(owner)}", path)
        for owner, fields in conflicting.items()
        for path in render_paths(fields)
    ]
    if len(causes) == 1:
        summary = f"1 conflict: {causes[0].message}: {causes[0].field}"
    else:
        lines: list[str] = []
        for owner in sorted(conflicting, key=_describe_manager):
            fields = list(render_paths(conflicting[owner]))
            if fields:
                lines += [f"conflicts with {_describe_manager(owner)}:", *(f"- {path}" for path in fields)]
        summary = f"{len(causes)} conflicts: " + "\n".join(lines)
    return ApiError(409, "Conflict", f"Apply failed with {summary}", causes=tuple(causes))


def _describe_manager(owner: FieldManager) -> str:
    through = f' with subresource "{owner.subresource}"' if owner.subresource else ""
    using = f" using {owner.api_version}" if owner.operation == "Update" else ""
    return f'"{owner.manager}"{through}{using}'


# --- merging and removing ------------------------------------------------------------------------------------------


def _merge(schema: Schema, live: Any, applied: Any) -> Any:
    """Return the live value merged with the applied one; granular maps and lists merge part by part."""
    if type(live) is not type(applied) or not is_granular(schema, applied):
        return copy.deepcopy(applied)
    if isinstance(applied, dict):
        result = dict(live)
        for name, value in applied.items():
            result[name] = _merge(member_schema(schema, name), result.get(name, MISSING), value)
        return result
    return _merge_list(schema, live, applied)


def _merge_list(schema: Schema, live: list[Any], applied: list[Any]) -> list[Any]:
    """Applied items in their order; items only the live list has keep their place before the next shared one."""
    theirs, ours = items_by_key(schema, live), items_by_key(schema, applied)
    pending = list(ours)
    result: list[Any] = []
    for key, item in theirs.items():
        if key not in ours:
            result.append(item)
            continue
        while key in pending:
            first = pending.pop(0)
            result.append(_merge(schema.items or ANYTHING, theirs.get(first, MISSING), ours[first]))
    result += [copy.deepcopy(ours[key]) for key in pending]
    return result


def _remove_unapplied(schema: Schema, value: Any, last: FieldSet, kept: FieldSet) -> Any:
    """Remove what was applied before and has no owner now; descend into parts that still have one."""
    if isinstance(value, dict):
        result = dict(value)
        for name, member in value.items():
            key = f"f:{name}"
            if key not in last:
                continue
            if key not in kept:
                del result[name]
            elif last[key]:
                result[name] = _remove_unapplied(member_schema(schema, name), member, last[key], kept[key])
        return result
    if not isinstance(value, list):
        return value
    remaining: list[Any] = []
    for key, item in items_by_key(schema, value).items():
        if key not in last:
            remaining.append(item)
        elif key in kept:
            remaining.append(_remove_unapplied(schema.items or ANYTHING, item, last[key], kept[key]))
    return remaining


# --- whether a configuration fits the schema -----------------------------------------------------------------------

_SCALARS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def _find_type_error(schema: Schema, value: Any, path: str) -> str | None:
    """Return what keeps a configuration from being compared field by field; the apply is then rejected."""
    if value is None:
        return None
    if schema.type == "object":
        wrong = f"{path}: expected map, got {_render_go_value(value)}"
        return _find_member_type_error(schema, value, path) if isinstance(value, dict) else wrong
    if schema.type == "array":
        wrong = f"{path}: expected list, got {_render_go_value(value)}"
        return _find_item_type_error(schema, value, path) if isinstance(value, list) else wrong
    classes = _SCALARS.get(schema.type, (object,))
    right = isinstance(value, classes) and (schema.type in {"boolean", ""} or not isinstance(value, bool))
    if schema.type in {"integer", "number"}:
        wrong = f"{path}: expected numeric (int or float), got {type_name(value)}"
    else:
        wrong = f"{path}: expected {schema.type}, got &value.valueUnstructured{{Value:{render_json(value)}}}"
    return None if right else wrong


def null_findings(schema: Schema, value: Any, path: str = "") -> Iterator[StatusCause]:
    """Find explicit nulls where the schema takes none: an apply keeps nulls, so they are rejected, not dropped."""
    if isinstance(value, dict):
        for name, member in value.items():
            child = schema.child(name)
            if child is not None:
                yield from null_findings(child, member, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            yield from null_findings(schema.items, item, f"{path}[{index}]")
    elif value is None and schema.type and not schema.nullable:
        sentence = f'Invalid value: "null": {path} in body must be of type {schema.type}: "null"'
        yield StatusCause("FieldValueTypeInvalid", sentence, path)


def _find_member_type_error(schema: Schema, value: Obj, path: str) -> str | None:
    for name, member in value.items():
        child = schema.child(name)
        if child is None:
            if schema.preserve or schema.embedded:
                continue
            return f"{path}.{name}: field not declared in schema"
        problem = _find_type_error(child, member, f"{path}.{name}")
        if problem is not None:
            return problem
    return None


def _find_item_type_error(schema: Schema, value: list[Any], path: str) -> str | None:
    seen: set[str] = set()
    for index, item in enumerate(value):
        if is_granular(schema, value):
            if schema.list_type == "map" and not _has_key(schema, item):
                keys = " ".join(render_json(key) for key in schema.list_map_keys)
                return (
                    f"{path}: element {index}: associative list with keys has an element that omits all key fields "
                    f"[{keys}] (and doesn't have default values for any key fields)"
                )
            [element] = items_by_key(schema, [item])
            if element in seen:
                return f"{path}: duplicate entries for key {next(render_paths({element: {}}))}"
            seen.add(element)
        problem = _find_type_error(schema.items or ANYTHING, item, f"{path}[{index}]")
        if problem is not None:
            return problem
    return None


def _has_key(schema: Schema, item: Any) -> bool:
    members = (schema.items.properties if schema.items is not None else None) or {}
    return isinstance(item, dict) and any(
        key in item or (key in members and members[key].default is not MISSING) for key in schema.list_map_keys
    )


def _render_go_value(value: Any) -> str:
    return f"&{{{value if isinstance(value, str) else render_json(value)}}}"


def _not_typed(kind: Kind, configuration: Obj, problem: str) -> ApiError:
    metadata = configuration.get("metadata") or {}
    place = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
    version = f"{kind.group}/{kind.version}"
    sentence = f"failed to create typed patch object ({place}; {version}, Kind={kind.kind}): {problem}"
    return ApiError(500, "", sentence)
