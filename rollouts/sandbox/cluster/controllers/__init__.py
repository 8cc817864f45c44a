"""What lives in the simulated cluster: each controller keeps one promise.

All have one shape (`Controller`): `observe` gets every stored change, queues the keys that the change concerns, and
writes nothing; `work` handles a bounded number of queued keys and writes through `ControllerClient`; `next_due` returns
when the next key is due. Pure functions decide what to do (`engine.scheduling.placement`, `pod_lifecycle`,
`disruption_budget`, …); a controller gathers their input and carries out what they return. A controller keeps nothing
that it cannot read from the stored objects again: at start `observe` gets every stored object as if it had just been
added.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from datetime import datetime
from typing import Final, Generic, Protocol, TypeVar

from rollouts.sandbox.apiserver.storage import StorageChange
from rollouts.sandbox.cluster.timer_queue import TimerQueue

K = TypeVar("K", bound=Hashable)

ITEMS_PER_TURN: Final = 8
"""Keys a controller handles before requests get their turn again: a few milliseconds of work."""


class Controller(Protocol):
    """A part of the simulated cluster."""

    def observe(self, change: StorageChange) -> None:
        """Queue what a stored change makes necessary."""

    def work(self, now: datetime) -> None:
        """Do a slice of what is due."""

    def next_due(self) -> datetime | None:
        """Return when there is work next; a moment that has passed means now."""


class QueueController(ABC, Generic[K]):
    """A controller whose work is to sync keys when they are due, a few a turn."""

    items_per_turn = ITEMS_PER_TURN

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._queue: TimerQueue[K] = TimerQueue()

    @abstractmethod
    def observe(self, change: StorageChange) -> None:
        """Queue what a stored change makes necessary."""

    @abstractmethod
    def _sync(self, key: K, now: datetime) -> None:
        """Bring what the key names to where it should be."""

    def work(self, now: datetime) -> None:
        """Sync the keys that are due."""
        for key in self._queue.pop_due(now, self.items_per_turn):
            self._sync(key, now)

    def next_due(self) -> datetime | None:
        """Return when the next key is due."""
        return self._queue.next_due()
