"""The timer queue: one time a key, soonest first, in slices."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from rollouts.sandbox.cluster.timer_queue import TimerQueue

START = datetime(2026, 1, 1, tzinfo=UTC)


def moment(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def test_due_keys_come_soonest_first_and_only_once() -> None:
    timers: TimerQueue[str] = TimerQueue()
    for key, seconds in (("c", 3), ("a", 1), ("b", 2)):
        timers.schedule(key, moment(seconds))
    assert list(timers.pop_due(moment(2), 10)) == ["a", "b"]
    assert list(timers.pop_due(moment(2), 10)) == []
    assert timers.next_due() == moment(3)


def test_a_key_noted_again_has_its_new_moment_only() -> None:
    timers: TimerQueue[str] = TimerQueue()
    timers.schedule("a", moment(1))
    timers.schedule("a", moment(5))
    assert list(timers.pop_due(moment(4), 10)) == []
    assert list(timers.pop_due(moment(5), 10)) == ["a"]


def test_hurrying_only_ever_brings_a_key_forward() -> None:
    timers: TimerQueue[str] = TimerQueue()
    timers.schedule_no_later("a", moment(5))
    timers.schedule_no_later("a", moment(9))
    assert timers.next_due() == moment(5)
    timers.schedule_no_later("a", moment(2))
    assert timers.next_due() == moment(2)


def test_a_dropped_key_is_never_due() -> None:
    timers: TimerQueue[str] = TimerQueue()
    timers.schedule("a", moment(1))
    timers.cancel("a")
    timers.cancel("unknown")
    assert timers.next_due() is None
    assert list(timers.pop_due(moment(9), 10)) == []


def test_a_slice_leaves_the_rest_due() -> None:
    timers: TimerQueue[int] = TimerQueue()
    for key in range(5):
        timers.schedule(key, moment(1))
    assert list(timers.pop_due(moment(1), 2)) == [0, 1]
    assert list(timers.pop_due(moment(1), 9)) == [2, 3, 4]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9), st.sampled_from(["put", "hurry", "drop"]))))
def test_it_agrees_with_a_plain_dictionary(commands: list[tuple[str, int, str]]) -> None:
    timers: TimerQueue[str] = TimerQueue()
    plain: dict[str, int] = {}
    for key, seconds, command in commands:
        if command == "drop":
            timers.cancel(key)
            plain.pop(key, None)
        elif command == "put":
            timers.schedule(key, moment(seconds))
            plain[key] = seconds
        else:
            timers.schedule_no_later(key, moment(seconds))
            plain[key] = min(seconds, plain.get(key, seconds))
    assert timers.next_due() == (moment(min(plain.values())) if plain else None)
    taken = list(timers.pop_due(moment(9), 10))
    assert sorted(taken) == sorted(plain)
    assert [plain[key] for key in taken] == sorted(plain.values())
    assert len(timers) == 0
