"""What the statuses say while a replica is emptied or leaves: what is there, not what was."""

from collections.abc import Iterator

import pytest

from rollouts.engine.model.actions import Delete, Kind, WriteStatus
from rollouts.engine.model.workload import Strategy
from rollouts.engine.simulation.cluster import ClusterBehaviour
from tests.engine.simulated import Cluster, clique, conditions, group, settled, workload

PARTS = (clique("a", 3, 2), clique("l", 2), group("g", ("l",), 2))
# Owners that stay until all they own is gone, and pods that take a while to go.
FOREGROUND = ClusterBehaviour(ready_seconds=10.0, termination_seconds=20.0, foreground_deletion=True)


def claims(cluster: Cluster) -> Iterator[tuple[str, int, int]]:
    """Yield what each component says that it has available, and what it has."""
    observed = cluster.world.observed()
    ready: dict[str, int] = {}
    for pod in observed.pods:
        ready[pod.clique] = ready.get(pod.clique, 0) + pod.available
    for one in observed.cliques:
        if one.status:
            yield one.name, one.status["readyReplicas"], ready.get(one.name, 0)
    for owner in observed.groups:
        if owner.status:
            whole = [one for one in observed.cliques if one.group == owner.name and not one.leaving]
            serving = sum(ready.get(one.name, 0) >= 2 for one in whole)
            yield owner.name, owner.status["availableReplicas"], min(serving, owner.replicas)


def assert_true_at_rest(cluster: Cluster) -> set[int]:
    """Run to the end and assert, whenever a pass has nothing to do, that all claims are so; return those seen."""
    seen = set()
    for planned in cluster.passes():
        if not planned.actions:
            for name, told, there in claims(cluster):
                assert told == there, f"{name} says {told} and has {there}"
                seen.add(told)
    return seen


@pytest.mark.parametrize("owners_go_last", [False, True])
@pytest.mark.parametrize("strategy", [Strategy.REPLICA_RECREATE, Strategy.ROLLING_RECREATE])
def test_nothing_claims_to_serve_while_its_replica_is_replaced(strategy: Strategy, owners_go_last: bool) -> None:
    behaviour = ClusterBehaviour(ready_seconds=10.0, termination_seconds=20.0, foreground_deletion=owners_go_last)
    cluster = settled(workload(*PARTS, replicas=2, strategy=strategy, budget=(1, 0)), behaviour).update()
    assert 0 in assert_true_at_rest(cluster)


def test_an_emptied_replica_says_that_it_is_being_updated() -> None:
    cluster = settled(workload(*PARTS, strategy=Strategy.REPLICA_RECREATE), FOREGROUND).update()
    cluster.run_until(lambda cluster: not cluster.live_pods() and not cluster.plan().actions)
    observed = cluster.world.observed()
    kept = [one for one in observed.cliques if one.name == "w-0-a"]
    for status in [*(one.status for one in kept), *(one.status for one in observed.groups)]:
        assert conditions(status)["MinAvailableBreached"] == ("Unknown", "UpdateInProgress")
        assert status["updateProgress"]["updateStartedAt"]
    assert [one.status["replicas"] for one in kept] == [0]
    assert [one.status["availableReplicas"] for one in observed.groups] == [0]


def test_a_replica_that_is_recreated_by_gang_termination_says_what_it_has() -> None:
    start = workload(*PARTS, termination_delay=60.0, strategy=Strategy.REPLICA_RECREATE)
    cluster = settled(start, ClusterBehaviour(ready_seconds=10.0, termination_seconds=20.0))
    for pod in cluster.live_pods("w-0-a")[:2]:
        cluster.world.set_ready(pod.name, ready=False)
    assert 0 in assert_true_at_rest(cluster)
    assert [one.reason for one in cluster.deleted()][:1] == ["GangTerminated"]


def test_a_replica_that_is_scaled_in_says_what_is_left_of_it() -> None:
    cluster = settled(workload(*PARTS, replicas=2), FOREGROUND).edit(replicas=1)
    cluster.run_until(lambda cluster: not cluster.live_pods("w-1") and not cluster.plan().actions)
    left = [one for one in cluster.world.observed().cliques if one.replica == 1]
    assert left
    assert {one.status["readyReplicas"] for one in left} == {0}
    assert_true_at_rest(cluster)


def test_no_status_is_written_of_what_the_same_pass_deletes() -> None:
    cluster = settled(workload(*PARTS, replicas=2, strategy=Strategy.REPLICA_RECREATE)).update()
    for planned in cluster.passes():
        gone = {action.uid for action in planned.actions if isinstance(action, Delete)}
        written = {action.uid for action in planned.actions if isinstance(action, WriteStatus)}
        assert not gone & written
    assert cluster.deleted(Kind.CLIQUE)
