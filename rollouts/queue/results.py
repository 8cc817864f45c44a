"""The result of one pass over a workload: when the queue must call the reconciler again.

The reconciler returns exactly one of these values for each pass; `rollouts.queue.dispatch` turns it into one transition
of the queue. Waiting is not failing: `RequeueAfter` is due on time and leaves no trace, `Retry` is due later with every
failure in a row, and only a pass that succeeded resets the count.
"""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to do until something changes."""

    # The value of the label `outcome` of the metric grove_ui_reconcile_seconds: dashboards and alerts depend on it.
    label: ClassVar = "Done"


@dataclass(frozen=True, slots=True)
class Requeue:
    """The pass wrote something, and the next step is possible at once."""

    label: ClassVar = "Again"


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Nothing can be done yet; the next pass is due after a delay even if nothing changes."""

    label: ClassVar = "Wait"

    after_seconds: float
    # What the workload waits for: a reason of the engine or of the reconciler in CamelCase.
    reason: str


@dataclass(frozen=True, slots=True)
class Retry:
    """The pass failed, and a later one may succeed: try again, later each time."""

    label: ClassVar = "Retry"

    error: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The pass failed, and will fail until the workload changes: do nothing until then."""

    label: ClassVar = "Stop"

    error: str
    # Why, in CamelCase, as the workload shows it.
    reason: str


ReconcileResult = Done | Requeue | RequeueAfter | Retry | Stop
