"""The chart of capacity: steps that hold until the next count, and dips that are never smoothed away."""

from datetime import UTC, datetime, timedelta

from rollouts.selectors.rollouts import RolloutDetail, SamplePoint
from rollouts.web.capacity_chart import HEIGHT, WIDTH, Chart, make_rollout_chart

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def sample(second: float, available: int, updated: int = 0, surge: int = 0, floor: int = 8) -> SamplePoint:
    """Return counts of ten desired pods."""
    return SamplePoint(START + timedelta(seconds=second), 10, available, updated, surge, floor)


def chart_of(*samples: SamplePoint, seconds: float = 100) -> Chart:
    """Draw a rollout that took so long."""
    rollout = RolloutDetail(
        id=1,
        cluster="sandbox",
        namespace="default",
        name="chat",
        workload_uid="uid",
        from_hash="a",
        to_hash="b",
        from_revision=1,
        to_revision=2,
        strategy="RollingUpdate",
        started=START,
        ended=START + timedelta(seconds=seconds),
        outcome="Complete",
        progressing_seconds=seconds,
        waiting_seconds=0,
        samples=samples,
    )
    chart = make_rollout_chart(rollout, START)
    assert chart is not None
    return chart


def test_without_counts_there_is_no_chart() -> None:
    rollout = RolloutDetail(
        *(1, "sandbox", "default", "chat", "uid", "", "b", None, 1, "OnDelete", START, None, "", 0, 0), samples=()
    )
    assert make_rollout_chart(rollout, START) is None


def test_counts_hold_until_the_next_ones() -> None:
    chart = chart_of(sample(0, 10), sample(50, 9))
    top = HEIGHT * (1 - 10 / 10.8)
    assert chart.available_line == f"M0 {top:.1f}H500V{HEIGHT * (1 - 9 / 10.8):.1f}H{WIDTH}"
    assert chart.available_area.endswith(f"H{WIDTH}V{HEIGHT}H0Z")


def test_the_chart_goes_on_to_now_while_the_rollout_does() -> None:
    chart = chart_of(sample(0, 10), sample(10, 9), seconds=1000)
    assert "H10V" in chart.available_line


def test_a_short_dip_in_a_long_rollout_is_still_seen() -> None:
    dip = [sample(5000, 10), sample(5001, 3), sample(5002, 10)]
    chart = chart_of(sample(0, 10), *dip, sample(9000, 10), seconds=100_000)
    assert f"V{HEIGHT * (1 - 3 / 10.8):.1f}" in chart.available_line
    assert chart.is_below_floor
    assert "fell below the floor, to 3" in chart.summary


def test_many_counts_are_drawn_in_as_many_columns_as_can_be_told_apart() -> None:
    chart = chart_of(*(sample(second, 8 + second % 2) for second in range(5000)), seconds=5000)
    assert chart.available_line.count("V") <= 400


def test_coming_up_for_the_first_time_is_no_breach() -> None:
    chart = chart_of(sample(0, 0), sample(5, 4), sample(10, 10))
    assert not chart.is_below_floor


def test_surge_is_drawn_when_there_was_any() -> None:
    assert chart_of(sample(0, 10)).surge_line == ""
    chart = chart_of(sample(0, 10), sample(10, 11, surge=1), sample(20, 10))
    assert chart.surge_line
    assert "There was up to 1 surge pod." in chart.summary


def test_labels_of_lines_that_are_near_each_other_do_not_cover_each_other() -> None:
    desired, floor = chart_of(sample(0, 10, floor=9)).labels
    assert round(floor.y - desired.y, 1) >= 14
    (both,) = chart_of(sample(0, 10, floor=10)).labels
    assert both.text == "10 desired (also the floor)"


def test_there_are_a_few_round_moments_below() -> None:
    assert [tick.text for tick in chart_of(sample(0, 10), seconds=400).ticks] == ["0", "2 min", "4 min", "6 min"]
    assert [tick.text for tick in chart_of(sample(0, 10), seconds=45).ticks] == ["0", "10 s", "20 s", "30 s", "40 s"]


def test_what_is_updated_is_never_drawn_above_what_is_available() -> None:
    # All of them in one column, of which the fewest available are shown.
    dip = [sample(5000, 9, updated=6), sample(5001, 3), sample(5002, 10, updated=7)]
    chart = chart_of(sample(0, 10, updated=6), *dip, sample(9000, 10, updated=8), seconds=100_000)
    heights = {count: f"V{HEIGHT * (1 - count / 10.8):.1f}" for count in (3, 7, 8)}
    assert heights[3] in chart.available_line
    assert heights[3] in chart.updated_area
    assert heights[7] not in chart.updated_area
    assert heights[8] in chart.updated_area
