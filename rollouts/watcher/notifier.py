"""Notifies the rest of the product of changed rows: enqueues the workloads, publishes to the change feed.

Before it: `session`, which has written the rows. After it: `dispatch` and `change_feed`. It runs in its own thread, so
that rows are written while Redis is slow or down. The invariant: every workload whose row has changed is enqueued. Keys
wait until Redis accepts them; and since a Redis that was down may have lost its data, all workloads are enqueued once
when it answers again.
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
    """Notifies of changes in one cluster."""

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
        self._thread = threading.Thread(target=self._run, name=f"{cluster} notifier")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Try once to deliver what is left, and end the thread."""
        self._stopped.set()
        self._has_work.set()
        self._thread.join()

    def notify(self, row_changes: Sequence[mirror.RowChange]) -> None:
        """Have changed rows delivered soon."""
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
        """Have it published soon that the state of the cluster has changed."""
        with self._lock:
            self._changes.append(Change(self._cluster, "cluster", self._cluster, ("state",)))
        self._has_work.set()

    def enqueue_all(self) -> None:
        """Have every workload of the cluster enqueued soon."""
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
        """Deliver everything that waits; return False if a part of it must be tried again."""
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
            logger.warning(
                "Workloads of cluster %s are not read (%s); trying again", self._cluster, type(error).__name__
            )
        except Exception:
            # Any error: without this thread no workload would be enqueued any more.
            logger.exception("Workloads of cluster %s are not enqueued; trying again", self._cluster)
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
