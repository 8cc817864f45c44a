"""Rules of the update strategy: which strategy accepts which budgets, and how large they may be.

A strategy that uses one kind of budget refuses the other kind. A strategy that uses none accepts both with a warning,
so that a switch of the strategy is an edit of one field (`docs/semantics.md` 13). Budgets are compared with replicas
when they are written, not when something is scaled later: `model.budget` resolves them then (`docs/semantics.md` 3).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.manifest.set_manifest import FieldValue, SetManifest
from rollouts.engine.model.budget import parse_percentage, resolves_to_zero
from rollouts.engine.model.workload import (
    BUDGET_STRATEGIES,
    COMPONENT_BUDGET_STRATEGY,
    SET_BUDGET_STRATEGY,
    BudgetSpec,
    Strategy,
)

_BOTH_ZERO: Final = (
    "maxUnavailable and maxSurge may not both be 0, as nothing could ever be replaced; raise one of them (left out,"
    " they are 1 and 0)"
)
_OVER_REPLICAS: Final = 'maxUnavailable may not exceed replicas; lower it, or write a percentage such as "100%"'
_ONE_AT_A_TIME: Final = (
    "RollingUpdate always updates one replica of the set at a time, so maxUnavailable and maxSurge do not apply here;"
    " remove them, or set updateStrategy.type to ReplicaRecreate"
)
_REDUNDANT: Final = (
    "RollingUpdate always updates one replica of the set at a time, which is what maxUnavailable 1 and maxSurge 0 mean;"
    " they can be removed"
)


def check_strategy(pcs: SetManifest) -> Iterator[Finding]:
    """Yield errors of the strategy that do not depend on the replicas of the set."""
    budget = pcs.strategy["rollingUpdate"]
    yield from _check_not_both_zero(budget)
    if _strategy_type(pcs) is COMPONENT_BUDGET_STRATEGY and not _is_one_at_a_time(budget):
        yield budget.make_finding(FindingCode.SET_BUDGET_NOT_ALLOWED, _ONE_AT_A_TIME)
    for component in _components(pcs):
        yield from _check_not_both_zero(component.strategy)
        yield from _check_not_over_replicas(component.strategy, component.replicas)
        if _strategy_type(pcs) is SET_BUDGET_STRATEGY and not component.strategy.is_absent:
            yield component.strategy.make_finding(
                FindingCode.COMPONENT_BUDGET_NOT_ALLOWED,
                f"ReplicaRecreate replaces whole replicas of the set, so updateStrategy of a {component.kind} does not"
                " apply; remove it, or set spec.updateStrategy.type to RollingUpdate",
            )
    yield from _check_members_have_no_strategy(pcs)


def check_budgets(pcs: SetManifest, former: SetManifest | None = None) -> Iterator[Finding]:
    """Yield the new or changed budgets that do not fit the replicas of their level."""
    budget, replicas = pcs.strategy["rollingUpdate"], pcs.spec["replicas"].value
    if former is None or former.strategy.value != pcs.strategy.value:
        yield from _check_not_over_replicas(budget, replicas)
        yield from _check_not_resolved_to_zero(budget, replicas)
    stored = {} if former is None else {component.key: component.strategy.value for component in _components(former)}
    for component in _components(pcs):
        if component.key not in stored or stored[component.key] != component.strategy.value:
            yield from _check_not_resolved_to_zero(component.strategy, component.replicas)


def warn_about_strategy(pcs: SetManifest) -> Iterator[Finding]:
    """Yield the budgets that are accepted without effect."""
    type_, budget = _strategy_type(pcs), pcs.strategy["rollingUpdate"]
    if type_ is COMPONENT_BUDGET_STRATEGY and _is_set(budget) and _is_one_at_a_time(budget):
        yield budget.make_finding(FindingCode.SET_BUDGET_REDUNDANT, _REDUNDANT)
    if type_ is None or type_ in BUDGET_STRATEGIES:
        return  # such a strategy refuses the budgets that it does not use
    if _is_set(budget):
        yield _make_unused_finding(budget, type_, "maxUnavailable and maxSurge of the set", SET_BUDGET_STRATEGY)
    for component in _components(pcs):
        if _is_set(component.strategy):
            yield _make_unused_finding(
                component.strategy, type_, f"updateStrategy of a {component.kind}", COMPONENT_BUDGET_STRATEGY
            )


def _check_members_have_no_strategy(pcs: SetManifest) -> Iterator[Finding]:
    for clique in pcs.cliques:
        if clique["name"].value in pcs.member_names and not clique["updateStrategy"].is_absent:
            yield clique["updateStrategy"].make_finding(
                FindingCode.MEMBER_HAS_STRATEGY,
                "a clique in a scaling group is replaced with its group, so it may not have an updateStrategy of its"
                " own; set it on the group",
            )


def _check_not_both_zero(strategy: FieldValue) -> Iterator[Finding]:
    unavailable, surge = strategy["maxUnavailable"], strategy["maxSurge"]
    if _is_zero_as_written(unavailable) and (surge.is_absent or _is_zero_as_written(surge)):
        yield strategy.make_finding(FindingCode.BUDGET_ZERO, _BOTH_ZERO)


def _check_not_resolved_to_zero(strategy: FieldValue, replicas: int | None) -> Iterator[Finding]:
    unavailable, surge = strategy["maxUnavailable"], strategy["maxSurge"]
    if not replicas or strategy.value is None or unavailable.is_invalid or surge.is_invalid:
        return
    as_written = list(_check_not_both_zero(strategy))
    if not as_written and resolves_to_zero(BudgetSpec(unavailable.value, surge.value), replicas):
        yield strategy.make_finding(
            FindingCode.BUDGET_RESOLVES_TO_ZERO,
            f"of {replicas} replicas, maxUnavailable (rounded down) and maxSurge both resolve to 0, so nothing could"
            " ever be replaced; raise one of them",
        )


def _check_not_over_replicas(strategy: FieldValue, replicas: int | None) -> Iterator[Finding]:
    unavailable = strategy["maxUnavailable"]
    if replicas and isinstance(unavailable.value, int) and unavailable.value > replicas:
        yield unavailable.make_finding(FindingCode.BUDGET_OVER_REPLICAS, _OVER_REPLICAS)


def _make_unused_finding(budget: FieldValue, used: Strategy, what: str, would_use: Strategy) -> Finding:
    return budget.make_finding(FindingCode.BUDGET_UNUSED, f"{used} does not use {what}; {would_use} would")


def _is_zero_as_written(budget: FieldValue) -> bool:
    return parse_percentage(budget.value) == 0 if isinstance(budget.value, str) else budget.value == 0


def _is_one_at_a_time(budget: FieldValue) -> bool:
    return budget["maxUnavailable"].value in (None, 1) and budget["maxSurge"].value in (None, 0)


def _is_set(strategy: FieldValue) -> bool:
    return strategy["maxUnavailable"].value is not None or strategy["maxSurge"].value is not None


def _strategy_type(pcs: SetManifest) -> Strategy | None:
    written = pcs.strategy["type"].value
    return None if written is None else Strategy(written)


@dataclass(frozen=True, slots=True)
class _Component:
    """The strategy and replicas of a clique or scaling group."""

    kind: str
    name: str | None
    strategy: FieldValue
    replicas: int | None

    @property
    def key(self) -> tuple[str, str | None]:
        return self.kind, self.name


def _components(pcs: SetManifest) -> list[_Component]:
    cliques = [
        _Component("clique", clique["name"].value, clique["updateStrategy"], clique["spec"]["replicas"].value)
        for clique in pcs.cliques
    ]
    groups = [
        _Component("scaling group", group["name"].value, group["updateStrategy"], group["replicas"].value)
        for group in pcs.groups
    ]
    return [*cliques, *groups]
