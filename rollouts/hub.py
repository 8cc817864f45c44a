"""One reader of the change feed for all who watch it in this process.

Between `rollouts.feed`, a stream in Redis, and the open answers of `watching`. However many people watch, Redis is
asked once: the hub reads what is new and hands it to each viewer, who keeps what they want to know until it is sent.

The invariants: what a viewer has not been sent yet is bounded, one entry a thing and so many things, whatever they do
with their connection; whoever may have missed something is told to look at everything again.
"""

import asyncio
import contextlib
import logging
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

from redis import RedisError

from rollouts import feed
from rollouts.connections import async_redis_client
from rollouts.feed import Change, Reading

logger = logging.getLogger(__name__)

# Things that wait for one viewer; beyond, they are told to look at everything again.
MOST_PENDING: Final = 1_000
# What comes in a burst is handed out together: to each viewer at most so often.
_SECONDS_TO_GATHER: Final = 0.05
# Less than the client waits for an answer.
_BLOCK_MS: Final = 2_000
_SECONDS_TO_RETRY: Final = (0.2, 0.5, 1.0, 2.0)


@dataclass(frozen=True, slots=True)
class Batch:
    """What a viewer is to be sent."""

    changes: tuple[Change, ...]
    is_reset: bool  # something may have been missed: look at everything again
    is_stale: bool  # Redis went away: nothing is told until it is back
    last_id: str  # up to where the feed was read
    told_at: float  # by the monotonic clock: whoever looks from then on sees all of it


@dataclass(slots=True, eq=False)
class Viewer:
    """Somebody who watches, and what they have not been sent yet."""

    wants: Callable[[Change], bool]
    last_id: str = ""
    _pending: dict[tuple[str, str, str], Change] = field(default_factory=dict)
    _is_reset: bool = False
    _is_stale: bool = False
    _is_ended: bool = False
    _told_at: float = 0.0
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, changes: Iterable[Change], last_id: str) -> None:
        """Keep what is wanted of what the feed tells up to an id."""
        self.last_id = last_id
        for change in changes:
            if self.wants(change):
                self._told_at = time.monotonic()
                if not self._is_reset:
                    feed.merge_into(self._pending, change)
        if len(self._pending) > MOST_PENDING:
            self.reset()
        elif self._pending:
            self._news.set()

    def reset(self) -> None:
        """Have them look at everything again; what was to be sent is among it."""
        self._pending.clear()
        self._is_reset = True
        self._told_at = time.monotonic()
        self._news.set()

    def go_stale(self) -> None:
        """Tell them that nothing is told for now."""
        self._is_stale = True
        self._news.set()

    def end(self) -> None:
        """Send them away."""
        self._is_ended = True
        self._news.set()

    @property
    def is_ended(self) -> bool:
        """Whether they were sent away."""
        return self._is_ended

    async def wait(self, seconds: float) -> Batch | None:
        """Return what there is to send as soon as there is something; None after so many seconds without."""
        try:
            await asyncio.wait_for(self._news.wait(), seconds)
        except TimeoutError:
            return None
        batch = Batch(tuple(self._pending.values()), self._is_reset, self._is_stale, self.last_id, self._told_at)
        self._pending.clear()
        self._is_reset = self._is_stale = False
        self._news.clear()
        return batch


