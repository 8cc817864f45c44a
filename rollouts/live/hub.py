"""One reader of the change feed for all who watch it in this process.

Between `rollouts.live.change_feed`, a stream in Redis, and whoever listens: the open answers of `sse`, and the parts of pages
that somebody has open. However many they are, Redis is asked once: the hub reads what is new and hands it to each. A
viewer keeps what they want to know until it is sent.

The invariants: what a viewer has not been sent yet is bounded, one entry a thing and so many things, whatever they do
with their connection; whoever may have missed something is told to look at everything again. What is handed out
together has one moment, whoever hears it.
"""

import asyncio
import contextlib
import logging
import signal
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final, Protocol

from redis import RedisError

from rollouts.live import change_feed
from rollouts.live.change_feed import Change, Reading
from rollouts.runtime.connections import async_redis_client

logger = logging.getLogger(__name__)

# Things that wait for one viewer; beyond, they are told to look at everything again.
MOST_PENDING: Final = 1_000
# What comes in a burst is handed out together: to each viewer at most so often.
_SECONDS_TO_GATHER: Final = 0.05
# Less than the client waits for an answer.
_BLOCK_MS: Final = 2_000
_SECONDS_TO_RETRY: Final = (0.2, 0.5, 1.0, 2.0)


class Listener(Protocol):
    """Who is told what the feed says; `at` is when, by the monotonic clock: whoever looks from then on sees it."""

    def take(self, changes: Sequence[Change], last_id: str, at: float) -> None:
        """Hear what is new, up to an id."""

    def reset(self, at: float) -> None:
        """Hear that something may have been missed."""

    def go_stale(self) -> None:
        """Hear that nothing is told for now."""

    def end(self) -> None:
        """Hear that the process ends."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What a viewer is to be sent."""

    changes: tuple[Change, ...]
    is_reset: bool  # something may have been missed: look at everything again
    is_stale: bool  # Redis went away: nothing is told until it is back
    last_id: str  # up to where the feed was read


@dataclass(slots=True, eq=False)
class Waiter:
    """Somebody who waits for news, and hears of what concerns everybody."""

    _is_stale: bool = field(default=False, init=False)
    _is_ended: bool = field(default=False, init=False)
    _news: asyncio.Event = field(default_factory=asyncio.Event, init=False)

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


@dataclass(slots=True, eq=False)
class Viewer(Waiter):
    """Somebody who watches, and what they have not been sent yet."""

    wants: Callable[[Change], bool]
    last_id: str = ""
    _pending: dict[tuple[str, str, str], Change] = field(default_factory=dict)
    _is_reset: bool = False

    def take(self, changes: Sequence[Change], last_id: str, at: float) -> None:
        """Keep what is wanted of what the feed tells up to an id."""
        self.last_id = last_id
        for change in () if self._is_reset else changes:
            if self.wants(change):
                change_feed.merge_into(self._pending, change)
        if len(self._pending) > MOST_PENDING:
            self.reset(at)
        elif self._pending:
            self._news.set()

    def reset(self, at: float) -> None:
        """Have them look at everything again; what was to be sent is among it."""
        self._pending.clear()
        self._is_reset = True
        self._news.set()

    async def wait(self, seconds: float) -> Batch | None:
        """Return what there is to send as soon as there is something; None after so many seconds without."""
        if not await happens(self._news, seconds):
            return None
        batch = Batch(tuple(self._pending.values()), self._is_reset, self._is_stale, self.last_id)
        self._pending.clear()
        self._is_reset = self._is_stale = False
        self._news.clear()
        return batch


