"""One watch session of a cluster: it lists and watches all kinds, until it is stopped or a new session must list again.

Before it: `cluster.Watch`, one thread for each kind. After it: `mirror`, written by one thread, and the `notifier`. All
events come together in one queue, and all that wait there are written in one transaction. So the first event after a
pause is written at once, and a burst costs a few statements.

The invariants: rows are in the database before anything is notified; an event leaves the queue only to be written, so
a database that is down for a while delays events and loses none. A new session must list again if the database has
lost what this one wrote (`is_obsolete`), if the cluster was restored to an earlier state, or if it is another cluster.
"""

import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, NoReturn, ParamSpec, TypeVar

from django.db import DatabaseError, DataError, IntegrityError, InterfaceError, OperationalError, connection
from django.db.models import Max

from rollouts import mirror, models
from rollouts.cluster import (
    Changed,
    ClusterClient,
    ClusterError,
    ConnectionRestored,
    Deleted,
    Forbidden,
    NotFound,
    Obj,
    Resource,
    RetryPolicy,
    Synced,
    Watch,
    WatchEvent,
)
from rollouts.cluster.resources import NAMESPACES, PODS, SERVICES
from rollouts.cluster.retry_policy import compute_backoff
from rollouts.engine.model import names
from rollouts.mirror.other_operator import OperatorCheck
from rollouts.watcher.notifier import Notifier
from rollouts.watcher.watch_state import WatchState

logger = logging.getLogger(__name__)

MANAGED_BY_GROVE_UI: Final = f"{names.MANAGED_BY}={names.OPERATOR}"
# Of kinds that others use too, only objects with our labels are watched.
_SELECTORS: Final[Mapping[Resource, str]] = {PODS: MANAGED_BY_GROVE_UI, SERVICES: MANAGED_BY_GROVE_UI}

_MAX_BATCH_SIZE: Final = 500
# Beyond that the threads that watch wait for the thread that writes; the API server keeps the rest.
_MAX_QUEUE_LENGTH: Final = 2000
_IDLE_SECONDS: Final = 1.0
_OPERATOR_CHECK_SECONDS: Final = 10.0  # between two checks for another operator
_FOREIGN_PODS_SECONDS: Final = 60.0  # between two counts of pods that are not Grove's
_IDENTITY_CHECK_SECONDS: Final = 60.0  # between two checks that it is still the same cluster
_DATABASE_RETRY_POLICY: Final = RetryPolicy(initial_backoff=0.1, max_backoff=2.0)

T = TypeVar("T")
P = ParamSpec("P")


class _QueuedEvent(NamedTuple):
    """An event on its way to the database."""

    resource: Resource
    event: WatchEvent
    received_at: float  # monotonic


class _StoppedError(Exception):
    """The session has been told to end."""


