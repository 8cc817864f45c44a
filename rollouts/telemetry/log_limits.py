"""Limits repeated log lines, which clients or an outage could otherwise produce without end.

Before it: every logger of the product. After it: stderr. Lines are equal if they have the same logger, message template
and exception class. Of equal lines a limited number is written within WINDOW_SECONDS; the next line that is written
says how many were omitted. Libraries that log for each client request or during an outage have a lower limit, and each
of their lines is one line without a traceback: it names the exception, and /readyz describes the problem.

The invariant: whatever fails, and whatever clients send, the log grows by a bounded number of lines a minute for each
distinct line.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

# The window in which equal lines are counted.
WINDOW_SECONDS: Final = 60.0
# Equal lines of the product: one for each workload is fine, a thousand a minute are not.
_MAX_LINES: Final = 60
_MAX_LIBRARY_LINES: Final = 5
# Loggers that clients can trigger (hosts, cookies, malformed HTTP), and those that report on Redis and the database.
_LIBRARIES: Final = ("django.security", "django.request", "uvicorn", "asyncio", "celery", "kombu", "redis", "psycopg")
# Its messages are the text of an exception, which quotes client input at any position.
_UNTRUSTED_MESSAGES: Final = "django.security"
# Distinct lines whose counts are kept.
_MAX_KEYS: Final = 1_000
_MAX_LINE_LENGTH: Final = 500

_Key = tuple[str, int, str, str]


@dataclass(slots=True)
class _LineCount:
    """How often a line occurred in the current window."""

    since: float
    written: int = 0
    left_out: int = 0


class BoundedFilter(logging.Filter):
    """Drops a line that occurred too often."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._counts: dict[_Key, _LineCount] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write a line; a line that is written after others were omitted carries their number."""
        is_library = is_library_record(record)
        with self._lock:
            count = self._find_count(_key_of(record, is_library=is_library))
            if count.written >= (_MAX_LIBRARY_LINES if is_library else _MAX_LINES):
                count.left_out += 1
                return False
            count.written += 1
            left_out, count.left_out = count.left_out, 0
        record.left_out = left_out
        return True

    def _find_count(self, key: _Key) -> _LineCount:
        now = self._clock()
        count = self._counts.pop(key, None) or _LineCount(now)
        if now - count.since >= WINDOW_SECONDS:
            count.since, count.written = now, 0
        self._counts[key] = count  # the dict is ordered by last use
        if len(self._counts) > _MAX_KEYS:
            del self._counts[next(iter(self._counts))]
        return count


class Formatter(logging.Formatter):
    """Writes the records of libraries as one line, and appends how many equal lines were omitted."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        text = _format_one_line(self, record) if is_library_record(record) else super().format(record)
        left_out: int = getattr(record, "left_out", 0)
        return f"{text} ({left_out:,} more like this were omitted)" if left_out else text


def is_library_record(record: logging.LogRecord) -> bool:
    """Whether a record comes from a library with the lower limit."""
    return record.name.startswith(_LIBRARIES)


def _key_of(record: logging.LogRecord, *, is_library: bool) -> _Key:
    exception = record.exc_info[0] if record.exc_info else None
    return (
        record.name,
        record.levelno,
        _message_template_of(record, is_library),
        exception.__name__ if exception else "",
    )


def _message_template_of(record: logging.LogRecord, is_library: bool) -> str:
    """Return the message before its arguments are filled in, as far as it is known."""
    message = str(record.msg)
    if record.name.startswith(_UNTRUSTED_MESSAGES):
        return message if record.args else ""
    # Some libraries format their messages before they log: the beginning stands for the template.
    return message[:40] if is_library else message


def _format_one_line(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    bare = logging.makeLogRecord(record.__dict__)
    bare.exc_info = bare.exc_text = bare.stack_info = None
    first = logging.Formatter.format(formatter, bare).partition("\n")[0]
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        first += f" ({type(error).__name__}: {str(error).partition(chr(10))[0]})"
    return first[:_MAX_LINE_LENGTH]
