"""Small value forms: string formats a schema may name, quantities, and JSON values as error sentences show them.

Used by `schema` for the `format` keyword and by everything that words a finding.
"""

import json
import re
from collections.abc import Callable
from typing import Any

_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_DURATION = re.compile(
    r"[+-]?(0|(\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))*)"
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")
_UUID = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")


def _in_range(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, int) or isinstance(value, bool) or low <= value <= high


def _matching(pattern: re.Pattern[str]) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, str) or pattern.fullmatch(value) is not None


def _is_quantity(value: Any) -> bool:
    return not isinstance(value, str) or _QUANTITY.fullmatch(value) is not None


# Formats that a schema may name; others are not checked, as in the real server.
FORMATS: dict[str, Callable[[Any], bool]] = {
    "date-time": _matching(_DATE_TIME),
    "date": _matching(_DATE),
    "duration": _matching(_DURATION),
    "uuid": _matching(_UUID),
    "quantity": _is_quantity,
    "int32": _in_range(-(2**31), 2**31 - 1),
    "int64": _in_range(-(2**63), 2**63 - 1),
}


def render(value: Any) -> str:
    """A JSON value as the server's sentences show it: compact, keys sorted, non-ASCII kept."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
