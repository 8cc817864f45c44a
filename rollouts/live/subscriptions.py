"""The parts of open pages: each part is followed once for all pages that show it.

Before it: `hub`, which reports changes, and `fragment_cache`, which renders. After it: `stream`, which writes to each
page. A channel listens to the change feed for its part, renders the part when a change may affect it, and hands the
rendering to the pages when it differs. So two hundred pages cost as much as one, except for the writing. A channel
lives as long as a page shows its part.

A slow part delays no other: each channel has a task of its own, which renders again and again.

The invariant: content that is `fresh_since` a moment includes every change that was published before that moment, and
every subscriber receives each later difference.
"""

import asyncio
import contextlib
import enum
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from django.http import Http404

from rollouts.accounts.errors import NotFound
from rollouts.live.change_feed import Change
from rollouts.live.fragment_cache import FragmentCache
from rollouts.live.fragments import Fragment, Rendering
from rollouts.live.hub import Hub, wait_for_event


@dataclass(frozen=True, slots=True)
class Dependency:
    """What a part depends on: a kind of object, one object, or some parts of it."""

    kind: str
    key: str  # empty: any object of the kind
    parts: frozenset[str]  # empty: all parts

    def covers(self, change: Change) -> bool:
        """Whether a change affects it."""
        if self.kind != change.kind or (self.key and self.key != change.key):
            return False
        return not self.parts or not change.parts or not self.parts.isdisjoint(change.parts)


@dataclass(frozen=True, slots=True)
class LivePart:
    """A part of a page, as the page describes it: equal descriptions share a channel."""

    src: str  # the URL of the part
    dependencies: tuple[Dependency, ...]
    poll_seconds: float  # interval at which it is rendered without a change; 0: never
    fragment: Fragment | None = field(compare=False)  # None: the URL has no fragment, so the page fetches it

    def depends_on(self, change: Change) -> bool:
        """Whether a change may affect the part."""
        return any(dependency.covers(change) for dependency in self.dependencies)

    @property
    def asks_cluster(self) -> bool:
        """Whether rendering it reads from a cluster."""
        return self.fragment is not None and self.fragment.asks_cluster


class Unavailable(enum.Enum):
    """Why a part has no rendering; the values are the names of events that static/live-updates.js handles."""

    GONE = "gone"  # the object does not exist any more
    FETCH = "fetch"  # the page must fetch the part from its URL


PartContent = Rendering | Unavailable


class ChannelSubscriber(Protocol):
    """A page that shows a part."""

    def wants_unchanged(self, channel: "Channel") -> bool:
        """Whether the page also wants a rendering that does not differ."""

    def on_content(self, channel: "Channel") -> None:
        """Receive the new content of the channel."""


class Channel:
    """One part, followed for all pages that show it."""

    def __init__(self, part: LivePart, hub: Hub, fragments: FragmentCache) -> None:
        self.part = part
        self.content: PartContent | None = None  # None: not rendered yet
        self.fresh_since = 0.0  # the content was read at this time or later, monotonic clock
        self._hub = hub
        self._fragments = fragments
        self._wanted_since = 0.0  # the content must be at least this fresh
        self._is_wanted = asyncio.Event()
        self._subscribers: set[ChannelSubscriber] = set()
        self._task: asyncio.Task[None] | None = None

    def subscribe(self, page: ChannelSubscriber, since: float) -> None:
        """Send a page the content as of `since` or later, and every difference after it."""
        self._subscribers.add(page)
        self._request(since)
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def unsubscribe(self, page: ChannelSubscriber) -> bool:
        """Remove a page, and stop the channel with the last one; return whether it was the last one."""
        self._subscribers.discard(page)
        if self._subscribers:
            return False
        if self._task is not None:
            self._task.cancel()
            self._task = None
        return True

    # HubListener

    def on_changes(self, changes: Sequence[Change], last_id: str, at: float) -> None:
        """Render again if a change affects the part."""
        if any(self.part.depends_on(change) for change in changes):
            self._request(at)

    def on_gap(self, at: float) -> None:
        """Render again: any change may have been missed."""
        self._request(at)

    def on_stale(self) -> None:
        """Do nothing: each page subscribes to the hub itself."""

    def on_shutdown(self) -> None:
        """Do nothing: each page subscribes to the hub itself."""

    def _request(self, since: float) -> None:
        self._wanted_since = max(self._wanted_since, since)
        self._is_wanted.set()

    async def _run(self) -> None:
        """Render whenever fresher content is wanted, until cancelled."""
        self._hub.subscribe(self)
        try:
            await self._hub.wait_until_ready()
            self._request(time.monotonic())  # the hub reports no earlier changes
            while True:
                self._publish(*await self._render(await self._wait_until_wanted()))
        finally:
            self._hub.unsubscribe(self)

    async def _wait_until_wanted(self) -> float:
        """Wait until fresher content is wanted or the poll interval is over; return how fresh it must be."""
        while self._wanted_since <= self.fresh_since:
            self._is_wanted.clear()
            if not await wait_for_event(self._is_wanted, self.part.poll_seconds or None):
                return time.monotonic()
        return self._wanted_since

    async def _render(self, since: float) -> tuple[PartContent, float]:
        """Return the content of the part, and how fresh it is."""
        if self.part.fragment is None:
            return Unavailable.FETCH, since
        try:
            rendering = await self._fragments.render_since(self.part.fragment, since)
        except (NotFound, Http404):
            return Unavailable.GONE, since
        except Exception:  # the fragment cache has logged it; a page that fetches the part shows the error
            return Unavailable.FETCH, since
        return rendering, rendering.started_at

    def _publish(self, content: PartContent, fresh_since: float) -> None:
        is_new = content is Unavailable.FETCH or _etag_of(content) != _etag_of(self.content)
        self.content, self.fresh_since = content, fresh_since
        for page in tuple(self._subscribers):
            if is_new or page.wants_unchanged(self):
                page.on_content(self)


def _etag_of(content: PartContent | None) -> str:
    """Return a text that differs when the content differs."""
    return content.etag if isinstance(content, Rendering) else str(content)


class Subscriptions:
    """The channels of one event loop, by part."""

    def __init__(self, hub: Hub, fragments: FragmentCache) -> None:
        self.channels: dict[LivePart, Channel] = {}
        self._hub = hub
        self._fragments = fragments

    @contextlib.contextmanager
    def subscribed(self, parts: Iterable[LivePart], page: ChannelSubscriber, since: float) -> Iterator[list[Channel]]:
        """Send a page the content of its parts as of `since` or later; yield the channel of each part."""
        channels = [self._channel_of(part) for part in dict.fromkeys(parts)]
        for channel in channels:
            channel.subscribe(page, since)
        try:
            yield channels
        finally:
            for channel in channels:
                if channel.unsubscribe(page):
                    self.channels.pop(channel.part, None)

    def _channel_of(self, part: LivePart) -> Channel:
        channel = self.channels.get(part)
        if channel is None:
            channel = self.channels[part] = Channel(part, self._hub, self._fragments)
        return channel
