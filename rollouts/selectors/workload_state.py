"""The four states that lists of workloads are sorted and counted by, and the reason beside each of them.

Both follow from columns of the mirror, which hold the reasons of the conditions that `engine.plan.status` and the
reconciler write. The states are SQL, so that counting a thousand workloads is one query. From the most to the least
urgent:

    needs-attention   an update is stuck, wanted pods do not become available, or the manifest is not valid
    progressing       an update or a deployment is in progress, a change is not reconciled yet, or it is terminating
    waiting           outdated pods wait until somebody deletes them (OnDelete)
    settled           all pods are available and run the current template
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from django.db.models import Case, F, IntegerField, Q, Value, When

from rollouts.engine.plan.wait_codes import WaitCode


class State(StrEnum):
    """The state of a workload."""

    NEEDS_ATTENTION = "needs-attention"
    PROGRESSING = "progressing"
    WAITING = "waiting"
    SETTLED = "settled"


STATES: Final = tuple(State)
"""The states by their number in SQL, the most urgent first."""

_PROGRESSING_REASONS: Final = ("", "UpdateInProgress", "Deploying")
_HEALTHY_REASONS: Final = (*_PROGRESSING_REASONS, "Complete", str(WaitCode.AWAITING_DELETION))

_NEEDS_ATTENTION: Final = ~Q(stuck_reason="") | ~Q(fault_reason="") | ~Q(progressing_reason__in=_HEALTHY_REASONS)
_IS_PROGRESSING: Final = (
    Q(progressing_reason__in=_PROGRESSING_REASONS) | Q(leaving=True) | Q(observed_generation__lt=F("generation"))
)

STATE_INDEX: Final = Case(
    When(_NEEDS_ATTENTION, then=Value(STATES.index(State.NEEDS_ATTENTION))),
    When(_IS_PROGRESSING, then=Value(STATES.index(State.PROGRESSING))),
    When(progressing_reason=str(WaitCode.AWAITING_DELETION), then=Value(STATES.index(State.WAITING))),
    default=Value(STATES.index(State.SETTLED)),
    output_field=IntegerField(),
)
"""The number of the state of a row."""


def choose_reason(row: Mapping[str, Any]) -> str:
    """Return the reason that a list shows beside the state: why nothing can be done, else why it is stuck.

    If neither is so, the reason of the condition Progressing.
    """
    return str(row["fault_reason"] or row["stuck_reason"] or row["progressing_reason"])
