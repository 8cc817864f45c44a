"""What is expected of a workload's pods follows from what those did that are there."""

from dataclasses import replace
from typing import Any

import pytest

from rollouts.engine.model.observed import ReadyTime
from rollouts.engine.model.workload import Workload
from rollouts.engine.rollout.ready_times import (
    MAX_SECONDS,
    MIN_SECONDS,
    READY_WITHIN,
    compute_usual_seconds,
    measure_start,
)
from rollouts.engine.simulation.pod_behaviour import ExpectedBehaviour, PodRecord, compute_expected_behaviour
from rollouts.engine.tree.layout import make_layout
from tests.engine.simulated import clique, with_image, workload

OLD = workload(clique("a", 3, 1))
NEW = with_image(OLD, "app:v2")


def record(of: Workload, name: str = "p", clique_name: str = "a", **fields: Any) -> PodRecord:
    """Return a pod that took ten seconds to become Ready, but for what is said otherwise."""
    made = PodRecord(
        name=name,
        clique=clique_name,
        template_hash=make_layout(of).hashes[clique_name],
        images="app",
        is_ready=True,
        ready_seconds=10.0,
        seconds_on_node=900.0,
        seconds_ready=890.0,
    )
    return replace(made, **fields)


def failing(of: Workload, **fields: Any) -> PodRecord:
    """Return a pod that is not Ready."""
    return record(of, "new", **{"is_ready": False, "ready_seconds": None, "seconds_ready": None, **fields})


def why_never(outlook: ExpectedBehaviour, of: Workload, clique_name: str = "a") -> str:
    """Return why pods of a template never become Ready; empty: they do."""
    key = (clique_name, make_layout(of).hashes[clique_name])
    (found,) = (one for one in outlook.cliques if one.key == key)
    assert (key in outlook.never_ready) == bool(found.never_ready_reason)
    return found.never_ready_reason


def test_the_template_that_was_ready_before_an_annotation_is_not_expected_to_fail_as_its_successor_does() -> None:
    annotated = replace(OLD, cliques=tuple(replace(one, annotations={"inject": "x"}) for one in OLD.cliques))
    crash = failing(annotated, reason="CrashLoopBackOff", restarts=5)
    outlook = compute_expected_behaviour(annotated, OLD, [crash, record(OLD)])
    assert why_never(outlook, annotated)
    assert not why_never(outlook, OLD)
    # Of a template of which no pod was ever Ready the same is expected as of the one that differs in a label.
    another = replace(OLD, cliques=tuple(replace(one, annotations={"inject": "y"}) for one in OLD.cliques))
    assert why_never(compute_expected_behaviour(annotated, another, [crash, record(OLD)]), another)


@pytest.mark.parametrize("is_ready", [False, True])
def test_a_container_that_crashes_and_has_no_readiness_probe_fails_also_while_it_runs(is_ready: bool) -> None:
    crash = failing(NEW, is_ready=is_ready, restarts=2, seconds_ready=4.0 if is_ready else None)
    assert why_never(compute_expected_behaviour(NEW, NEW, [crash, record(OLD)]), NEW) == "new: 2 restarts"


def test_a_pod_that_was_restarted_at_its_start_and_runs_since_does_not_fail() -> None:
    late = failing(NEW, is_ready=True, restarts=2, seconds_ready=61.0)
    assert not why_never(compute_expected_behaviour(NEW, NEW, [late, record(OLD)]), NEW)


@pytest.mark.parametrize(("usual", "waited", "is_late"), [(0.0, 3.4, False), (0.0, 3.6, True), (10.0, 33.0, True)])
def test_stamps_of_whole_seconds_make_no_pod_late(usual: float, waited: float, is_late: bool) -> None:
    records = [failing(NEW, seconds_on_node=waited), record(OLD, ready_seconds=usual)]
    assert bool(why_never(compute_expected_behaviour(NEW, NEW, records), NEW)) == is_late


