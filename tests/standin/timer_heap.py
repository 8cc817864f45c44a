"""Calls by the time at which they are due."""

import heapq
import time
from collections.abc import Callable
from itertools import count


class TimerHeap:
    """A heap of calls by the time they are due."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def put(self, at: float, work: Callable[[], None]) -> None:
        """Schedule a call."""
        heapq.heappush(self._heap, (at, next(self._order), work))

    def seconds_left(self) -> float | None:
        """Return the seconds until the next call."""
        return max(0.0, self._heap[0][0] - time.monotonic()) if self._heap else None

    def run_due(self) -> None:
        """Make the calls that are due."""
        while self._heap and self._heap[0][0] <= time.monotonic():
            heapq.heappop(self._heap)[2]()
