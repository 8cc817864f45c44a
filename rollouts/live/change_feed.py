"""The change feed: a Redis stream of what changed, in order, for live pages and API clients.

The watcher, the reconciler and the services publish; the web processes read. An entry names the object that changed,
never its new state: readers fetch that themselves, so a repeated or late entry does no harm. The stream is short; a
reader that was away for longer than the stream reaches back learns that it missed entries.

Publishing never fails: without Redis no page is updated live, but rollouts go on.
"""

import json
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from redis import Redis, RedisError
from redis.asyncio import Redis as AsyncRedis

from rollouts.telemetry.outage_log import OutageLog

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
    """An object that changed."""

    cluster: str
    kind: ChangeKind
    # The queue key of a workload, the number of an audit entry, otherwise the name of the object.
    key: str
    # The parts that changed, for example pods, status, timeline; empty means all of them.
    parts: tuple[str, ...] = ()
    deleted: bool = False

    @property
    def subject(self) -> tuple[str, str, str]:
        """The object that changed: changes of equal subjects are merged."""
        return self.cluster, self.kind, self.key


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The entries that one read returned."""

    # Pairs of id and change, oldest first.
    entries: tuple[tuple[str, Change], ...]
    # Whether entries after the given id may have been dropped unread. The reader must then fetch everything again.
    has_gap: bool


_redis_outage: Final = OutageLog(logger, "Redis is down; live pages get no updates (%s)")


def publish(redis: Redis, changes: Iterable[Change]) -> None:
    """Publish changes, merged to one entry for each object."""
    merged = merge(changes)
    if not merged:
        return
    try:
        with redis.pipeline(transaction=False) as pipeline:
            for change in merged:
                pipeline.xadd(_STREAM, {"change": _render(change)}, maxlen=_MAX_ENTRIES, approximate=True)
            pipeline.execute()
        _redis_outage.succeeded()
    except RedisError as error:
        _redis_outage.failed(error)


async def latest_id(redis: AsyncRedis) -> str:
    """Return the id of the newest entry: a read after it returns only new entries."""
    newest: Any = await redis.xrevrange(_STREAM, count=1)
    return newest[0][0].decode() if newest else FIRST_ID


async def read(redis: AsyncRedis, after_id: str, *, block_ms: int | None = None) -> ReadResult:
    """Read the entries after an id; raises RedisError when Redis is down.

    Waits up to `block_ms` for an entry, which must be less than the socket timeout of the client.
    """
    answer: Any = await redis.xread({_STREAM: after_id}, count=_MAX_ENTRIES_PER_READ, block=block_ms)
    oldest: Any = await redis.xrange(_STREAM, count=1)
    return _make_read_result(answer, oldest, after_id)


def is_entry_id(text: str) -> bool:
    """Whether a text has the form of an entry id.

    >>> [is_entry_id(text) for text in ("1700000000000-0", "0-0", "-", "yesterday", "1-1-1")]
    [True, True, False, False, False]
    """
    return _ID_PATTERN.fullmatch(text) is not None


def _combine(earlier: Change, later: Change) -> Change:
    """Merge two changes of one object; if either names no part, all parts changed."""
    if earlier.parts == later.parts:
        return later
    parts = tuple(dict.fromkeys((*earlier.parts, *later.parts))) if earlier.parts and later.parts else ()
    return replace(later, parts=parts)


def merge(changes: Iterable[Change]) -> list[Change]:
    """Return the changes, merged to one for each object."""
    merged: dict[tuple[str, str, str], Change] = {}
    for change in changes:
        merge_into(merged, change)
    return list(merged.values())


def merge_into(merged: dict[tuple[str, str, str], Change], change: Change) -> None:
    """Add a change to others, keyed by subject; merge it with an earlier change of the same object."""
    earlier = merged.get(change.subject)
    merged[change.subject] = change if earlier is None else _combine(earlier, change)


def _make_read_result(answer: Any, oldest: Any, after_id: str) -> ReadResult:
    rows = answer[0][1] if answer else []
    read = [(row_id.decode(), _parse(fields.get(b"change", b""))) for row_id, fields in rows]
    entries = tuple((row_id, change) for row_id, change in read if change is not None)
    reaches_back = after_id == FIRST_ID or (oldest and _sort_key(oldest[0][0].decode()) <= _sort_key(after_id))
    # An entry that cannot be parsed, for example of a later version, may concern any object.
    return ReadResult(entries, has_gap=not reaches_back or len(entries) < len(rows))


def _render(change: Change) -> str:
    return json.dumps([change.cluster, change.kind, change.key, change.parts, change.deleted], separators=(",", ":"))


def _parse(text: bytes) -> Change | None:
    """Return the change of an entry; None if it cannot be parsed."""
    try:
        cluster, kind, key, parts, deleted = json.loads(text)
        return Change(cluster, kind, key, tuple(parts), deleted)
    except (ValueError, TypeError):
        return None


def _sort_key(entry_id: str) -> tuple[int, int]:
    milliseconds, _, number = entry_id.partition("-")
    return int(milliseconds), int(number or 0)
