"""Responses of server-sent events: how many an account may have open, and whether their viewer may still see.

Before it: `hub`, which reads the feed once for all. After it: the two views that write such responses, `api.feed` for
programs and `live.stream` for pages. An open response holds neither a thread nor a connection to the database.

The invariants: in one process an account has at most STREAM_LIMIT responses open, of both kinds together, and its pages
show at most MAX_PARTS_PER_ACCOUNT different live parts, since each part is rendered for as long as it is open. A
viewer who loses the permission, the token or the session gets nothing more after FEED_RECHECK_SECONDS.
"""

import asyncio
import contextlib
import random
import threading
import time
import weakref
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar, Final, Protocol, TypeVar

from asgiref.sync import SyncToAsync, sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.db import connections
from django.http import HttpRequest, StreamingHttpResponse

from rollouts.accounts import permissions
from rollouts.accounts.tokens import find_token
from rollouts.live.hub import FeedSubscriber, Hub

CONTENT_TYPE: Final = "text/event-stream"
# The `retry` field: how long a browser waits before it reconnects.
RETRY_MS: Final = 2_000
# Messages that come faster are sent together.
_MAX_WRITES_PER_SECOND: Final = 4
# Different live parts of an account in a process: ten different pages, each with as many parts as the page with most.
# A part that several pages show counts once.
MAX_PARTS_PER_ACCOUNT: Final = 100


@dataclass(frozen=True, slots=True)
class StreamViewer:
    """The credentials of a stream, with which the permission is checked again."""

    token: str  # empty: by session
    session: str
    account: int = 0  # the account whose streams are counted

    @classmethod
    def by_session(cls, request: HttpRequest) -> "StreamViewer":
        """Return the viewer of a request that came with a session."""
        return cls("", request.session.session_key or "", request.user.pk or 0)

    def may_still_view(self) -> bool:
        """Whether the viewer may still see; queries the database."""
        user = self._find_user()
        return user is not None and bool(user.is_authenticated) and permissions.may_view(user)

    def _find_user(self) -> Any:
        if self.token:
            token = find_token(self.token)
            return None if token is None else token.user
        request = HttpRequest()
        request.session = import_module(settings.SESSION_ENGINE).SessionStore(self.session)
        return get_user(request)


class TooManyStreams(Exception):  # noqa: N818 (it reads as what happened)
    """An account has as many streams or different live parts open as it may; the view answers 429."""

    # A closed page makes room, so the client tries again.
    headers: ClassVar[Mapping[str, str]] = {"Retry-After": "30"}

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence
        super().__init__(sentence)


@dataclass(slots=True)
class _OpenStreams:
    """What an account has open."""

    streams: int = 0
    parts: Counter[Hashable] = field(default_factory=Counter)  # the number of streams that show each part


class StreamLimits:
    """Counts the open streams and live parts of each account in this process."""

    def __init__(self) -> None:
        self._accounts: dict[int, _OpenStreams] = {}
        self._lock = threading.Lock()

    def open(self, account: int, parts: Collection[Hashable] = ()) -> "StreamSlot":
        """Count one more stream, with the parts that it shows; raises TooManyStreams."""
        limit = settings.ENVIRONMENT.stream_limit
        slot = StreamSlot(self, account, frozenset(parts))
        with self._lock:
            opened = self._accounts.get(account, _OpenStreams())
            if limit is not None and opened.streams >= limit:
                raise TooManyStreams(
                    f"Your account has {limit} live pages and feeds open, which is the limit. Close some."
                )
            if len(opened.parts.keys() | slot.parts) > MAX_PARTS_PER_ACCOUNT:
                raise TooManyStreams(
                    f"Your pages can show at most {MAX_PARTS_PER_ACCOUNT} different live parts together. Close some "
                    "pages."
                )
            self._accounts[account] = opened
            opened.streams += 1
            opened.parts.update(slot.parts)
        return slot

    def close(self, slot: "StreamSlot") -> None:
        """Count a stream no more; closing it again changes nothing."""
        with self._lock:
            if slot.is_open:
                slot.is_open = False
                opened = self._accounts[slot.account]
                opened.streams -= 1
                opened.parts = +(opened.parts - Counter(slot.parts))
                if not opened.streams:
                    del self._accounts[slot.account]


