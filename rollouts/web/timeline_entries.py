"""The steps of a timeline as they are read: those of one kind that came at once are one entry.

A pass that creates the pods of twelve cliques writes twelve steps. Whoever reads wants to know that pods were created,
and can have the rest by opening it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rollouts.selectors.rollouts import TimelineEntry

# Steps of one reason within so many seconds are told as one.
_GROUP_SECONDS: Final = 2.0
_PROBLEM_REASONS: Final = frozenset({"UpdateStuck"})


@dataclass(frozen=True, slots=True)
class EntryGroup:
    """Steps of one kind."""

    newest_entry: TimelineEntry
    other_entries: tuple[TimelineEntry, ...]

    @property
    def is_problem(self) -> bool:
        """Whether somebody should look."""
        return self.newest_entry.reason in _PROBLEM_REASONS


def group_entries(entries: Iterable[TimelineEntry]) -> list[EntryGroup]:
    """Return entries with those of one kind that follow each other closely as one; the newest come first."""
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
