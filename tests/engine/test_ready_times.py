"""How long pods take to become Ready is measured on those that are."""

from dataclasses import replace

import pytest

from rollouts.engine.observed import Observed
from rollouts.engine.ready_times import LONGEST, UNMEASURED, measure_pods, measure_ready_times
from rollouts.engine.workload import Strategy
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


@pytest.mark.parametrize("seconds", [-1.0, LONGEST + 1.0])
def test_a_time_that_cannot_be_that_of_a_start_does_not_count(seconds: float) -> None:
    seen = settled(workload(clique("a", 1))).world.observed()
    (pod,) = seen.pods
    odd = replace(pod, ready_since=pod.started + seconds)
    assert measure_pods([odd], seen.cliques) == UNMEASURED


def test_a_pod_whose_containers_were_restarted_does_not_count() -> None:
    seen = settled(workload(clique("a", 1))).world.observed()
    assert measure_pods([replace(pod, restarts=1) for pod in seen.pods], seen.cliques) == UNMEASURED


def test_one_slow_pod_does_not_make_the_clique_slow() -> None:
    seen = settled(workload(clique("a", 3))).world.observed()
    slow, *others = seen.pods
    slow = replace(slow, ready_since=slow.started + 900.0)
    assert measure_pods([slow, *others], seen.cliques).by_clique == {"a": 10.0}


def test_pods_of_the_same_template_count_before_those_of_the_former() -> None:
    cluster = settled(workload(clique("a", 4, 1), strategy=Strategy.ROLLING_UPDATE))
    former = cluster.view.hashes["a"]
    cluster.world.change(replace(QUICK, ready_seconds=30.0))
    cluster.update()
    current = cluster.view.hashes["a"]
    assert measure_ready_times(cluster.world.observed()).find("a", current) == 10.0
    cluster.run_for(34.0)
    times = measure_ready_times(cluster.world.observed())
    assert (times.find("a", former), times.find("a", current)) == (10.0, 30.0)


def test_pods_without_a_podclique_are_not_measured() -> None:
    seen = settled(workload(clique("a", 1))).world.observed()
    assert measure_pods(seen.pods, ()) == UNMEASURED
