"""One reader of the change feed for all listeners of an event loop.

Before it: `change_feed`, a stream in Redis. After it: the listeners, which are the open responses of `api.feed` and
`stream`, and the channels of `subscriptions`. However many they are, the process reads Redis once, and the hub hands
each batch of changes to every listener. A feed subscriber keeps its changes until they are sent.

The invariants: the unsent changes of a subscriber are bounded, to one for each object and MAX_PENDING objects, however
slowly the client reads; a listener that may have missed a change is told of a gap, after which it must fetch everything
again. All listeners get the same timestamp with a batch.
"""

import asyncio
import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final, Protocol

from redis import RedisError

from rollouts.live import change_feed
from rollouts.live.change_feed import Change, ReadResult
from rollouts.runtime.connections import async_redis_client

logger = logging.getLogger(__name__)

# Changes that wait for one subscriber; with more, it gets a reset instead.
MAX_PENDING: Final = 1_000
# Pause between two reads: a burst of changes reaches listeners as one batch.
_BATCH_SECONDS: Final = 0.05
# Less than the socket timeout of the client.
_BLOCK_MS: Final = 2_000
_RETRY_SECONDS: Final = (0.2, 0.5, 1.0, 2.0)


class HubListener(Protocol):
    """Receives the changes of the feed; data that is read after `at` (monotonic clock) includes them."""

    def on_changes(self, changes: Sequence[Change], last_id: str, at: float) -> None:
        """Receive the changes up to an id."""

    def on_gap(self, at: float) -> None:
        """Learn that changes before `at` may have been missed."""

    def on_stale(self) -> None:
        """Learn that Redis is down, so no changes arrive until it is back."""

    def on_shutdown(self) -> None:
        """Learn that the process shuts down."""


@dataclass(frozen=True, slots=True)
class FeedBatch:
    """What is sent to a subscriber at once."""

    changes: tuple[Change, ...]
    is_reset: bool  # changes may have been missed: the client must fetch everything again
    is_stale: bool  # Redis is down: no changes arrive until it is back
    last_id: str  # of the last entry read from the feed


@dataclass(slots=True, eq=False)
class BaseSubscriber:
    """A listener that waits for messages; it handles what concerns every subscriber: staleness and shutdown."""

    _is_stale: bool = field(default=False, init=False)
    _is_closed: bool = field(default=False, init=False)
    _wakeup: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def on_stale(self) -> None:
        """Note that the feed is stale, and wake up."""
        self._is_stale = True
        self._wakeup.set()

    def on_shutdown(self) -> None:
        """Close the subscriber, and wake it up."""
        self._is_closed = True
        self._wakeup.set()

    @property
    def is_closed(self) -> bool:
        """Whether the process shuts down."""
        return self._is_closed


@dataclass(slots=True, eq=False)
class FeedSubscriber(BaseSubscriber):
    """A client of the feed, with the changes that it has not been sent yet."""

    matches: Callable[[Change], bool]
    last_id: str = ""
    _pending: dict[tuple[str, str, str], Change] = field(default_factory=dict)
    _is_reset: bool = False

    def on_changes(self, changes: Sequence[Change], last_id: str, at: float) -> None:
        """Keep the changes that match."""
        self.last_id = last_id
        for change in () if self._is_reset else changes:
            if self.matches(change):
                change_feed.merge_into(self._pending, change)
        if len(self._pending) > MAX_PENDING:
            self.on_gap(at)
        elif self._pending:
            self._wakeup.set()

    def on_gap(self, at: float) -> None:
        """Replace all unsent changes by a reset, which covers them."""
        self._pending.clear()
        self._is_reset = True
        self._wakeup.set()

    async def wait(self, seconds: float) -> FeedBatch | None:
        """Wait for something to send; None if nothing came within `seconds`."""
        if not await wait_for_event(self._wakeup, seconds):
            return None
        batch = FeedBatch(tuple(self._pending.values()), self._is_reset, self._is_stale, self.last_id)
        self._pending.clear()
        self._is_reset = self._is_stale = False
        self._wakeup.clear()
        return batch


