"""The codes of waits, and which of several waits explains most (`docs/semantics.md` 12).

`diagnosis` gives each wait its code; conditions, pages and the API show the same word. `messages` has the sentences.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from rollouts.engine.model.actions import Wait
from rollouts.engine.model.conditions import SCALED_BELOW
from rollouts.engine.model.container_faults import ContainerFault


class WaitCode(StrEnum):
    """What is waited for."""

    WAITING_FOR_READY = "WaitingForReady"
    WAITING_FOR_TERMINATION = "WaitingForTermination"
    BUDGET_EXHAUSTED = "BudgetExhausted"
    SURGE_UNSCHEDULABLE = "SurgeUnschedulable"
    SURGE_NOT_READY = "SurgeNotReady"
    SURGE_GATED = "SurgeGated"
    REPLICA_UNSCHEDULABLE = "ReplicaUnschedulable"
    WAITING_FOR_REPLICA = "WaitingForReplica"
    AWAITING_DELETION = "AwaitingDeletion"
    SCALED_BELOW_MIN_AVAILABLE = SCALED_BELOW
    # A container fails, or replicas are missing: a problem at once.
    IMAGE_NOT_PULLED = str(ContainerFault.IMAGE)
    CONTAINER_NOT_CREATED = str(ContainerFault.CONFIG)
    OUT_OF_MEMORY = str(ContainerFault.MEMORY)
    CRASH_LOOP = str(ContainerFault.CRASH)
    TOO_FEW_AVAILABLE = "TooFewAvailable"


FAULT_CODES: Final = frozenset(WaitCode(str(fault)) for fault in ContainerFault)
"""A container fails."""

NOT_READY_CODES: Final = frozenset({WaitCode.WAITING_FOR_READY, WaitCode.SURGE_NOT_READY}) | FAULT_CODES
"""Pods have a node and are not Ready."""

UNSCHEDULED_CODES: Final = frozenset(
    {WaitCode.SURGE_UNSCHEDULABLE, WaitCode.SURGE_GATED, WaitCode.REPLICA_UNSCHEDULABLE}
)
"""Pods have no node."""

CONSEQUENCE_CODES: Final = (WaitCode.TOO_FEW_AVAILABLE, WaitCode.WAITING_FOR_REPLICA, WaitCode.BUDGET_EXHAUSTED)
"""Codes that only follow from other waits; the later ones explain least."""


def wait_sort_key(wait: Wait) -> tuple[bool, int]:
    """Order waits: problems first, causes before their consequences."""
    rank = CONSEQUENCE_CODES.index(WaitCode(wait.code)) + 1 if wait.code in CONSEQUENCE_CODES else 0
    return not wait.is_problem, rank


def find_common_code(code: str) -> str:
    """Return one code for all that mean the same: a pod that is not Ready may be known to crash, or not."""
    return next((str(min(alike)) for alike in (NOT_READY_CODES, UNSCHEDULED_CODES) if code in alike), code)


def find_problem(waits: Iterable[Wait]) -> Wait | None:
    """Return the problem that explains most, or None if no wait is a problem."""
    return min((wait for wait in waits if wait.is_problem), key=wait_sort_key, default=None)
