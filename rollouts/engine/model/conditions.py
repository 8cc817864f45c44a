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

SCALED_BELOW: Final = "ScaledBelowMinAvailable"
"""Why something is below its minimum where nothing is broken: it is scaled to less."""

# Of PodGangs: ours. All others are what a gang scheduler reports.
INITIALIZED: Final = "Initialized"
ALL_CREATED_MESSAGE: Final = "All its pods have been created."
# How the message of Initialized ends: who reports the phase. So a phase that another wrote is told from our own.
SCHEDULER_PHASE_MESSAGE: Final = "A scheduler reports the phase."
_CONTROLLER_PHASE_MESSAGE: Final = "The controller reports the phase "

# Of PodCliqueSets, our own
AVAILABLE: Final = "Available"
PROGRESSING: Final = "Progressing"
STUCK: Final = "UpdateStuck"

NOTHING_IN_THE_WAY: Final = "NothingInTheWay"
"""Why an update is not stuck, where nothing is waited for."""

# The definitions take 32,768 characters, and a status with a longer one is refused whole; nobody reads so much.
MAX_MESSAGE_LENGTH: Final = 4096
# Of a list that must be complete.
MAX_LIST_MESSAGE_LENGTH: Final = 32_768

Condition = dict[str, Any]

_NO_CONDITION: Final[Mapping[str, Any]] = {}


def find_condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return a condition of a stored status; an empty one if it is not there."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == kind:
            found: Mapping[str, Any] = condition
            return found
    return _NO_CONDITION


def render_phase_message(phase: str) -> str:
    """Return how the message of Initialized says that the controller reports this phase."""
    return f"{_CONTROLLER_PHASE_MESSAGE}{phase}."


def is_phase_reported_by_scheduler(status: Mapping[str, Any]) -> bool:
    """Whether a gang scheduler reports how far a PodGang is: by a condition, a score, or another phase than we wrote.

    Once it has, it stays so: two writers would take turns for ever.
    """
    if not status.get("phase"):
        return False
    if "placementScore" in status or any(one.get("type") != INITIALIZED for one in status.get("conditions") or ()):
        return True
    message = find_condition(status, INITIALIZED).get("message") or ""
    if message.endswith(SCHEDULER_PHASE_MESSAGE):
        return True
    return _CONTROLLER_PHASE_MESSAGE in message and not message.endswith(render_phase_message(status["phase"]))


def merge_conditions(
    former: Sequence[Mapping[str, Any]], wanted: Sequence[Condition], dropped: Sequence[str] = ()
) -> list[Mapping[str, Any]]:
    """Return the conditions with those that are wanted in place; each brings the time at which it would change."""
    new = {condition["type"]: condition for condition in wanted}
    kept: list[Mapping[str, Any]] = []
    for condition in former:
        kind = condition.get("type")
        if kind in new:
            kept.append(_replace_condition(condition, new.pop(kind)))
        elif kind not in dropped:
            kept.append(condition)
    return [*kept, *new.values()]


def keep_transition_time(former: Mapping[str, Any], wanted: Condition) -> Condition:
    """Return the condition that is wanted with the time since which its status holds."""
    since = former.get("lastTransitionTime")
    if not since or former.get("status") != wanted["status"]:
        return wanted
    return {**wanted, "lastTransitionTime": since}


def _replace_condition(former: Mapping[str, Any], wanted: Condition) -> Mapping[str, Any]:
    """Return the condition that is wanted; the former one, with all that it carries, if nothing changes."""
    is_same = all(former.get(name) == wanted[name] for name in ("status", "reason", "message"))
    return former if is_same and former.get("lastTransitionTime") else keep_transition_time(former, wanted)


def make_condition(
    kind: str, status: str, reason: str, message: str, since: str, *, longest: int = MAX_MESSAGE_LENGTH
) -> Condition:
    """Return a condition that holds since then; of a message that is longer than this the beginning."""
    shortened = message if len(message) <= longest else f"{message[: longest - 1]}…"
    return {"type": kind, "status": status, "reason": reason, "message": shortened, "lastTransitionTime": since}
