"""Listens to the cluster: one watch for each kind of object that the product cares about.

Before it: `cluster.Watch`, which makes one unbroken account of many streams. After it: `heartbeats`, where the rest
of the product sees when the cluster last spoke, what is wrong when it does not, and how many objects there are.

One thread a kind only takes notes; one more publishes them, at most twice a second, so that a burst of a thousand
events costs Redis two writes. A Redis that is away is waited for: nothing is lost but time, since what is published
is the state and not the events.
"""

import logging
import threading
from collections.abc import Sequence
from typing import Final

from redis import Redis, RedisError

from rollouts import heartbeats
from rollouts.cluster import (
    Bookmark,
    Changed,
    Cluster,
    Deleted,
    Key,
    Lost,
    Note,
    Regained,
    Resource,
    Synced,
    Watch,
)
from rollouts.cluster.resources import (
    NODES,
    PODCLIQUES,
    PODCLIQUESCALINGGROUPS,
    PODCLIQUESETS,
    PODGANGS,
    PODS,
)
from rollouts.cluster.watch import key_of

logger = logging.getLogger(__name__)

WATCHED: Final = (PODCLIQUESETS, PODCLIQUESCALINGGROUPS, PODCLIQUES, PODGANGS, PODS, NODES)
_PUBLISH_SECONDS: Final = 0.5


class Notebook:
    """What has been heard so far, of all kinds; shared by the threads."""

    def __init__(self, resources: Sequence[Resource]) -> None:
        self._lock = threading.Lock()
        self._keys: dict[str, set[Key]] = {resource.plural: set() for resource in resources}
        self._troubles: dict[str, str] = {}  # by plural; empty while every kind is heard
        self.changed = threading.Event()

    def take(self, resource: Resource, note: Note) -> None:
        """Write down one note."""
        with self._lock:
            if isinstance(note, Lost):
                self._troubles[resource.plural] = str(note.error)
            else:
                self._troubles.pop(resource.plural, None)
                self._count(self._keys[resource.plural], note)
        self.changed.set()

    def read(self) -> tuple[dict[str, int], str | None]:
        """Return the number of objects by kind, and the first trouble."""
        with self._lock:
            counts = {plural: len(keys) for plural, keys in self._keys.items()}
            return counts, next(iter(self._troubles.values()), None)

    @staticmethod
    def _count(keys: set[Key], note: Changed | Deleted | Synced | Bookmark | Regained) -> None:
        match note:
            case Changed(obj):
                keys.add(key_of(obj))
            case Deleted(obj):
                keys.discard(key_of(obj))
            case Synced(known, _):
                keys.intersection_update(known)
            case Bookmark() | Regained():
                pass


class Watcher:
    """Watches one cluster until it is stopped."""

    def __init__(self, name: str, cluster: Cluster, redis: Redis, resources: Sequence[Resource] = WATCHED) -> None:
        self._name = name
        self._redis = redis
        self._notebook = Notebook(resources)
        self._watches = {resource: Watch(cluster, resource) for resource in resources}
        self._stopped = threading.Event()
        self._troubled = False  # as last logged

    def run(self) -> None:
        """Listen and publish until `stop` is called."""
        threads = [
            threading.Thread(target=self._listen, args=pair, name=str(pair[0])) for pair in self._watches.items()
        ]
        for thread in threads:
            thread.start()
        while not self._stopped.is_set():
            self._notebook.changed.wait()
            self._notebook.changed.clear()
            self._publish()
            self._stopped.wait(_PUBLISH_SECONDS)
        for thread in threads:
            thread.join()

    def stop(self) -> None:
        """End `run`; callable from any thread and from a signal handler."""
        self._stopped.set()
        for watch in self._watches.values():
            watch.stop()
        self._notebook.changed.set()

    def _listen(self, resource: Resource, watch: Watch) -> None:
        for note in watch:
            self._notebook.take(resource, note)

    def _publish(self) -> None:
        counts, trouble = self._notebook.read()
        self._say(trouble)
        try:
            if trouble:
                heartbeats.record_cluster_trouble(self._redis, self._name, trouble)
            else:
                heartbeats.record_cluster_word(self._redis, self._name, counts)
        except RedisError as error:
            logger.warning("Redis does not answer (%s); trying again", type(error).__name__)
            self._notebook.changed.set()

    def _say(self, trouble: str | None) -> None:
        """Log when the cluster is lost and when it is heard again: one line for all kinds and tries together."""
        if trouble and not self._troubled:
            logger.warning("Cluster %s is not heard: %s", self._name, trouble)
        elif self._troubled and not trouble:
            logger.info("Cluster %s is heard again", self._name)
        self._troubled = trouble is not None
