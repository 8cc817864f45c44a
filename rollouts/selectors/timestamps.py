"""Moments of the mirror, which keeps seconds, as pages and API show them."""

from datetime import UTC, datetime


def moment(seconds: float) -> datetime:
    """Return a moment."""
    return datetime.fromtimestamp(seconds, UTC)


def moment_or_none(seconds: float | None) -> datetime | None:
    """Return a moment, if there is one."""
    return None if seconds is None else moment(seconds)
