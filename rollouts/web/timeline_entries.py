"""Groups the events of a timeline: events of one reason that happen at once become one entry.

A pass that creates the pods of twelve cliques writes twelve events. The page shows that pods were created, and the
details on request.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rollouts.selectors.rollouts import TimelineEntry

# Events of one reason within so many seconds become one entry.
_GROUP_SECONDS: Final = 2.0
_PROBLEM_REASONS: Final = frozenset({"UpdateStuck"})


@dataclass(frozen=True, slots=True)
class EntryGroup:
    """Events of one reason."""

    newest_entry: TimelineEntry
    other_entries: tuple[TimelineEntry, ...]

    @property
    def is_problem(self) -> bool:
        """Whether it is a problem."""
        return self.newest_entry.reason in _PROBLEM_REASONS


def group_entries(entries: Iterable[TimelineEntry]) -> list[EntryGroup]:
    """Return the entries, newest first, with adjacent events of one reason grouped."""
    folded: list[list[TimelineEntry]] = []
    for entry in entries:
        if folded and _belongs_to_group(entry, folded[-1]):
            folded[-1].append(entry)
        else:
            folded.append([entry])
    return [EntryGroup(alike[0], tuple(alike[1:])) for alike in folded]


def _belongs_to_group(entry: TimelineEntry, to: list[TimelineEntry]) -> bool:
    newest, last = to[0], to[-1]
    is_same = (entry.reason, entry.rollout) == (newest.reason, newest.rollout)
    return is_same and abs((last.at - entry.at).total_seconds()) <= _GROUP_SECONDS
