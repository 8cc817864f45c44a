"""Tells the rest of the product what changed: wakes the workloads, publishes to the change feed.

Before it: `session`, which has the rows in the database by then. After it: `dispatch` and `change_feed`. A thread of its own,
so that rows go on being written while Redis is slow or away. The invariant: no workload whose row changed stays asleep.
Keys wait until Redis takes them; and since a Redis that was away may have come back without what it held, everything is
woken once when it answers again.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from django.db import DatabaseError, connection

from rollouts import mirror, models
from rollouts.live.change_feed import Change

logger = logging.getLogger(__name__)

Wake = Callable[[Iterable[str]], bool]
Publish = Callable[[Sequence[Change]], None]

_SECONDS_BETWEEN_TRIES: Final = 0.5


class Announcer:
    """The one who tells, for one cluster."""

    def __init__(self, cluster: str, wake: Wake, publish: Publish) -> None:
        self._cluster = cluster
        self._wake = wake
        self._publish = publish
        self._lock = threading.Lock()
        self._keys: set[str] = set()
        self._changes: list[Change] = []
        self._everything = False
        self._due = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{cluster} announcer")

    def start(self) -> None:
        """Begin to tell."""
        self._thread.start()

    def stop(self) -> None:
        """Tell what is left, once, and end."""
        self._stopped.set()
        self._due.set()
        self._thread.join()

    def tell(self, news: Sequence[mirror.News]) -> None:
        """Have news told soon."""
        if not news:
            return
        with self._lock:
            self._keys |= {f"{self._cluster}/{part.namespace}/{part.workload}" for part in news if part.workload}
            self._changes += mirror.changes_of(self._cluster, news)
        self._due.set()

    def tell_of_cluster(self) -> None:
        """Have it told soon that something changed between us and the cluster."""
        with self._lock:
            self._changes.append(Change(self._cluster, "cluster", self._cluster, ("state",)))
        self._due.set()

    def wake_everything(self) -> None:
        """Have every workload of the cluster woken soon."""
        with self._lock:
            self._everything = True
        self._due.set()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._due.wait()
                self._due.clear()
                if not self._announce():
                    self._due.set()
                    self._stopped.wait(_SECONDS_BETWEEN_TRIES)
        finally:
            connection.close()

    def _announce(self) -> bool:
        """Tell everything that waits; False when some of it has to wait longer."""
        with self._lock:
            keys, self._keys = self._keys, set()
            changes, self._changes = self._changes, []
            everything, self._everything = self._everything, False
        try:
            if changes:
                self._publish(changes)
            if everything:
                keys |= _list_keys(self._cluster)
            if not keys or self._wake(keys):
                return True
        except DatabaseError as error:
            logger.warning("The workloads of %s cannot be read (%s); trying again", self._cluster, type(error).__name__)
        except Exception:
            # Whatever it is: without this thread nobody would be woken any more.
            logger.exception("The workloads of %s cannot be woken; trying again", self._cluster)
        finally:
            if everything:
                connection.close()
        with self._lock:
            self._keys |= keys
            self._everything = True
        return False


def _list_keys(cluster: str) -> set[str]:
    workloads = models.Workload.objects.filter(cluster__name=cluster).values_list("namespace", "name")
    return {f"{cluster}/{namespace}/{name}" for namespace, name in workloads}
