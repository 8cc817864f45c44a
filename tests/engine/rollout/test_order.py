"""Who goes first at each level."""

from dataclasses import replace
from itertools import permutations

import pytest

from rollouts.engine.model.observed import Pod
from rollouts.engine.rollout.order import (
    group_replica_update_order,
    pod_scale_in_order,
    pod_update_order,
    replica_update_order,
)

READY = Pod(
    name="w-0-a-xxxxx", uid="u", clique="w-0-a", index=0, template_hash="new", created=100.0,
    node="n1", phase="Running", ready=True, leaving=False, gated=False,
)  # fmt: skip

# The first of these goes first when 3 are wanted.
BY_SCALE_IN = [
    replace(READY, name="not-scheduled", node="", phase="Pending", ready=False),
    replace(READY, name="failed", phase="Failed", ready=False),
    replace(READY, name="pending", phase="Pending", ready=False, created=50.0),
    replace(READY, name="unknown", phase="Unknown", ready=False),
    replace(READY, name="not-ready", ready=False),
    replace(READY, name="outdated", template_hash="old"),
    replace(READY, name="extra-index", index=3),
    replace(READY, name="newer", created=200.0),
    replace(READY, name="older-a"),
    replace(READY, name="older-b"),
]


def test_pods_are_scaled_in_by_how_little_is_lost() -> None:
    shuffled = [*BY_SCALE_IN[5:], *BY_SCALE_IN[:5]]
    ordered = sorted(shuffled, key=lambda pod: pod_scale_in_order(pod, 3, "new"))
    assert [pod.name for pod in ordered] == [pod.name for pod in BY_SCALE_IN]


@pytest.mark.parametrize("position", range(len(BY_SCALE_IN) - 1))
def test_each_rule_of_scaling_in_decides_over_those_after_it(position: int) -> None:
    first, *later = BY_SCALE_IN[position:]
    place = pod_scale_in_order(first, 3, "new")
    assert all(place < pod_scale_in_order(pod, 3, "new") for pod in later)


def test_pods_are_updated_oldest_first_and_by_name_when_equally_old() -> None:
    pods = [replace(READY, name=name, created=created) for name, created in [("c", 1.0), ("a", 2.0), ("b", 2.0)]]
    for shuffled in permutations(pods):
        assert [pod.name for pod in sorted(shuffled, key=pod_update_order)] == ["c", "a", "b"]


def test_set_replicas_go_unscheduled_then_breached_then_by_index() -> None:
    healthy, breached, unscheduled = (
        replica_update_order(0, scheduled=True, breached=False),
        replica_update_order(1, scheduled=True, breached=True),
        replica_update_order(2, scheduled=False, breached=False),
    )
    assert sorted([healthy, breached, unscheduled]) == [unscheduled, breached, healthy]
    assert replica_update_order(0, scheduled=True, breached=False) < replica_update_order(
        1, scheduled=True, breached=False
    )


def test_group_replicas_are_updated_from_the_bottom() -> None:
    assert sorted(range(4), key=group_replica_update_order) == [0, 1, 2, 3]


def test_a_leaving_pod_is_neither_available_nor_scheduled() -> None:
    leaving = replace(READY, leaving=True)
    assert (READY.available, READY.scheduled) == (True, True)
    assert (leaving.available, leaving.scheduled) == (False, False)
