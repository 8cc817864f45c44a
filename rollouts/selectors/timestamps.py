"""Moments of the mirror, which keeps seconds, as pages and API show them."""

from datetime import UTC, datetime


def to_datetime(seconds: float) -> datetime:
    """Return a moment."""
    return datetime.fromtimestamp(seconds, UTC)


def to_datetime_or_none(seconds: float | None) -> datetime | None:
    """Return a moment, if there is one."""
    return None if seconds is None else to_datetime(seconds)
