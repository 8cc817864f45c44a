"""The change feed: what changed, in order, for whoever shows it live.

A Redis stream that the watcher and the reconciler write and the web processes read. An entry says what to look at
again, never what it looks like now: readers fetch that themselves, so an entry told twice or late does no harm. The
stream is short; a reader that was away for longer than it reaches back is told that it missed something.

Writing never fails: without Redis nobody is shown anything live, and that is no reason to stop a rollout.
"""

import json
import logging
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from redis import Redis, RedisError
from redis.asyncio import Redis as AsyncRedis

logger = logging.getLogger(__name__)

ChangeKind = Literal["workload", "cluster", "node", "override", "audit"]

FIRST_ID: Final = "0-0"
"""The id before the first entry."""

_STREAM: Final = "grove:feed"
# At hundreds of changes a second this is most of a minute: longer than a browser takes to connect again.
_MAX_ENTRIES: Final = 20_000
_MAX_ENTRIES_PER_READ: Final = 1_000
_ID_PATTERN: Final = re.compile(r"[0-9]{1,19}-[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Change:
    """Something that is not as it was."""

    cluster: str
    kind: ChangeKind
    # Of a workload its key in the queue, of an entry of the audit its number, else its name.
    key: str
    # Which of its parts changed, for example pods, status, timeline; none named: all of them.
    parts: tuple[str, ...] = ()
    deleted: bool = False

    @property
    def subject(self) -> tuple[str, str, str]:
        """What it is about."""
        return self.cluster, self.kind, self.key


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What was read from the feed."""

    # Each with its id, oldest first.
    entries: tuple[tuple[str, Change], ...]
    # Whether entries after the given id may have been dropped before they were read: look at everything again.
    has_gap: bool


# Set while Redis is away, so that it is said once and not with every change.
_redis_is_down = threading.Event()


def publish(redis: Redis, changes: Iterable[Change]) -> None:
    """Tell of changes; those of the same thing become one entry."""
    merged = merge(changes)
    if not merged:
        return
    try:
        with redis.pipeline(transaction=False) as pipeline:
            for change in merged:
                pipeline.xadd(_STREAM, {"change": _render(change)}, maxlen=_MAX_ENTRIES, approximate=True)
            pipeline.execute()
        _redis_is_down.clear()
    except RedisError as error:
        if not _redis_is_down.is_set():
            logger.warning("Live pages stand still: Redis does not answer (%s)", type(error).__name__)
        _redis_is_down.set()


def latest_id(redis: Redis) -> str:
    """Where the feed ends now: reading after this gives only what is new."""
    newest: Any = redis.xrevrange(_STREAM, count=1)
    return newest[0][0].decode() if newest else FIRST_ID


def read(redis: Redis, after_id: str, *, block_ms: int | None = None) -> ReadResult:
    """Read what came after an id; raises RedisError when Redis is away.

    Waits up to `block_ms` for something to come, which must be less than the client waits for an answer.
    """
    answer: Any = redis.xread({_STREAM: after_id}, count=_MAX_ENTRIES_PER_READ, block=block_ms)
    oldest: Any = redis.xrange(_STREAM, count=1)
    return _make_read_result(answer, oldest, after_id)


async def latest_id_async(redis: AsyncRedis) -> str:
    """Do what `latest_id` does, for those who wait for many things at once."""
    newest: Any = await redis.xrevrange(_STREAM, count=1)
    return newest[0][0].decode() if newest else FIRST_ID


async def read_async(redis: AsyncRedis, after_id: str, *, block_ms: int | None = None) -> ReadResult:
    """Do what `read` does, for those who wait for many things at once."""
    answer: Any = await redis.xread({_STREAM: after_id}, count=_MAX_ENTRIES_PER_READ, block=block_ms)
    oldest: Any = await redis.xrange(_STREAM, count=1)
    return _make_read_result(answer, oldest, after_id)


def is_entry_id(text: str) -> bool:
    """Whether a text can be the id of an entry.

    >>> [is_entry_id(text) for text in ("1700000000000-0", "0-0", "-", "yesterday", "1-1-1")]
    [True, True, False, False, False]
    """
    return _ID_PATTERN.fullmatch(text) is not None


def _combine(earlier: Change, later: Change) -> Change:
    """Join two changes of the same thing; where one of them names no part, all parts changed."""
    if earlier.parts == later.parts:
        return later
    what = tuple(dict.fromkeys((*earlier.parts, *later.parts))) if earlier.parts and later.parts else ()
    return replace(later, parts=what)


def merge(changes: Iterable[Change]) -> list[Change]:
    """Join changes of the same thing."""
    merged: dict[tuple[str, str, str], Change] = {}
    for change in changes:
        merge_into(merged, change)
    return list(merged.values())


def merge_into(merged: dict[tuple[str, str, str], Change], change: Change) -> None:
    """Put a change among others, by what they are about; joined with what is there of the same thing."""
    earlier = merged.get(change.subject)
    merged[change.subject] = change if earlier is None else _combine(earlier, change)


def _make_read_result(answer: Any, oldest: Any, after_id: str) -> ReadResult:
    rows = answer[0][1] if answer else []
    read = [(row_id.decode(), _parse(fields.get(b"change", b""))) for row_id, fields in rows]
    entries = tuple((row_id, change) for row_id, change in read if change is not None)
    reaches_back = after_id == FIRST_ID or (oldest and _sort_key(oldest[0][0].decode()) <= _sort_key(after_id))
    # What somebody else has put there, or a later version of ours, may have been about anything.
    return ReadResult(entries, has_gap=not reaches_back or len(entries) < len(rows))


def _render(change: Change) -> str:
    return json.dumps([change.cluster, change.kind, change.key, change.parts, change.deleted], separators=(",", ":"))


def _parse(text: bytes) -> Change | None:
    """Return what an entry says; None for one that is not ours."""
    try:
        cluster, kind, key, what, deleted = json.loads(text)
        return Change(cluster, kind, key, tuple(what), deleted)
    except (ValueError, TypeError):
        return None


def _sort_key(entry_id: str) -> tuple[int, int]:
    milliseconds, _, number = entry_id.partition("-")
    return int(milliseconds), int(number or 0)
