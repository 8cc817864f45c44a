"""Budgets in numbers: every rule of `docs/semantics.md` 3 as a table, and what holds for all of them."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.engine.model import budget
from rollouts.engine.model.budget import Budget, parse_percentage, resolve_budget, resolves_to_zero
from rollouts.engine.model.workload import BudgetSpec, IntOrPercent

REPLICAS = st.integers(0, 10_000)
UNAVAILABLE = st.none() | st.integers(0, 12_000) | st.integers(0, 100).map("{}%".format)
SURGE = st.none() | st.integers(0, 12_000) | st.integers(0, 9999).map("{}%".format)
SPECS = st.builds(BudgetSpec, UNAVAILABLE, SURGE)


def test_the_examples_in_the_module_hold() -> None:
    results = doctest.testmod(budget)
    assert results.attempted > 10
    assert results.failed == 0


@pytest.mark.parametrize(
    ("replicas", "max_unavailable", "max_surge", "unavailable", "surge"),
    [
        (10, "25%", "25%", 2, 3),  # 2.5 rounds down, and up
        (10, "20%", "20%", 2, 2),  # nothing to round
        (3, "34%", "34%", 1, 2),
        (3, "33%", 1, 0, 1),  # 0.99 of a replica is none
        (1, "99%", "1%", 0, 1),
        (10, None, None, 1, 0),  # the defaults
        (10, None, 2, 1, 2),
        (10, 3, None, 3, 0),
        (10, 0, 1, 0, 1),
        (2, 2, 0, 2, 0),
        (4, "100%", "100%", 4, 4),
        (4, 0, "150%", 0, 6),
        (2, 5, 0, 2, 0),  # scaled in below its own budget
    ],
)
def test_a_budget_comes_to(
    replicas: int, max_unavailable: IntOrPercent | None, max_surge: IntOrPercent | None, unavailable: int, surge: int
) -> None:
    assert resolve_budget(BudgetSpec(max_unavailable, max_surge), replicas) == Budget(unavailable, surge)


@pytest.mark.parametrize(
    ("replicas", "max_unavailable", "max_surge"),
    [(3, "10%", 0), (3, "33%", "0%"), (9, "10%", None), (1, "50%", 0), (0, "50%", "50%"), (0, 1, 0), (5, 0, 0)],
)
def test_one_may_be_missing_where_both_come_to_nothing(
    replicas: int, max_unavailable: IntOrPercent | None, max_surge: IntOrPercent | None
) -> None:
    spec = BudgetSpec(max_unavailable, max_surge)
    assert resolves_to_zero(spec, replicas)
    assert resolve_budget(spec, replicas) == Budget(1, 0)


def test_no_budget_is_one_at_a_time() -> None:
    assert resolve_budget(None, 7) == resolve_budget(BudgetSpec(), 7) == Budget(1, 0)


@pytest.mark.parametrize(
    "text", ["", "%", "5", "x%", "-5%", "+5%", " 5%", "5% ", "5 %", "2.5%", "007%", "\u0665%", "5%\n"]
)
def test_what_is_not_a_percentage_has_no_number(text: str) -> None:
    assert parse_percentage(text) is None
    with pytest.raises(ValueError, match="not a percentage"):
        resolve_budget(BudgetSpec(text), 3)


@given(SPECS, REPLICAS)
def test_an_update_can_always_move(spec: BudgetSpec, replicas: int) -> None:
    resolved = resolve_budget(spec, replicas)
    assert resolved.max_unavailable + resolved.max_surge > 0


@given(SPECS, REPLICAS)
def test_no_more_may_be_missing_than_there_are(spec: BudgetSpec, replicas: int) -> None:
    assert 0 <= resolve_budget(spec, replicas).max_unavailable <= max(1, replicas)


@given(st.integers(0, 100), REPLICAS)
def test_rounding_never_promises_more_than_was_asked_for(percent: int, replicas: int) -> None:
    unavailable = budget.resolve_max_unavailable(f"{percent}%", replicas)
    surge = budget.resolve_max_surge(f"{percent}%", replicas)
    assert unavailable * 100 <= replicas * percent <= surge * 100
    assert 0 <= surge - unavailable <= 1


@given(SPECS, REPLICAS)
def test_more_replicas_never_make_a_smaller_budget(spec: BudgetSpec, replicas: int) -> None:
    fewer = budget.resolve_max_unavailable(spec.max_unavailable, replicas), resolve_budget(spec, replicas).max_surge
    more = (
        budget.resolve_max_unavailable(spec.max_unavailable, replicas + 1),
        resolve_budget(spec, replicas + 1).max_surge,
    )
    assert fewer <= more or (fewer[0] <= more[0] and fewer[1] <= more[1])
