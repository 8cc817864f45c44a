"""Ages as `kubectl get` shows them: two units while young, one when old."""

from datetime import datetime

from rollouts.sandbox.times import parse_time

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 365 * 86_400
# Up to this age (seconds): the unit shown, and the smaller unit shown beside it when it is not zero.
_STEPS: tuple[tuple[int, tuple[int, str], tuple[int, str] | None], ...] = (
    (2 * _MINUTE, (1, "s"), None),
    (10 * _MINUTE, (_MINUTE, "m"), (1, "s")),
    (3 * _HOUR, (_MINUTE, "m"), None),
    (8 * _HOUR, (_HOUR, "h"), (_MINUTE, "m")),
    (2 * _DAY, (_HOUR, "h"), None),
    (8 * _DAY, (_DAY, "d"), (_HOUR, "h")),
    (2 * _YEAR, (_DAY, "d"), None),
    (8 * _YEAR, (_YEAR, "y"), (_DAY, "d")),
)


def render_age(timestamp: str | None, now: datetime) -> str:
    """Return how long ago a timestamp was; `<unknown>` without one."""
    moment = parse_time(timestamp)
    if moment is None:
        return "<unknown>"
    seconds = int((now - moment).total_seconds())
    if seconds < -1:
        return "<invalid>"
    return render_duration(max(seconds, 0))


def render_duration(seconds: int) -> str:
    """Return a duration in at most two units: 119s, 9m59s, 179m, 7h59m, 47h, 7d23h, 729d, 7y364d."""
    for limit, (unit, letter), finer in _STEPS:
        if seconds < limit:
            rest = (seconds % unit) // finer[0] if finer else 0
            return f"{seconds // unit}{letter}" + (f"{rest}{finer[1]}" if finer and rest else "")
    return f"{seconds // _YEAR}y"
