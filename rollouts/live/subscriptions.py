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

from rollouts.accounts.errors import NotThere
from rollouts.live.change_feed import Change
from rollouts.live.fragments import Fragment, Rendering, newest
from rollouts.live.hub import happens, hub_of_loop


@dataclass(frozen=True, slots=True)
class Word:
    """Something that a part depends on: a kind of things, or one of them, or parts of it."""

    kind: str
    key: str  # empty: any
    what: frozenset[str]  # empty: all of it

    def covers(self, change: Change) -> bool:
        """Whether a change is one of it."""
        if self.kind != change.kind or (self.key and self.key != change.key):
            return False
        return not self.what or not change.what or not self.what.isdisjoint(change.what)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a page, as pages name it: those who name it alike share a channel."""

    src: str  # where it is to be had
    words: tuple[Word, ...]
    every: float  # seconds after which it is looked at though nothing was told; 0: never
    fragment: Fragment | None = field(compare=False)  # None: nothing that could be brought

    def depends_on(self, change: Change) -> bool:
        """Whether it may look different after a change."""
        return any(word.covers(change) for word in self.words)

    @property
    def asks_cluster(self) -> bool:
        """Whether only a cluster can tell how it looks."""
        return self.fragment is not None and self.fragment.asks_cluster


class Lack(enum.Enum):
    """Why there is no rendering of a part."""

    GONE = "gone"  # there is none any more
    LOOK = "look"  # it is to be fetched from its address


Outcome = Rendering | Lack


class Audience(Protocol):
    """A page that has a part open."""

    def awaits(self, channel: "Channel") -> bool:
        """Whether it is to be told also when nothing looks different."""

    def hear(self, channel: "Channel") -> None:
        """Be told how the part came out."""


class Channel:
    """A part that is followed."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.outcome: Outcome | None = None  # None: it has not been looked at yet
        self.known_from = 0.0  # the outcome is how it was then or later, by the monotonic clock
        self._wanted = 0.0  # from when on it is to be known
        self._is_wanted = asyncio.Event()
        self._audience: set[Audience] = set()
        self._task: asyncio.Task[None] | None = None

    def join(self, page: Audience, since: float) -> None:
        """Tell a page how the part looks from some moment on."""
        self._audience.add(page)
        self._want(since)
        if self._task is None:
            self._task = asyncio.create_task(self._follow())

    def leave(self, page: Audience) -> bool:
        """Forget a page; return whether there is no other, in which case nothing is followed any more."""
        self._audience.discard(page)
        if self._audience:
            return False
        if self._task is not None:
            self._task.cancel()
            self._task = None
        return True

    # What the hub tells.

    def take(self, changes: Sequence[Change], last_id: str, at: float) -> None:
        """Look again after a change of what the part depends on."""
        if any(self.part.depends_on(change) for change in changes):
            self._want(at)

    def reset(self, at: float) -> None:
        """Look again, as anything may have changed."""
        self._want(at)

    def go_stale(self) -> None:
        """Nothing is told for now: pages hear that by themselves."""

    def end(self) -> None:
        """The process ends: pages hear that by themselves."""

    def _want(self, since: float) -> None:
        self._wanted = max(self._wanted, since)
        self._is_wanted.set()

    async def _follow(self) -> None:
        """Look whenever it is wanted, until cancelled."""
        hub = hub_of_loop()
        hub.join(self)
        try:
            await hub.settle()
            self._want(time.monotonic())  # what came before is not told
            while True:
                self._tell(*await self._look(await self._next_moment()))
        finally:
            hub.leave(self)

    async def _next_moment(self) -> float:
        """Return from when on the part is to be known, as soon as it is not, or has not been looked at for long."""
        while self._wanted <= self.known_from:
            self._is_wanted.clear()
            if not await happens(self._is_wanted, self.part.every or None):
                return time.monotonic()
        return self._wanted

    async def _look(self, since: float) -> tuple[Outcome, float]:
        """Return how the part looks, and from when on."""
        if self.part.fragment is None:
            return Lack.LOOK, since
        try:
            rendering = await newest(self.part.fragment, since)
        except (NotThere, Http404):
            return Lack.GONE, since
        except Exception:  # it is in the log; whoever fetches it sees what is wrong
            return Lack.LOOK, since
        return rendering, rendering.began

    def _tell(self, outcome: Outcome, known_from: float) -> None:
        is_new = outcome is Lack.LOOK or _tag(outcome) != _tag(self.outcome)
        self.outcome, self.known_from = outcome, known_from
        for page in tuple(self._audience):
            if is_new or page.awaits(self):
                page.hear(self)


def _tag(outcome: Outcome | None) -> str:
    """Return what is different for what looks different."""
    return outcome.etag if isinstance(outcome, Rendering) else str(outcome)


_CHANNELS: Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Part, Channel]]] = (
    weakref.WeakKeyDictionary()
)


@contextlib.contextmanager
def followed(parts: Iterable[Part], page: Audience, since: float) -> Iterator[list[Channel]]:
    """Have a page told of its parts, as they look from some moment on; a channel for each."""
    channels = _CHANNELS.setdefault(asyncio.get_running_loop(), {})
    joined = [channels.setdefault(part, Channel(part)) for part in dict.fromkeys(parts)]
    for channel in joined:
        channel.join(page, since)
    try:
        yield joined
    finally:
        for channel in joined:
            if channel.leave(page):
                channels.pop(channel.part, None)
