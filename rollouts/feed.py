"""The change feed: what changed, in order, for whoever shows it live.

A Redis stream that the watcher and the reconciler write and the web processes read. An entry says what to look at
again, never what it looks like now: readers fetch that themselves, so an entry told twice or late does no harm. The
stream is short; a reader that was away for longer than it reaches back is told that it missed something.

Writing never fails: without Redis nobody is shown anything live, and that is no reason to stop a rollout.
"""

import json
import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from redis import Redis, RedisError

logger = logging.getLogger(__name__)

Kind = Literal["workload", "cluster", "node", "override"]

START: Final = "0-0"
"""The id before the first entry."""

_STREAM: Final = "grove:feed"
# At hundreds of changes a second this is most of a minute: longer than a browser takes to connect again.
_ENTRIES_KEPT: Final = 20_000
_ENTRIES_READ: Final = 1_000


@dataclass(frozen=True, slots=True)
class Change:
    """Something that is not as it was."""

    cluster: str
    kind: Kind
    # Of a workload its key in the queue, else its name.
    key: str
    # Which of its parts changed, for example pods, status, timeline; none named: all of them.
    what: tuple[str, ...] = ()
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read from the feed."""

    # Each with its id, oldest first.
    entries: tuple[tuple[str, Change], ...]
    # Whether entries after the given id may have been dropped before they were read: look at everything again.
    missed: bool


# Set while Redis is away, so that it is said once and not with every change.
_away = threading.Event()


def publish(redis: Redis, changes: Iterable[Change]) -> None:
    """Tell of changes; those of the same thing become one entry."""
    merged = _merge(changes)
    if not merged:
        return
    try:
        with redis.pipeline(transaction=False) as pipeline:
            for change in merged:
                pipeline.xadd(_STREAM, {"change": _render(change)}, maxlen=_ENTRIES_KEPT, approximate=True)
            pipeline.execute()
        _away.clear()
    except RedisError as error:
        if not _away.is_set():
            logger.warning("Live pages stand still: Redis does not answer (%s)", type(error).__name__)
        _away.set()


def latest_id(redis: Redis) -> str:
    """Where the feed ends now: reading after this gives only what is new."""
    newest: Any = redis.xrevrange(_STREAM, count=1)
    return newest[0][0].decode() if newest else START


def read(redis: Redis, after_id: str, *, block_ms: int | None = None) -> Reading:
    """Read what came after an id; raises RedisError when Redis is away.

    Waits up to `block_ms` for something to come, which must be less than the client waits for an answer.
    """
    answer: Any = redis.xread({_STREAM: after_id}, count=_ENTRIES_READ, block=block_ms)
    rows = answer[0][1] if answer else []
    entries = tuple((row_id.decode(), _parse(fields[b"change"])) for row_id, fields in rows)
    return Reading(entries, missed=_reaches_not_back_to(redis, after_id))


def _reaches_not_back_to(redis: Redis, after_id: str) -> bool:
    if after_id == START:
        return False
    oldest: Any = redis.xrange(_STREAM, count=1)
    return not oldest or _order(oldest[0][0].decode()) > _order(after_id)


def _merge(changes: Iterable[Change]) -> list[Change]:
    """Join changes of the same thing; where one of them names no part, all parts changed."""
    merged: dict[tuple[str, str, str], Change] = {}
    for change in changes:
        place = (change.cluster, change.kind, change.key)
        earlier = merged.get(place)
        if earlier is None:
            merged[place] = change
            continue
        what = tuple(dict.fromkeys((*earlier.what, *change.what))) if earlier.what and change.what else ()
        merged[place] = replace(change, what=what)
    return list(merged.values())


def _render(change: Change) -> str:
    return json.dumps([change.cluster, change.kind, change.key, change.what, change.deleted], separators=(",", ":"))


def _parse(text: bytes) -> Change:
    cluster, kind, key, what, deleted = json.loads(text)
    return Change(cluster, kind, key, tuple(what), deleted)


def _order(entry_id: str) -> tuple[int, int]:
    milliseconds, _, number = entry_id.partition("-")
    return int(milliseconds), int(number or 0)
