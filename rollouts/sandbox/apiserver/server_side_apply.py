"""Server-side apply: what an applied configuration makes of the stored object.

`verbs.patch` calls `apply_configuration` with the stored object (or none) and treats the result as a create or update.
A field that another owner holds with another value is a conflict, unless forced; a field that this manager applied
before and does not name any more goes, unless somebody else owns it.
"""

import copy
from collections.abc import Iterator
from typing import Any

import orjson

from rollouts.sandbox.apiserver.errors import ApiError, Cause, invalid
from rollouts.sandbox.apiserver.fieldsets import (
    FieldSet,
    applied_fields,
    compare,
    difference,
    intersection,
    is_granular,
    keyed,
    member_schema,
    paths,
    union,
)
from rollouts.sandbox.apiserver.formats import render
from rollouts.sandbox.apiserver.managed_fields import Owner, Owners, Share, parse_owners, without_reset, write_owners
from rollouts.sandbox.apiserver.registry import Kind
from rollouts.sandbox.apiserver.schema import ANYTHING, MISSING, Schema, type_name

Obj = dict[str, Any]


def apply_configuration(
    kind: Kind, current: Obj | None, configuration: Obj, owner: Owner, *, force: bool, now: str
) -> Obj:
    """The stored object with a configuration applied; raises the conflicts with other owners."""
    problem = _untyped(kind.schema, configuration, "")
    if problem is not None:
        raise _not_typed(kind, configuration, problem)
    reachable = {"status"} if owner.subresource == "status" else set(configuration) - {"status"}
    named = {key: value for key, value in configuration.items() if key in reachable}
    nulls = list(null_findings(kind.schema, named)) if not kind.builtin else []
    if nulls:
        raise invalid(kind.named(configuration["metadata"]["name"]), nulls)
    live: Obj = current or {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}}
    owners = parse_owners(live)
    mine = without_reset(kind, applied_fields(kind.schema, configuration), owner.subresource)
    last = owners[owner].fields if owner in owners else {}
    others: Owners = {one: share for one, share in owners.items() if one != owner}
    merged = _merged(kind.schema, live, configuration)
    kept = mine
    for share in others.values():
        kept = union(kept, share.fields)
    # Metadata itself always stays, whoever owns what in it.
    result: Obj = _pruned(kind.schema, merged, last, {"f:metadata": {}, **kept})
    return _settled(kind, live, result, others, (owner, mine, last), force=force, now=now)


def _settled(
    kind: Kind,
    live: Obj,
    result: Obj,
    others: Owners,
    applied: tuple[Owner, FieldSet, FieldSet],
    *,
    force: bool,
    now: str,
) -> Obj:
    """Settle who owns what now, or refuse over conflicts."""
    owner, mine, last = applied
    found = compare(kind.schema, live, result)
    changed = without_reset(kind, found.changed, owner.subresource)
    disputed = {one: intersection(share.fields, changed) for one, share in others.items()}
    if not force and any(disputed.values()) and not _was_applied_before(kind, live, owner, disputed):
        raise _conflicts(disputed)
    after: Owners = {
        one: Share(difference(difference(share.fields, disputed[one]), found.removed), share.time)
        for one, share in others.items()
    }
    previous = parse_owners(live).get(owner)
    is_noop = last == mine and not found.changed and not found.removed
    after[owner] = Share(mine, previous.time if previous is not None and is_noop else now)
    result = {**result, "metadata": {**result["metadata"]}}
    write_owners(result, after)
    return result


_KUBECTL = "kubectl"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def _was_applied_before(kind: Kind, live: Obj, owner: Owner, disputed: dict[Owner, FieldSet]) -> bool:
    """Whether kubectl disputes only what it applied itself, from the client's side, before it came to the server."""
    text = (live["metadata"].get("annotations") or {}).get(_LAST_APPLIED)
    if owner.manager != _KUBECTL or text is None:
        return False
    try:
        before = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    if not isinstance(before, dict) or _untyped(kind.schema, before, "") is not None:
        return False
    allowed = applied_fields(kind.schema, before)
    return not any(difference(fields, allowed) for fields in disputed.values())


def _conflicts(disputed: dict[Owner, FieldSet]) -> ApiError:
    causes = [
        Cause("FieldManagerConflict", f"conflict with {_describe(owner)}", path)
        for owner, fields in disputed.items()
        for path in paths(fields)
    ]
    if len(causes) == 1:
        summary = f"1 conflict: {causes[0].message}: {causes[0].field}"
    else:
        lines: list[str] = []
        for owner in sorted(disputed, key=_describe):
            fields = list(paths(disputed[owner]))
            if fields:
                lines += [f"conflicts with {_describe(owner)}:", *(f"- {path}" for path in fields)]
        summary = f"{len(causes)} conflicts: " + "\n".join(lines)
    return ApiError(409, "Conflict", f"Apply failed with {summary}", causes=tuple(causes))


def _describe(owner: Owner) -> str:
    through = f' with subresource "{owner.subresource}"' if owner.subresource else ""
    using = f" using {owner.api_version}" if owner.operation == "Update" else ""
    return f'"{owner.manager}"{through}{using}'


