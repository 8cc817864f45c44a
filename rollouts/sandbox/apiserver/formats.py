"""Formats of single values: string formats that a schema may name, quantities, JSON values in error messages.

`schema` uses it for the `format` keyword, and every module that words a finding for the values in it.
"""

import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from rollouts.engine.model.quantities import BINARY_SUFFIXES, DECIMAL_SUFFIXES, is_quantity, parse_quantity
from rollouts.engine.scheduling.resources import quantity_to_decimal

_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_DURATION = re.compile(
    r"[+-]?(0|(\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))*)"
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_UUID = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")


def _in_range(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, int) or isinstance(value, bool) or low <= value <= high


def _matches(pattern: re.Pattern[str]) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, str) or pattern.fullmatch(value) is not None


def _is_quantity(value: Any) -> bool:
    return not isinstance(value, str) or is_quantity(value)


# Formats that a schema may name; others are not checked, as in the real server.
FORMATS: dict[str, Callable[[Any], bool]] = {
    "date-time": _matches(_DATE_TIME),
    "date": _matches(_DATE),
    "duration": _matches(_DURATION),
    "uuid": _matches(_UUID),
    "quantity": _is_quantity,
    "int32": _in_range(-(2**31), 2**31 - 1),
    "int64": _in_range(-(2**63), 2**63 - 1),
}


# --- quantities ----------------------------------------------------------------------------------------------------


def canonical_quantity(value: Any) -> Any:
    """Return a quantity as the real server stores it: a string without fraction, with the largest suffix.

    `0.5` becomes `500m`, `1.5Gi` becomes `1536Mi`, `4000m` becomes `4`; what is no quantity stays unchanged.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float) or parse_quantity(value) is None:
        return value
    number = quantity_to_decimal(value)
    if str(value).endswith("i"):
        return _with_suffix(number, {suffix: Decimal(factor) for suffix, factor in BINARY_SUFFIXES.items()})
    return _with_suffix(number, {suffix: Decimal(1).scaleb(power) for suffix, power in DECIMAL_SUFFIXES.items()})


def _with_suffix(number: Decimal, units: dict[str, Decimal]) -> str:
    for name, unit in sorted({"": Decimal(1), **units}.items(), key=lambda one: -one[1]):
        if number and number % unit == 0:
            return f"{int(number / unit)}{name}"
    return "0" if not number else f"{number.normalize():f}"


def render_json(value: Any) -> str:
    """Return a JSON value as the server's messages show it: compact, keys sorted, non-ASCII kept."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
