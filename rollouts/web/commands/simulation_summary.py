"""What a form would do, as a page shows it: a few figures, capacity over time, who is replaced when, and what changes.

From `services.simulation_report` to words and a chart. Nothing is decided here: the numbers, the steps and the reasons for
being stuck are the simulation's own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Final

from rollouts.engine.model.actions import Delete, Kind, Moment
from rollouts.engine.rollout.roller import Reason
from rollouts.engine.simulation.simulate import End
from rollouts.selectors.activity import WaitNote, note_waits
from rollouts.selectors.rollouts import SamplePoint
from rollouts.services.simulation_report import Former, PodsAt, Simulated, SimulatedStep
from rollouts.web.capacity_chart import Chart, draw_samples, find_breaches

LINES_SHOWN: Final = 8
"""Of what happens when; the others are behind a fold."""

WAITS_SHOWN: Final = 2

_MOST_LINES: Final = 60
_NAMES_SHOWN: Final = 3
_REPLICAS_SHOWN: Final = 2
_MINUTE: Final = 60
_HOUR: Final = 3600
_DELETED_POD: Final = f"{Delete.__name__} {Kind.POD}"
_BEGINNING: Final = datetime(2000, 1, 1, tzinfo=UTC)
_REPLACES: Final = "replaces"
_CREATES: Final = "creates"
_CREATES_PODS: Final = "creates pods"
_ENDS_SURGE: Final = "ends the surge of"
_SCALES_IN: Final = "scales in"
_DEEDS: Final[Mapping[str, str]] = {
    Reason.OUTDATED: _REPLACES,
    Reason.OUTDATED_UNAVAILABLE: _REPLACES,
    Reason.OUTDATED_SURGE: _REPLACES,
    Reason.SURGE_DONE: _ENDS_SURGE,
    Reason.SURGE_NOT_ALLOWED: _ENDS_SURGE,
    Reason.SCALED_IN: _SCALES_IN,
    "ReplicaCreated": _CREATES,
    "PodsCreated": _CREATES_PODS,
}
"""What is done, by the reason that the timeline gives."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure and what it stands for."""

    figure: str
    words: str


@dataclass(frozen=True, slots=True)
class Line:
    """What happens at a moment."""

    at: str
    words: str
    available: int


@dataclass(frozen=True, slots=True)
class Preview:
    """What a form would do."""

    title: str
    sentence: str  # what comes of it, in short
    is_bad: bool
    facts: tuple[Fact, ...]
    chart: Chart | None  # None: capacity stays as it is
    desired: int
    lines: tuple[Line, ...]
    more: tuple[Line, ...]  # behind a fold
    untold: int  # moments that are in neither
    assumptions: tuple[str, ...]  # what the numbers rest on
    waits: tuple[WaitNote, ...]  # why it gets stuck, or what it waits for in the end; the most pressing
    more_waits: tuple[WaitNote, ...]  # behind a fold


def make_preview(told: Simulated) -> Preview:
    """Return what a page shows of a change that was run to its end."""
    moves = bool(told.pods_created or told.pods_deleted)
    lines = list(_lines(told)) if moves else []
    kept = lines[:_MOST_LINES]
    waits = note_waits(told.waits) if told.end is not End.DONE or not moves else ()
    return Preview(
        title="What the next rollout would do" if told.is_rehearsal else "What this would do",
        sentence=_say_end(told, moves=moves),
        is_bad=told.end in (End.STUCK, End.ENDLESS),
        facts=tuple(_facts(told)) if moves else (),
        chart=_draw(told) if moves else None,
        desired=told.pods.desired,
        lines=tuple(kept[:LINES_SHOWN]),
        more=tuple(kept[LINES_SHOWN:]),
        untold=len(lines) - len(kept) + (told.steps_left_out > 0),
        assumptions=tuple(one.text for one in told.assumptions) if moves or waits else (),
        waits=waits[:WAITS_SHOWN],
        more_waits=waits[WAITS_SHOWN:],
    )


