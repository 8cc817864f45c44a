"""Conditions in the status of simulated objects: find one, build one, put one in place.

The rules are the engine's (`engine.model.conditions`): a condition keeps its `lastTransitionTime` until its status
changes, so it shows since when it holds however often it is written. Here they work on whole objects, with the time of
the write.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rollouts.engine.model import conditions

Obj = dict[str, Any]

_NO_CONDITION: Final[Obj] = {}


def find_condition(obj: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return the condition of that type from an object's status; an empty one if it is not there."""
    return conditions.find_condition(obj.get("status") or {}, kind)


def is_true(obj: Mapping[str, Any], kind: str) -> bool:
    """Return whether the condition of that type holds."""
    return find_condition(obj, kind).get("status") == "True"


def make_condition(kind: str, *, holds: bool, reason: str = "", message: str = "") -> Obj:
    """Build a condition without its time, which `merge_conditions` adds."""
    condition = {"type": kind, "status": "True" if holds else "False", "reason": reason, "message": message}
    return {key: value for key, value in condition.items() if value}


def make_disruption_target(reason: str, message: str) -> Obj:
    """Build the condition of a pod that the cluster removes: why it leaves."""
    return make_condition("DisruptionTarget", holds=True, reason=reason, message=message)


def merge_conditions(old: Sequence[Obj] | None, new: Sequence[Obj], now: str) -> list[Obj]:
    """Replace the conditions named in `new`, keep the others and the time of those whose status is the same."""
    merged = {condition["type"]: condition for condition in old or ()}
    for condition in new:
        dated = {**condition, "lastTransitionTime": now}
        before = merged.get(condition["type"], _NO_CONDITION)
        merged[condition["type"]] = conditions.keep_transition_time(before, dated)
    return list(merged.values())
