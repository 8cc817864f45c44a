"""What the log is spared: the same said over and over, by strangers or by an outage.

Before it: every logger of the product. After it: stderr. Of lines that say the same (one logger, one message before its
values are filled in, one kind of exception) so many are written in MINUTES; then one line says how many were left out.
Of libraries that strangers or an outage make talk, few are written, and each is one line without a traceback: the line
names the exception, and what it is about stands on /readyz.

The invariant: whatever goes wrong, and whoever asks for what, the log grows by a bounded number of lines a minute for
each thing that there is to say.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

# In which lines that say the same are counted.
WINDOW_SECONDS: Final = 60.0
# Of the product's own lines. A workload each is fine, a thousand a minute are not.
_MAX_LINES: Final = 60
_MAX_LIBRARY_LINES: Final = 5
# What strangers can make talk (hosts, cookies, requests that are no HTTP), and what tells of Redis and the database.
_LIBRARIES: Final = ("django.security", "django.request", "uvicorn", "asyncio", "celery", "kombu", "redis", "psycopg")
# Its messages are the text of an exception, which quotes strangers from any letter on.
_UNTRUSTED_MESSAGES: Final = "django.security"
# Different things to say that are remembered; more are not counted apart.
_MAX_KEYS: Final = 1_000
_MAX_LINE_LENGTH: Final = 500

_Key = tuple[str, int, str, str]


@dataclass(slots=True)
class _LineCount:
    """How often something was said since a moment."""

    since: float
    written: int = 0
    left_out: int = 0


class BoundedFilter(logging.Filter):
    """Lets a line through unless the same was said too often."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._counts: dict[_Key, _LineCount] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether to write a line; one that is written after others were left out says how many."""
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
        self._counts[key] = count  # the last one now
        if len(self._counts) > _MAX_KEYS:
            del self._counts[next(iter(self._counts))]
        return count


class Formatter(logging.Formatter):
    """Writes a line of a library as one line, and after each how many like it were left out."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text."""
        text = _format_one_line(self, record) if is_library_record(record) else super().format(record)
        left_out: int = getattr(record, "left_out", 0)
        return f"{text} ({left_out:,} more like this were left out)" if left_out else text


def is_library_record(record: logging.LogRecord) -> bool:
    """Say whether a line comes from one of the libraries that are kept short."""
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
    """Return what a message is before its values are filled in, as far as that is known."""
    message = str(record.msg)
    if record.name.startswith(_UNTRUSTED_MESSAGES):
        return message if record.args else ""
    # Some libraries fill their values in before they log: then the beginning has to do.
    return message[:40] if is_library else message


def _format_one_line(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    bare = logging.makeLogRecord(record.__dict__)
    bare.exc_info = bare.exc_text = bare.stack_info = None
    first = logging.Formatter.format(formatter, bare).partition("\n")[0]
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        first += f" ({type(error).__name__}: {str(error).partition(chr(10))[0]})"
    return first[:_MAX_LINE_LENGTH]
