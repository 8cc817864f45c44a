"""What would help whoever waits: only what really ends the wait it is offered for.

`diagnosis` says what is waited for and asks here. The invariant: carry a remedy out while nothing else changes, and the
wait ends; `tests/engine/plan/test_remedies.py` carries each of them out. So what the strategy ignores is not offered
(RollingRecreate looks at no budget), nor what undoes itself (deleted surge is created again while an original is
outdated).
"""

from enum import StrEnum
from typing import Final

from rollouts.engine.model.budget import Budget, resolve_max_surge, resolve_max_unavailable
from rollouts.engine.model.values import value
from rollouts.engine.model.workload import BudgetSpec


class Remedy(StrEnum):
    """What would help."""

    ADD_CAPACITY = "AddCapacity"
    SET_MAX_SURGE_TO_ZERO = "SetMaxSurgeToZero"  # and maxUnavailable to 1 where it is 0: both cannot be
    DELETE_SURGE = "DeleteSurge"
    RAISE_MAX_UNAVAILABLE = "RaiseMaxUnavailable"
    LOOK_AT_PODS = "LookAtPods"
    ROLL_BACK = "RollBack"
    FORCE_DELETE_PODS = "ForceDeletePods"
    DELETE_OUTDATED_PODS = "DeleteOutdatedPods"
    SCALE_IN = "ScaleIn"


Remedies = tuple[Remedy, ...]


@value
class SurgeState:
    """The surge beside the originals that a wait is about."""

    scheduled: tuple[str, ...] = ()  # the names of those with pods on nodes
    is_recreated: bool = False  # while an original is outdated, surge that is deleted is created again


NO_SURGE_STATE: Final = SurgeState()


def choose_for_unschedulable(surge: SurgeState) -> Remedies:
    """Against an original without a node: more room, or that which its surge holds."""
    return (Remedy.ADD_CAPACITY, *_choose_for_surge(surge)) if surge.scheduled else (Remedy.ADD_CAPACITY,)


def choose_for_unschedulable_surge(surge: SurgeState) -> Remedies:
    """Against surge without a node: more room, or no surge."""
    return (Remedy.ADD_CAPACITY, *_choose_for_surge(surge))


def choose_for_not_ready(*, is_updating: bool) -> Remedies:
    """Against pods that do not become Ready: look why, or the template that did."""
    return (Remedy.LOOK_AT_PODS, Remedy.ROLL_BACK) if is_updating else (Remedy.LOOK_AT_PODS,)


def choose_for_surge_not_ready(*, is_updating: bool) -> Remedies:
    """Against surge that does not become Ready; deleted, it is tried again, perhaps on a better node."""
    return (*choose_for_not_ready(is_updating=is_updating), Remedy.SET_MAX_SURGE_TO_ZERO, Remedy.DELETE_SURGE)


def choose_for_exhausted_budget(budget: Budget, wanted: int, *, is_configurable: bool) -> Remedies:
    """Against a budget that is spent: a larger one, if the strategy looks at it."""
    return (Remedy.RAISE_MAX_UNAVAILABLE,) if is_configurable and budget.max_unavailable < wanted else ()


def can_scale_in(indices: tuple[int, ...], wanted: int) -> bool:
    """Whether just these replicas of the set go when fewer are wanted, and any stay; scaling in takes the highest."""
    return 0 < indices[0] == wanted - len(indices)


def _choose_for_surge(surge: SurgeState) -> Remedies:
    if surge.is_recreated:
        return (Remedy.SET_MAX_SURGE_TO_ZERO,)
    return (Remedy.SET_MAX_SURGE_TO_ZERO, Remedy.DELETE_SURGE)


def without_surge(budget: BudgetSpec, replicas: int) -> BudgetSpec:
    """Return what SET_MAX_SURGE_TO_ZERO writes; maxUnavailable becomes 1 where it is 0, since both cannot be 0."""
    if not resolve_max_surge(budget.max_surge, replicas):
        return budget
    can_move = resolve_max_unavailable(budget.max_unavailable, replicas) > 0
    return BudgetSpec(budget.max_unavailable if can_move else 1, 0)


def with_one_more_unavailable(budget: BudgetSpec, replicas: int) -> BudgetSpec:
    """Return what RAISE_MAX_UNAVAILABLE writes; the budget itself once all may be unavailable."""
    now = resolve_max_unavailable(budget.max_unavailable, replicas)
    return budget if now >= replicas else BudgetSpec(now + 1, budget.max_surge)