class Hub:
    """Reads the feed for the viewers of one event loop, as long as there are any."""

    def __init__(self) -> None:
        self._viewers: set[Viewer] = set()
        self._reader: asyncio.Task[None] | None = None
        self._is_away = False
        # Set once it is known from where on everything is handed out, or that Redis is away.
        self._is_settled = asyncio.Event()

    def join(self, viewer: Viewer) -> None:
        """Let a viewer know of what comes from now on."""
        self._viewers.add(viewer)
        if self._is_away:
            viewer.go_stale()
        if self._reader is None or self._reader.done():
            self._reader = asyncio.get_running_loop().create_task(self._read_on())

    def leave(self, viewer: Viewer) -> None:
        """Forget a viewer; without any, nothing is read."""
        self._viewers.discard(viewer)
        if not self._viewers and self._reader is not None:
            self._reader.cancel()
            self._reader = None
            self._is_settled.clear()

    def end_all(self) -> None:
        """Send everybody away: the process ends."""
        for viewer in self._viewers:
            viewer.end()

    async def catch_up(self, viewer: Viewer, after_id: str) -> None:
        """Let a viewer who has joined know what came after an id; without one, only what comes from now on."""
        # Not before the reader knows where it begins: what comes between the two would be lost.
        await self._is_settled.wait()
        client = async_redis_client()
        try:
            if after_id and feed.is_id(after_id):
                await self._replay(client, viewer, after_id)
            else:
                viewer.last_id = viewer.last_id or await feed.latest_id_async(client)
                if after_id:
                    viewer.reset()
        except (RedisError, OSError):
            if not self._is_away:
                viewer.reset()
        finally:
            with contextlib.suppress(RedisError, OSError):
                await client.aclose()

    async def _replay(self, client: Any, viewer: Viewer, after_id: str) -> None:
        while True:
            reading = await feed.read_async(client, after_id)
            if reading.missed:
                viewer.reset()
                viewer.last_id = await feed.latest_id_async(client)
                return
            if not reading.entries:
                viewer.last_id = viewer.last_id or after_id
                return
            after_id = reading.entries[-1][0]
            viewer.take(_merge(reading), after_id)

    async def _read_on(self) -> None:
        """Read until nobody watches; while Redis is away, try again and again."""
        failures = 0
        while True:
            client = async_redis_client()
            try:
                async for _ in self._follow(client):
                    failures = 0
            except (RedisError, OSError):
                self._lose_redis()
                await asyncio.sleep(_SECONDS_TO_RETRY[min(failures, len(_SECONDS_TO_RETRY) - 1)])
                failures += 1
            finally:
                with contextlib.suppress(RedisError, OSError):
                    await client.aclose()

    async def _follow(self, client: Any) -> Any:
        """Hand out what is new, and yield after each look; raises RedisError when Redis goes away."""
        position = await feed.latest_id_async(client)
        self._find_redis()
        while True:
            reading = await feed.read_async(client, position, block_ms=_BLOCK_MS)
            if reading.missed:
                position = await feed.latest_id_async(client)
                self._for_all(Viewer.reset)
            elif reading.entries:
                position = reading.entries[-1][0]
                changes = _merge(reading)
                for viewer in tuple(self._viewers):
                    viewer.take(changes, position)
            yield
            await asyncio.sleep(_SECONDS_TO_GATHER)

    def _lose_redis(self) -> None:
        if not self._is_away:
            logger.warning("Live pages stand still: Redis does not answer")
            self._for_all(Viewer.go_stale)
        self._is_away = True
        self._is_settled.set()

    def _find_redis(self) -> None:
        """What was published meanwhile is lost, as writers do not wait for Redis: everything is looked at again."""
        if self._is_away:
            self._is_away = False
            self._for_all(Viewer.reset)
        self._is_settled.set()

    def _for_all(self, tell: Callable[[Viewer], None]) -> None:
        for viewer in tuple(self._viewers):
            tell(viewer)


def _merge(reading: Reading) -> list[Change]:
    """Return what was read, of each thing once."""
    return feed.merge(change for _, change in reading.entries)


_HUBS: Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Hub]] = weakref.WeakKeyDictionary()


def hub_of_loop() -> Hub:
    """Return the hub of the running event loop, which lives as long as the loop."""
    loop = asyncio.get_running_loop()
    if loop not in _HUBS:
        _HUBS[loop] = Hub()
        _end_with_the_process(loop, _HUBS[loop])
    return _HUBS[loop]


def _end_with_the_process(loop: asyncio.AbstractEventLoop, hub: Hub) -> None:
    """End open answers when the server is asked to: it would wait for them, and they never end by themselves."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        former = signal.getsignal(number)
        if callable(former):
            signal.signal(number, _both(loop, hub, former))


def _both(
    loop: asyncio.AbstractEventLoop, hub: Hub, former: Callable[[int, FrameType | None], Any]
) -> Callable[[int, FrameType | None], Any]:
    def handle(number: int, frame: FrameType | None) -> Any:
        if not loop.is_closed():
            loop.call_soon_threadsafe(hub.end_all)
        return former(number, frame)

    return handle
