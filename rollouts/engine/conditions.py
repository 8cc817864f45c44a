"""Conditions: what is true of an object, since when, and why, as the API writes them.

`status` puts them into the status of the three kinds; `termination` reads since when they hold. A condition keeps its
time until its status changes; conditions of others stay where they are.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

# Of PodCliques and PodCliqueScalingGroups, as Grove has them
BREACHED: Final = "MinAvailableBreached"
SCHEDULED: Final = "PodCliqueScheduled"
TERMINATING: Final = "GangTerminationInProgress"

# Of PodCliqueSets, our own
AVAILABLE: Final = "Available"
PROGRESSING: Final = "Progressing"
STUCK: Final = "UpdateStuck"

NOTHING_IN_THE_WAY: Final = "NothingInTheWay"
"""Why an update is not stuck, where nothing is waited for."""

# The definitions take 32,768 characters, and a status with a longer one is refused whole; nobody reads so much.
LONGEST_MESSAGE: Final = 4096

Condition = dict[str, Any]

_NONE: Final[Mapping[str, Any]] = {}


def find_condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return a condition of a stored status; an empty one if it is not there."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == kind:
            found: Mapping[str, Any] = condition
            return found
    return _NONE


def put_conditions(
    former: Sequence[Mapping[str, Any]], wanted: Sequence[Condition], dropped: Sequence[str] = ()
) -> list[Mapping[str, Any]]:
    """Return the conditions with those that are wanted in place; each brings the time at which it would change."""
    new = {condition["type"]: condition for condition in wanted}
    kept: list[Mapping[str, Any]] = []
    for condition in former:
        kind = condition.get("type")
        if kind in new:
            kept.append(_keep_time(condition, new.pop(kind)))
        elif kind not in dropped:
            kept.append(condition)
    return [*kept, *new.values()]


def _keep_time(former: Mapping[str, Any], wanted: Condition) -> Mapping[str, Any]:
    """Return the condition that is wanted, since when its status holds; the former one if nothing changes."""
    if former.get("status") != wanted["status"] or "lastTransitionTime" not in former:
        return wanted
    if former.get("reason") == wanted["reason"] and former.get("message") == wanted["message"]:
        return former
    return {**wanted, "lastTransitionTime": former["lastTransitionTime"]}


def condition(kind: str, status: str, reason: str, message: str, since: str) -> Condition:
    """Return a condition that holds since then; of a message without end the beginning."""
    told = message if len(message) <= LONGEST_MESSAGE else f"{message[: LONGEST_MESSAGE - 1]}…"
    return {"type": kind, "status": status, "reason": reason, "message": told, "lastTransitionTime": since}
