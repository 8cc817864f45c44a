"""The numbers in charts: how many pods are desired, available, updated and surge, and how many must stay available."""

from dataclasses import replace
from typing import Any

import pytest

from rollouts.controller.pod_counts import count_desired, count_pods
from rollouts.engine.model.observed import Observed
from rollouts.engine.simulation.cluster import ClusterBehaviour
from tests.engine.manifests import small, workload_of
from tests.engine.simulated import run_workload, settled, with_image

# A frontend of three pods, and a group of four replicas of a leader and two workers; twice.
ONE = 3 + 4 * 3
ALL_OF_THE_GROUP = {"spec.template.podCliqueScalingGroups.0.minAvailable": 4}


def strategy(kind: str, **budget: Any) -> dict[str, Any]:
    """Return the edit that sets a strategy."""
    return {"spec.updateStrategy": {"type": kind, **({"rollingUpdate": budget} if budget else {})}}


@pytest.mark.parametrize(
    ("edits", "floor"),
    [
        ({}, 2 * ONE - 1 - 3),
        (strategy("OnDelete"), 2 * ONE),
        (strategy("ReplicaRecreate") | ALL_OF_THE_GROUP, ONE),
        (strategy("ReplicaRecreate", maxUnavailable=2), 0),
        (strategy("ReplicaRecreate", maxUnavailable=0, maxSurge=1) | ALL_OF_THE_GROUP, 2 * ONE),
        # One replica of the group is enough to serve, unless its minAvailable says otherwise.
        (strategy("ReplicaRecreate", maxUnavailable=0, maxSurge=1), 2 * (3 + 3)),
        ({"spec.template.podCliqueScalingGroups.0.updateStrategy": {"maxUnavailable": 2}}, 2 * ONE - 1 - 6),
        ({"spec.template.cliques.0.updateStrategy": {"maxUnavailable": 0, "maxSurge": 1}}, 2 * ONE - 3),
        # Nor does a replica of the group need more than one of its two workers.
        ({"spec.template.cliques.2.spec.minAvailable": 1}, 2 * (3 + 4 * 2) - 1 - 2),
    ],
)
def test_the_floor_is_what_the_budgets_leave(edits: dict[str, Any], floor: int) -> None:
    counts = count_pods(workload_of(small(edits)), Observed())
    assert (counts.desired, counts.floor) == (2 * ONE, floor)


def test_the_floor_knows_the_minimum_that_a_clique_was_made_with() -> None:
    edits = strategy("ReplicaRecreate") | ALL_OF_THE_GROUP
    cluster = settled(workload_of(small(edits)))
    cluster.workload = workload_of(small(edits | {"spec.template.cliques.0.spec.replicas": 5}))
    counts = count_pods(cluster.workload, cluster.settle().world.observed())
    assert (counts.desired, counts.floor) == (2 * (ONE + 2), ONE)


def test_the_floor_holds_where_surge_serves_with_a_part_of_its_pods() -> None:
    edits = strategy("ReplicaRecreate", maxUnavailable=0, maxSurge=1) | ALL_OF_THE_GROUP
    before = workload_of(small(edits | {"spec.template.cliques.0.spec.minAvailable": 1}))
    late = ClusterBehaviour(never_ready=frozenset({"chat-2-frontend-1", "chat-2-frontend-2"}))
    after = with_image(before, "two")
    cluster = settled(before, late)
    found = [count_pods(after, cluster.world.observed()) for _ in run_workload(after, cluster.world)]
    assert {counts.floor for counts in found} == {2 * (ONE - 2)}
    assert min(counts.available for counts in found) == 2 * ONE - 2
    assert (found[-1].available, found[-1].updated, found[-1].surge) == (2 * ONE, 2 * ONE, 0)


def test_nothing_there_is_nothing_available() -> None:
    counts = count_pods(workload_of(small()), Observed())
    assert (counts.available, counts.updated, counts.surge) == (0, 0, 0)


def test_an_update_with_surge_is_counted_all_the_way() -> None:
    edits = {"spec.template.cliques.0.updateStrategy": {"maxUnavailable": 0, "maxSurge": 1}}
    before = workload_of(small(edits))
    after = with_image(before, "two", "frontend")
    cluster = settled(before)
    assert count_pods(before, cluster.world.observed()).updated == 2 * ONE
    assert count_pods(after, cluster.world.observed()).updated == 2 * ONE - 6
    found = [count_pods(after, cluster.world.observed()) for _ in run_workload(after, cluster.world)]
    assert {counts.desired for counts in found} == {2 * ONE}
    assert max(counts.surge for counts in found) == 1
    assert all(counts.available >= counts.floor for counts in found)
    assert (found[-1].available, found[-1].updated, found[-1].surge) == (2 * ONE, 2 * ONE, 0)


@pytest.mark.parametrize("is_ready", [False, True])
def test_surge_is_not_updated_whether_it_serves_or_not(is_ready: bool) -> None:
    before = workload_of(small(strategy("ReplicaRecreate", maxUnavailable=0, maxSurge=1)))
    after = with_image(before, "two")
    world = settled(before).world
    for _ in run_workload(after, world):
        observed = world.observed()
        counts = count_pods(after, observed)
        surge = [pod for pod in observed.pods if pod.clique.startswith("chat-2-")]
        if len(surge) == ONE and all(pod.ready == is_ready for pod in surge):
            break
    assert (counts.desired, counts.updated, counts.surge) == (2 * ONE, 0, ONE)
    assert counts.available == 2 * ONE + (ONE if is_ready else 0) - sum(pod.leaving for pod in observed.pods)


def test_a_pod_is_updated_once_it_serves() -> None:
    workload = workload_of(small())
    observed = settled(workload).world.observed()
    first, *others = observed.pods
    seen = replace(observed, pods=(replace(first, ready=False), *others))
    counts = count_pods(workload, seen)
    assert (counts.available, counts.updated, counts.surge) == (2 * ONE - 1, 2 * ONE - 1, 0)


def test_what_is_desired_is_the_same_however_it_is_counted() -> None:
    workload = workload_of(small())
    observed = settled(workload).world.observed()
    scaled = replace(
        observed,
        cliques=tuple(replace(one, replicas=7) if one.name == "chat-1-frontend" else one for one in observed.cliques),
        groups=tuple(replace(one, replicas=2) if one.name == "chat-0-decode" else one for one in observed.groups),
    )
    for seen in (Observed(), observed, scaled):
        for edits in ({}, {"spec.replicas": 1}, {"spec.replicas": 0}, {"spec.replicas": 5}):
            changed = workload_of(small(edits))
            assert count_desired(changed, seen) == count_pods(changed, seen).desired
    assert count_desired(workload, scaled) == 2 * ONE + 4 - 6
    assert count_desired(workload, scaled, renewed=["frontend", "decode"]) == 2 * ONE
