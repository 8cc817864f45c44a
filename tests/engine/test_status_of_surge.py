"""What a status counts while surge stands in: what serves is capacity, and the words say how much of it is surge."""

from typing import Any

from rollouts.engine.workload import Strategy
from tests.engine.simulated import Cluster, clique, group, settled, workload


def recreated(replicas: int, budget: tuple[int, int]) -> Cluster:
    parts = (clique("a", 1), clique("l", 1), group("g", ("l",), 1))
    return settled(workload(*parts, replicas=replicas, strategy=Strategy.REPLICA_RECREATE, budget=budget)).update()


def available(cluster: Cluster) -> tuple[str, str]:
    found: Any = next(one for one in cluster.status["conditions"] if one["type"] == "Available")
    return found["status"], found["message"]


def test_a_set_that_may_not_lose_any_never_shows_fewer_than_wanted() -> None:
    cluster = recreated(2, (0, 1))
    for _ in cluster.passes():
        assert cluster.status["availableReplicas"] >= 2
        assert available(cluster)[0] == "True"
    assert (cluster.status["availableReplicas"], cluster.status["updatedReplicas"]) == (2, 2)


def test_the_words_say_how_many_are_surge() -> None:
    cluster = recreated(2, (0, 1))
    cluster.run_until(lambda cluster: cluster.view.set_text() == "0? 1* 2s")
    assert available(cluster) == ("True", "2 of 2 replicas are available, 1 of them surge.")
    assert (cluster.status["availableReplicas"], cluster.status["updatedReplicas"]) == (2, 1)
    cluster.run_until(lambda cluster: cluster.view.set_text() == "0 1? 2s")
    assert cluster.status["updatedReplicas"] == 2
    cluster.settle()
    assert available(cluster) == ("True", "2 of 2 replicas are available.")


def test_surge_beyond_those_wanted_is_not_called_one_of_them() -> None:
    cluster = settled(workload(clique("a", 1), replicas=2, strategy=Strategy.REPLICA_RECREATE, budget=(0, 1)))
    cluster.update().run_until(lambda cluster: cluster.view.set_text() == "0* 1* 2s?")
    seen = set()
    for _ in cluster.passes():
        seen.add((cluster.status["availableReplicas"], available(cluster)[1]))
    assert {text for count, text in seen if count == 3} <= {"2 of 2 replicas are available."}


def test_a_set_without_surge_that_is_short_says_so() -> None:
    cluster = recreated(2, (1, 0))
    cluster.run_until(lambda cluster: cluster.view.set_text() == "0? 1*")
    assert available(cluster) == ("False", "1 of 2 replicas are available.")


def test_a_scaling_group_counts_its_surge_too() -> None:
    parts = (clique("l", 1), group("g", ("l",), 2, 2, (0, 1)))
    cluster = settled(workload(*parts, strategy=Strategy.ROLLING_UPDATE)).update()
    for _ in cluster.passes():
        (found,) = cluster.world.observed().groups
        assert found.status["availableReplicas"] >= 2
        assert found.status["scheduledReplicas"] >= found.status["availableReplicas"] >= found.status["updatedReplicas"]
        assert found.status["replicas"] == 2
