"""Answers that stay open: what is new, to somebody who watches, until they leave or may not see any more.

Between `hub`, which reads the feed once for everybody, and what writes the answers: `api.feed` for programs,
`live.stream` for pages. Whoever watches holds neither a thread nor a connection to the database.

The invariants: an account has at most STREAM_LIMIT of them open in a process, of both kinds together, and at most PARTS
different live parts in all its pages, since each part is rendered for as long as it is open; who may not see any more
is told nothing after FEED_RECHECK_SECONDS, whichever way they watch.
"""

import asyncio
import contextlib
import random
import threading
import time
import weakref
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Hashable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, Protocol, TypeVar

from asgiref.sync import SyncToAsync, sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.db import connections
from django.http import HttpRequest, StreamingHttpResponse

from rollouts.accounts import permissions
from rollouts.accounts.tokens import find_token
from rollouts.live.hub import FeedSubscriber, get_hub

CONTENT_TYPE: Final = "text/event-stream"
# How long browsers wait before they connect again.
RETRY_MS: Final = 2_000
# Bursts are merged to so many writes a second.
_MAX_WRITES_PER_SECOND: Final = 4
# Different live parts that an account may have open in a process: ten different pages, each with as many parts as the
# one with most. Pages that show the same part count it once.
MAX_PARTS_PER_ACCOUNT: Final = 100
# One that is closed makes room: a client that was refused tries again after so long.
RETRY_AFTER_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class StreamViewer:
    """Who watches, as far as it takes to ask again whether they may."""

    token: str  # empty: by session
    session: str
    account: int = 0  # whose streams these are counted among

    def may_still_view(self) -> bool:
        """Whether they may still see; asks the database."""
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
    """An account has as many streams open as it may, or as many different parts."""

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence
        super().__init__(sentence)


def sse_response(
    events: AsyncGenerator[bytes, None], viewer: StreamViewer, parts: Collection[Hashable] = ()
) -> StreamingHttpResponse:
    """Answer with events as they come, of some parts. The view ends at once: the event loop writes what it returns.

    Raises TooManyStreams.
    """
    stream = _StreamSlot(viewer.account, frozenset(parts))
    # Proxies that gather an answer before they pass it on are asked not to.
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    response = StreamingHttpResponse(_write_events(events, stream), content_type=CONTENT_TYPE, headers=headers)
    # A client may leave before the first event is written, and then nothing is ever written.
    weakref.finalize(response, stream.release)
    return response


async def _write_events(events: AsyncGenerator[bytes, None], stream: "_StreamSlot") -> AsyncIterator[bytes]:
    try:
        async with contextlib.aclosing(events):
            async for event in events:
                yield event
    finally:
        stream.release()


@dataclass(slots=True)
class _OpenStreams:
    """What an account has open."""

    streams: int = 0
    parts: Counter[Hashable] = field(default_factory=Counter)  # in how many streams each is


_open_streams: Final[dict[int, _OpenStreams]] = {}
_open_streams_lock: Final = threading.Lock()


@dataclass(slots=True)
class _StreamSlot:
    """One of the streams that an account has open."""

    account: int
    parts: frozenset[Hashable]
    _is_open: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        limit = settings.ENVIRONMENT.stream_limit
        with _open_streams_lock:
            account = _open_streams.get(self.account, _OpenStreams())
            if limit is not None and account.streams >= limit:
                raise TooManyStreams(
                    f"Your account has {limit} live pages and feeds open, which is the limit; close some."
                )
            if len(account.parts.keys() | self.parts) > MAX_PARTS_PER_ACCOUNT:
                raise TooManyStreams(
                    f"Your pages may show {MAX_PARTS_PER_ACCOUNT} different live parts together; close some pages."
                )
            _open_streams[self.account] = account
            account.streams += 1
            account.parts.update(self.parts)

    def release(self) -> None:
        """Count it no more; it may be closed twice."""
        with _open_streams_lock:
            if self._is_open:
                self._is_open = False
                account = _open_streams[self.account]
                account.streams -= 1
                account.parts = +(account.parts - Counter(self.parts))
                if not account.streams:
                    del _open_streams[self.account]


@contextlib.asynccontextmanager
async def subscribed_to_feed(viewer: FeedSubscriber, after_id: str = "") -> AsyncIterator[None]:
    """Have a viewer told of what changes, from an id on if there is one; they are forgotten afterwards."""
    hub = get_hub()
    hub.subscribe(viewer)
    try:
        await hub.catch_up(viewer, after_id)
        yield
    finally:
        hub.unsubscribe(viewer)


Message_co = TypeVar("Message_co", covariant=True)


class Subscriber(Protocol[Message_co]):
    """Somebody who watches."""

    @property
    def is_closed(self) -> bool:
        """Whether they were sent away."""

    async def wait(self, seconds: float) -> Message_co | None:
        """Return what there is to tell as soon as there is something; None after so many seconds without."""


async def iterate_messages(
    subscriber: Subscriber[Message_co], viewer: StreamViewer
) -> AsyncIterator[Message_co | None]:
    """Yield what there is to tell somebody who has joined; None where all is quiet, as a sign of life.

    Ends when they are sent away, or may not see any more.
    """
    await _release_request_thread()  # that of the view: the answer may stay open for days
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
    """Return when to ask again whether somebody may see: at other times for each of those who came at the same time.

    After a restart that is everybody, and two hundred questions at once held up the pages of all for most of a second.
    """
    return time.monotonic() + settings.FEED_RECHECK_SECONDS * random.uniform(0.5, 1.0)  # noqa: S311 (no secret)


async def _run_in_shared_thread(function: Callable[[], Any]) -> Any:
    """Ask the database in a thread that all share, and let go of the connection."""

    def ask() -> Any:
        try:
            return function()
        finally:
            connections.close_all()

    return await sync_to_async(ask, thread_sensitive=False)()


async def _release_request_thread() -> None:
    """End the thread of this request and its connection to the database; a question may start another one."""
    await sync_to_async(connections.close_all)()
    context = SyncToAsync.thread_sensitive_context.get(None)
    thread = SyncToAsync.context_to_thread_executor.pop(context, None) if context else None
    if thread is not None:
        thread.shutdown(wait=False)
