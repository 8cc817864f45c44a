"""What a status counts while surge stands in: what serves is capacity, up to the wanted number, and surge is beside.

No count exceeds `replicas`, and fewer updated ones than `replicas` means that the update has not ended.
"""

from typing import Any

from rollouts.engine.model.actions import Kind
from rollouts.engine.model.workload import Strategy
from tests.engine.simulated import Cluster, clique, group, settled, workload

COUNTS = ("replicas", "availableReplicas", "updatedReplicas", "surgeReplicas")


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
        assert cluster.status["updatedReplicas"] <= cluster.status["availableReplicas"] <= cluster.status["replicas"]
    assert (cluster.status["availableReplicas"], cluster.status["updatedReplicas"]) == (2, 2)


def test_the_words_say_how_many_are_surge() -> None:
    cluster = recreated(2, (0, 1))
    cluster.run_until(lambda cluster: cluster.view.set_text() == "0? 1* 2s")
    assert available(cluster) == ("True", "2 of 2 replicas are available, 1 of them surge.")
    assert [cluster.status[name] for name in COUNTS] == [2, 2, 0, 1]
    cluster.run_until(lambda cluster: cluster.view.set_text() == "0 1? 2s")
    assert [cluster.status[name] for name in COUNTS] == [2, 2, 1, 1]
    cluster.settle()
    assert available(cluster) == ("True", "2 of 2 replicas are available.")
    assert "surgeReplicas" not in cluster.status


def test_surge_beyond_those_wanted_is_not_called_one_of_them() -> None:
    cluster = settled(workload(clique("a", 1), replicas=2, strategy=Strategy.REPLICA_RECREATE, budget=(0, 1)))
    cluster.update().run_until(lambda cluster: cluster.view.set_text() == "0* 1* 2s?")
    serving, seen = 2, set()
    for _ in cluster.passes():
        seen.add((serving, cluster.status["availableReplicas"], available(cluster)[1]))
        serving = sum(unit.available for unit in cluster.view.set_units())
    assert {count for _, count, _ in seen} == {2}
    assert {text for serving, _, text in seen if serving == 3} <= {"2 of 2 replicas are available."}


def test_a_set_without_surge_that_is_short_says_so() -> None:
    cluster = recreated(2, (1, 0))
    cluster.run_until(lambda cluster: cluster.view.set_text() == "0? 1*")
    assert available(cluster) == ("False", "1 of 2 replicas are available.")


def test_a_scaling_group_counts_its_surge_too() -> None:
    parts = (clique("l", 1), group("g", ("l",), 2, 2, (0, 1)))
    cluster = settled(workload(*parts, strategy=Strategy.ROLLING_UPDATE)).update()
    surge = set()
    for planned in cluster.passes():
        (found,) = cluster.world.observed().groups
        assert found.status["availableReplicas"] == found.status["scheduledReplicas"] == found.status["replicas"] == 2
        assert found.status["updatedReplicas"] <= 2
        surge.add(found.status.get("surgeReplicas", 0))
        if planned.actions:
            continue
        assert found.status["updatedReplicas"] == sum(
            unit.available and not unit.outdated and unit.index < 2
            for unit in cluster.view.group_units("w-0-g", cluster.workload.groups[0])
        )
    assert surge == {0, 1}
    assert "surgeReplicas" not in found.status


def test_a_clique_tells_its_surge_beside_the_pods_that_are_there() -> None:
    cluster = settled(workload(clique("a", 2, 2, (0, 1)), strategy=Strategy.ROLLING_UPDATE)).update()
    seen = []
    for _ in cluster.passes():
        (found,) = cluster.world.observed().cliques
        counted = [found.status[name] for name in ("replicas", "readyReplicas", "updatedReplicas")]
        assert max(counted) == counted[0]
        state = (*counted, found.status.get("surgeReplicas", 0))
        seen += [state] if state not in seen else []
    assert (3, 2, 1, 1) in seen
    assert state == (2, 2, 2, 0)


def test_pods_that_scaling_in_has_left_at_higher_indices_are_no_surge() -> None:
    cluster = settled(workload(clique("a", 3, 1)))
    cluster.world.set_ready(cluster.live_pods()[1].name, ready=False)
    cluster.world.scale(Kind.CLIQUE, "w-0-a", 2)
    cluster.settle()
    assert cluster.view.pods_text("w-0-a", "a") == "0 2s"
    cluster.world.set_ready(cluster.live_pods()[0].name, ready=False)
    cluster.settle()
    assert "surgeReplicas" not in cluster.world.observed().cliques[0].status
