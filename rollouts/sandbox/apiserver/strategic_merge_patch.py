"""Strategic merge patch, for the built-in kinds: lists merge by key where the schema says so.

`verbs.patch` calls `strategic_merge`; custom kinds refuse this patch type, as in a real server. Directives understood:
`$patch: replace|delete|merge`, `$setElementOrder/<list>`, `$deleteFromPrimitiveList/<list>`, `$retainKeys`.
"""

from collections.abc import Callable
from typing import Any

from rollouts.sandbox.apiserver.errors import bad_request
from rollouts.sandbox.apiserver.schema import ANYTHING, Schema, freeze

Obj = dict[str, Any]
Identity = Callable[[Any], Any]

_ORDER = "$setElementOrder/"
_DELETE_FROM_LIST = "$deleteFromPrimitiveList/"


def strategic_merge(schema: Schema, target: Obj, patch: Obj) -> Obj:
    """Return the target with the patch merged in; neither is changed."""
    directive = patch.get("$patch")
    if directive == "replace":
        return _without_directives({key: value for key, value in patch.items() if key != "$patch"})  # type: ignore[no-any-return]
    if directive == "delete":
        return {}
    if directive not in {None, "merge"}:
        raise bad_request(f"Unknown patch type found: {directive}")
    result = dict(target)
    if "$retainKeys" in patch:
        result = {key: value for key, value in result.items() if key in patch["$retainKeys"]}
    for key, value in patch.items():
        if not key.startswith("$"):
            _merge_member(schema.child(key) or ANYTHING, result, key, value, patch)
    for key in patch:
        if key.startswith((_ORDER, _DELETE_FROM_LIST)):
            _apply_list_directive(schema, result, key, patch)
    return result


def _merge_member(schema: Schema, result: Obj, key: str, value: Any, patch: Obj) -> None:
    current = result.get(key)
    if value is None:
        result.pop(key, None)
    elif isinstance(value, dict):
        merged = strategic_merge(schema, current if isinstance(current, dict) else {}, value)
        if value.get("$patch") == "delete":
            result.pop(key, None)
        else:
            result[key] = merged
    elif isinstance(value, list) and _is_merging_list(schema):
        result[key] = _merge_list(schema, current if isinstance(current, list) else [], value, patch.get(_ORDER + key))
    else:
        result[key] = _without_directives(value)


def _is_merging_list(schema: Schema) -> bool:
    return "merge" in schema.patch_strategy.split(",")


def _merge_list(schema: Schema, current: list[Any], patch: list[Any], order: list[Any] | None) -> list[Any]:
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [
            _without_directives(item)
            for item in patch
            if not (isinstance(item, dict) and item.get("$patch") == "replace")
        ]
    identity = _make_identity(schema.merge_key)
    if schema.merge_key:
        items = list(current)
        for item in patch:
            _merge_item(schema, items, item, schema.merge_key)
    else:
        known = {freeze(item) for item in current}
        items = [*current, *(item for item in patch if freeze(item) not in known)]
    wanted = [identity(one) for one in (patch if order is None else order)]
    return _order_items(items, wanted, [identity(one) for one in current], identity)


def _make_identity(merge_key: str) -> Identity:
    """Return the function that identifies the items of a merging list."""
    if not merge_key:
        return freeze
    return lambda item: freeze(item.get(merge_key)) if isinstance(item, dict) else None


def _merge_item(schema: Schema, items: list[Any], item: Any, key: str) -> None:
    if not isinstance(item, dict) or key not in item:
        raise bad_request(f"map: {item} does not contain declared merge key: {key}")
    at = next((i for i, one in enumerate(items) if isinstance(one, dict) and one.get(key) == item[key]), None)
    if item.get("$patch") == "delete":
        if at is not None:
            del items[at]
        return
    if at is None:
        items.append(strategic_merge(schema.items or ANYTHING, {}, item))
    else:
        items[at] = strategic_merge(schema.items or ANYTHING, items[at], item)


def _order_items(items: list[Any], wanted: list[Any], before: list[Any], identity: Identity) -> list[Any]:
    """Return the patch's items in its order, each of the others before the item it preceded in the list."""
    named = {identity(item): item for item in items}
    ours = [one for one in wanted if one in named]
    theirs = [identity(item) for item in items if identity(item) not in wanted]
    result: list[Any] = []
    while ours or theirs:
        in_front = bool(ours and theirs) and _precedes(before, theirs[0], ours[0])
        source = theirs if in_front or not ours else ours
        result.append(named[source.pop(0)])
    return result


def _precedes(order: list[Any], first: Any, second: Any) -> bool:
    return first in order and second in order and order.index(first) < order.index(second)


def _apply_list_directive(schema: Schema, result: Obj, directive: str, patch: Obj) -> None:
    """Apply a deletion from a list of plain values, or the order of a list that the patch does not change."""
    prefix, key = directive.split("/", 1)
    current = result.get(key)
    if not isinstance(current, list):
        return
    if prefix == _DELETE_FROM_LIST.rstrip("/"):
        gone = {freeze(item) for item in patch[directive]}
        result[key] = [item for item in current if freeze(item) not in gone]
    elif key not in patch:
        child = schema.child(key) or ANYTHING
        result[key] = _merge_list(child, current, [], patch[directive])


def _without_directives(value: Any) -> Any:
    """Return a value without directives, as it is stored."""
    if isinstance(value, dict):
        return {
            key: _without_directives(one) for key, one in value.items() if not key.startswith("$") and one is not None
        }
    if isinstance(value, list):
        return [_without_directives(item) for item in value]
    return value