def _say_end(told: Simulated, *, moves: bool) -> str:
    former = told.former
    if told.end is End.STUCK:
        if former is None:
            return "It gets stuck."
        now_too = former.end is End.STUCK
        return f"It gets stuck; with the strategy as it is now, it does {'too' if now_too else 'not'}."
    if told.end is End.ENDLESS:
        return "It never comes to an end: please report this."
    if told.end is End.UNFINISHED:
        return _say_unfinished(told)
    if not moves:
        return "No pod is created or deleted."
    freed = former is not None and former.end is End.STUCK
    return "It comes to its end; with the strategy as it is now, it gets stuck." if freed else ""


def _say_unfinished(told: Simulated) -> str:
    """Say how far a change was followed, and of that no more than is known."""
    followed = f"The workload is large: it was followed for {say_duration(told.seconds)} of its time"
    if find_breaches(_sample(told)):
        return f"{followed}, in which availability falls below the floor."
    return f"{followed}, with the floor kept." if told.pods.lowest >= told.pods.floor else f"{followed}."


# ---- figures


def _facts(told: Simulated) -> Iterator[Fact]:
    yield from _say_pods(told)
    pods, former = told.pods, _comparable(told)
    was_rounds, was_lowest = (None, None) if former is None else (former.rounds, former.lowest)
    so_far = " so far" if told.end is End.UNFINISHED else ""
    yield Fact(f"{told.rounds:,}", f"step{'s' * (told.rounds != 1)}{so_far}{_was(told.rounds, was_rounds)}")
    yield Fact(f"{pods.lowest:,} of {pods.desired:,}", f"lowest capacity{so_far}{_was(pods.lowest, was_lowest)}")
    if _is_rolling(told) and pods.most > pods.desired:
        yield Fact(f"+{pods.most - pods.desired:,}", "pods of surge at most")
    if told.end is End.DONE:
        yield Fact(f"≈ {say_duration(told.seconds)}", f"{_say_pace(told)}{_say_former_duration(told.seconds, former)}")


def _comparable(told: Simulated) -> Former | None:
    """Return how it goes without the change; what was not followed to its end says nothing of the whole."""
    former = told.former
    return None if former is None or End.UNFINISHED in (told.end, former.end) else former


def _is_rolling(told: Simulated) -> bool:
    """Whether pods beyond what is desired are surge; else they are those that are scaled in."""
    return told.starts_update or told.former is not None


def _say_pods(told: Simulated) -> Iterator[Fact]:
    """Yield how many pods are replaced, and how many come or go for good."""
    first, last = told.pods.counts[0].live, told.pods.desired
    gone, grown = sum(told.replaced.values()), last - first
    replaced = gone - max(0, -grown)
    if replaced > 0:
        yield Fact(f"{replaced:,}", f"pod{'s' * (replaced != 1)} replaced")
    if grown:
        yield Fact(f"{abs(grown):,}", f"pod{'s' * (abs(grown) != 1)} {'more' if grown > 0 else 'fewer'}")


def _was(now: int, former: int | None) -> str:
    return "" if former is None or former == now else f", was {former:,}"


def _say_pace(told: Simulated) -> str:
    seconds = say_duration(told.pace.seconds_to_ready)
    return f"at {seconds} to Ready, as measured" if told.pace.is_measured else f"if pods take {seconds} to Ready"


def _say_former_duration(seconds: float, former: Former | None) -> str:
    if former is None or former.end is not End.DONE:
        return ""
    was = say_duration(former.seconds)
    return "" if was == say_duration(seconds) else f", was ≈ {was}"


def say_duration(seconds: float) -> str:
    """Say how long something takes, as precisely as one wants to know.

    >>> [say_duration(seconds) for seconds in (0.4, 38, 89, 250, 7300)]
    ['0 s', '38 s', '89 s', '4 min', '2 h']
    """
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / _MINUTE:.0f} min" if seconds < 2 * _HOUR else f"{seconds / _HOUR:.0f} h"