# --- merging and removing ------------------------------------------------------------------------------------------


def _merged(schema: Schema, live: Any, applied: Any) -> Any:
    """The live value with an applied one laid over it; granular maps and lists are joined part by part."""
    if type(live) is not type(applied) or not is_granular(schema, applied):
        return copy.deepcopy(applied)
    if isinstance(applied, dict):
        result = dict(live)
        for name, value in applied.items():
            result[name] = _merged(member_schema(schema, name), result.get(name, MISSING), value)
        return result
    return _merged_list(schema, live, applied)


def _merged_list(schema: Schema, live: list[Any], applied: list[Any]) -> list[Any]:
    """Applied items in their order; items only the live list has keep their place before the next shared one."""
    theirs, ours = keyed(schema, live), keyed(schema, applied)
    pending = list(ours)
    result: list[Any] = []
    for key, item in theirs.items():
        if key not in ours:
            result.append(item)
            continue
        while key in pending:
            first = pending.pop(0)
            result.append(_merged(schema.items or ANYTHING, theirs.get(first, MISSING), ours[first]))
    result += [copy.deepcopy(ours[key]) for key in pending]
    return result


def _pruned(schema: Schema, value: Any, last: FieldSet, kept: FieldSet) -> Any:
    """Take out what was applied before and nobody names now; parts that somebody keeps are looked into."""
    if isinstance(value, dict):
        result = dict(value)
        for name, member in value.items():
            key = f"f:{name}"
            if key not in last:
                continue
            if key not in kept:
                del result[name]
            elif last[key]:
                result[name] = _pruned(member_schema(schema, name), member, last[key], kept[key])
        return result
    if not isinstance(value, list):
        return value
    remaining: list[Any] = []
    for key, item in keyed(schema, value).items():
        if key not in last:
            remaining.append(item)
        elif key in kept:
            remaining.append(_pruned(schema.items or ANYTHING, item, last[key], kept[key]))
    return remaining


# --- whether a configuration fits the schema -----------------------------------------------------------------------

_SCALARS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def _untyped(schema: Schema, value: Any, path: str) -> str | None:
    """What keeps a configuration from being compared field by field; an apply is refused over it."""
    if value is None:
        return None
    if schema.type == "object":
        wrong = f"{path}: expected map, got {_go(value)}"
        return _untyped_members(schema, value, path) if isinstance(value, dict) else wrong
    if schema.type == "array":
        wrong = f"{path}: expected list, got {_go(value)}"
        return _untyped_items(schema, value, path) if isinstance(value, list) else wrong
    classes = _SCALARS.get(schema.type, (object,))
    right = isinstance(value, classes) and (schema.type in {"boolean", ""} or not isinstance(value, bool))
    if schema.type in {"integer", "number"}:
        wrong = f"{path}: expected numeric (int or float), got {type_name(value)}"
    else:
        wrong = f"{path}: expected {schema.type}, got &value.valueUnstructured{{Value:{render(value)}}}"
    return None if right else wrong


def null_findings(schema: Schema, value: Any, path: str = "") -> Iterator[Cause]:
    """Explicit nulls where the schema takes none: an apply keeps them, so they are refused instead of dropped."""
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
        yield Cause("FieldValueTypeInvalid", sentence, path)


def _untyped_members(schema: Schema, value: Obj, path: str) -> str | None:
    for name, member in value.items():
        child = schema.child(name)
        if child is None:
            if schema.preserve or schema.embedded:
                continue
            return f"{path}.{name}: field not declared in schema"
        problem = _untyped(child, member, f"{path}.{name}")
        if problem is not None:
            return problem
    return None


def _untyped_items(schema: Schema, value: list[Any], path: str) -> str | None:
    seen: set[str] = set()
    for index, item in enumerate(value):
        if is_granular(schema, value):
            if schema.list_type == "map" and not _has_key(schema, item):
                keys = " ".join(render(key) for key in schema.list_map_keys)
                return (
                    f"{path}: element {index}: associative list with keys has an element that omits all key fields "
                    f"[{keys}] (and doesn't have default values for any key fields)"
                )
            [element] = keyed(schema, [item])
            if element in seen:
                return f"{path}: duplicate entries for key {next(paths({element: {}}))}"
            seen.add(element)
        problem = _untyped(schema.items or ANYTHING, item, f"{path}[{index}]")
        if problem is not None:
            return problem
    return None


def _has_key(schema: Schema, item: Any) -> bool:
    members = (schema.items.properties if schema.items is not None else None) or {}
    return isinstance(item, dict) and any(
        key in item or (key in members and members[key].default is not MISSING) for key in schema.list_map_keys
    )


def _go(value: Any) -> str:
    return f"&{{{value if isinstance(value, str) else render(value)}}}"


def _not_typed(kind: Kind, configuration: Obj, problem: str) -> ApiError:
    metadata = configuration.get("metadata") or {}
    place = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
    version = f"{kind.group}/{kind.version}"
    sentence = f"failed to create typed patch object ({place}; {version}, Kind={kind.kind}): {problem}"
    return ApiError(500, "", sentence)
