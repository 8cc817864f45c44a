"""The budget of each level, as pages show it and the roller gets it."""

from typing import Any

import pytest

from rollouts.engine.rollout.levels import LevelKind, list_levels
from tests.engine.manifests import small, workload_of


def _numbers(strategy: dict[str, Any], scaled: dict[str, int] | None = None) -> dict[str, tuple[int, int] | None]:
    edits = {"spec.updateStrategy": strategy, "spec.replicas": 10}
    if strategy["type"] == "RollingUpdate":
        edits["spec.template.podCliqueScalingGroups.0.updateStrategy"] = {"maxUnavailable": "25%", "maxSurge": "10%"}
    levels = list_levels(workload_of(small(edits)), scaled or {})
    return {
        level.component: (level.budget.max_unavailable, level.budget.max_surge) if level.budget else None
        for level in levels
    }


@pytest.mark.parametrize(
    ("strategy", "numbers"),
    [
        ({"type": "RollingRecreate"}, {"": (1, 0), "frontend": (1, 0), "decode": (1, 0)}),
        ({"type": "RollingUpdate"}, {"": (1, 0), "frontend": (1, 0), "decode": (1, 1)}),
        (
            {"type": "ReplicaRecreate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
            {"": (2, 3), "frontend": None, "decode": None},
        ),
        ({"type": "OnDelete"}, {"": None, "frontend": None, "decode": None}),
    ],
)
def test_each_strategy_moves_the_levels_it_is_about(
    strategy: dict[str, Any], numbers: dict[str, tuple[int, int] | None]
) -> None:
    assert _numbers(strategy) == numbers


def test_a_percentage_is_of_the_replicas_that_a_component_is_scaled_to() -> None:
    assert _numbers({"type": "RollingUpdate"}, {"decode": 20})["decode"] == (5, 2)


def test_the_cliques_of_a_group_are_no_level_of_their_own() -> None:
    kinds = [(level.component, level.kind, level.replicas) for level in list_levels(workload_of(small()))]
    assert kinds == [("", LevelKind.SET, 2), ("frontend", LevelKind.CLIQUE, 3), ("decode", LevelKind.GROUP, 4)]
