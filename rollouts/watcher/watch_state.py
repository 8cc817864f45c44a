"""The state of a watch session, all kinds together; shared by the threads of a watcher.

The threads that watch record events and failures, the thread that writes rows records what is stored in the database,
and the watcher reads the state in every turn of its loop.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rollouts.cluster import Changed, ClusterError, ConnectionLost, Deleted, ObjectKey, Resource, Synced, WatchEvent
from rollouts.cluster.watch import key_of


@dataclass(frozen=True, slots=True)
class WatchSnapshot:
    """The state at one moment."""

    counts: Mapping[Resource, int]  # objects in the database by kind
    failures: Mapping[Resource, ClusterError]  # of kinds whose watch fails now
    event_count: int  # events so far


class WatchState:
    """The state of one watch session."""

    def __init__(self, resources: Sequence[Resource]) -> None:
        self._lock = threading.Lock()
        self._keys: dict[Resource, set[ObjectKey]] = {resource: set() for resource in resources}
        self._synced: set[Resource] = set()
        self._failures: dict[Resource, ClusterError] = {}
        self._event_count = 0

    def record_event(self, resource: Resource, event: WatchEvent) -> None:
        """Record an event of a watch, or that its connection is lost."""
        with self._lock:
            if isinstance(event, ConnectionLost):
                self._failures[resource] = event.error
            else:
                self._failures.pop(resource, None)
                self._event_count += 1

    def record_failure(self, resource: Resource, error: ClusterError | None) -> None:
        """Record a failure outside of the watches; None ends it."""
        with self._lock:
            self._failures.pop(resource, None)
            if error is not None:
                self._failures[resource] = error

    def record_stored(self, resource: Resource, event: WatchEvent) -> None:
        """Record that an event is stored in the database."""
        with self._lock:
            match event:
                case Changed(obj):
                    self._keys[resource].add(key_of(obj))
                case Deleted(obj):
                    self._keys[resource].discard(key_of(obj))
                case Synced(keys, _):
                    self._keys[resource].intersection_update(keys)
                    self._synced.add(resource)
                case _:
                    pass

    @property
    def is_complete(self) -> bool:
        """Whether the lists of all kinds are complete."""
        with self._lock:
            return len(self._synced) == len(self._keys)

    def snapshot(self) -> WatchSnapshot:
        """Return a copy of the state."""
        with self._lock:
            return WatchSnapshot(
                counts={resource: len(keys) for resource, keys in self._keys.items()},
                failures=dict(self._failures),
                event_count=self._event_count,
            )