async def wait_for_event(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for an event; False if it was not set within `seconds`."""
    # Not asyncio.wait_for: up to Python 3.11 it swallows a cancellation that comes together with the event, and the
    # code that awaits the cancelled task waits for ever.
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def raise_if_cancelled() -> None:
    """Raise CancelledError if this task was cancelled but the awaited call swallowed the cancellation.

    The Redis client uses asyncio.wait_for, which does so up to Python 3.11: a cancelled reader would read for ever.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class Hub:
    """Reads the feed for the listeners of one event loop, while there are any."""

    def __init__(self) -> None:
        self._listeners: set[HubListener] = set()
        self._reader: asyncio.Task[None] | None = None
        self._is_redis_down = False
        # Set as soon as the reader knows its first id, or knows that Redis is down.
        self._is_ready = asyncio.Event()

    def subscribe(self, listener: HubListener) -> None:
        """Send a listener all changes from now on."""
        self._listeners.add(listener)
        if self._is_redis_down:
            listener.on_stale()
        if self._reader is None or self._reader.done():
            self._reader = asyncio.get_running_loop().create_task(self._run())

    def unsubscribe(self, listener: HubListener) -> None:
        """Remove a listener; stop reading after the last one."""
        self._listeners.discard(listener)
        if not self._listeners and self._reader is not None:
            self._reader.cancel()
            self._reader = None
            self._is_ready.clear()

    def shut_down(self) -> None:
        """Tell all listeners that the process shuts down."""
        self._notify_all(lambda listener: listener.on_shutdown())

    async def wait_until_ready(self) -> None:
        """Wait until every later change reaches the listeners, or Redis is known to be down."""
        await self._is_ready.wait()

    async def catch_up(self, subscriber: FeedSubscriber, after_id: str) -> None:
        """Send a subscriber the changes after an id; an empty id means only later ones."""
        # First the reader must know its first id: changes between the two would be lost otherwise.
        await self.wait_until_ready()
        client = async_redis_client()
        try:
            if after_id and change_feed.is_entry_id(after_id):
                await self._replay(client, subscriber, after_id)
            else:
                subscriber.last_id = subscriber.last_id or await change_feed.latest_id(client)
                if after_id:
                    subscriber.on_gap(time.monotonic())
        except (RedisError, OSError):
            if not self._is_redis_down:
                subscriber.on_gap(time.monotonic())
        finally:
            with contextlib.suppress(RedisError, OSError):
                await client.aclose()
        raise_if_cancelled()

    async def _replay(self, client: Any, subscriber: FeedSubscriber, after_id: str) -> None:
        while True:
            result = await change_feed.read(client, after_id)
            if result.has_gap:
                subscriber.on_gap(time.monotonic())
                subscriber.last_id = await change_feed.latest_id(client)
                return
            if not result.entries:
                subscriber.last_id = subscriber.last_id or after_id
                return
            after_id = result.entries[-1][0]
            subscriber.on_changes(_merge(result), after_id, time.monotonic())

    async def _run(self) -> None:
        """Read until cancelled; while Redis is down, retry."""
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
        """Broadcast new changes, and yield after each read; raises RedisError when Redis goes down."""
        last_id = await change_feed.latest_id(client)
        self._on_redis_up()
        while True:
            result = await change_feed.read(client, last_id, block_ms=_BLOCK_MS)
            if result.has_gap:
                last_id = await change_feed.latest_id(client)
                self._reset_all()
            elif result.entries:
                last_id = result.entries[-1][0]
                self._broadcast(_merge(result), last_id)
            yield
            await asyncio.sleep(_BATCH_SECONDS)

    def _on_redis_down(self) -> None:
        if not self._is_redis_down:
            logger.warning("Redis is down; live pages get no updates")
            self._notify_all(lambda listener: listener.on_stale())
        self._is_redis_down = True
        self._is_ready.set()

    def _on_redis_up(self) -> None:
        """Report a gap after an outage: changes meanwhile are lost, because publishers do not wait for Redis."""
        if self._is_redis_down:
            self._is_redis_down = False
            self._reset_all()
        self._is_ready.set()

    def _broadcast(self, changes: Sequence[Change], last_id: str) -> None:
        now = time.monotonic()
        self._notify_all(lambda listener: listener.on_changes(changes, last_id, now))

    def _reset_all(self) -> None:
        now = time.monotonic()
        self._notify_all(lambda listener: listener.on_gap(now))

    def _notify_all(self, notify: Callable[[HubListener], None]) -> None:
        for listener in tuple(self._listeners):
            notify(listener)


def _merge(result: ReadResult) -> list[Change]:
    """Return the changes that were read, one for each object."""
    return change_feed.merge(change for _, change in result.entries)


def shut_down_on_signal(loop: asyncio.AbstractEventLoop, hub: Hub) -> None:
    """Close the open responses when the server gets a signal to stop: it waits for them, and they end only then.

    Does nothing outside the main thread, where Python allows no signal handlers.
    """
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
