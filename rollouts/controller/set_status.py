"""The status of a PodCliqueSet: what the planner computed, plus the conditions that only the controller can know.

Before it: `rounds`, with the status that the plan leads to and the answers of the API server so far. After it:
`executor`, which writes the status. Three conditions are added, and exist only while something is wrong: `Valid`
(False: the spec is invalid), `Unsupported` (fields that have no effect) and `WriteDenied` (writes that the cluster
rejects).

The invariant: if nothing changes, the same object is returned, so that nothing is written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rollouts.controller.executor import ExecutionResult, WriteRecord
from rollouts.controller.rejected_writes import RejectedWrites
from rollouts.engine.manifest.findings import Finding
from rollouts.engine.manifest.validation import render_unsupported
from rollouts.engine.model.conditions import (
    INVALID_SPEC,
    MAX_LIST_MESSAGE_LENGTH,
    UNSUPPORTED,
    VALID,
    WRITE_DENIED,
    make_condition,
    merge_conditions,
)
from rollouts.engine.model.times import render_time

Status = Mapping[str, Any]

# The CRDs accept longer messages, which no reader needs.
_MAX_MESSAGE_LENGTH: Final = 2000


@dataclass(frozen=True, slots=True)
class StatusFacts:
    """What the controller knows about a set besides its plan."""

    findings: Sequence[Finding]  # what is wrong with its spec
    unsupported: Sequence[Finding]  # its fields that have no effect
    rejected: RejectedWrites  # before this pass
    now: float


def compute_set_status(status: Status, facts: StatusFacts, records: Sequence[WriteRecord], *, is_whole: bool) -> Status:
    """Return the status with the conditions of the controller, or the same object if they do not change.

    `is_whole` says that the pass sends nothing after these records.
    """
    at, result = render_time(facts.now), ExecutionResult(records)
    wanted, dropped = [], [VALID, UNSUPPORTED]
    if facts.findings:
        wanted.append(make_condition(VALID, "False", INVALID_SPEC, render_findings(facts.findings), at))
    if facts.unsupported:
        text = render_unsupported_fields(facts.unsupported)
        wanted.append(
            make_condition(UNSUPPORTED, "True", "FieldsWithoutEffect", text, at, longest=MAX_LIST_MESSAGE_LENGTH)
        )
    problem = facts.rejected.after_pass(result, facts.now, is_whole=is_whole and result.failure is None).problem
    if problem is not None:
        wanted.append(make_condition(WRITE_DENIED, "True", problem[0], _truncate(problem[1], _MAX_MESSAGE_LENGTH), at))
    elif result.failure is None:
        dropped.append(WRITE_DENIED)
    former = status.get("conditions") or []
    conditions = merge_conditions(former, wanted, dropped)
    return status if conditions == [*former] else {**status, "conditions": conditions}


def render_findings(findings: Sequence[Finding]) -> str:
    """Return what is wrong with a spec, as one message."""
    parts = (f"{finding.field}: {finding.message}" if finding.field else finding.message for finding in findings)
    return _truncate("; ".join(parts), _MAX_MESSAGE_LENGTH)


def render_unsupported_fields(findings: Sequence[Finding]) -> str:
    """Return which fields have no effect, as one message."""
    return _truncate(render_unsupported(findings), MAX_LIST_MESSAGE_LENGTH)


def _truncate(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
