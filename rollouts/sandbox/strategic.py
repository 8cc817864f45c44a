"""Strategic merge patch, for the built-in kinds: lists merge by key where the schema says so.

`verbs.patch` calls `strategic_merge`; custom kinds refuse this patch type, as in a real server. Directives understood:
`$patch: replace|delete|merge`, `$setElementOrder/<list>`, `$deleteFromPrimitiveList/<list>`, `$retainKeys`.
"""

from typing import Any

from rollouts.sandbox.schema import ANYTHING, Schema, freeze
from rollouts.sandbox.status import bad_request

Obj = dict[str, Any]

_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"


def strategic_merge(schema: Schema, target: Obj, patch: Obj) -> Obj:
    """The target with the patch merged in; neither is changed."""
    directive = patch.get("$patch")
    if directive == "replace":
        return _plain({key: value for key, value in patch.items() if key != "$patch"})  # type: ignore[no-any-return]
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
        if key.startswith((_ORDER, _DELETE)):
            _directed_list(schema, result, key, patch)
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
    elif isinstance(value, list) and _merges(schema):
        result[key] = _merge_list(schema, current if isinstance(current, list) else [], value, patch.get(_ORDER + key))
    else:
        result[key] = _plain(value)


def _merges(schema: Schema) -> bool:
    return "merge" in schema.patch_strategy.split(",")


def _merge_list(schema: Schema, current: list[Any], patch: list[Any], order: list[Any] | None) -> list[Any]:
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [_plain(item) for item in patch if not (isinstance(item, dict) and item.get("$patch") == "replace")]
    if not schema.merge_key:
        known = {freeze(item) for item in current}
        merged = [*current, *(item for item in patch if freeze(item) not in known)]
        return _ordered(merged, order, freeze)
    key = schema.merge_key
    items = list(current)
    for item in patch:
        _merge_item(schema, items, item, key)
    return _ordered(items, order, lambda item: freeze(item.get(key)) if isinstance(item, dict) else None)


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


def _ordered(items: list[Any], order: list[Any] | None, identity: Any) -> list[Any]:
    """Items in the order asked for; those the order does not name stay behind the item they followed."""
    if not order:
        return items
    wanted = [identity(one) for one in order]
    named = {identity(item): item for item in items if identity(item) in wanted}
    result = [named[one] for one in wanted if one in named]
    previous: Any = None
    for item in items:
        if identity(item) not in wanted:
            places = [identity(one) for one in result]
            result.insert(places.index(previous) + 1 if previous in places else 0, item)
        previous = identity(item)
    return result


def _directed_list(schema: Schema, result: Obj, directive: str, patch: Obj) -> None:
    """Deletions from lists of plain values, and orders for lists that the patch does not otherwise touch."""
    prefix, key = directive.split("/", 1)
    current = result.get(key)
    if not isinstance(current, list):
        return
    if prefix == _DELETE.rstrip("/"):
        gone = {freeze(item) for item in patch[directive]}
        result[key] = [item for item in current if freeze(item) not in gone]
    elif key not in patch:
        child = schema.child(key) or ANYTHING
        result[key] = _merge_list(child, current, [], patch[directive])


def _plain(value: Any) -> Any:
    """A value without directives, as it is stored."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items() if not key.startswith("$") and one is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