# ---- capacity


def _draw(told: Simulated) -> Chart:
    return draw_samples(_sample(told), _BEGINNING + timedelta(seconds=told.seconds), _summarise)


def _sample(told: Simulated) -> list[SamplePoint]:
    pods = told.pods
    return [
        SamplePoint(
            at=_BEGINNING + timedelta(seconds=one.at),
            desired=pods.desired,
            available=one.available,
            updated=one.updated,
            surge=one.surge if _is_rolling(told) else 0,
            floor=pods.floor,
        )
        for one in pods.counts
    ]


def _summarise(points: Sequence[SamplePoint]) -> str:
    fewest, last = min(one.available for one in points), points[-1]
    words = f"At least {fewest} of {last.desired} pods are available at any time; the floor is {last.floor}."
    return f"{words} Availability falls below it." if find_breaches(points) else words


# ---- who is replaced when


def _lines(told: Simulated) -> Iterator[Line]:
    counts = {one.at: one for one in told.pods.counts}
    former = told.pods.counts[0]
    for at, steps in groupby(told.steps, key=lambda step: step.at):
        now = counts.get(at, former)
        if words := _say_moment(told.name, list(steps), former, now):
            yield Line(say_duration(at), words, now.available)
        former = now


def _say_moment(workload: str, steps: Sequence[SimulatedStep], former: PodsAt, now: PodsAt) -> str:
    words = list(_say_moments(workload, [moment for step in steps for moment in step.moments]))
    if words and any(step.left_out for step in steps):
        words.append("and more")
    if not words and (deleted := sum(step.writes.get(_DELETED_POD, 0) for step in steps)):
        # Nobody gives a reason for what is deleted by hand.
        words.append(f"{deleted} pod{'s' * (deleted != 1)} deleted")
    if not words and now.available > former.available:
        ready = now.available - former.available
        words.append(f"{ready} more pod{'s' * (ready != 1)} available")
    return "; ".join(words)


def _say_moments(workload: str, moments: Iterable[Moment]) -> Iterator[str]:
    """Yield what is decided at a moment, by what is done and to whom."""
    by_deed: dict[str, list[str]] = {}
    for moment in moments:
        by_deed.setdefault(_DEEDS.get(moment.reason, ""), []).append(moment.component)
    # The pods of a replica that is created go without saying, and so do those that come in the place of others.
    known = (*by_deed.get(_REPLACES, ()), *by_deed.get(_CREATES, ()))
    pods = [name for name in by_deed.pop(_CREATES_PODS, []) if not name.startswith(known)]
    if pods:
        by_deed.setdefault(_CREATES, []).extend(pods)
    for deed in (_REPLACES, _CREATES, _ENDS_SURGE, _SCALES_IN):
        if deed in by_deed:
            yield f"{deed} {_say_names(workload, by_deed[deed])}"


def _say_names(workload: str, names: Iterable[str]) -> str:
    """Say which components of which replicas of the set are meant.

    >>> _say_names("chat", ["chat-0-web", "chat-0-web", "chat-0-decode-1", "chat-1"])
    'web ×2, decode-1 of replica 0 and replica 1'
    """
    by_replica: dict[str, list[str]] = {}
    for name in names:
        index, _, component = name.removeprefix(f"{workload}-").partition("-")
        by_replica.setdefault(index, []).append(component)
    said = [_say_replica(index, components) for index, components in by_replica.items()]
    more = len(said) - _REPLICAS_SHOWN
    return " and ".join([*said[:_REPLICAS_SHOWN], *([f"of {more} replicas more"] if more > 0 else [])])


def _say_replica(index: str, components: Iterable[str]) -> str:
    counted = Counter(components)
    if "" in counted:
        return f"replica {index}"
    said = [f"{name} ×{number}" if number > 1 else name for name, number in counted.items()]
    more = len(said) - _NAMES_SHOWN
    shown = ", ".join(said[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"{shown} of replica {index}"
