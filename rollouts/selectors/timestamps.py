"""Converts times of the mirror, which are seconds, for pages and API."""

from datetime import UTC, datetime


def to_datetime(seconds: float) -> datetime:
    """Return a time."""
    return datetime.fromtimestamp(seconds, UTC)


def to_datetime_or_none(seconds: float | None) -> datetime | None:
    """Return a time, if there is one."""
    return None if seconds is None else to_datetime(seconds)
