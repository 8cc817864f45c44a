"""Which budget limits an update at each level of a workload, resolved to numbers (`docs/semantics.md` 5).

    strategy          replicas of the set    pods of a clique, replicas of a scaling group
    RollingRecreate   1 / 0                  1 / 0
    RollingUpdate     1 / 0                  their own budget
    ReplicaRecreate   the budget of the set  none: everything in a replica moves with it
    OnDelete          none                   none

Comes after `parsing` and `budget`. `steps` moves the units of a level with these numbers; pages, API and the check of
overrides show them. The invariant: the budget that is shown is the budget that the roller gets.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rollouts.engine.model.budget import Budget, resolve_budget
from rollouts.engine.model.workload import (
    COMPONENT_BUDGET_STRATEGY,
    SET_BUDGET_STRATEGY,
    BudgetSpec,
    CliqueTemplate,
    GroupTemplate,
    Strategy,
    Workload,
)

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
    replicas: int  # of a component: in each replica of the set
    budget_spec: BudgetSpec | None  # as written; None: nothing is written
    is_used: bool  # whether the strategy uses the written budget
    # None where no update moves units at this level: under OnDelete, and inside replicas that are replaced whole.
    budget: Budget | None


def list_levels(workload: Workload, scaled: Mapping[str, int] = _NOT_SCALED) -> tuple[Level, ...]:
    """Return the levels of a workload, the set first; `scaled` holds live replicas that differ from the template."""
    return (_make_set_level(workload), *_list_component_levels(workload, scaled))


def compute_set_budget(workload: Workload) -> Budget:
    """Return the budget for replicas of the set: the written one if the strategy uses it, else one at a time."""
    is_used = workload.strategy is SET_BUDGET_STRATEGY
    return resolve_budget(workload.budget, workload.replicas) if is_used else ONE_AT_A_TIME


def compute_component_budget(workload: Workload, spec: BudgetSpec | None, wanted: int) -> Budget:
    """Return the budget of a component: the written one if the strategy uses it, else one at a time."""
    is_used = workload.strategy is COMPONENT_BUDGET_STRATEGY
    return resolve_budget(spec, wanted) if is_used else ONE_AT_A_TIME


def _make_set_level(workload: Workload) -> Level:
    strategy = workload.strategy
    written = None if workload.budget == BudgetSpec() else workload.budget
    budget = None if strategy is Strategy.ON_DELETE else compute_set_budget(workload)
    return Level("", LevelKind.SET, workload.replicas, written, strategy is SET_BUDGET_STRATEGY, budget)


def _list_component_levels(workload: Workload, scaled: Mapping[str, int]) -> Iterator[Level]:
    members = {name for group in workload.groups for name in group.clique_names}
    moves = workload.strategy in (Strategy.ROLLING_RECREATE, Strategy.ROLLING_UPDATE)
    is_used = workload.strategy is COMPONENT_BUDGET_STRATEGY
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
    """Whether the object that waits is a component or a part of it; the component by its live or its template name.

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
