"""Writes parts of an update strategy into the manifest of a PodCliqueSet.

Before it: `edits.edit_strategy`, with the parts that a person changes, and the overrides, with the parts that they
replace. After it: `validation`, which says whether the result may be stored or used.

The invariants: the given manifest is not changed, the parts that are not named stay as they were written, and a
strategy of a component that becomes empty is removed, because an empty `updateStrategy` is not the same as none: it
turns a type that is left out into RollingUpdate.

    spec.updateStrategy                             type; rollingUpdate with maxUnavailable and maxSurge
    spec.template.cliques[i].updateStrategy         maxUnavailable and maxSurge; the same for podCliqueScalingGroups
"""

from collections.abc import Mapping
from typing import Any, Final

Obj = dict[str, Any]
Fields = Mapping[str, Any]
"""Values by field; None removes a field."""

STRATEGY_TYPE: Final = "type"
MAX_UNAVAILABLE: Final = "maxUnavailable"
MAX_SURGE: Final = "maxSurge"

_STRATEGY: Final = "updateStrategy"
_BUDGET: Final = (MAX_UNAVAILABLE, MAX_SURGE)
_GROUPS_FIRST: Final = ("podCliqueScalingGroups", "cliques")


def put_strategy_parts(
    manifest: Mapping[str, Any], of_set: Fields, by_component: Mapping[str, Fields | None], *, both_kinds: bool
) -> Obj:
    """Return the manifest with these parts of its strategy; None removes all of the strategy of a component.

    A clique and a scaling group may have the same name. Then an edit means the group, and an override sets both: that
    is what `both_kinds` says.
    """
    changed = {**_as_dict(manifest.get("spec"))}
    if of_set:
        changed = _put_or_drop(changed, _STRATEGY, _set_strategy(_as_dict(changed.get(_STRATEGY)), of_set))
    if by_component:
        template = _as_dict(changed.get("template"))
        changed["template"] = _put_into_template(template, by_component, both_kinds=both_kinds)
    return {**manifest, "spec": changed}


def _set_strategy(former: Obj, fields: Fields) -> Obj:
    budget = {name: fields[name] for name in _BUDGET if name in fields}
    strategy = _merge(former, {STRATEGY_TYPE: fields[STRATEGY_TYPE]} if STRATEGY_TYPE in fields else {})
    if not budget:
        return strategy
    return _put_or_drop(strategy, "rollingUpdate", _merge(_as_dict(strategy.get("rollingUpdate")), budget))


def _put_into_template(template: Obj, by_component: Mapping[str, Fields | None], *, both_kinds: bool) -> Obj:
    changed, wanted = {**template}, {**by_component}
    for kind in _GROUPS_FIRST:
        entries = template.get(kind)
        if not isinstance(entries, list):
            continue
        names = {entry["name"] for entry in entries if _is_named(entry) and entry["name"] in wanted}
        if names:
            changed[kind] = [
                _put_into_component(entry, wanted[entry["name"]])
                if _is_named(entry) and entry["name"] in names
                else entry
                for entry in entries
            ]
        if not both_kinds:
            wanted = {name: fields for name, fields in wanted.items() if name not in names}
    return changed


def _put_into_component(entry: Obj, fields: Fields | None) -> Obj:
    rest = {name: value for name, value in entry.items() if name != _STRATEGY}
    if fields is None:
        return rest
    strategy = _merge(_as_dict(entry.get(_STRATEGY)), fields)
    return rest if fields and not strategy else {**entry, _STRATEGY: strategy}


def _merge(former: Obj, fields: Fields) -> Obj:
    return {name: value for name, value in {**former, **fields}.items() if value is not None}


def _put_or_drop(owner: Obj, name: str, value: Obj) -> Obj:
    """Put a value, or drop one that became empty; one that was written as empty stays."""
    if value or (name in owner and not owner[name]):
        return {**owner, name: value}
    return {other: member for other, member in owner.items() if other != name}


def _is_named(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str)


def _as_dict(value: Any) -> Obj:
    return value if isinstance(value, dict) else {}
