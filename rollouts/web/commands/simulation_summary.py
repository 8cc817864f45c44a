"""Renders the report of a simulation for a page: a few figures, a chart of capacity, and the steps.

Before it: `services.simulation_report`. Nothing is computed here that the report does not have: the numbers, the steps
and the reasons for being stuck are those of the simulation.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Final

from rollouts.engine.model.actions import Delete, Kind, TimelineEvent
from rollouts.engine.plan.messages import render_list
from rollouts.engine.rollout.roller import Reason
from rollouts.engine.simulation.simulate import SimulationEnd
from rollouts.selectors.activity import WaitSummary, summarize_waits
from rollouts.selectors.rollouts import SamplePoint
from rollouts.services.simulation_report import Former, PodsAt, Simulated, SimulatedStep
from rollouts.web.capacity_chart import Chart, find_breaches, make_chart

STEPS_SHOWN: Final = 8
"""How many steps are shown; the others are folded."""

WAITS_SHOWN: Final = 2

_MAX_STEPS: Final = 60
_NAMES_SHOWN: Final = 3
_REPLICAS_SHOWN: Final = 2
_MINUTE: Final = 60
_HOUR: Final = 3600
_DELETED_POD: Final = f"{Delete.__name__} {Kind.POD}"
_START: Final = datetime(2000, 1, 1, tzinfo=UTC)
_REPLACE: Final = "replaces"
_CREATE: Final = "creates"
_CREATE_PODS: Final = "creates pods"
_END_SURGE: Final = "ends the surge of"
_SCALE_IN: Final = "scales in"
_VERBS: Final[Mapping[str, str]] = {
    Reason.OUTDATED: _REPLACE,
    Reason.OUTDATED_UNAVAILABLE: _REPLACE,
    Reason.OUTDATED_SURGE: _REPLACE,
    Reason.SURGE_DONE: _END_SURGE,
    Reason.SURGE_NOT_ALLOWED: _END_SURGE,
    Reason.SCALED_IN: _SCALE_IN,
    "ReplicaCreated": _CREATE,
    "PodsCreated": _CREATE_PODS,
}
"""The verb for each reason of a timeline event."""
_ENDS_OF_BASELINE: Final = {SimulationEnd.STUCK: "gets stuck too", SimulationEnd.DONE: "completes"}


@dataclass(frozen=True, slots=True)
class Stat:
    """A figure with its label."""

    value: str
    label: str


@dataclass(frozen=True, slots=True)
class StepRow:
    """What happens at a time."""

    at: str
    text: str
    available: int


@dataclass(frozen=True, slots=True)
class SimulationSummary:
    """What a form would do."""

    title: str
    sentence: str  # the result; empty: nothing to add
    is_problem: bool
    stats: tuple[Stat, ...]
    chart: Chart | None  # None: capacity does not change
    desired: int
    steps: tuple[StepRow, ...]
    more_steps: tuple[StepRow, ...]  # folded
    omitted_steps: int  # how many steps are in neither
    assumptions: tuple[str, ...]  # as sentences
    waits: tuple[WaitSummary, ...]  # why it gets stuck, or what it waits for at the end; the most urgent
    more_waits: tuple[WaitSummary, ...]  # folded


def summarize_simulation(report: Simulated) -> SimulationSummary:
    """Return what a page shows of a simulated change."""
    moves = bool(report.pods_created or report.pods_deleted)
    lines = list(_list_steps(report)) if moves else []
    kept = lines[:_MAX_STEPS]
    waits = summarize_waits(report.waits) if report.end is not SimulationEnd.DONE or not moves else ()
    return SimulationSummary(
        title="What the next rollout would do" if report.is_rehearsal else "What this would do",
        sentence=_render_end(report, moves=moves),
        is_problem=report.end in (SimulationEnd.STUCK, SimulationEnd.ENDLESS),
        stats=tuple(_list_stats(report)) if moves else (),
        chart=_make_chart(report) if moves else None,
        desired=report.pods.desired,
        steps=tuple(kept[:STEPS_SHOWN]),
        more_steps=tuple(kept[STEPS_SHOWN:]),
        omitted_steps=len(lines) - len(kept) + (report.steps_left_out > 0),
        assumptions=tuple(one.text for one in report.assumptions) if moves or waits else (),
        waits=waits[:WAITS_SHOWN],
        more_waits=waits[WAITS_SHOWN:],
    )


def _render_end(report: Simulated, *, moves: bool) -> str:
    former, what = report.former, "rollout" if _is_rolling(report) else "change"
    if report.end is SimulationEnd.STUCK:
        now = None if former is None else _ENDS_OF_BASELINE.get(former.end)
        return f"The {what} gets stuck.{f' With the present strategy it {now}.' if now else ''}"
    if report.end is SimulationEnd.ENDLESS:
        return f"The simulation finds no end of this {what}. Please report this as a bug."
    if report.end is SimulationEnd.UNFINISHED:
        return _render_unfinished(report)
    if not moves:
        return "No pod is created or deleted."
    freed = former is not None and former.end is SimulationEnd.STUCK
    return f"The {what} completes. With the present strategy it gets stuck." if freed else ""


def _render_unfinished(report: Simulated) -> str:
    """Return how far the change was simulated, and whether the floor was kept so far."""
    followed = f"The workload is large: only the first {render_duration(report.seconds)} were simulated"
    if find_breaches(_make_samples(report)):
        return f"{followed}. Availability falls below the floor."
    return (
        f"{followed}. Availability does not fall below the floor."
        if report.pods.lowest >= report.pods.floor
        else f"{followed}."
    )


# ---- figures


def _list_stats(report: Simulated) -> Iterator[Stat]:
    yield from _pod_stats(report)
    pods, former = report.pods, _comparable_baseline(report)
    was_rounds, was_lowest = (None, None) if former is None else (former.rounds, former.lowest)
    so_far = " so far" if report.end is SimulationEnd.UNFINISHED else ""
    yield Stat(
        f"{report.rounds:,}", f"step{'s' * (report.rounds != 1)}{so_far}{_render_former(report.rounds, was_rounds)}"
    )
    yield Stat(
        f"{pods.lowest:,} of {pods.desired:,}", f"lowest capacity{so_far}{_render_former(pods.lowest, was_lowest)}"
    )
    if _is_rolling(report) and pods.most > pods.desired:
        surge = pods.most - pods.desired
        yield Stat(f"+{surge:,}", f"surge pod{'s' * (surge != 1)} at most")
    if report.end is SimulationEnd.DONE:
        yield Stat(
            f"≈ {render_duration(report.seconds)}",
            f"{_render_pace(report)}{_render_former_duration(report.seconds, former)}",
        )


def _comparable_baseline(report: Simulated) -> Former | None:
    """Return the rollout without the change, if both were simulated to their end."""
    former = report.former
    return None if former is None or SimulationEnd.UNFINISHED in (report.end, former.end) else former


def _is_rolling(report: Simulated) -> bool:
    """Return whether pods beyond the desired number are surge; otherwise they are scaled in."""
    return report.starts_update or report.former is not None


def _pod_stats(report: Simulated) -> Iterator[Stat]:
    """Yield how many pods are replaced, and how many are added or removed."""
    first, last = report.pods.counts[0].live, report.pods.desired
    gone, grown = sum(report.replaced.values()), last - first
    replaced = gone - max(0, -grown)
    if replaced > 0:
        yield Stat(f"{replaced:,}", f"pod{'s' * (replaced != 1)} replaced")
    if grown:
        yield Stat(f"{abs(grown):,}", f"pod{'s' * (abs(grown) != 1)} {'more' if grown > 0 else 'fewer'}")


def _render_former(now: int, former: int | None) -> str:
    return "" if former is None or former == now else f", was {former:,}"


def _render_pace(report: Simulated) -> str:
    seconds = render_duration(report.pace.seconds_to_ready)
    return f"if pods take {seconds} to become Ready{', as measured' * report.pace.is_measured}"


def _render_former_duration(seconds: float, former: Former | None) -> str:
    if former is None or former.end is not SimulationEnd.DONE:
        return ""
    was = render_duration(former.seconds)
    return "" if was == render_duration(seconds) else f", was ≈ {was}"


def render_duration(seconds: float) -> str:
    """Return a duration in words, as precise as useful.

    >>> [render_duration(seconds) for seconds in (0.4, 38, 89, 250, 7300)]
    ['0 s', '38 s', '89 s', '4 min', '2 h']
    """
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / _MINUTE:.0f} min" if seconds < 2 * _HOUR else f"{seconds / _HOUR:.0f} h"


# ---- capacity


def _make_chart(report: Simulated) -> Chart:
    return make_chart(_make_samples(report), _START + timedelta(seconds=report.seconds), _render_chart_summary)


def _make_samples(report: Simulated) -> list[SamplePoint]:
    pods = report.pods
    return [
        SamplePoint(
            at=_START + timedelta(seconds=one.at),
            desired=pods.desired,
            available=one.available,
            updated=one.updated,
            surge=one.surge if _is_rolling(report) else 0,
            floor=pods.floor,
        )
        for one in pods.counts
    ]


def _render_chart_summary(points: Sequence[SamplePoint]) -> str:
    fewest, last = min(one.available for one in points), points[-1]
    words = f"At least {fewest} of {last.desired} pods are available at any time; the floor is {last.floor}."
    return f"{words} Availability falls below it." if find_breaches(points) else words


# ---- steps


def _list_steps(report: Simulated) -> Iterator[StepRow]:
    counts = {one.at: one for one in report.pods.counts}
    former = report.pods.counts[0]
    for at, steps in groupby(report.steps, key=lambda step: step.at):
        now = counts.get(at, former)
        if words := _render_step(report.name, list(steps), former, now):
            yield StepRow(render_duration(at), words, now.available)
        former = now


def _render_step(workload: str, steps: Sequence[SimulatedStep], former: PodsAt, now: PodsAt) -> str:
    words = list(_render_events(workload, [moment for step in steps for moment in step.moments]))
    if words and any(step.left_out for step in steps):
        words.append("and more")
    if not words and (deleted := sum(step.writes.get(_DELETED_POD, 0) for step in steps)):
        # A deletion by hand has no timeline event.
        words.append(f"{deleted} pod{'s' * (deleted != 1)} deleted")
    if not words and now.available > former.available:
        ready = now.available - former.available
        words.append(f"{ready} more pod{'s' * (ready != 1)} available")
    return "; ".join(words)


def _render_events(workload: str, moments: Iterable[TimelineEvent]) -> Iterator[str]:
    """Yield the decisions at one time: each verb with its components."""
    by_verb: dict[str, list[str]] = {}
    for moment in moments:
        by_verb.setdefault(_VERBS.get(moment.reason, ""), []).append(moment.component)
    # The pods of a created replica, and the successors of replaced pods, need no mention.
    known = (*by_verb.get(_REPLACE, ()), *by_verb.get(_CREATE, ()))
    pods = [name for name in by_verb.pop(_CREATE_PODS, []) if not name.startswith(known)]
    if pods:
        by_verb.setdefault(_CREATE, []).extend(pods)
    for verb in (_REPLACE, _CREATE, _END_SURGE, _SCALE_IN):
        if verb in by_verb:
            yield f"{verb} {_render_components(workload, by_verb[verb])}"


def _render_components(workload: str, names: Iterable[str]) -> str:
    """Return components by replica of the set.

    >>> _render_components("chat", ["chat-0-web", "chat-0-web", "chat-0-decode-1", "chat-1"])
    'web ×2, decode-1 of replica 0 and replica 1'
    >>> _render_components("chat", [f"chat-{index}" for index in range(7)])
    'replica 0, replica 1 and 5 more replicas'
    >>> _render_components("chat", ["chat-0-web", "chat-1-web", "chat-2-web"])
    'web of replica 0, web of replica 1 and components of 1 more replica'
    """
    by_replica: dict[str, list[str]] = {}
    for name in names:
        index, _, component = name.removeprefix(f"{workload}-").partition("-")
        by_replica.setdefault(index, []).append(component)
    said = [_render_replica(index, components) for index, components in by_replica.items()]
    shown, more = said[:_REPLICAS_SHOWN], len(said) - _REPLICAS_SHOWN
    if more > 0:
        is_whole = all("" in components for components in [*by_replica.values()][_REPLICAS_SHOWN:])
        shown.append(f"{'' if is_whole else 'components of '}{more} more replica{'s' * (more != 1)}")
    return render_list(shown)


def _render_replica(index: str, components: Iterable[str]) -> str:
    counted = Counter(components)
    if "" in counted:
        return f"replica {index}"
    said = [f"{name} ×{number}" if number > 1 else name for name, number in counted.items()]
    more = len(said) - _NAMES_SHOWN
    shown = ", ".join(said[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"{shown} of replica {index}"
