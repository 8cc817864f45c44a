"""Conditions and the moments they carry, as every Kubernetes status writes them.

The one rule kept here: `lastTransitionTime` moves only when `status` changes, so a condition tells since when
it holds however often it is written. Moments are stored to the second; finer times live only in memory.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

Obj = dict[str, Any]


def render_time(moment: datetime) -> str:
    """Write a moment as the API does: RFC 3339 in UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """Read a moment written by any client of the API."""
    return datetime.fromisoformat(text).astimezone(UTC)


def find_condition(obj: Obj, kind: str) -> Obj | None:
    """Give the condition of that type from an object's status."""
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition.get("type") == kind:
            found: Obj = condition
            return found
    return None


def is_true(obj: Obj, kind: str) -> bool:
    """Say whether the condition of that type holds."""
    condition = find_condition(obj, kind)
    return condition is not None and condition.get("status") == "True"


def make_condition(kind: str, *, holds: bool, reason: str = "", message: str = "") -> Obj:
    """Build a condition without its time, which `merge_conditions` gives it."""
    condition = {"type": kind, "status": "True" if holds else "False", "reason": reason, "message": message}
    return {key: value for key, value in condition.items() if value}


def merge_conditions(old: Sequence[Obj] | None, new: Sequence[Obj], now: datetime) -> list[Obj]:
    """Replace the conditions named in `new`, keep the others and the time of those whose status is the same."""
    merged = {condition["type"]: condition for condition in old or ()}
    for condition in new:
        before = merged.get(condition["type"])
        unchanged = before is not None and before.get("status") == condition["status"]
        since = before.get("lastTransitionTime") if before is not None and unchanged else None
        merged[condition["type"]] = {**condition, "lastTransitionTime": since or render_time(now)}
    return list(merged.values())
