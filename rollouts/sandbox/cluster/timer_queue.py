"""Which key is due when: a heap with one time for each key.

Controllers schedule keys and pop the due ones in slices, soonest first and in the order in which they were scheduled.
The caller passes the time, so tests can set it.
"""

import heapq
from collections.abc import Hashable, Iterator
from datetime import datetime
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class TimerQueue(Generic[K]):
    """Keys with the time each is due. Scheduling costs O(log n); a replaced entry is skipped when it is popped."""

    def __init__(self) -> None:
        self._due_times: dict[K, datetime] = {}
        self._heap: list[tuple[datetime, int, K]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._due_times)

    def schedule(self, key: K, moment: datetime) -> None:
        """Schedule the key for this time, replacing an earlier schedule."""
        self._due_times[key] = moment
        heapq.heappush(self._heap, (moment, next(self._order), key))

    def schedule_no_later(self, key: K, moment: datetime) -> None:
        """Schedule the key unless it is already due at this time or earlier."""
        known = self._due_times.get(key)
        if known is None or moment < known:
            self.schedule(key, moment)

    def cancel(self, key: K) -> None:
        """Remove the key."""
        self._due_times.pop(key, None)

    def next_due(self) -> datetime | None:
        """Return when the first key is due."""
        while self._heap and self._due_times.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: datetime, limit: int) -> Iterator[K]:
        """Yield up to `limit` due keys, removing each."""
        for _ in range(limit):
            due = self.next_due()
            if due is None or due > now:
                return
            _, _, key = heapq.heappop(self._heap)
            del self._due_times[key]
            yield key