class WatchSession:
    """Watches and writes in its own threads until `stop`."""

    def __init__(
        self, row: models.Cluster, cluster: ClusterClient, notifier: Notifier, on_batch: Callable[[float], None]
    ):
        self.row = row
        self.watch_state = WatchState(tuple(mirror.MIRRORED))
        self._cluster = cluster
        self._notifier = notifier
        self._on_batch = on_batch  # is called with the seconds from the event until it is written and notified
        self._queue: queue.Queue[_QueuedEvent | None] = queue.Queue(_MAX_QUEUE_LENGTH)
        self._watches = {
            resource: Watch(cluster, resource, labels=_SELECTORS.get(resource, "")) for resource in mirror.MIRRORED
        }
        # A list must not be older than what was known before it was requested; if it is, the cluster was restored.
        self._highest_versions: dict[Resource, int] = {}
        self._identity = row.identity
        self._identified_at = 0.0  # monotonic
        self._rejected: set[int] = set()  # objects of the batch, by id(), that the database rejected
        self._stopped = threading.Event()
        self._obsolete = threading.Event()
        self._completed = threading.Event()
        self._watch_threads = [
            threading.Thread(target=self._run_watch, args=pair, name=f"{row.name} {pair[0]}")
            for pair in self._watches.items()
        ]
        self._writer_thread = threading.Thread(target=self._run, name=f"{row.name} writer")
        self._operator_check = OperatorCheck(cluster, self.row.pk)
        self._other_operator: str | None = None  # as stored on the row; None: not known
        self._operator_thread = threading.Thread(target=self._run_operator_checks, name=f"{row.name} operators")

    @property
    def is_obsolete(self) -> bool:
        """Whether it has ended, and a new session must list again."""
        return self._obsolete.is_set()

    @property
    def is_complete(self) -> bool:
        """Whether every kind is listed, and the cluster's row says so."""
        return self._completed.is_set()

    def start(self) -> None:
        """Start the threads."""
        self._writer_thread.start()

    def stop(self) -> None:
        """End all threads, and wait for them."""
        self._stopped.set()
        for watch in self._watches.values():
            watch.stop()
        with suppress(queue.Full):
            self._queue.put_nowait(None)
        self._writer_thread.join()
        for thread in (*self._watch_threads, self._operator_thread):
            if thread.ident is not None:
                thread.join()
        self._cluster.close()

    # The thread that writes

    def _run(self) -> None:
        try:
            self._verify_identity()
            self._operator_thread.start()
            for listener in self._watch_threads:
                listener.start()
            while True:
                self._write_batch(self._next_batch())
        except _StoppedError:
            return
        except DatabaseError as error:
            # A row that ours refer to is gone, or a whole table: the database was created again.
            logger.warning("The mirror of cluster %s is lost (%s); listing again", self.row.name, type(error).__name__)
            self._obsolete.set()
        except Exception:
            logger.exception("The watch session of cluster %s failed; listing again", self.row.name)
            self._obsolete.set()
        finally:
            connection.close()

    def _verify_identity(self) -> None:
        """Fetch the identity of the cluster before its objects are mixed with those of the mirror."""
        identity, version = self._identify()
        if self._is_different_cluster(identity):
            self._retry_database(mirror.delete_objects, self.row)
        self._identity = identity or self._identity
        columns = {"identity": self._identity, "version": version, "url": self._cluster.url}
        self._retry_database(models.Cluster.objects.filter(pk=self.row.pk).update, **columns)
        self._highest_versions = {
            resource: self._retry_database(_fetch_highest_version, self.row, resource) for resource in mirror.MIRRORED
        }

    def _verify_identity_again(self, batch: Sequence[_QueuedEvent]) -> None:
        """Check the identity again after a gap and now and then: another cluster may have the address by now."""
        is_gap = any(isinstance(queued.event, Synced | ConnectionRestored) for queued in batch)
        if not self.is_complete or not (is_gap or time.monotonic() - self._identified_at > _IDENTITY_CHECK_SECONDS):
            return
        if self._is_different_cluster(self._identify()[0]):
            self._drop_mirror()

    def _is_different_cluster(self, identity: str) -> bool:
        """Return whether this is another cluster than the mirrored one."""
        if not identity or self._identity in ("", identity):
            return False
        logger.warning("Cluster %s is not the same cluster as before; deleting its mirror", self.row.name)
        return True

    def _drop_mirror(self) -> NoReturn:
        """Delete the mirror, and end this session so that a new one lists again."""
        self._retry_database(mirror.delete_objects, self.row)
        self._obsolete.set()
        raise _StoppedError

    def _identify(self) -> tuple[str, str]:
        """Return the cluster's identity, empty if we may not read it, and its version; wait until it answers."""
        for attempt in itertools.count():
            try:
                version = str(self._cluster.version(retry=False).get("gitVersion") or "")
                identity = _fetch_identity(self._cluster)
                self.watch_state.record_failure(NAMESPACES, None)
                self._identified_at = time.monotonic()
                return identity, version  # noqa: TRY300 (every line may fail)
            except ClusterError as error:
                self.watch_state.record_failure(NAMESPACES, error)
                self._pause(compute_backoff(self._cluster.retry_policy, attempt, error.retry_after))
        raise AssertionError("unreachable")

    def _next_batch(self) -> list[_QueuedEvent]:
        """Wait for an event, and return it with all others that are in the queue."""
        batch: list[_QueuedEvent] = []
        queued = self._wait_for_event()
        with suppress(queue.Empty):
            while queued is not None:
                batch.append(queued)
                if len(batch) == _MAX_BATCH_SIZE:
                    break
                queued = self._queue.get_nowait()
        if self._stopped.is_set():
            raise _StoppedError
        return batch

    def _wait_for_event(self) -> _QueuedEvent | None:
        """Wait for an event; close the database connection if none comes for a while."""
        try:
            return self._queue.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            connection.close()
            return self._queue.get()

    def _write_batch(self, batch: Sequence[_QueuedEvent]) -> None:
        self._verify_identity_again(batch)
        self._rejected.clear()
        changes: list[mirror.ObjectChanges] = []
        row_changes: list[mirror.RowChange] = []
        for resource, event, _ in batch:
            match event:
                case Changed(obj):
                    changes.append(mirror.ObjectChanges(resource, [obj]))
                case Deleted(obj):
                    changes.append(mirror.ObjectChanges(resource, gone=[obj]))
                case Synced():
                    # The listed objects must be stored before what the list does not contain is marked as gone.
                    row_changes += self._store(changes)
                    changes = []
                    row_changes += self._complete_list(resource, event)
        row_changes += self._store(changes)
        was_complete = self.watch_state.is_complete
        for resource, event, _ in batch:
            if not (isinstance(event, Changed) and id(event.obj) in self._rejected):
                self.watch_state.record_stored(resource, event)
        self._notifier.notify(row_changes)
        if not was_complete and self.watch_state.is_complete:
            self._mark_complete()
        if batch:
            self._on_batch(time.monotonic() - batch[0].received_at)

    def _store(self, changes: Sequence[mirror.ObjectChanges]) -> list[mirror.RowChange]:
        try:
            return self._retry_database(mirror.store_all, self.row, changes)
        except Exception as error:
            if not _is_object_error(error):
                raise
            return [row_change for single in changes for row_change in self._store_single(single)]

    def _store_single(self, change: mirror.ObjectChanges) -> list[mirror.RowChange]:
        """Store one object: if it cannot be parsed or the database rejects it, the others must still be stored."""
        try:
            return self._retry_database(mirror.store_all, self.row, [change])
        except Exception as error:
            if not _is_object_error(error):
                raise
            (obj,) = (*change.objects, *change.gone)
            self._rejected.add(id(obj))
            # Without the message of the database: it may quote what was to be stored.
            exc_info = None if isinstance(error, DataError) else error
            logger.error(  # noqa: TRY400
                "%s %s is not stored (%s)",
                change.resource,
                obj["metadata"]["name"],
                type(error).__name__,
                exc_info=exc_info,
            )
            return []

    def _complete_list(self, resource: Resource, event: Synced) -> list[mirror.RowChange]:
        """Mark as gone what a complete list does not contain."""
        if int(event.resource_version) < self._highest_versions[resource]:
            logger.warning("Cluster %s was restored to an earlier state; deleting its mirror", self.row.name)
            self._drop_mirror()
        self._highest_versions[resource] = int(event.resource_version)
        listed = {(key.namespace, key.name) for key in event.keys}
        return self._retry_database(mirror.mark_missing_gone, self.row, resource, listed, event.resource_version)

    def _mark_complete(self) -> None:
        """Store that every kind is listed: from now on an object without a row does not exist."""
        rows = models.Cluster.objects.filter(pk=self.row.pk)
        if not self._retry_database(rows.update, complete=True):
            raise IntegrityError
        self._completed.set()
        self._notifier.enqueue_all()
        self._notifier.notify_cluster()
        logger.info("Cluster %s is mirrored", self.row.name)

    def _retry_database(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a query, and repeat it until the database answers."""
        for attempt in itertools.count():
            try:
                return work(*args, **kwargs)
            except (OperationalError, InterfaceError) as error:
                if attempt == 0:
                    logger.warning("The database does not answer (%s); trying again", type(error).__name__)
                connection.close()
                self._pause(compute_backoff(_DATABASE_RETRY_POLICY, attempt))
        raise AssertionError("unreachable")

    def _pause(self, seconds: float) -> None:
        if self._stopped.wait(seconds):
            raise _StoppedError

    # The thread that checks for another operator

    def _run_operator_checks(self) -> None:
        """Store whether another operator manages the workloads, and what pods request that are not Grove's.

        Passes check for other operators themselves; pages and forecasts read what is stored here.
        """
        counted_at = -_FOREIGN_PODS_SECONDS
        while True:
            try:
                self._store_other_operator(self._operator_check.check_now())
                if self.is_complete and time.monotonic() - counted_at >= _FOREIGN_PODS_SECONDS:
                    mirror.store_foreign_requests(self.row, self._list_foreign_pods())
                    counted_at = time.monotonic()
            except ClusterError as error:
                logger.info("The check for another operator in cluster %s failed: %s", self.row.name, error)
            except DatabaseError as error:
                logger.warning("The database does not answer (%s); trying again", type(error).__name__)
            finally:
                connection.close()
            if self._stopped.wait(_OPERATOR_CHECK_SECONDS):
                return

    def _list_foreign_pods(self) -> Iterator[Obj]:
        """Yield the pods that are not Grove's, page by page: only their sum is kept."""
        for page in self._cluster.list_pages(PODS, labels=f"{names.MANAGED_BY}!={names.OPERATOR}"):
            yield from page.items

    def _store_other_operator(self, found: str) -> None:
        if found == self._other_operator:
            return
        models.Cluster.objects.filter(pk=self.row.pk).update(other_operator=found)
        if found:
            logger.warning("Grove UI writes nothing to cluster %s: %s", self.row.name, found)
        elif self._other_operator:
            logger.info("No other operator manages the workloads of cluster %s any more", self.row.name)
            self._notifier.enqueue_all()
        self._other_operator = found
        self._notifier.notify_cluster()

    # The threads that watch

    def _run_watch(self, resource: Resource, watch: Watch) -> None:
        try:
            for event in watch:
                self.watch_state.record_event(resource, event)
                self._enqueue_event(_QueuedEvent(resource, event, time.monotonic()))
        except Exception:
            # Without this thread the kind would no longer be mirrored.
            logger.exception("The watch of %s in cluster %s failed; listing again", resource, self.row.name)
            self._obsolete.set()

    def _enqueue_event(self, queued: _QueuedEvent) -> None:
        """Pass an event to the thread that writes, and wait until the queue has room."""
        while not self._stopped.is_set():
            with suppress(queue.Full):
                self._queue.put(queued, timeout=1.0)
                return


def _is_object_error(error: Exception) -> bool:
    """Return whether the content of an object caused the error, and not the database or a stop."""
    return isinstance(error, DataError) or not isinstance(error, DatabaseError | InterfaceError | _StoppedError)


def _fetch_identity(cluster: ClusterClient) -> str:
    """Return the identity of the cluster, the uid of kube-system; empty if we may not read it."""
    try:
        namespace: Obj = cluster.get(NAMESPACES, "kube-system", retry=False)
    except (Forbidden, NotFound):
        return ""
    return str(namespace["metadata"].get("uid") or "")


def _fetch_highest_version(row: models.Cluster, resource: Resource) -> int:
    rows = mirror.MIRRORED[resource].model.everything.filter(cluster=row)
    highest: int | None = rows.aggregate(highest=Max("resource_version"))["highest"]
    return highest or 0
