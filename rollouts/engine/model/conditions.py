"""The conditions in a status: their types, how to find them, and how to merge new ones in.

`status` writes conditions of the four kinds; `termination` reads since when they hold. The invariants: a condition
keeps its lastTransitionTime until its status changes, and conditions of other writers stay.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

# Of PodCliques and PodCliqueScalingGroups; Grove's types.
BREACHED: Final = "MinAvailableBreached"
SCHEDULED: Final = "PodCliqueScheduled"
TERMINATING: Final = "GangTerminationInProgress"

SCALED_BELOW: Final = "ScaledBelowMinAvailable"
"""The reason of a component that is below its minimum because it is scaled to less."""

# Of PodGangs. A gang scheduler reports all other conditions.
INITIALIZED: Final = "Initialized"
ALL_CREATED_MESSAGE: Final = "All its pods have been created."
# The end of the message of Initialized says who reports the phase, which tells a scheduler's phase from ours.
SCHEDULER_PHASE_MESSAGE: Final = "A scheduler reports the phase."
_CONTROLLER_PHASE_MESSAGE: Final = "The controller reports the phase "

# Of PodCliqueSets.
AVAILABLE: Final = "Available"
PROGRESSING: Final = "Progressing"
STUCK: Final = "UpdateStuck"
# These exist only while something is wrong.
VALID: Final = "Valid"  # False: the spec is invalid
UNSUPPORTED: Final = "Unsupported"  # fields have no effect
WRITE_DENIED: Final = "WriteDenied"  # the cluster rejects writes

INVALID_SPEC: Final = "InvalidSpec"
"""The reason of Valid=False."""

NOTHING_IN_THE_WAY: Final = "NothingInTheWay"
"""The reason of an update that waits for nothing."""

# The definitions accept 32,768 characters and refuse a status with a longer message; this much is readable.
MAX_MESSAGE_LENGTH: Final = 4096
# For a message with a list that must be complete.
MAX_LIST_MESSAGE_LENGTH: Final = 32_768

Condition = dict[str, Any]

_NO_CONDITION: Final[Mapping[str, Any]] = {}


def find_condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return the condition of this type in a stored status; an empty one if there is none."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == kind:
            found: Mapping[str, Any] = condition
            return found
    return _NO_CONDITION


def render_phase_message(phase: str) -> str:
    """Return the end of the message of Initialized for a phase that the controller reports."""
    return f"{_CONTROLLER_PHASE_MESSAGE}{phase}."


def is_phase_reported_by_scheduler(status: Mapping[str, Any]) -> bool:
    """Whether a gang scheduler reports the phase of a PodGang: by a condition, a score, or a phase that is not ours.

    This stays true once it is true; two writers of one field would overwrite each other for ever.
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
    """Return the former conditions with the wanted ones merged in; a wanted one has the time of its change."""
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
    """Return the wanted condition with the transition time of its status."""
    since = former.get("lastTransitionTime")
    if not since or former.get("status") != wanted["status"]:
        return wanted
    return {**wanted, "lastTransitionTime": since}


def _replace_condition(former: Mapping[str, Any], wanted: Condition) -> Mapping[str, Any]:
    """Return the wanted condition; the former one, with all its fields, if nothing changes."""
    is_same = all(former.get(name) == wanted[name] for name in ("status", "reason", "message"))
    return former if is_same and former.get("lastTransitionTime") else keep_transition_time(former, wanted)


def make_condition(
    kind: str, status: str, reason: str, message: str, since: str, *, longest: int = MAX_MESSAGE_LENGTH
) -> Condition:
    """Return a condition that holds since a time; a message longer than `longest` is cut."""
    shortened = message if len(message) <= longest else f"{message[: longest - 1]}…"
    return {"type": kind, "status": status, "reason": reason, "message": shortened, "lastTransitionTime": since}
