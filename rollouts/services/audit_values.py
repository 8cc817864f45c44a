"""Limits the size of what the audit log stores, so that no padding hides which fields a command changed.

Before it: `edit`, with the fields of a change, and `audit`, with a value whose secrets are masked, which also limits
its depth. Of a value that is too large, the largest parts are replaced by their size; what fits stays, with its name.
Of too many fields, those of one parent are replaced by their number, the largest parents first.

The invariants: the result is never larger than the limit; each changed field is in it, or one of its parents is.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

# Of one value as JSON: enough for the manifest of a large workload.
MAX_VALUE_BYTES: Final = 256 * 1024
# With names of this length, the names of all fields fit into a value.
MAX_FIELDS: Final = 500
MAX_NAME_BYTES: Final = 400

_SIZE_OF_OMISSION: Final = 40  # at least as much as the JSON of what stands for an omitted part
_SIZE_OF_SIGNS: Final = 2  # of the colon and the comma around a member
_MORE: Final = "…"


def merge_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return at most MAX_FIELDS fields by name; a parent with the number of its fields replaces the others."""
    merged: dict[str, int] = {}  # how many fields a parent stands for
    names = dict.fromkeys(fields, 1)
    while found := _find_crowded(names):
        for name in found:
            parent, count = _parent_of(name), names.pop(name)
            merged[parent] = names[parent] = names.get(parent, 0) + count
    return {name: _omit(merged[name], "field") if name in merged else fields[name] for name in names}


def _find_crowded(names: Iterable[str]) -> list[str]:
    """Return the fields to replace by their parents: names that are too long, or fields of the largest parents."""
    known = [*names]
    if long := [name for name in known if name and _count_bytes(name) > MAX_NAME_BYTES]:
        return long
    by_parent: dict[str, list[str]] = {}
    for name in known:
        by_parent.setdefault(_parent_of(name), []).append(name)
    left = len(known)
    if left == len(by_parent) > MAX_FIELDS:
        deepest = max(map(_depth_of, known))
        return [name for name in known if _depth_of(name) == deepest]
    found: list[str] = []
    for fields in sorted(by_parent.values(), key=len, reverse=True):
        if left <= MAX_FIELDS or len(fields) == 1:
            break
        left -= len(fields) - 1
        found += fields
    return found


def _parent_of(name: str) -> str:
    """Return the field that a field belongs to; empty: the object itself.

    >>> [_parent_of(name) for name in ("spec.cliques[1].annotations[example.com/owner]", "spec.cliques[1]", "spec")]
    ['spec.cliques[1].annotations', 'spec.cliques', '']
    """
    return name[: max(0, name.rfind("["))] if name.endswith("]") else name.rpartition(".")[0]


def _depth_of(name: str) -> int:
    return name.count(".") + name.count("[")


def limit_size(value: Any, max_bytes: int = MAX_VALUE_BYTES) -> Any:
    """Return a JSON value, with its largest parts replaced by their size if it is too large."""
    size = _count_bytes(value)
    if size <= max_bytes:
        return value
    if isinstance(value, dict):
        limited = _limit_members(value, max_bytes)
        if more := len(value) - len(limited):
            limited[_MORE] = _omit(more, "field")
        return limited if len(limited) > bool(more) else _omit(size, "byte")
    if isinstance(value, list):
        members = _limit_members(dict(enumerate(value)), max_bytes)
        more = len(value) - len(members)
        rest = [_omit(more, "entry", "entries")] if more else []
        return [*members.values(), *rest] if members else _omit(size, "byte")
    return _omit(size, "byte")


def _limit_members(members: Mapping[Any, Any], max_bytes: int) -> dict[Any, Any]:
    """Return as many members as fit, in their order: the small ones as they are, the large ones limited."""
    room = max_bytes - 2 * _SIZE_OF_OMISSION  # brackets, and how many members are left out
    names: list[Any] = []
    for name in sorted(members, key=_count_name):
        cost = _count_name(name) + _SIZE_OF_SIGNS
        if room < cost + _SIZE_OF_OMISSION * (len(names) + 1):
            break
        room -= cost
        names.append(name)
    limited = {}
    sizes = {name: _count_bytes(members[name]) for name in names}
    for left, name in zip(range(len(names), 0, -1), sorted(names, key=sizes.__getitem__), strict=True):
        limited[name] = limit_size(members[name], room // left)
        room -= min(sizes[name], room // left)
    return {name: limited[name] for name in members if name in limited}


def _count_name(name: str | int) -> int:
    return _count_bytes(name) if isinstance(name, str) else 0


def _count_bytes(value: Any) -> int:
    return len(orjson.dumps(value, default=str))


def _omit(count: int, word: str, words: str = "") -> str:
    return f"omitted: {count} {word if count == 1 else words or word + 's'}"
