"""The remedies of a wait: only what ends the wait that it is offered for.

`diagnosis` asks for the remedies of each wait; `messages` has their labels. The invariant: if a remedy is applied and
nothing else changes, the wait ends; `tests/engine/plan/test_remedies.py` applies each of them. So a remedy that the
strategy ignores is not offered (RollingRecreate uses no budget), and none that undoes itself (deleted surge is created
again while an original is outdated).
"""

from enum import StrEnum
from typing import Final

from rollouts.engine.model.budget import Budget, resolve_max_surge, resolve_max_unavailable
from rollouts.engine.model.values import value
from rollouts.engine.model.workload import BudgetSpec


class Remedy(StrEnum):
    """The code of a remedy."""

    ADD_CAPACITY = "AddCapacity"
    SET_MAX_SURGE_TO_ZERO = "SetMaxSurgeToZero"  # and maxUnavailable to 1 if it is 0, because not both may be 0
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
    """The surge of the level that a wait is about."""

    scheduled: tuple[str, ...] = ()  # names of surge with pods on nodes
    is_recreated: bool = False  # an original is outdated, so deleted surge is created again


NO_SURGE_STATE: Final = SurgeState()


def choose_for_unschedulable(surge: SurgeState) -> Remedies:
    """Return the remedies for an original without a node: capacity, or the node of its surge."""
    return (Remedy.ADD_CAPACITY, *_choose_for_surge(surge)) if surge.scheduled else (Remedy.ADD_CAPACITY,)


def choose_for_unschedulable_surge(surge: SurgeState) -> Remedies:
    """Return the remedies for surge without a node: capacity, or no surge."""
    return (Remedy.ADD_CAPACITY, *_choose_for_surge(surge))


def choose_for_not_ready(*, is_updating: bool) -> Remedies:
    """Return the remedies for pods that do not become Ready: look at them, or roll back to the former template."""
    return (Remedy.LOOK_AT_PODS, Remedy.ROLL_BACK) if is_updating else (Remedy.LOOK_AT_PODS,)


def choose_for_surge_not_ready(*, is_updating: bool) -> Remedies:
    """Return the remedies for surge that is not Ready; deleted surge may come back on a better node."""
    return (*choose_for_not_ready(is_updating=is_updating), Remedy.SET_MAX_SURGE_TO_ZERO, Remedy.DELETE_SURGE)


def choose_for_exhausted_budget(budget: Budget, wanted: int, *, is_configurable: bool) -> Remedies:
    """Return the remedies for an exhausted budget: a larger one, if the strategy uses it."""
    return (Remedy.RAISE_MAX_UNAVAILABLE,) if is_configurable and budget.max_unavailable < wanted else ()


def can_scale_in(indices: tuple[int, ...], wanted: int) -> bool:
    """Whether scaling in deletes exactly these replicas and keeps others: it deletes the highest indices."""
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
