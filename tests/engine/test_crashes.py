"""A crash costs time, never correctness: stop after the n-th action for every n, plan again, and reach the same end.

A process may die between any two writes. Its writes stay, the rest of its plan is lost, and the next process plans from
the current objects.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from rollouts.engine.model.actions import Action, Create, Delete, Kind
from rollouts.engine.model.observed import Pod, Service
from rollouts.engine.model.workload import Strategy, Workload
from rollouts.engine.simulation.cluster import ClusterObject
from tests.engine.chance import Count, assert_all_there, assert_within_budget, counts
from tests.engine.simulated import Cluster, clique, group, settled, workload

SURGING = (clique("a", 1, 1, (0, 1)), clique("l", 1), group("g", ("l",), 2, 1, (0, 1)))
SMALL = (clique("a", 1), clique("l", 1), group("g", ("l",), 2))

SCENES: dict[str, Workload] = {
    "RollingRecreate": workload(*SMALL, replicas=2),
    "RollingUpdate": workload(*SURGING, replicas=2, strategy=Strategy.ROLLING_UPDATE),
    "ReplicaRecreate": workload(*SMALL, replicas=2, strategy=Strategy.REPLICA_RECREATE, budget=(0, 1)),
    "OnDelete": workload(*SMALL, replicas=2, strategy=Strategy.ON_DELETE),
}


Counts = dict[str, Count]

TOLD: dict[int, tuple[ClusterObject, str]] = {}  # objects are values, so their texts can be cached


def create(calm: Cluster) -> Cluster:
    return Cluster(calm.workload)


def update(calm: Cluster) -> Cluster:
    return calm.update()


def update_again_during_update(calm: Cluster) -> Cluster:
    for _, _ in zip(range(12), calm.update().passes(), strict=False):
        pass
    return calm.update("app:v3")


def scale_in_during_update(calm: Cluster) -> Cluster:
    calm.update().step()
    calm.world.scale(Kind.GROUP, "w-0-g", 1)
    return calm.edit(replicas=1)


def delete_by_hand(calm: Cluster) -> Cluster:
    calm.update().step()
    calm.world.delete(Kind.POD, calm.live_pods("w-1-a")[0].name)
    calm.world.delete(Kind.CLIQUE, "w-0-g-1-l")
    return calm


def run_on(cluster: Cluster, known: set[str]) -> bool:
    """Run to the end, or to a state that is known to end well; check the budgets after every action.

    Return whether the run came to the end. The future depends on the state alone, so no state is run twice.
    """
    passed: list[str] = []
    for _ in range(1000):
        state = state_of(cluster)
        if state in known:
            known.update(passed)
            return False
        passed.append(state)
        planned = cluster.plan()
        counted: Counts | None = None
        for action in planned.actions:
            counted = carry_out_within_budget(cluster, action, counted)
        if not planned.actions and not cluster.wait():
            known.update(passed)
            return True
    raise AssertionError("no end")


def stopped_everywhere(cluster: Cluster) -> Iterator[tuple[str, Cluster]]:
    """Run to the end; yield every action with a copy of the cluster in which it was the last one before a crash."""
    for number in range(1000):
        planned = cluster.plan()
        for action in planned.actions:
            cluster.carry_out([action])
            yield f"pass {number}: {action}", cluster.fork()
        if not planned.actions and not cluster.wait():
            return
    raise AssertionError("no end")


def state_of(cluster: Cluster) -> str:
    """Return the state that the future depends on."""
    seen = cluster.world.observed()
    things = sorted(
        render(one) for kind in (seen.cliques, seen.groups, seen.gangs, seen.services, seen.pods) for one in kind
    )
    timers = sorted((due, event, name, uid) for due, _, event, name, uid in cluster.world._timers)
    return repr((cluster.world.now, seen.status, things, timers))


def render(thing: ClusterObject) -> str:
    """Return an object as text without its resourceVersion, cached: most are the same in thousands of states."""
    known, text = TOLD.get(id(thing), (None, ""))
    if known is not thing:
        text = repr(thing if isinstance(thing, Service | Pod) else replace(thing, resource_version=""))
        TOLD[id(thing)] = thing, text
    return text


def carry_out_within_budget(cluster: Cluster, action: Action, counted: Counts | None) -> Counts | None:
    """Carry out one action, check the budgets, and return the counts."""
    if not isinstance(action, Create | Delete):
        cluster.carry_out([action])
        return None
    before = counted or counts(cluster.workload, cluster.world.observed())
    cluster.carry_out([action])
    after = counts(cluster.workload, cluster.world.observed())
    assert_within_budget(cluster.workload, before, after)
    return after


def ending(cluster: Cluster) -> Any:
    """Return the final objects without uids and times."""
    seen = cluster.world.observed()
    gangs = {
        one.name: {name: (least, len(pods)) for name, (least, pods) in one.pod_groups.items()} for one in seen.gangs
    }
    return (
        sorted((pod.clique, pod.index, pod.template_hash, pod.ready) for pod in seen.pods),
        sorted((one.name, one.template_hash, one.replicas, timeless(one.status)) for one in seen.cliques),
        sorted((one.name, one.replicas, timeless(one.status)) for one in seen.groups),
        gangs,
        sorted(one.name for one in seen.services),
        timeless(seen.status),
    )


def timeless(status: Any) -> str:
    counted = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "currentGenerationHash")
    ended = bool((status.get("updateProgress") or {}).get("updateEndedAt"))
    return repr([*(status.get(name) for name in counted), ended])


DURING_UPDATE = [update, update_again_during_update, scale_in_during_update, delete_by_hand]


@pytest.mark.parametrize(
    ("scene", "happening"),
    [
        ("RollingRecreate", create),  # nothing of a strategy shows before the first update
        *((scene, happening) for scene in SCENES if scene != "OnDelete" for happening in DURING_UPDATE),
        ("OnDelete", scale_in_during_update),
        ("OnDelete", delete_by_hand),
    ],
)
def test_stopping_after_any_action_ends_the_same(scene: str, happening: Callable[[Cluster], Cluster]) -> None:
    start = happening(settled(SCENES[scene]))
    known: set[str] = set()
    undisturbed = start.fork()
    assert run_on(undisturbed, known)
    assert_all_there(undisturbed)
    for where, stopped in stopped_everywhere(start):
        if run_on(stopped, known):
            assert ending(stopped) == ending(undisturbed), where
            assert_all_there(stopped)
        assert stopped.refused == [], where
    assert ending(start) == ending(undisturbed)
