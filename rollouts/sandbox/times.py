"""Moments as the sandbox holds them and as its objects carry them.

In memory a moment is a `datetime`, so that simulated pods can be apart by less than a second; objects carry RFC 3339
in UTC, to the second. How that text looks is the engine's rule (`engine.model.times`).
"""

from datetime import UTC, datetime

from rollouts.engine.model import times


def render_time(moment: datetime) -> str:
    """Return a moment as objects carry it."""
    return times.render_time(moment.timestamp())


def parse_time(text: object) -> datetime | None:
    """Return the moment that an object carries; None for anything that is not one."""
    seconds = times.parse_time(text)
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def parse_stored_time(text: str) -> datetime:
    """Return a moment from a field whose schema admits only moments."""
    moment = parse_time(text)
    if moment is None:
        raise ValueError(f"not a moment: {text!r}")
    return moment
