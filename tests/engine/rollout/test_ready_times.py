"""How long pods take to become Ready is measured on Ready pods."""

from dataclasses import replace

import pytest

from rollouts.engine.model.observed import Observed, ReadyTime
from rollouts.engine.model.workload import Strategy
from rollouts.engine.rollout.ready_times import (
    MAX_SECONDS,
    TEMPLATES_KEPT,
    UNMEASURED,
    choose_recorded,
    measure_pods,
    measure_ready_times,
)
from tests.engine.simulated import QUICK, Cluster, clique, group, settled, workload

TWO = (clique("a", 3), clique("l", 1), clique("k", 2), group("g", ("l", "k"), 2))


def measured(cluster: Cluster) -> dict[str, float]:
    return {**measure_ready_times(cluster.world.observed()).by_clique}


def test_what_was_never_ready_is_not_measured() -> None:
    assert measure_ready_times(Observed()) == UNMEASURED
    assert UNMEASURED.find("a", "hash") is None


def test_the_time_of_a_clique_is_that_from_the_node_to_ready() -> None:
    behaviour = replace(QUICK, ready_seconds_of={"k": 40.0})
    assert measured(Cluster(workload(*TWO), behaviour).settle()) == {"a": 10.0, "l": 10.0, "k": 40.0}


def test_a_pod_is_measured_from_its_creation_where_nobody_noted_when_it_got_its_node() -> None:
    seen = settled(workload(clique("a", 1))).world.observed()
    (pod,) = seen.pods
    earlier = replace(pod, scheduled_at=None, created=pod.created - 5.0)
    assert measure_ready_times(replace(seen, pods=(earlier,))).by_clique == {"a": 15.0}


@pytest.mark.parametrize("seconds", [-1.0, MAX_SECONDS + 1.0])
def test_a_time_that_cannot_be_that_of_a_start_does_not_count(seconds: float) -> None:
    seen = settled(workload(clique("a", 1))).world.observed()
    (pod,) = seen.pods
    odd = replace(pod, ready_since=pod.started_at + seconds)
    assert measure_pods([odd], seen.cliques) == UNMEASURED


def test_a_pod_whose_containers_were_restarted_does_not_count() -> None:
    seen = settled(workload(clique("a", 1))).world.observed()
    assert measure_pods([replace(pod, restarts=1) for pod in seen.pods], seen.cliques) == UNMEASURED


def test_one_slow_pod_does_not_make_the_clique_slow() -> None:
    seen = settled(workload(clique("a", 3))).world.observed()
    slow, *others = seen.pods
    slow = replace(slow, ready_since=slow.started_at + 900.0)
    assert measure_pods([slow, *others], seen.cliques).by_clique == {"a": 10.0}


def test_pods_of_the_same_template_count_before_those_of_the_former() -> None:
    cluster = settled(workload(clique("a", 4, 1), strategy=Strategy.ROLLING_UPDATE))
    former = cluster.view.hashes["a"]
    cluster.world.set_behaviour(replace(QUICK, ready_seconds=30.0))
    cluster.update()
    current = cluster.view.hashes["a"]
    assert measure_ready_times(cluster.world.observed()).find("a", current) == 10.0
    cluster.run_for(34.0)
    times = measure_ready_times(cluster.world.observed())
    assert (times.find("a", former), times.find("a", current)) == (10.0, 30.0)


def test_pods_without_a_podclique_are_not_measured() -> None:
    seen = settled(workload(clique("a", 1))).world.observed()
    assert measure_pods(seen.pods, ()) == UNMEASURED


# ---- what is noted for when no pod is left


def noted(seconds: float, pods: int = 2, template_hash: str = "h1", clique_name: str = "a") -> ReadyTime:
    return ReadyTime(clique_name, template_hash, seconds, pods)


def test_what_was_measured_is_told_of_each_template() -> None:
    cluster = settled(workload(clique("a", 3)))
    current = cluster.view.hashes["a"]
    assert measure_ready_times(cluster.world.observed()).measured == (ReadyTime("a", current, 10.0, 3),)


def test_what_was_noted_counts_where_no_pod_is_left() -> None:
    times = measure_ready_times(Observed(ready_times=(noted(20.0), noted(5.0, template_hash="h2"))))
    assert (times.find("a", "h1"), times.find("a", "h2")) == (20.0, 5.0)
    # Of a new template, what was noted last is expected.
    assert times.find("a", "h3") == 5.0
    assert times.find("b", "h1") is None


def test_pods_that_are_there_count_before_what_was_noted() -> None:
    cluster = settled(workload(clique("a", 3)))
    current = cluster.view.hashes["a"]
    earlier = (noted(99.0, template_hash=current), noted(40.0))
    times = measure_ready_times(replace(cluster.world.observed(), ready_times=earlier))
    assert (times.find("a", current), times.find("a", "another"), times.find("a", "h1")) == (10.0, 10.0, 40.0)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (noted(10.5), noted(10.0)),  # about the same
        (noted(11.5), noted(11.5)),  # another time
        (noted(10.2, pods=4), noted(10.2, pods=4)),  # of twice as many pods
        (noted(30.0, pods=1), noted(10.0)),  # fewer pods tell less
    ],
)
def test_a_time_is_noted_anew_when_it_has_changed(now: ReadyTime, expected: ReadyTime) -> None:
    assert choose_recorded((noted(10.0),), (now,), ["a"]) == (expected,)


def test_only_the_last_templates_of_the_cliques_of_the_workload_are_noted() -> None:
    former = tuple(noted(10.0, template_hash=f"h{number}") for number in range(TEMPLATES_KEPT))
    others = (noted(1.0, clique_name="b"), noted(1.0, clique_name="gone"))
    found = choose_recorded((*former, *others), (noted(7.0, template_hash="new"),), ["a", "b"])
    assert [one.template_hash for one in found if one.clique == "a"] == [
        *(f"h{n}" for n in range(1, TEMPLATES_KEPT)),
        "new",
    ]
    assert {one.clique for one in found} == {"a", "b"}
    assert choose_recorded(found, (), ["a", "b"]) == found
