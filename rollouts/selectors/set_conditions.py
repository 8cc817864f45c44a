"""The conditions of a PodCliqueSet, and which of them are faults.

A fault says that the controller cannot act on the workload as it is written: `Valid` = False, or `WriteDenied` = True.
Its message quotes the manifest or the API server, so values that may be secret are masked. Before it: `set_status` of
the controller, which writes the conditions. After it: the workload in detail, its diagnosis, and its page.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from rollouts.cluster import Obj
from rollouts.engine.model.conditions import VALID, WRITE_DENIED
from rollouts.engine.model.times import parse_time
from rollouts.manifests.masking import make_text_mask
from rollouts.selectors.timestamps import to_datetime_or_none

# The types of faults, the one that explains most first, with their statuses.
_FAULTS: Final[Mapping[str, str]] = {VALID: "False", WRITE_DENIED: "True"}


@dataclass(frozen=True, slots=True)
class ConditionNote:
    """A condition of the PodCliqueSet."""

    type: str
    status: str
    reason: str
    message: str
    since: datetime | None

    @property
    def is_fault(self) -> bool:
        """Whether it says that the controller cannot act on the workload as it is written."""
        return _FAULTS.get(self.type) == self.status


def list_conditions(manifest: Obj) -> tuple[ConditionNote, ...]:
    """Return the conditions of a stored PodCliqueSet; the messages of faults are masked."""
    status = manifest.get("status")
    stored = status.get("conditions") if isinstance(status, dict) else None
    notes = [_parse(one) for one in stored if isinstance(one, dict)] if isinstance(stored, list) else []
    if not any(note.is_fault for note in notes):
        return tuple(notes)
    mask = make_text_mask(manifest)
    return tuple(replace(note, message=mask(note.message)) if note.is_fault else note for note in notes)


def list_faults(conditions: Iterable[ConditionNote]) -> tuple[ConditionNote, ...]:
    """Return the faults among conditions, the one that explains most first."""
    order = [*_FAULTS]
    return tuple(sorted((note for note in conditions if note.is_fault), key=lambda note: order.index(note.type)))


def _parse(condition: Mapping[str, Any]) -> ConditionNote:
    kind, status, reason, message = (str(condition.get(name) or "") for name in ("type", "status", "reason", "message"))
    since = to_datetime_or_none(parse_time(condition.get("lastTransitionTime")))
    return ConditionNote(kind, status, reason, message, since)
