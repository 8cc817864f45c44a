"""The steps of a timeline as they are read: what came at once and is of one kind is one entry."""

from datetime import UTC, datetime, timedelta

from rollouts.selectors.rollouts import TimelineEntry
from rollouts.web.timeline_entries import group_entries

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def entry(number: int, reason: str, *, ago: float = 0, rollout: int = 1) -> TimelineEntry:
    """Return a step of a rollout."""
    at = NOW - timedelta(seconds=ago)
    return TimelineEntry(number, rollout, at, reason, "chat", f"{reason} {number}", 1)


def test_steps_of_one_kind_that_came_at_once_are_one() -> None:
    first, second = group_entries(
        [entry(3, "PodsCreated"), entry(2, "PodsCreated", ago=1), entry(1, "ReplicaCreated", ago=1)]
    )
    assert (first.newest_entry.id, [one.id for one in first.other_entries]) == (3, [2])
    assert (second.newest_entry.id, second.other_entries) == (1, ())


def test_what_came_later_or_in_another_rollout_stands_by_itself() -> None:
    assert len(group_entries([entry(2, "PodsCreated"), entry(1, "PodsCreated", ago=60)])) == 2
    assert len(group_entries([entry(2, "PodsCreated", rollout=2), entry(1, "PodsCreated")])) == 2


def test_nothing_is_left_out() -> None:
    entries = [entry(number, "PodsCreated" if number % 3 else "Outdated", ago=number / 2) for number in range(50)]
    folded = group_entries(entries)
    assert [one for steps in folded for one in (steps.newest_entry, *steps.other_entries)] == entries


def test_what_is_stuck_is_marked() -> None:
    assert [one.is_problem for one in group_entries([entry(2, "UpdateStuck"), entry(1, "PodsCreated")])] == [
        True,
        False,
    ]
