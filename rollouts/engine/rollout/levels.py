"""What an update may do at each level of a workload: the strategy in force, resolved to numbers.

Comes after `parsing` and `budget`; `steps` moves the units of a level by these numbers, and pages, API and
the check of overrides show them. The invariant: what is shown here is what the roller is given.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rollouts.engine.model.budget import Budget, resolve_budget
from rollouts.engine.model.workload import BudgetSpec, CliqueTemplate, GroupTemplate, Strategy, Workload

ONE_AT_A_TIME: Final = Budget(1, 0)

_NOT_SCALED: Final[Mapping[str, int]] = {}


class LevelKind(StrEnum):
    """What the units of a level are."""

    SET = "set"  # replicas of the set
    CLIQUE = "clique"  # pods of a clique that is in no scaling group
    GROUP = "group"  # replicas of a scaling group


@dataclass(frozen=True, slots=True)
class Level:
    """A list of units that an update moves through."""

    component: str  # the name of the clique or scaling group; empty: the set
    kind: LevelKind
    replicas: int  # in each replica of the set, for a component
    budget_spec: BudgetSpec | None  # None: nothing is written
    is_used: bool  # whether the strategy looks at what is written
    # None where an update does nothing by itself at this level: under OnDelete, and inside replicas replaced whole.
    budget: Budget | None


def list_levels(workload: Workload, scaled: Mapping[str, int] = _NOT_SCALED) -> tuple[Level, ...]:
    """Return the levels of a workload, the set first; `scaled` has replicas that differ from those of the template."""
    return (_make_set_level(workload), *_list_component_levels(workload, scaled))


def compute_set_budget(workload: Workload) -> Budget:
    """Return what an update may do to the replicas of the set; only ReplicaRecreate looks at what was written."""
    whole = workload.strategy is Strategy.REPLICA_RECREATE
    return resolve_budget(workload.budget, workload.replicas) if whole else ONE_AT_A_TIME


def compute_component_budget(workload: Workload, spec: BudgetSpec | None, wanted: int) -> Budget:
    """Return what an update may do to a component; only RollingUpdate looks at what was written for it."""
    return resolve_budget(spec, wanted) if workload.strategy is Strategy.ROLLING_UPDATE else ONE_AT_A_TIME


def _make_set_level(workload: Workload) -> Level:
    strategy = workload.strategy
    written = None if workload.budget == BudgetSpec() else workload.budget
    budget = None if strategy is Strategy.ON_DELETE else compute_set_budget(workload)
    return Level("", LevelKind.SET, workload.replicas, written, strategy is Strategy.REPLICA_RECREATE, budget)


def _list_component_levels(workload: Workload, scaled: Mapping[str, int]) -> Iterator[Level]:
    members = {name for group in workload.groups for name in group.clique_names}
    moves = workload.strategy in (Strategy.ROLLING_RECREATE, Strategy.ROLLING_UPDATE)
    is_used = workload.strategy is Strategy.ROLLING_UPDATE
    components: list[CliqueTemplate | GroupTemplate] = [
        *(clique for clique in workload.cliques if clique.name not in members),
        *workload.groups,
    ]
    for component in components:
        kind = LevelKind.CLIQUE if isinstance(component, CliqueTemplate) else LevelKind.GROUP
        wanted = scaled.get(component.name, component.replicas)
        budget = compute_component_budget(workload, component.budget, wanted) if moves else None
        yield Level(component.name, kind, wanted, component.budget, is_used, budget)


def is_part_of_component(workload: str, waiting: str, component: str) -> bool:
    """Whether who waits is a component, or one of its parts, by the name in the cluster or in the template.

    >>> names = ("decode", "my-0-decode", "my-0-decode-1", "prefill")
    >>> [is_part_of_component("my", "my-0-decode-1-leader", name) for name in names]
    [True, True, True, False]
    >>> is_part_of_component("my", "my", "my"), is_part_of_component("my", "my-2-frontend", "my")
    (True, False)
    """
    if waiting == component:
        return True
    is_inside = component != workload and waiting.startswith(f"{component}-")
    in_template = re.fullmatch(rf"{re.escape(workload)}-\d+-{re.escape(component)}(-\d+-.+)?", waiting)
    return is_inside or in_template is not None
