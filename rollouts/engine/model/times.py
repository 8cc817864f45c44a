"""Times as the API writes them: seconds since the epoch to RFC 3339 in UTC, and back.

`status` writes them; `termination` compares them. Whole seconds, as the API server keeps them.
"""

from datetime import UTC, datetime
from functools import lru_cache


def render_time(seconds: float) -> str:
    """Return a time as RFC 3339 text.

    >>> render_time(1763262732.9)
    '2025-11-16T03:12:12Z'
    """
    return _render_second(int(seconds))


@lru_cache(maxsize=4096)
def _render_second(second: int) -> str:
    """Return a whole second as text; a pass renders the same few many times."""
    return f"{datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()}Z"


def parse_time(text: object) -> float | None:
    """Return the seconds since the epoch of an RFC 3339 text; None for any other value.

    >>> parse_time("2025-11-16T03:12:12Z"), parse_time("yesterday"), parse_time(None)
    (1763262732.0, None, None)
    """
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    if moment is None:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