async def happens(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for an event; False after so many seconds without."""
    # Not wait_for: up to Python 3.11 it forgets that it was cancelled when the event happens at the same moment, and
    # whoever waits for the task to end waits for ever.
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def heed_cancellation() -> None:
    """End this task if it was cancelled and what it waited for has hidden that.

    The Redis client sends by wait_for, which does so up to Python 3.11: a reader that nobody wants would read for ever.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class Hub:
    """Reads the feed for those who listen in one event loop, as long as there are any."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._reader: asyncio.Task[None] | None = None
        self._is_away = False
        # Set once it is known from where on everything is handed out, or that Redis is away.
        self._is_settled = asyncio.Event()

    def join(self, listener: Listener) -> None:
        """Let somebody know of what comes from now on."""
        self._listeners.add(listener)
        if self._is_away:
            listener.go_stale()
        if self._reader is None or self._reader.done():
            self._reader = asyncio.get_running_loop().create_task(self._read_on())

    def leave(self, listener: Listener) -> None:
        """Forget somebody; without anybody, nothing is read."""
        self._listeners.discard(listener)
        if not self._listeners and self._reader is not None:
            self._reader.cancel()
            self._reader = None
            self._is_settled.clear()

    def end_all(self) -> None:
        """Send everybody away: the process ends."""
        self._for_all(lambda listener: listener.end())

    async def settle(self) -> None:
        """Wait until everything is handed out that comes from now on, or it is known that Redis is away."""
        await self._is_settled.wait()

    async def catch_up(self, viewer: Viewer, after_id: str) -> None:
        """Let a viewer who has joined know what came after an id; without one, only what comes from now on."""
        # Not before the reader knows where it begins: what comes between the two would be lost.
        await self.settle()
        client = async_redis_client()
        try:
            if after_id and change_feed.is_id(after_id):
                await self._replay(client, viewer, after_id)
            else:
                viewer.last_id = viewer.last_id or await change_feed.latest_id_async(client)
                if after_id:
                    viewer.reset(time.monotonic())
        except (RedisError, OSError):
            if not self._is_away:
                viewer.reset(time.monotonic())
        finally:
            with contextlib.suppress(RedisError, OSError):
                await client.aclose()
        heed_cancellation()

    async def _replay(self, client: Any, viewer: Viewer, after_id: str) -> None:
        while True:
            reading = await change_feed.read_async(client, after_id)
            if reading.missed:
                viewer.reset(time.monotonic())
                viewer.last_id = await change_feed.latest_id_async(client)
                return
            if not reading.entries:
                viewer.last_id = viewer.last_id or after_id
                return
            after_id = reading.entries[-1][0]
            viewer.take(_merge(reading), after_id, time.monotonic())

    async def _read_on(self) -> None:
        """Read until nobody watches; while Redis is away, try again and again."""
        failures = 0
        while True:
            heed_cancellation()
            client = async_redis_client()
            try:
                async for _ in self._follow(client):
                    heed_cancellation()
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
        position = await change_feed.latest_id_async(client)
        self._find_redis()
        while True:
            reading = await change_feed.read_async(client, position, block_ms=_BLOCK_MS)
            if reading.missed:
                position = await change_feed.latest_id_async(client)
                self._reset_all()
            elif reading.entries:
                position = reading.entries[-1][0]
                self._hand_out(_merge(reading), position)
            yield
            await asyncio.sleep(_SECONDS_TO_GATHER)

    def _lose_redis(self) -> None:
        if not self._is_away:
            logger.warning("Live pages stand still: Redis does not answer")
            self._for_all(lambda listener: listener.go_stale())
        self._is_away = True
        self._is_settled.set()

    def _find_redis(self) -> None:
        """What was published meanwhile is lost, as writers do not wait for Redis: everything is looked at again."""
        if self._is_away:
            self._is_away = False
            self._reset_all()
        self._is_settled.set()

    def _hand_out(self, changes: Sequence[Change], position: str) -> None:
        now = time.monotonic()
        self._for_all(lambda listener: listener.take(changes, position, now))

    def _reset_all(self) -> None:
        now = time.monotonic()
        self._for_all(lambda listener: listener.reset(now))

    def _for_all(self, tell: Callable[[Listener], None]) -> None:
        for listener in tuple(self._listeners):
            tell(listener)


def _merge(reading: Reading) -> list[Change]:
    """Return what was read, of each thing once."""
    return change_feed.merge(change for _, change in reading.entries)


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
