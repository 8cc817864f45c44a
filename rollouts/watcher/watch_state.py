"""What has been heard of a cluster so far, of all kinds together; shared by the threads of a watcher.

The threads that listen note signs of life and failures, the thread that writes rows notes what has arrived in the
database, and the watcher itself reads all of it about once a second to tell the rest of the product.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rollouts.cluster import Changed, ClusterError, ConnectionLost, Deleted, ObjectKey, Resource, Synced, WatchEvent
from rollouts.cluster.watch import key_of


@dataclass(frozen=True, slots=True)
class WatchSnapshot:
    """What the notebook says at one moment."""

    counts: Mapping[Resource, int]  # objects by kind, as far as they are in the database
    failures: Mapping[Resource, ClusterError]  # kinds that cannot be heard just now
    event_count: int  # how often anything was heard


class WatchState:
    """Notes of one listening to a cluster."""

    def __init__(self, resources: Sequence[Resource]) -> None:
        self._lock = threading.Lock()
        self._keys: dict[Resource, set[ObjectKey]] = {resource: set() for resource in resources}
        self._synced: set[Resource] = set()
        self._failures: dict[Resource, ClusterError] = {}
        self._event_count = 0

    def record_event(self, resource: Resource, event: WatchEvent) -> None:
        """Note that something was heard, or that nothing can be."""
        with self._lock:
            if isinstance(event, ConnectionLost):
                self._failures[resource] = event.error
            else:
                self._failures.pop(resource, None)
                self._event_count += 1

    def record_failure(self, resource: Resource, error: ClusterError | None) -> None:
        """Note a failure outside of the watches; None: it is over."""
        with self._lock:
            self._failures.pop(resource, None)
            if error is not None:
                self._failures[resource] = error

    def record_stored(self, resource: Resource, event: WatchEvent) -> None:
        """Note that the news has arrived in the database."""
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
        """Whether every kind was listed to its end."""
        with self._lock:
            return len(self._synced) == len(self._keys)

    def snapshot(self) -> WatchSnapshot:
        """Return what is noted."""
        with self._lock:
            return WatchSnapshot(
                counts={resource: len(keys) for resource, keys in self._keys.items()},
                failures=dict(self._failures),
                event_count=self._event_count,
            )
