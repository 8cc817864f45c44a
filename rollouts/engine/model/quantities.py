"""Kubernetes quantities: their value, and one canonical spelling for each.

`hashing` needs the canonical spelling, so that "1000m" and "1" are one template; `scheduling.resources` adds the values
up. Kubernetes accepts many spellings of one quantity ("1Gi" is "1024Mi", 0.5 is "500m") and tools rewrite them, so
another spelling must never start an update.

The arithmetic is exact: whole numbers and powers of ten, no floats. The invariants: two quantities get the same
spelling if and only if they are the same number; a text that is no quantity stays unchanged.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

_WILDCARD: Final = "*"
"""Each entry of a list, or each value of a map with free keys."""

_RESOURCES: Final = {"requests": {_WILDCARD: None}, "limits": {_WILDCARD: None}}
_FIELD_REFERENCE: Final = {"resourceFieldRef": {"divisor": None}}
_DOWNWARD: Final = {"downwardAPI": {"items": {_WILDCARD: _FIELD_REFERENCE}}}
_CONTAINERS: Final = {_WILDCARD: {"resources": _RESOURCES, "env": {_WILDCARD: {"valueFrom": _FIELD_REFERENCE}}}}
# Where a pod's spec holds quantities. Elsewhere "1000m" is an ordinary string.
_QUANTITY_FIELDS: Final[Mapping[str, Any]] = {
    "containers": _CONTAINERS,
    "initContainers": _CONTAINERS,
    "ephemeralContainers": _CONTAINERS,
    "resources": _RESOURCES,
    "overhead": {_WILDCARD: None},
    "volumes": {
        _WILDCARD: {
            "emptyDir": {"sizeLimit": None},
            "ephemeral": {"volumeClaimTemplate": {"spec": {"resources": _RESOURCES}}},
            "projected": {"sources": {_WILDCARD: _DOWNWARD}},
            **_DOWNWARD,
        }
    },
}

_QUANTITY: Final = re.compile(
    r"(?P<sign>[+-]?)(?=\.?[0-9])(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:(?P<binary>[KMGTPE]i)|(?P<decimal>[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?",
    re.ASCII,
)
BINARY_SUFFIXES: Final = {
    suffix: 1024**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)
}
DECIMAL_SUFFIXES: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
# No real quantity is longer, and Python raises on integers of more than 4,300 digits.
_MAX_LENGTH: Final = 100


def with_canonical_quantities(pod_spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod's spec with canonical quantities; it shares its other parts with the given spec.

    >>> with_canonical_quantities({"overhead": {"cpu": "1000m"}, "hostname": "1000m"})
    {'overhead': {'cpu': '1e0'}, 'hostname': '1000m'}
    """
    spec: dict[str, Any] = _canonicalize(pod_spec, _QUANTITY_FIELDS)
    return spec


def canonical_quantity(value: Any) -> Any:
    """Return the canonical spelling of a quantity: digits without zeros at either end, and a power of ten.

    >>> [canonical_quantity(value) for value in ("1000m", "1", 1, "1.0", "1e3", "1k", 0.5, "1Gi", "1024Mi", "-0")]
    ['1e0', '1e0', '1e0', '1e0', '1e3', '1e3', '5e-1', '1073741824e0', '1073741824e0', '0e0']
    >>> [canonical_quantity(value) for value in ("much", "", " 1", "1 Gi", "1gi", None, True)]
    ['much', '', ' 1', '1 Gi', '1gi', None, True]
    """
    found = None if isinstance(value, bool) or not isinstance(value, str | int | float) else parse_quantity(value)
    if found is None:
        return value
    number, exponent = found
    digits = str(abs(number))
    significant = digits.rstrip("0") or "0"
    sign = "-" if number < 0 else ""
    return f"{sign}{significant}e{exponent + len(digits) - len(significant) if number else 0}"


def is_quantity(text: str) -> bool:
    """Whether the API takes a text as a quantity, however long it is."""
    return _QUANTITY.fullmatch(text) is not None


def parse_quantity(value: str | float) -> tuple[int, int] | None:
    """Return the value of a quantity as a whole number and a power of ten; None if it is no quantity.

    >>> [parse_quantity(value) for value in ("500m", "1.5Gi", "2e3", 3, "much")]
    [(500, -3), (16106127360, -1), (2, 3), (3, 0), None]
    """
    # A float counts as it was written: repr(0.1) is "0.1".
    text = value if isinstance(value, str) else repr(value)
    found = _QUANTITY.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if found is None:
        return None
    part = found["part"] or ""
    number = int(f"{found['whole']}{part}") * BINARY_SUFFIXES.get(found["binary"] or "", 1)
    exponent = DECIMAL_SUFFIXES.get(found["decimal"] or "", 0) + int(found["exponent"] or 0) - len(part)
    return -number if found["sign"] == "-" else number, exponent


def _canonicalize(value: Any, fields: Mapping[str, Any] | None) -> Any:
    if fields is None:
        return canonical_quantity(value)
    if isinstance(value, Mapping):
        return {
            name: _canonicalize(member, fields.get(name, fields.get(_WILDCARD)))
            if name in fields or _WILDCARD in fields
            else member
            for name, member in value.items()
        }
    if isinstance(value, list) and _WILDCARD in fields:
        return [_canonicalize(entry, fields[_WILDCARD]) for entry in value]
    return value