@dataclass(slots=True, eq=False)
class StreamSlot:
    """A stream that counts towards the limits of its account."""

    limits: StreamLimits
    account: int
    parts: frozenset[Hashable]
    is_open: bool = field(default=True, init=False)

    def release(self) -> None:
        """Give the slot back; it may be called twice."""
        self.limits.close(self)


def sse_response(events: AsyncGenerator[bytes, None], slot: StreamSlot) -> StreamingHttpResponse:
    """Return a response that sends events as they come, and releases its slot when it ends.

    The view returns at once; the event loop of the server writes the response.
    """
    # X-Accel-Buffering asks proxies not to buffer the response.
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    response = StreamingHttpResponse(_write_events(events, slot), content_type=CONTENT_TYPE, headers=headers)
    # A client may leave before the first event is written; then the generator never runs.
    weakref.finalize(response, slot.release)
    return response


async def _write_events(events: AsyncGenerator[bytes, None], slot: StreamSlot) -> AsyncIterator[bytes]:
    try:
        async with contextlib.aclosing(events):
            async for event in events:
                yield event
    finally:
        slot.release()


@contextlib.asynccontextmanager
async def subscribed_to_feed(hub: Hub, subscriber: FeedSubscriber, after_id: str = "") -> AsyncIterator[None]:
    """Subscribe to the changes after an id, or to later changes if the id is empty, until the block ends."""
    hub.subscribe(subscriber)
    try:
        await hub.catch_up(subscriber, after_id)
        yield
    finally:
        hub.unsubscribe(subscriber)


Message_co = TypeVar("Message_co", covariant=True)


class Subscriber(Protocol[Message_co]):
    """Collects the messages of one stream."""

    @property
    def is_closed(self) -> bool:
        """Whether no more messages come."""

    async def wait(self, seconds: float) -> Message_co | None:
        """Wait for the next message; None if none came within `seconds`."""


async def iterate_messages(
    subscriber: Subscriber[Message_co], viewer: StreamViewer
) -> AsyncIterator[Message_co | None]:
    """Yield the messages of a subscriber; None stands for a heartbeat, when nothing happened for a while.

    Ends when the process shuts down, or when the viewer may not see any more.
    """
    await _release_request_thread()  # the response may stay open for days
    check_at = _next_permission_check()
    while not subscriber.is_closed:
        message = await subscriber.wait(settings.FEED_HEARTBEAT_SECONDS)
        if time.monotonic() >= check_at:
            if not await _run_in_shared_thread(viewer.may_still_view):
                return
            check_at = _next_permission_check()
        yield message
        await asyncio.sleep(1 / _MAX_WRITES_PER_SECOND)


def _next_permission_check() -> float:
    """Return when to check the permission again, spread at random over the streams that began together.

    After a restart all streams begin together: 200 checks at once delayed all pages by most of a second.
    """
    return time.monotonic() + settings.FEED_RECHECK_SECONDS * random.uniform(0.5, 1.0)  # noqa: S311 (no secret)


async def _run_in_shared_thread(function: Callable[[], Any]) -> Any:
    """Query the database in a thread of the shared pool, and close the connection."""

    def query() -> Any:
        try:
            return function()
        finally:
            connections.close_all()

    return await sync_to_async(query, thread_sensitive=False)()


async def _release_request_thread() -> None:
    """Stop the thread of this request and close its database connection; a later query may start another one."""
    await sync_to_async(connections.close_all)()
    context = SyncToAsync.thread_sensitive_context.get(None)
    thread = SyncToAsync.context_to_thread_executor.pop(context, None) if context else None
    if thread is not None:
        thread.shutdown(wait=False)
