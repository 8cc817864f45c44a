"""Watches: the store's change log as a stream of JSON lines.

A watch keeps a cursor, the revision up to which it has sent changes. It reads on from there in the store's log and
sleeps until the store has a change of its kind. So a watch that resumes, one that starts and one that is slow all take
the same path, and a watch that is behind the oldest entry of the log gets a 410 in the stream. No watch has a queue.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import orjson

from rollouts.sandbox.apiserver.errors import ApiError, resource_expired, too_large_resource_version
from rollouts.sandbox.apiserver.registry import Kind
from rollouts.sandbox.apiserver.selectors import Predicate
from rollouts.sandbox.apiserver.storage import Storage, StorageChange, TooOldResourceVersionError

Obj = dict[str, Any]
RenderEvent = Callable[[str, Obj, bytes], bytes]

# A real server sends a bookmark about once a minute to a watch that asked for them, and one shortly before its end,
# so that the next watch starts where this one stopped.
BOOKMARK_SECONDS = 60.0
LAST_BOOKMARK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """What a client wants to watch, and from where."""

    kind: Kind
    namespace: str | None
    name: str | None
    matches: Predicate
    since: str  # resourceVersion as sent; "" or "0": the current objects first
    timeout: float
    bookmarks: bool = False
    initial_events: bool = False


def event_line(change_type: str, _obj: Obj, body: bytes) -> bytes:
    """Return one event with the full object."""
    return b'{"type":"%s","object":%s}\n' % (change_type.encode(), body)


class _BookmarkSchedule:
    """When a watch sends bookmarks: regularly, and shortly before its end."""

    def __init__(self, now: float, deadline: float) -> None:
        self._last = max(now, deadline - LAST_BOOKMARK_SECONDS)
        self._deadline = deadline
        self.next = min(now + BOOKMARK_SECONDS, self._last)

    def is_due(self, now: float) -> bool:
        return now >= self.next

    def advance(self, now: float) -> None:
        self.next = self._deadline if now >= self._last else min(now + BOOKMARK_SECONDS, self._last)


class WatchStreams:
    """Streams watches, and wakes those of a kind when the store has a change of it."""

    def __init__(self, store: Storage) -> None:
        self._store = store
        self._waiters: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._closing = False
        store.subscribe(self._wake)

    def close(self) -> None:
        """End every watch, so that the server can stop."""
        self._closing = True
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.set()

    def _wake(self, change: StorageChange) -> None:
        for sleeper in self._waiters[change.kind.key]:
            sleeper.set()

    async def stream(
        self, request: WatchRequest, ended: "asyncio.Future[None]", render: RenderEvent = event_line
    ) -> AsyncIterator[bytes]:
        """Yield the chunks of one watch until it times out or its client disconnects."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.timeout
        bookmarks = _BookmarkSchedule(loop.time(), deadline) if request.bookmarks else None
        changed = asyncio.Event()
        waiters = self._waiters[request.kind.key]
        waiters.add(changed)
        ended.add_done_callback(lambda _: changed.set())
        try:
            if self._is_ahead(request):
                yield _render_too_large(int(request.since), self._store.revision)
                return
            cursor, first = self._start(request, render)
            if first:
                yield first
            while not ended.done() and not self._closing and loop.time() < deadline:
                changed.clear()
                try:
                    chunk = self._read_changes(request, cursor, render)
                except TooOldResourceVersionError as error:
                    yield _render_too_old(cursor, error.oldest)
                    return
                cursor = self._store.revision
                if chunk:
                    yield chunk
                if bookmarks is not None and bookmarks.is_due(loop.time()):
                    yield _bookmark(request.kind, cursor)
                    bookmarks.advance(loop.time())
                await _sleep(changed, (bookmarks.next if bookmarks is not None else deadline) - loop.time())
        finally:
            waiters.discard(changed)

    def _is_ahead(self, request: WatchRequest) -> bool:
        """Return whether a watch starts from a future revision, one that another store made."""
        return request.since not in {"", "0"} and parse_resource_version(request.since) > self._store.revision

    def _start(self, request: WatchRequest, render: RenderEvent) -> tuple[int, bytes]:
        """Return the cursor and what to send first: the current objects when no revision is given."""
        if request.since not in {"", "0"} and not request.initial_events:
            return parse_resource_version(request.since), b""
        lines = [
            render("ADDED", stored.obj, stored.body)
            for stored in self._store.list(request.kind, request.namespace)
            if request.matches(stored.obj) and request.name in {None, stored.obj["metadata"]["name"]}
        ]
        if request.initial_events and request.bookmarks:
            lines.append(_bookmark(request.kind, self._store.revision, end_of_initial=True))
        return self._store.revision, b"".join(lines)

    def _read_changes(self, request: WatchRequest, cursor: int, render: RenderEvent) -> bytes:
        lines = []
        for change in self._store.changes(request.kind, cursor):
            seen = _compute_event_type(request, change)
            if seen is not None:
                lines.append(render(seen, change.obj, change.body))
        return b"".join(lines)


def parse_resource_version(text: str) -> int:
    """Return a resourceVersion parameter as a number."""
    if not text.isdigit():
        problem = f'strconv.ParseUint: parsing "{text}": invalid syntax'
        raise ApiError(500, "", f'resourceVersion: Invalid value: "{text}": {problem}')
    return int(text)


def _compute_event_type(request: WatchRequest, change: StorageChange) -> str | None:
    """Return the event type for a filtered watch: an object that starts or stops matching is added or deleted."""
    metadata = change.obj["metadata"]
    if request.namespace is not None and metadata.get("namespace", "") != request.namespace:
        return None
    if request.name is not None and metadata["name"] != request.name:
        return None
    now = change.type != "DELETED" and request.matches(change.obj)
    before = change.old is not None and request.matches(change.old)
    if now:
        return "MODIFIED" if before else "ADDED"
    return "DELETED" if before else None


def _bookmark(kind: Kind, revision: int, *, end_of_initial: bool = False) -> bytes:
    metadata: Obj = {"resourceVersion": str(revision), "creationTimestamp": None}
    if end_of_initial:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    body = orjson.dumps({"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata})
    return event_line("BOOKMARK", {}, body)


def _render_too_old(cursor: int, oldest: int) -> bytes:
    error = resource_expired(f"too old resource version: {cursor} ({oldest})")
    return event_line("ERROR", {}, orjson.dumps(error.status()))


def _render_too_large(asked: int, current: int) -> bytes:
    error = too_large_resource_version(asked, current)
    return event_line("ERROR", {}, orjson.dumps(error.status()))


async def _sleep(changed: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(max(seconds, 0)):
            await changed.wait()
    except TimeoutError:
        return
