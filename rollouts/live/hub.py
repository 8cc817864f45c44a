"""One reader of the change feed for all who watch it in this process.

Between `rollouts.live.change_feed`, a stream in Redis, and whoever listens: the open answers of `sse`, and the parts of
pages that somebody has open. However many they are, Redis is asked once: the hub reads what is new and hands it to
each. A viewer keeps what they want to know until it is sent.

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
from rollouts.live.change_feed import Change, ReadResult
from rollouts.runtime.connections import async_redis_client

logger = logging.getLogger(__name__)

# Things that wait for one viewer; beyond, they are told to look at everything again.
MAX_PENDING: Final = 1_000
# What comes in a burst is handed out together: to each viewer at most so often.
_BATCH_SECONDS: Final = 0.05
# Less than the client waits for an answer.
_BLOCK_MS: Final = 2_000
_RETRY_SECONDS: Final = (0.2, 0.5, 1.0, 2.0)


class HubListener(Protocol):
    """Who is told what the feed says; `at` is when, by the monotonic clock: whoever looks from then on sees it."""

    def on_changes(self, changes: Sequence[Change], last_id: str, at: float) -> None:
        """Hear what is new, up to an id."""

    def on_gap(self, at: float) -> None:
        """Hear that something may have been missed."""

    def on_stale(self) -> None:
        """Hear that nothing is told for now."""

    def on_shutdown(self) -> None:
        """Hear that the process ends."""


@dataclass(frozen=True, slots=True)
class FeedBatch:
    """What a viewer is to be sent."""

    changes: tuple[Change, ...]
    is_reset: bool  # something may have been missed: look at everything again
    is_stale: bool  # Redis went away: nothing is told until it is back
    last_id: str  # up to where the feed was read


@dataclass(slots=True, eq=False)
class BaseSubscriber:
    """Somebody who waits for news, and hears of what concerns everybody."""

    _is_stale: bool = field(default=False, init=False)
    _is_closed: bool = field(default=False, init=False)
    _wakeup: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def on_stale(self) -> None:
        """Tell them that nothing is told for now."""
        self._is_stale = True
        self._wakeup.set()

    def on_shutdown(self) -> None:
        """Send them away."""
        self._is_closed = True
        self._wakeup.set()

    @property
    def is_closed(self) -> bool:
        """Whether they were sent away."""
        return self._is_closed


@dataclass(slots=True, eq=False)
class FeedSubscriber(BaseSubscriber):
    """Somebody who watches, and what they have not been sent yet."""

    matches: Callable[[Change], bool]
    last_id: str = ""
    _pending: dict[tuple[str, str, str], Change] = field(default_factory=dict)
    _is_reset: bool = False

    def on_changes(self, changes: Sequence[Change], last_id: str, at: float) -> None:
        """Keep what is wanted of what the feed tells up to an id."""
        self.last_id = last_id
        for change in () if self._is_reset else changes:
            if self.matches(change):
                change_feed.merge_into(self._pending, change)
        if len(self._pending) > MAX_PENDING:
            self.on_gap(at)
        elif self._pending:
            self._wakeup.set()

    def on_gap(self, at: float) -> None:
        """Have them look at everything again; what was to be sent is among it."""
        self._pending.clear()
        self._is_reset = True
        self._wakeup.set()

    async def wait(self, seconds: float) -> FeedBatch | None:
        """Return what there is to send as soon as there is something; None after so many seconds without."""
        if not await wait_for_event(self._wakeup, seconds):
            return None
        batch = FeedBatch(tuple(self._pending.values()), self._is_reset, self._is_stale, self.last_id)
        self._pending.clear()
        self._is_reset = self._is_stale = False
        self._wakeup.clear()
        return batch


async def wait_for_event(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for an event; False after so many seconds without."""
    # Not wait_for: up to Python 3.11 it forgets that it was cancelled when the event happens at the same moment, and
    # whoever waits for the task to end waits for ever.
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def raise_if_cancelled() -> None:
    """End this task if it was cancelled and what it waited for has hidden that.

    The Redis client sends by wait_for, which does so up to Python 3.11: a reader that nobody wants would read for ever.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class Hub:
    """Reads the feed for those who listen in one event loop, as long as there are any."""

    def __init__(self) -> None:
        self._listeners: set[HubListener] = set()
        self._reader: asyncio.Task[None] | None = None
        self._is_redis_down = False
        # Set once it is known from where on everything is handed out, or that Redis is away.
        self._is_ready = asyncio.Event()

    def subscribe(self, listener: HubListener) -> None:
        """Let somebody know of what comes from now on."""
        self._listeners.add(listener)
        if self._is_redis_down:
            listener.on_stale()
        if self._reader is None or self._reader.done():
            self._reader = asyncio.get_running_loop().create_task(self._run())

    def unsubscribe(self, listener: HubListener) -> None:
        """Forget somebody; without anybody, nothing is read."""
        self._listeners.discard(listener)
        if not self._listeners and self._reader is not None:
            self._reader.cancel()
            self._reader = None
            self._is_ready.clear()

    def shut_down(self) -> None:
        """Send everybody away: the process ends."""
        self._notify_all(lambda listener: listener.on_shutdown())

    async def wait_until_ready(self) -> None:
        """Wait until everything is handed out that comes from now on, or it is known that Redis is away."""
        await self._is_ready.wait()

    async def catch_up(self, viewer: FeedSubscriber, after_id: str) -> None:
        """Let a viewer who has joined know what came after an id; without one, only what comes from now on."""
        # Not before the reader knows where it begins: what comes between the two would be lost.
        await self.wait_until_ready()
        client = async_redis_client()
        try:
            if after_id and change_feed.is_entry_id(after_id):
                await self._replay(client, viewer, after_id)
            else:
                viewer.last_id = viewer.last_id or await change_feed.latest_id_async(client)
                if after_id:
                    viewer.on_gap(time.monotonic())
        except (RedisError, OSError):
            if not self._is_redis_down:
                viewer.on_gap(time.monotonic())
        finally:
            with contextlib.suppress(RedisError, OSError):
                await client.aclose()
        raise_if_cancelled()

    async def _replay(self, client: Any, viewer: FeedSubscriber, after_id: str) -> None:
        while True:
            reading = await change_feed.read_async(client, after_id)
            if reading.has_gap:
                viewer.on_gap(time.monotonic())
                viewer.last_id = await change_feed.latest_id_async(client)
                return
            if not reading.entries:
                viewer.last_id = viewer.last_id or after_id
                return
            after_id = reading.entries[-1][0]
            viewer.on_changes(_merge(reading), after_id, time.monotonic())

    async def _run(self) -> None:
        """Read until nobody watches; while Redis is away, try again and again."""
        failures = 0
        while True:
            raise_if_cancelled()
            client = async_redis_client()
            try:
                async for _ in self._read_changes(client):
                    raise_if_cancelled()
                    failures = 0
            except (RedisError, OSError):
                self._on_redis_down()
                await asyncio.sleep(_RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)])
                failures += 1
            finally:
                with contextlib.suppress(RedisError, OSError):
                    await client.aclose()

    async def _read_changes(self, client: Any) -> Any:
        """Hand out what is new, and yield after each look; raises RedisError when Redis goes away."""
        position = await change_feed.latest_id_async(client)
        self._on_redis_up()
        while True:
            reading = await change_feed.read_async(client, position, block_ms=_BLOCK_MS)
            if reading.has_gap:
                position = await change_feed.latest_id_async(client)
                self._reset_all()
            elif reading.entries:
                position = reading.entries[-1][0]
                self._broadcast(_merge(reading), position)
            yield
            await asyncio.sleep(_BATCH_SECONDS)

    def _on_redis_down(self) -> None:
        if not self._is_redis_down:
            logger.warning("Live pages stand still: Redis does not answer")
            self._notify_all(lambda listener: listener.on_stale())
        self._is_redis_down = True
        self._is_ready.set()

    def _on_redis_up(self) -> None:
        """What was published meanwhile is lost, as writers do not wait for Redis: everything is looked at again."""
        if self._is_redis_down:
            self._is_redis_down = False
            self._reset_all()
        self._is_ready.set()

    def _broadcast(self, changes: Sequence[Change], position: str) -> None:
        now = time.monotonic()
        self._notify_all(lambda listener: listener.on_changes(changes, position, now))

    def _reset_all(self) -> None:
        now = time.monotonic()
        self._notify_all(lambda listener: listener.on_gap(now))

    def _notify_all(self, notify: Callable[[HubListener], None]) -> None:
        for listener in tuple(self._listeners):
            notify(listener)


def _merge(reading: ReadResult) -> list[Change]:
    """Return what was read, of each thing once."""
    return change_feed.merge(change for _, change in reading.entries)


_HUB_OF_LOOP: Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Hub]] = weakref.WeakKeyDictionary()


def get_hub() -> Hub:
    """Return the hub of the running event loop, which lives as long as the loop."""
    loop = asyncio.get_running_loop()
    if loop not in _HUB_OF_LOOP:
        _HUB_OF_LOOP[loop] = Hub()
        _close_on_shutdown_signal(loop, _HUB_OF_LOOP[loop])
    return _HUB_OF_LOOP[loop]


def _close_on_shutdown_signal(loop: asyncio.AbstractEventLoop, hub: Hub) -> None:
    """End open answers when the server is asked to: it would wait for them, and they never end by themselves."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        former = signal.getsignal(number)
        if callable(former):
            signal.signal(number, _chain_handlers(loop, hub, former))


def _chain_handlers(
    loop: asyncio.AbstractEventLoop, hub: Hub, former: Callable[[int, FrameType | None], Any]
) -> Callable[[int, FrameType | None], Any]:
    def handle(number: int, frame: FrameType | None) -> Any:
        if not loop.is_closed():
            loop.call_soon_threadsafe(hub.shut_down)
        return former(number, frame)

    return handle
