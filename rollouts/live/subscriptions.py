"""Parts of pages that somebody has open, each followed once for everybody who has it open.

Between `hub`, which says what changed, with `fragments`, which renders, and `live.stream`, which writes to each page. A
channel hears the change feed for its part, has it rendered whenever it may look different, and tells the pages when it
does. So two hundred pages cost what one costs, but for writing to them. It lives as long as somebody has the part open.

A part that is slow holds up nobody but itself: each is looked at by a task of its own, one look after the other.

The invariant: what was told before a moment is in what is `known_from` that moment, and whoever listens is told of
each difference after it was.
"""

import asyncio
import contextlib
import enum
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from django.http import Http404

from rollouts.accounts.errors import NotFound
from rollouts.live.change_feed import Change
from rollouts.live.fragments import Fragment, Rendering, render_since
from rollouts.live.hub import get_hub, wait_for_event


@dataclass(frozen=True, slots=True)
class Dependency:
    """Something that a part depends on: a kind of things, or one of them, or parts of it."""

    kind: str
    key: str  # empty: any
    parts: frozenset[str]  # empty: all of it

    def covers(self, change: Change) -> bool:
        """Whether a change is one of it."""
        if self.kind != change.kind or (self.key and self.key != change.key):
            return False
        return not self.parts or not change.parts or not self.parts.isdisjoint(change.parts)


@dataclass(frozen=True, slots=True)
class LivePart:
    """A part of a page, as pages name it: those who name it alike share a channel."""

    src: str  # where it is to be had
    dependencies: tuple[Dependency, ...]
    poll_seconds: float  # seconds after which it is looked at though nothing was told; 0: never
    fragment: Fragment | None = field(compare=False)  # None: nothing that could be brought

    def depends_on(self, change: Change) -> bool:
        """Whether it may look different after a change."""
        return any(word.covers(change) for word in self.dependencies)

    @property
    def asks_cluster(self) -> bool:
        """Whether only a cluster can tell how it looks."""
        return self.fragment is not None and self.fragment.asks_cluster


class Unavailable(enum.Enum):
    """Why there is no rendering of a part."""

    GONE = "gone"  # there is none any more
    FETCH = "look"  # it is to be fetched from its address


PartContent = Rendering | Unavailable


class ChannelSubscriber(Protocol):
    """A page that has a part open."""

    def wants_unchanged(self, channel: "Channel") -> bool:
        """Whether it is to be told also when nothing looks different."""

    def on_content(self, channel: "Channel") -> None:
        """Be told how the part came out."""


class Channel:
    """A part that is followed."""

    def __init__(self, part: LivePart) -> None:
        self.part = part
        self.content: PartContent | None = None  # None: it has not been looked at yet
        self.fresh_since = 0.0  # the outcome is how it was then or later, by the monotonic clock
        self._wanted_since = 0.0  # from when on it is to be known
        self._is_wanted = asyncio.Event()
        self._subscribers: set[ChannelSubscriber] = set()
        self._task: asyncio.Task[None] | None = None

    def subscribe(self, page: ChannelSubscriber, since: float) -> None:
        """Tell a page how the part looks from some moment on."""
        self._subscribers.add(page)
        self._request(since)
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def unsubscribe(self, page: ChannelSubscriber) -> bool:
        """Forget a page; return whether there is no other, in which case nothing is followed any more."""
        self._subscribers.discard(page)
        if self._subscribers:
            return False
        if self._task is not None:
            self._task.cancel()
            self._task = None
        return True

    # What the hub tells.

    def on_changes(self, changes: Sequence[Change], last_id: str, at: float) -> None:
        """Look again after a change of what the part depends on."""
        if any(self.part.depends_on(change) for change in changes):
            self._request(at)

    def on_gap(self, at: float) -> None:
        """Look again, as anything may have changed."""
        self._request(at)

    def on_stale(self) -> None:
        """Nothing is told for now: pages hear that by themselves."""

    def on_shutdown(self) -> None:
        """The process ends: pages hear that by themselves."""

    def _request(self, since: float) -> None:
        self._wanted_since = max(self._wanted_since, since)
        self._is_wanted.set()

    async def _run(self) -> None:
        """Look whenever it is wanted, until cancelled."""
        hub = get_hub()
        hub.subscribe(self)
        try:
            await hub.wait_until_ready()
            self._request(time.monotonic())  # what came before is not told
            while True:
                self._publish(*await self._render(await self._wait_until_wanted()))
        finally:
            hub.unsubscribe(self)

    async def _wait_until_wanted(self) -> float:
        """Return from when on the part is to be known, as soon as it is not, or has not been looked at for long."""
        while self._wanted_since <= self.fresh_since:
            self._is_wanted.clear()
            if not await wait_for_event(self._is_wanted, self.part.poll_seconds or None):
                return time.monotonic()
        return self._wanted_since

    async def _render(self, since: float) -> tuple[PartContent, float]:
        """Return how the part looks, and from when on."""
        if self.part.fragment is None:
            return Unavailable.FETCH, since
        try:
            rendering = await render_since(self.part.fragment, since)
        except (NotFound, Http404):
            return Unavailable.GONE, since
        except Exception:  # it is in the log; whoever fetches it sees what is wrong
            return Unavailable.FETCH, since
        return rendering, rendering.started_at

    def _publish(self, outcome: PartContent, known_from: float) -> None:
        is_new = outcome is Unavailable.FETCH or _etag_of(outcome) != _etag_of(self.content)
        self.content, self.fresh_since = outcome, known_from
        for page in tuple(self._subscribers):
            if is_new or page.wants_unchanged(self):
                page.on_content(self)


def _etag_of(outcome: PartContent | None) -> str:
    """Return what is different for what looks different."""
    return outcome.etag if isinstance(outcome, Rendering) else str(outcome)


_CHANNELS_OF_LOOP: Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[LivePart, Channel]]] = (
    weakref.WeakKeyDictionary()
)


@contextlib.contextmanager
def subscribed_to_parts(parts: Iterable[LivePart], page: ChannelSubscriber, since: float) -> Iterator[list[Channel]]:
    """Have a page told of its parts, as they look from some moment on; a channel for each."""
    channels = _CHANNELS_OF_LOOP.setdefault(asyncio.get_running_loop(), {})
    joined = [channels.setdefault(part, Channel(part)) for part in dict.fromkeys(parts)]
    for channel in joined:
        channel.subscribe(page, since)
    try:
        yield joined
    finally:
        for channel in joined:
            if channel.unsubscribe(page):
                channels.pop(channel.part, None)
