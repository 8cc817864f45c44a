"""Budgets as numbers: how many units may be unavailable, and how many may exist beyond the wanted number.

Comes after `parsing`, which gives each budget as written (2, or "25%"). The roller, the forms and `validation` use the
same numbers (`docs/semantics.md` 3). The invariant: a `Budget` always lets an update move, so its two numbers are never
both 0.
"""

import re
from dataclasses import dataclass
from typing import Final

from rollouts.engine.model.workload import BudgetSpec, IntOrPercent

DEFAULT_MAX_UNAVAILABLE: Final = 1
DEFAULT_MAX_SURGE: Final = 0

# Python raises on integers of more than 4,300 digits; one such text must not fail a page that shows many budgets.
_MAX_DIGITS: Final = 20
_PERCENTAGE: Final = re.compile(r"(0|[1-9][0-9]{0,3})%")


@dataclass(frozen=True, slots=True)
class Budget:
    """What an update may do to a number of units."""

    # How many units may be unavailable: from 0 to the number of units, or 1 where nothing could move otherwise.
    max_unavailable: int
    # How many units may exist beyond the wanted number.
    max_surge: int


def parse_percentage(text: str) -> int | None:
    """Return the number of a percentage; None for any other text.

    >>> parse_percentage("25%")
    25
    >>> [parse_percentage(text) for text in ("25", "x%", "2.5%", " 5 %", "05%", "-5%")]
    [None, None, None, None, None, None]
    """
    match = _PERCENTAGE.fullmatch(text)
    return int(match[1]) if match else None


def parse_budget(value: IntOrPercent | None) -> IntOrPercent | None:
    """Return a budget as manifests hold it: the text "2" of a form becomes the number 2.

    >>> parse_budget("2"), parse_budget("25%"), parse_budget(3), parse_budget(None)
    (2, '25%', 3, None)
    """
    if isinstance(value, str) and value.isdecimal() and len(value) <= _MAX_DIGITS:
        return int(value)
    return value


def resolve_max_unavailable(spec: IntOrPercent | None, replicas: int) -> int:
    """Return how many of the replicas may be unavailable: a percentage rounds down, the maximum is all of them.

    25 % of 10 are 2.5, so 2 may be unavailable; rounding up would keep fewer available than asked for.

    >>> resolve_max_unavailable("25%", 10)
    2
    >>> resolve_max_unavailable(None, 10)
    1

    A budget of three that was written for five replicas becomes two when they are scaled in to two:

    >>> resolve_max_unavailable(3, 2)
    2
    """
    if spec is None:
        spec = DEFAULT_MAX_UNAVAILABLE
    count = spec if isinstance(spec, int) else replicas * _percent(spec) // 100
    return min(count, replicas)


def resolve_max_surge(spec: IntOrPercent | None, replicas: int) -> int:
    """Return how many units may exist beyond the replicas: a percentage rounds up.

    25 % of 10 are 2.5, so 3; any percentage above 0 yields at least one.

    >>> resolve_max_surge("25%", 10)
    3
    >>> resolve_max_surge("1%", 2)
    1
    >>> resolve_max_surge(None, 10)
    0
    """
    if spec is None:
        spec = DEFAULT_MAX_SURGE
    return spec if isinstance(spec, int) else -(-replicas * _percent(spec) // 100)


def resolves_to_zero(spec: BudgetSpec, replicas: int) -> bool:
    """Whether both numbers resolve to 0, so that nothing could ever be replaced.

    10 % of 3 are 0.3, rounded down 0:

    >>> resolves_to_zero(BudgetSpec("10%", 0), 3)
    True
    >>> resolves_to_zero(BudgetSpec("10%", "10%"), 3)
    False
    """
    return not resolve_max_unavailable(spec.max_unavailable, replicas) and not resolve_max_surge(
        spec.max_surge, replicas
    )


def resolve_budget(spec: BudgetSpec | None, replicas: int) -> Budget:
    """Return the budget of a level with this many replicas; the default is one at a time.

    >>> resolve_budget(BudgetSpec("25%", "25%"), 10)
    Budget(max_unavailable=2, max_surge=3)
    >>> resolve_budget(None, 10)
    Budget(max_unavailable=1, max_surge=0)

    Admission refuses a budget of 0 and 0, but 10 % of ten replicas that are scaled in to three resolves to that. Then
    one may be unavailable, because an update must be able to end:

    >>> resolve_budget(BudgetSpec("10%", 0), 3)
    Budget(max_unavailable=1, max_surge=0)
    """
    spec = spec or BudgetSpec()
    if resolves_to_zero(spec, replicas):
        return Budget(max_unavailable=1, max_surge=0)
    return Budget(
        max_unavailable=resolve_max_unavailable(spec.max_unavailable, replicas),
        max_surge=resolve_max_surge(spec.max_surge, replicas),
    )


def _percent(text: str) -> int:
    percent = parse_percentage(text)
    if percent is None:
        raise ValueError(f"not a percentage: {text!r}")
    return percent