def test_cliques_with_equal_templates_are_told_apart() -> None:
    two = workload(clique("a", 1), clique("b", 1))
    crash = failing(two, reason="CrashLoopBackOff", restarts=5)
    outlook = compute_expected_behaviour(two, two, [crash, record(two, "b0", "b", ready_seconds=50.0)])
    assert make_layout(two).hashes["a"] == make_layout(two).hashes["b"]
    assert why_never(outlook, two, "a")
    assert not why_never(outlook, two, "b")


def test_a_pod_that_became_ready_again_after_days_does_not_tell_how_long_a_start_takes() -> None:
    assert measure_start(0.0, 172_800.0, 0) is None
    assert measure_start(0.0, MAX_SECONDS, 0) == MAX_SECONDS
    assert measure_start(0.0, 10.0, 1) is None


@pytest.mark.parametrize(
    ("times", "usual"),
    [([10.0, 10.0, 900.0], 10.0), ([2.0, 3.0], 2.5), ([0.0], MIN_SECONDS), ([2, 3, 2, 3, 500], 8 / 3)],
)
def test_what_is_usual_is_the_same_for_waits_and_for_forecasts(times: list[float], usual: float) -> None:
    assert compute_usual_seconds(times) == usual
    records = [record(OLD, f"p{number}", ready_seconds=seconds) for number, seconds in enumerate(times)]
    assert [one.seconds for one in compute_expected_behaviour(OLD, OLD, records).cliques] == [usual]


# ---- where all pods were replaced at once


def measured(of: Workload, seconds: float = 2.0) -> ReadyTime:
    """Return what was noted of a template whose pods are gone."""
    return ReadyTime("a", make_layout(of).hashes["a"], seconds, 3)


def test_what_was_noted_counts_where_no_pod_is_left() -> None:
    (found,) = compute_expected_behaviour(OLD, OLD, [], [measured(OLD, 20.0)]).cliques
    assert (found.seconds, found.pods) == (20.0, 3)
    (_, new) = compute_expected_behaviour(OLD, NEW, [], [measured(OLD, 20.0)]).cliques
    assert (new.seconds, new.pods) == (20.0, 3)
    (found,) = compute_expected_behaviour(OLD, OLD, [record(OLD)], [measured(OLD, 20.0)]).cliques
    assert (found.seconds, found.pods) == (10.0, 1)


def test_a_template_that_replaced_all_pods_and_is_late_never_becomes_ready() -> None:
    waiting = [failing(NEW, seconds_on_node=9.0)]
    assert not why_never(compute_expected_behaviour(NEW, NEW, waiting), NEW)
    expected = "new is not Ready after 9 s, usually 2 s"
    assert why_never(compute_expected_behaviour(NEW, NEW, waiting, [measured(OLD)]), NEW) == expected


def test_a_template_that_was_ready_once_may_fail_now() -> None:
    crash = failing(NEW, reason="CrashLoopBackOff", restarts=5)
    assert why_never(compute_expected_behaviour(NEW, NEW, [crash], [measured(NEW)]), NEW) == "new: CrashLoopBackOff"


def test_a_template_without_any_measurement_never_becomes_ready_after_ten_minutes() -> None:
    def expected_of(waited: float) -> ExpectedBehaviour:
        return compute_expected_behaviour(NEW, NEW, [failing(NEW, seconds_on_node=waited)])

    assert not why_never(expected_of(READY_WITHIN - 1.0), NEW)
    assert why_never(expected_of(READY_WITHIN + 1.0), NEW) == "new is not Ready after 601 s"
    assert "new" in expected_of(READY_WITHIN + 1.0).never_ready
    assert "new" not in expected_of(READY_WITHIN - 1.0).never_ready


def test_a_clique_is_not_late_by_the_times_of_another_clique() -> None:
    two = workload(clique("model", 1), clique("router", 1))

    def expected_of(waited: float) -> ExpectedBehaviour:
        quick = record(two, "r", "router", ready_seconds=2.0)
        return compute_expected_behaviour(two, two, [failing(two, clique_name="model", seconds_on_node=waited), quick])

    assert not why_never(expected_of(READY_WITHIN - 1.0), two, "model")
    assert "new" not in expected_of(READY_WITHIN - 1.0).never_ready
    assert why_never(expected_of(READY_WITHIN + 1.0), two, "model") == "new is not Ready after 601 s"
