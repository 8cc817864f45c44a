"""The chart of a rollout's capacity: pods that were available, updated and surge, against desired and the floor.

Takes the counts that history keeps (`selectors.rollouts`) or that a simulation predicts, and returns what a template
writes into SVG: paths in a plot of fixed size, which the page stretches, and labels beside it, which it does not. A
count holds until the next one, so lines are steps. A long rollout is drawn in columns, each with the worst counts of
its time: the fewest available pods, the most surge. The invariant: a dip below the floor is never smoothed away.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from rollouts.selectors.rollouts import RolloutDetail, SamplePoint
from rollouts.web.text import plural

WIDTH: Final = 1000
HEIGHT: Final = 140
# More columns could not be told apart.
_MAX_COLUMNS: Final = 400
# The least distance of two labels at the right edge, so that they do not overlap.
_LINE_HEIGHT: Final = 14
_TABLE_ROWS: Final = 20
_TICK_SECONDS: Final = (10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400, 604800)
_MAX_TICKS: Final = 6


@dataclass(frozen=True, slots=True)
class Label:
    """A label beside the chart."""

    series: str
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A time below the chart."""

    percent: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, ready for the template."""

    available_area: str  # the area under the line
    available_line: str  # the line itself
    updated_area: str
    surge_line: str  # empty without surge
    desired_line: str
    floor_line: str
    labels: tuple[Label, ...]
    ticks: tuple[Tick, ...]
    summary: str  # the chart in a sentence
    table_rows: tuple[SamplePoint, ...]  # the newest counts, as an alternative to the chart
    is_below_floor: bool  # availability fell below the floor after having reached it


def make_rollout_chart(rollout: RolloutDetail, now: datetime) -> Chart | None:
    """Return the chart of a rollout; None without counts."""
    if not rollout.samples:
        return None
    return make_chart(rollout.samples, rollout.ended or now, _render_summary)


def make_chart(
    samples: Sequence[SamplePoint], end: datetime, summarise: Callable[[Sequence[SamplePoint]], str]
) -> Chart:
    """Return the chart of at least one count; `summarise` describes it in a sentence."""
    start = samples[0].at
    seconds = max(1.0, (max(end, samples[-1].at) - start).total_seconds())
    points = _downsample(samples, start, seconds)
    top = max(max(point.desired, point.available, point.floor) for point in points) * 1.08 or 1.0
    field = _PlotArea(start, seconds, top)
    last = points[-1]
    return Chart(
        available_area=field.area([(point.at, point.available) for point in points]),
        available_line=field.line([(point.at, point.available) for point in points]),
        updated_area=field.area([(point.at, point.updated) for point in points]),
        surge_line=field.line([(point.at, point.surge) for point in points])
        if any(one.surge for one in points)
        else "",
        desired_line=field.line([(point.at, point.desired) for point in points]),
        floor_line=field.line([(point.at, point.floor) for point in points]),
        labels=_labels(field, last),
        ticks=tuple(_ticks(seconds)),
        summary=summarise(points),
        table_rows=tuple(reversed(samples[-_TABLE_ROWS:])),
        is_below_floor=bool(find_breaches(points)),
    )


@dataclass(frozen=True, slots=True)
class _PlotArea:
    """Maps times and counts to coordinates."""

    start: datetime
    seconds: float
    top: float

    def x(self, at: datetime) -> str:
        return f"{max(0.0, (at - self.start).total_seconds()) / self.seconds * WIDTH:.4g}"

    def y(self, count: float) -> float:
        return round(HEIGHT * (1 - count / self.top), 1)

    def line(self, counts: Sequence[tuple[datetime, int]]) -> str:
        """Return steps from the left edge to the right one."""
        parts = [f"M0 {self.y(counts[0][1]):g}"]
        former = counts[0][1]
        for at, count in counts[1:]:
            if count != former:
                parts.append(f"H{self.x(at)}V{self.y(count):g}")
                former = count
        return f"{''.join(parts)}H{WIDTH}"

    def area(self, counts: Sequence[tuple[datetime, int]]) -> str:
        return f"{self.line(counts)}V{HEIGHT}H0Z"


def _downsample(samples: Sequence[SamplePoint], start: datetime, seconds: float) -> list[SamplePoint]:
    """Return at most one point for each column, with its worst counts."""
    points: list[SamplePoint] = []
    column = -1
    for sample in samples:
        bucket = int((sample.at - start).total_seconds() / seconds * _MAX_COLUMNS)
        if bucket == column and points:
            worst = points[-1]
            available, surge = min(worst.available, sample.available), max(worst.surge, sample.surge)
            updated = min(sample.updated, available)
            points[-1] = replace(sample, at=worst.at, available=available, updated=updated, surge=surge)
        else:
            points.append(sample)
            column = bucket
    return points


def _labels(field: _PlotArea, last: SamplePoint) -> tuple[Label, ...]:
    desired, floor = field.y(last.desired), field.y(last.floor)
    if last.floor == last.desired:
        return (Label("desired", desired, f"{last.desired} desired (also the floor)"),)
    # The floor is never above the desired count, so it moves down.
    floor = max(floor, desired + _LINE_HEIGHT)
    return Label("desired", desired, f"{last.desired} desired"), Label("floor", floor, f"{last.floor} floor")


def _ticks(seconds: float) -> Iterable[Tick]:
    step = next((step for step in _TICK_SECONDS if seconds / step <= _MAX_TICKS), _TICK_SECONDS[-1])
    yield Tick(0, "0")
    # The last one keeps away from the edge, which would cut it off.
    for number in range(1, int(seconds * 0.96 / step) + 1):
        yield Tick(round(number * step / seconds * 100, 2), render_duration(number * step))


def render_duration(seconds: int) -> str:
    """Render a duration for the time axis."""
    for size, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            whole, rest = divmod(seconds, size)
            return f"{whole + rest / size:g} {word}"
    return f"{seconds} s"


def find_breaches(points: Sequence[SamplePoint]) -> list[SamplePoint]:
    """Return the points below the floor, counted only after availability first reached it."""
    reached = next((number for number, point in enumerate(points) if point.available >= point.floor), len(points))
    return [point for point in points[reached:] if point.available < point.floor]


def _render_summary(points: Sequence[SamplePoint]) -> str:
    fewest, most = min(one.available for one in points), max(one.available for one in points)
    last = points[-1]
    all_along = f"{plural(fewest, 'pod')} {'was' if fewest == 1 else 'were'} available all the time"
    span = all_along if fewest == most else f"Between {fewest} and {most} pods were available"
    words = [
        f"{span}; {last.desired} desired, floor {last.floor}.",
        f"{last.updated} of {last.desired} are updated now, {last.available} available.",
    ]
    if surge := max(one.surge for one in points):
        words.append(f"There {'was' if surge == 1 else 'were'} up to {plural(surge, 'surge pod')}.")
    if breaches := find_breaches(points):
        words.append(f"Availability fell below the floor, to {min(one.available for one in breaches)}.")
    return " ".join(words)
