"""What one pass over a workload came to: the only thing a reconciler tells the queue.

The reconciler returns exactly one of these values a pass; `rollouts.queue.dispatch` turns it into one transition of the
queue. Waiting is not failing: `RequeueAfter` comes back on time and leaves no mark, `Retry` comes back later with every
failure in a row, and only a pass that succeeded wipes the count.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to do until something changes."""


@dataclass(frozen=True, slots=True)
class Requeue:
    """Something was written that makes a next step possible at once."""


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Nothing can be done yet; look again by then even if nothing changes."""

    after_seconds: float
    # What is waited for, a reason of the engine or of the reconciler in CamelCase.
    reason: str


@dataclass(frozen=True, slots=True)
class Retry:
    """The pass failed in a way that may pass: try again, later each time."""

    error: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The pass failed in a way that only a change of the workload can mend: leave it alone until then."""

    error: str
    # Why, in CamelCase, as shown on the workload.
    reason: str


ReconcileResult = Done | Requeue | RequeueAfter | Retry | Stop
