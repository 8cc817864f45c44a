"""The codes of waits, and which of several waits explains most (`docs/semantics.md` 12).

`diagnosis` gives each wait its code; conditions, pages and the API show the same word. `messages` has the sentences.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from rollouts.engine.model.actions import Wait
from rollouts.engine.model.conditions import SCALED_BELOW
from rollouts.engine.model.container_faults import ContainerFault
from rollouts.engine.model.values import fast_replace


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


def is_consequence(wait: Wait, problem: Wait) -> bool:
    """Whether a wait follows from a problem in what blocks it, or else in its own component."""
    if wait.blocked_by:
        return any(problem.component.startswith(f"{name}-") for name in wait.blocked_by)
    # Of a set or scaling group, an index follows: `w-0-decode-1-leader` is part of `w-0-decode`, `w-0-decode-b` is not.
    return re.fullmatch(rf"{re.escape(wait.component)}(-\d+-.+)?", problem.component) is not None


def count_budgets_to_problems(waits: Iterable[Wait]) -> tuple[Wait, ...]:
    """Return the waits; an exhausted budget is part of the problem of its component that exhausts it."""
    waits = tuple(waits)
    # A component that is scaled below its minimum takes nothing from a budget.
    problems = [wait for wait in waits if wait.is_problem and wait.code not in (*CONSEQUENCE_CODES, SCALED_BELOW)]
    return tuple(
        fast_replace(wait, is_problem=True)
        if wait.code == WaitCode.BUDGET_EXHAUSTED and any(is_consequence(wait, problem) for problem in problems)
        else wait
        for wait in waits
    )


def find_problem(waits: Iterable[Wait]) -> Wait | None:
    """Return the problem that explains most, or None if no wait is a problem."""
    return min((wait for wait in waits if wait.is_problem), key=wait_sort_key, default=None)
