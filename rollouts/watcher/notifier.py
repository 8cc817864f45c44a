"""Tells the rest of the product what changed: wakes the workloads, publishes to the change feed.

Before it: `session`, which has the rows in the database by then. After it: `dispatch` and `change_feed`. A thread of
its own, so that rows go on being written while Redis is slow or away. The invariant: no workload whose row changed
stays asleep. Keys wait until Redis takes them; and since a Redis that was away may have come back without what it held,
everything is woken once when it answers again.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from django.db import DatabaseError, connection

from rollouts import mirror, models
from rollouts.live.change_feed import Change
from rollouts.manifests.workload_ref import workload_key

logger = logging.getLogger(__name__)

Enqueue = Callable[[Iterable[str]], bool]
Publish = Callable[[Sequence[Change]], None]

_SECONDS_BETWEEN_TRIES: Final = 0.5


class Notifier:
    """The one who tells, for one cluster."""

    def __init__(self, cluster: str, enqueue: Enqueue, publish: Publish) -> None:
        self._cluster = cluster
        self._enqueue = enqueue
        self._publish = publish
        self._lock = threading.Lock()
        self._keys: set[str] = set()
        self._changes: list[Change] = []
        self._is_enqueue_all_due = False
        self._has_work = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{cluster} announcer")

    def start(self) -> None:
        """Begin to tell."""
        self._thread.start()

    def stop(self) -> None:
        """Tell what is left, once, and end."""
        self._stopped.set()
        self._has_work.set()
        self._thread.join()

    def notify(self, row_changes: Sequence[mirror.RowChange]) -> None:
        """Have news told soon."""
        if not row_changes:
            return
        with self._lock:
            self._keys |= {
                workload_key(self._cluster, row_change.namespace, row_change.workload)
                for row_change in row_changes
                if row_change.workload
            }
            self._changes += mirror.compute_changes(self._cluster, row_changes)
        self._has_work.set()

    def notify_cluster(self) -> None:
        """Have it told soon that something changed between us and the cluster."""
        with self._lock:
            self._changes.append(Change(self._cluster, "cluster", self._cluster, ("state",)))
        self._has_work.set()

    def enqueue_all(self) -> None:
        """Have every workload of the cluster woken soon."""
        with self._lock:
            self._is_enqueue_all_due = True
        self._has_work.set()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._has_work.wait()
                self._has_work.clear()
                if not self._deliver():
                    self._has_work.set()
                    self._stopped.wait(_SECONDS_BETWEEN_TRIES)
        finally:
            connection.close()

    def _deliver(self) -> bool:
        """Tell everything that waits; False when some of it has to wait longer."""
        with self._lock:
            keys, self._keys = self._keys, set()
            changes, self._changes = self._changes, []
            everything, self._is_enqueue_all_due = self._is_enqueue_all_due, False
        try:
            if changes:
                self._publish(changes)
            if everything:
                keys |= _list_keys(self._cluster)
            if not keys or self._enqueue(keys):
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
            self._is_enqueue_all_due = True
        return False


def _list_keys(cluster: str) -> set[str]:
    workloads = models.Workload.objects.filter(cluster__name=cluster).values_list("namespace", "name")
    return {workload_key(cluster, namespace, name) for namespace, name in workloads}
