"""Durations as Kubernetes writes them: 10s, 4h, 1h30m, 1.5h.

`field_types` asks whether a text is a duration, `parsing` how long it is.
"""

import re
from fractions import Fraction
from typing import Final

_UNITS: Final = {
    "h": 3600 * 10**9,
    "m": 60 * 10**9,
    "s": 10**9,
    "ms": 10**6,
    "us": 10**3,
    "ns": 1,
}
_COMPONENT: Final = re.compile(r"([0-9]+(?:[.][0-9]+)?)(ns|us|ms|s|m|h)")
_DURATION: Final = re.compile(rf"(?:{_COMPONENT.pattern})+")
_MAX_LENGTH: Final = 64
# The API server counts nanoseconds in 64 bits, about 292 years.
_MAX_NANOSECONDS: Final = 2**63 - 1


def parse_duration(text: str) -> float | None:
    """Return a duration longer than 0 in seconds; None for any other text.

    >>> [parse_duration(text) for text in ("10s", "1h30m", "1.5h", "4h")]
    [10.0, 5400.0, 5400.0, 14400.0]
    >>> [parse_duration(text) for text in ("0s", "-1h", "1d", "90", "", "1 h")]
    [None, None, None, None, None, None]
    >>> parse_duration("90m") == parse_duration("1h30m")
    True
    """
    if len(text) > _MAX_LENGTH or not _DURATION.fullmatch(text):
        return None
    nanoseconds = sum(int(Fraction(number) * _UNITS[unit]) for number, unit in _COMPONENT.findall(text))
    return nanoseconds / 10**9 if 0 < nanoseconds <= _MAX_NANOSECONDS else None
