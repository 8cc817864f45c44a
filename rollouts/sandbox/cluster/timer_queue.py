"""Which key is due when: a heap with one moment for each key.

Controllers note here what has to be looked at and take the due keys in slices, soonest first and in the order
they were noted. The clock is the caller's, so tests move time by hand.
"""

import heapq
from collections.abc import Hashable, Iterator
from datetime import datetime
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class TimerQueue(Generic[K]):
    """Keys with the moment each is due. Noting costs O(log n); a replaced entry is skipped when its turn
    comes.
    """

    def __init__(self) -> None:
        self._due_times: dict[K, datetime] = {}
        self._heap: list[tuple[datetime, int, K]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._due_times)

    def schedule(self, key: K, moment: datetime) -> None:
        """Note when the key is due, whatever was noted before."""
        self._due_times[key] = moment
        heapq.heappush(self._heap, (moment, next(self._order), key))

    def schedule_no_later(self, key: K, moment: datetime) -> None:
        """Note the key unless it is due as soon or sooner already."""
        known = self._due_times.get(key)
        if known is None or moment < known:
            self.schedule(key, moment)

    def cancel(self, key: K) -> None:
        """Forget the key."""
        self._due_times.pop(key, None)

    def next_due(self) -> datetime | None:
        """Say when the first key is due."""
        while self._heap and self._due_times.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: datetime, limit: int) -> Iterator[K]:
        """Give up to `limit` due keys and forget each as it is given."""
        for _ in range(limit):
            due = self.next_due()
            if due is None or due > now:
                return
            _, _, key = heapq.heappop(self._heap)
            del self._due_times[key]
            yield key
