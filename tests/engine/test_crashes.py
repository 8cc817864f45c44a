"""Stopping anywhere costs time, never correctness: after the n-th action for every n, plan again, same end.

A process may die between any two writes. What it had written stays, what it had planned beyond is forgotten; the next
one plans from what is there.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rollouts.engine.actions import Action, Create, Delete, Kind
from rollouts.engine.workload import Strategy, Workload
from tests.engine.chance import assert_all_there, assert_within_budget, counts
from tests.engine.simulated import Cluster, clique, group, settled, workload

ONE_OF_EACH = (clique("a", 1), clique("l", 1), group("g", ("l",), 2))
SURGING = (clique("a", 2, 1, (0, 1)), clique("l", 1), group("g", ("l",), 2, 1, (0, 1)))
HELD = (clique("a", 1), clique("l", 1), group("g", ("l",), 1))

SCENES: dict[str, Workload] = {
    "RollingRecreate": workload(*ONE_OF_EACH, replicas=2),
    "RollingUpdate": workload(*SURGING, strategy=Strategy.ROLLING_UPDATE),
    "ReplicaRecreate": workload(*HELD, replicas=2, strategy=Strategy.REPLICA_RECREATE, budget=(0, 1)),
}


def create(calm: Cluster) -> Cluster:
    return Cluster(calm.workload)


def update(calm: Cluster) -> Cluster:
    return calm.fork().update()


def scale_in_during_update(calm: Cluster) -> Cluster:
    cluster = calm.fork().update()
    cluster.step()
    cluster.world.scale(Kind.GROUP, "w-0-g", 1)
    return cluster.edit(replicas=1)


def run_on(cluster: Cluster) -> Cluster:
    """Run to the end; after every pass the budgets hold."""
    for _ in range(1000):
        planned = cluster.plan()
        carry_out_within_budget(cluster, planned.actions)
        if not planned.actions and not cluster.wait():
            return cluster
    raise AssertionError("no end")


def stopped_everywhere(cluster: Cluster) -> Iterator[tuple[str, Cluster]]:
    """Run to the end; on the way tell of every action, with a second cluster in which it was the last before a stop."""
    for number in range(1000):
        planned = cluster.plan()
        for action in planned.actions:
            carry_out_within_budget(cluster, (action,))
            yield f"pass {number}: {action}", cluster.fork()
        if not planned.actions and not cluster.wait():
            return
    raise AssertionError("no end")


def carry_out_within_budget(cluster: Cluster, actions: tuple[Action, ...]) -> None:
    if not any(isinstance(action, Create | Delete) for action in actions):
        cluster.carry_out(actions)
        return
    before = counts(cluster.workload, cluster.world.observed())
    cluster.carry_out(actions)
    assert_within_budget(cluster.workload, before, counts(cluster.workload, cluster.world.observed()))


def ending(cluster: Cluster) -> Any:
    """Return what the end consists of, without uids and times."""
    seen = cluster.world.observed()
    return (
        sorted((pod.clique, pod.index, pod.template_hash, pod.ready) for pod in seen.pods),
        sorted((one.name, one.template_hash, one.replicas, timeless(one.status)) for one in seen.cliques),
        sorted((one.name, one.replicas, timeless(one.status)) for one in seen.groups),
        sorted(
            (one.name, sorted((name, count, len(pods)) for name, (count, pods) in one.pod_groups.items()))
            for one in seen.gangs
        ),
        sorted(one.name for one in seen.services),
        timeless(seen.status),
    )


def timeless(status: Any) -> str:
    counted = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "currentGenerationHash")
    ended = bool((status.get("updateProgress") or {}).get("updateEndedAt"))
    return repr([status.get(name) for name in counted] + [ended])


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("happening", [create, update, scale_in_during_update])
def test_stopping_after_any_action_ends_the_same(scene: str, happening: Callable[[Cluster], Cluster]) -> None:
    start = happening(settled(SCENES[scene]))
    expected = ending(run_on(start.fork()))
    for where, stopped in stopped_everywhere(start):
        assert ending(run_on(stopped)) == expected, where
        assert stopped.refused == [], where
        assert_all_there(stopped)
    assert ending(start) == expected
    assert start.refused == []
