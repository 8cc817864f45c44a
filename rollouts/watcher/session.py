"""One listening to a cluster: from its lists on, until it is stopped or has to begin anew.

Before it: `cluster.Watch`, one thread a kind, each an unbroken account. After it: `mirror`, written by one thread, and
the `notifier`. All kinds come together in one queue; what waits there is written in one transaction. The first event
of a quiet moment is therefore written at once, and a burst costs a few statements.

The invariants: rows are in the database before anybody is told; news is taken out of the queue only to be written, so
a database that is away for a while costs time and no news. A session must begin anew, with lists, when the database
has lost what the session wrote (`is_obsolete`), or when the cluster has gone back in time or is another one.
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
    Cluster,
    ClusterError,
    Deleted,
    Forbidden,
    Note,
    NotFound,
    Obj,
    Patience,
    Regained,
    Resource,
    Synced,
    Watch,
)
from rollouts.cluster.resources import NAMESPACES, PODS, SERVICES
from rollouts.cluster.retry_policy import compute_pause
from rollouts.engine.model import names
from rollouts.mirror.other_operator import OperatorCheck
from rollouts.watcher.notifier import Announcer
from rollouts.watcher.watch_state import Notebook

logger = logging.getLogger(__name__)

OURS: Final = f"{names.MANAGED_BY}={names.OPERATOR}"
# Of kinds that others use too, only what carries our labels is listened to.
_SELECTORS: Final[Mapping[Resource, str]] = {PODS: OURS, SERVICES: OURS}

_OBJECTS_AT_ONCE: Final = 500
# Beyond that, who listens waits for who writes: the server keeps the rest.
_LONGEST_QUEUE: Final = 2000
_IDLE_SECONDS: Final = 1.0
_OPERATOR_SECONDS: Final = 10.0  # between two looks for another operator
_FOREIGN_SECONDS: Final = 60.0  # between two counts of pods that are not Grove's
_IDENTITY_SECONDS: Final = 60.0  # between two looks at whom we talk to
_DATABASE_PATIENCE: Final = Patience(first_pause=0.1, longest_pause=2.0)

T = TypeVar("T")
P = ParamSpec("P")


class _Heard(NamedTuple):
    """A note on its way to the database."""

    resource: Resource
    note: Note
    at: float  # monotonic


class _StoppedError(Exception):
    """The session is to end."""


class Session:
    """Listens and writes in threads of its own until `stop`."""

    def __init__(self, row: models.Cluster, cluster: Cluster, announcer: Announcer, on_batch: Callable[[float], None]):
        self.row = row
        self.notebook = Notebook(tuple(mirror.MIRRORED))
        self._cluster = cluster
        self._announcer = announcer
        self._on_batch = on_batch  # is told the seconds from hearing to having written and told
        self._queue: queue.Queue[_Heard | None] = queue.Queue(_LONGEST_QUEUE)
        self._watches = {
            resource: Watch(cluster, resource, labels=_SELECTORS.get(resource, "")) for resource in mirror.MIRRORED
        }
        # No list of a kind can be older than what was known of it before the list was asked for.
        self._highest: dict[Resource, int] = {}
        self._identity = row.identity
        self._identified_at = 0.0  # monotonic
        self._unstored: set[int] = set()  # objects of the batch, by id(), that the database refused
        self._stopped = threading.Event()
        self._obsolete = threading.Event()
        self._completed = threading.Event()
        self._listeners = [
            threading.Thread(target=self._listen, args=pair, name=f"{row.name} {pair[0]}")
            for pair in self._watches.items()
        ]
        self._writer = threading.Thread(target=self._run, name=f"{row.name} writer")
        self._check = OperatorCheck(cluster, self.row.pk)
        self._other_operator: str | None = None  # as it is on the row; None: not known
        self._examiner = threading.Thread(target=self._keep_examining, name=f"{row.name} operators")

    @property
    def is_obsolete(self) -> bool:
        """Whether it is over, and another one has to begin from the lists."""
        return self._obsolete.is_set()

    @property
    def is_complete(self) -> bool:
        """Whether every kind has been listed, and the cluster's row says so."""
        return self._completed.is_set()

    def start(self) -> None:
        """Begin."""
        self._writer.start()

    def stop(self) -> None:
        """End, and wait for the end."""
        self._stopped.set()
        for watch in self._watches.values():
            watch.stop()
        with suppress(queue.Full):
            self._queue.put_nowait(None)
        self._writer.join()
        for thread in (*self._listeners, self._examiner):
            if thread.ident is not None:
                thread.join()
        self._cluster.close()

    # The thread that writes

    def _run(self) -> None:
        try:
            self._introduce()
            self._examiner.start()
            for listener in self._listeners:
                listener.start()
            while True:
                self._take_in(self._next_batch())
        except _StoppedError:
            return
        except DatabaseError as error:
            # A row that ours refer to is gone, or a whole table: somebody has made the database anew.
            logger.warning("The mirror of %s is lost (%s); listing again", self.row.name, type(error).__name__)
            self._obsolete.set()
        except Exception:
            logger.exception("The watcher of %s has failed; listing again", self.row.name)
            self._obsolete.set()
        finally:
            connection.close()

    def _introduce(self) -> None:
        """Find out whom we talk to, before anything of it is mixed with what is known."""
        identity, version = self._identify()
        if self._is_another(identity):
            self._insist(mirror.forget, self.row)
        self._identity = identity or self._identity
        told = {"identity": self._identity, "version": version, "url": self._cluster.url}
        self._insist(models.Cluster.objects.filter(pk=self.row.pk).update, **told)
        self._highest = {resource: self._insist(_highest_version, self.row, resource) for resource in mirror.MIRRORED}

    def _make_sure(self, batch: Sequence[_Heard]) -> None:
        """Ask again whom we talk to when news comes after a gap, and now and then: somebody may have moved in there."""
        is_gap = any(isinstance(heard.note, Synced | Regained) for heard in batch)
        if not self.is_complete or not (is_gap or time.monotonic() - self._identified_at > _IDENTITY_SECONDS):
            return
        if self._is_another(self._identify()[0]):
            self._begin_anew()

    def _is_another(self, identity: str) -> bool:
        """Say whether it is another cluster than the one that the mirror is of."""
        if not identity or self._identity in ("", identity):
            return False
        logger.warning("Cluster %s is another one than before; its mirror is dropped", self.row.name)
        return True

    def _begin_anew(self) -> NoReturn:
        """Drop the mirror, and end this session in favour of another one."""
        self._insist(mirror.forget, self.row)
        self._obsolete.set()
        raise _StoppedError

    def _identify(self) -> tuple[str, str]:
        """Return the cluster's identity, as far as we may know it, and its version; wait until it answers."""
        for attempt in itertools.count():
            try:
                version = str(self._cluster.version(repeat=False).get("gitVersion") or "")
                identity = _fetch_identity(self._cluster)
                self.notebook.fail(NAMESPACES, None)
                self._identified_at = time.monotonic()
                return identity, version  # noqa: TRY300 (the whole of it may fail)
            except ClusterError as error:
                self.notebook.fail(NAMESPACES, error)
                self._pause(compute_pause(self._cluster.patience, attempt, error.retry_after))
        raise AssertionError("unreachable")

    def _next_batch(self) -> list[_Heard]:
        """Wait for news, and return it with all that has come in meanwhile."""
        batch: list[_Heard] = []
        heard = self._next()
        with suppress(queue.Empty):
            while heard is not None:
                batch.append(heard)
                if len(batch) == _OBJECTS_AT_ONCE:
                    break
                heard = self._queue.get_nowait()
        if self._stopped.is_set():
            raise _StoppedError
        return batch

    def _next(self) -> _Heard | None:
        """Wait for news; a database connection that is not needed for a while is given back."""
        try:
            return self._queue.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            connection.close()
            return self._queue.get()

    def _take_in(self, batch: Sequence[_Heard]) -> None:
        self._make_sure(batch)
        self._unstored.clear()
        changes: list[mirror.Changes] = []
        news: list[mirror.News] = []
        for resource, note, _ in batch:
            match note:
                case Changed(obj):
                    changes.append(mirror.Changes(resource, [obj]))
                case Deleted(obj):
                    changes.append(mirror.Changes(resource, gone=[obj]))
                case Synced():
                    # The list must be in before what it does not have goes.
                    news += self._store(changes)
                    changes = []
                    news += self._conclude(resource, note)
        news += self._store(changes)
        was_complete = self.notebook.is_complete
        for resource, note, _ in batch:
            if not (isinstance(note, Changed) and id(note.obj) in self._unstored):
                self.notebook.count(resource, note)
        self._announcer.tell(news)
        if not was_complete and self.notebook.is_complete:
            self._complete()
        if batch:
            self._on_batch(time.monotonic() - batch[0].at)

    def _store(self, changes: Sequence[mirror.Changes]) -> list[mirror.News]:
        try:
            return self._insist(mirror.store_all, self.row, changes)
        except Exception as error:
            if not _is_about_an_object(error):
                raise
            return [news for single in changes for news in self._store_single(single)]

    def _store_single(self, change: mirror.Changes) -> list[mirror.News]:
        """Store one object: one that cannot be read or that the database refuses must not keep back the others."""
        try:
            return self._insist(mirror.store_all, self.row, [change])
        except Exception as error:
            if not _is_about_an_object(error):
                raise
            (obj,) = (*change.objects, *change.gone)
            self._unstored.add(id(obj))
            # Without the words of a database: they may quote what was to be stored.
            story = None if isinstance(error, DataError) else error
            logger.error(  # noqa: TRY400
                "%s %s cannot be stored (%s)",
                change.resource,
                obj["metadata"]["name"],
                type(error).__name__,
                exc_info=story,
            )
            return []

    def _conclude(self, resource: Resource, note: Synced) -> list[mirror.News]:
        """Take in that a list is complete: what it does not have is gone."""
        if int(note.resource_version) < self._highest[resource]:
            logger.warning("Cluster %s has gone back in time; its mirror is dropped", self.row.name)
            self._begin_anew()
        self._highest[resource] = int(note.resource_version)
        listed = {(key.namespace, key.name) for key in note.keys}
        return self._insist(mirror.end_all_but, self.row, resource, listed, note.resource_version)

    def _complete(self) -> None:
        """Every kind has been listed: from now on what is missing here is missing there."""
        rows = models.Cluster.objects.filter(pk=self.row.pk)
        if not self._insist(rows.update, complete=True):
            raise IntegrityError
        self._completed.set()
        self._announcer.wake_everything()
        self._announcer.tell_of_cluster()
        logger.info("Cluster %s is mirrored", self.row.name)

    def _insist(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Repeat what the database did not do because it was away."""
        for attempt in itertools.count():
            try:
                return work(*args, **kwargs)
            except (OperationalError, InterfaceError) as error:
                if attempt == 0:
                    logger.warning("The database does not answer (%s); trying again", type(error).__name__)
                connection.close()
                self._pause(compute_pause(_DATABASE_PATIENCE, attempt))
        raise AssertionError("unreachable")

    def _pause(self, seconds: float) -> None:
        if self._stopped.wait(seconds):
            raise _StoppedError

    # The thread that looks for another operator

    def _keep_examining(self) -> None:
        """Tell whether another operator runs the workloads, and what pods that are not Grove's take of the nodes.

        Passes look for other operators themselves; forecasts read what is told here.
        """
        counted_at = -_FOREIGN_SECONDS
        while True:
            try:
                self._examine(self._check.look())
                if self.is_complete and time.monotonic() - counted_at >= _FOREIGN_SECONDS:
                    mirror.store_foreign_requests(self.row, self._list_foreign())
                    counted_at = time.monotonic()
            except ClusterError as error:
                logger.info("Cluster %s does not say who else writes there: %s", self.row.name, error)
            except DatabaseError as error:
                logger.warning("The database does not answer (%s); trying again", type(error).__name__)
            finally:
                connection.close()
            if self._stopped.wait(_OPERATOR_SECONDS):
                return

    def _list_foreign(self) -> Iterator[Obj]:
        """Yield the pods on nodes that are not Grove's, page by page: nothing of them is kept but a sum."""
        for page in self._cluster.list_pages(PODS, labels=f"{names.MANAGED_BY}!={names.OPERATOR}"):
            yield from page.items

    def _examine(self, found: str) -> None:
        if found == self._other_operator:
            return
        models.Cluster.objects.filter(pk=self.row.pk).update(other_operator=found)
        if found:
            logger.warning("Nothing is changed in cluster %s: %s", self.row.name, found)
        elif self._other_operator:
            logger.info("No other operator runs the workloads of cluster %s any more", self.row.name)
            self._announcer.wake_everything()
        self._other_operator = found
        self._announcer.tell_of_cluster()

    # The threads that listen

    def _listen(self, resource: Resource, watch: Watch) -> None:
        try:
            for note in watch:
                self.notebook.hear(resource, note)
                self._put(_Heard(resource, note, time.monotonic()))
        except Exception:
            # Nobody would hear of this kind any more.
            logger.exception("Listening to %s of %s has failed; listing again", resource, self.row.name)
            self._obsolete.set()

    def _put(self, heard: _Heard) -> None:
        """Hand a note to the writer, waiting until there is room."""
        while not self._stopped.is_set():
            with suppress(queue.Full):
                self._queue.put(heard, timeout=1.0)
                return


def _is_about_an_object(error: Exception) -> bool:
    """Say whether something failed because of what an object holds, and not because of the database or of a stop."""
    return isinstance(error, DataError) or not isinstance(error, DatabaseError | InterfaceError | _StoppedError)


def _fetch_identity(cluster: Cluster) -> str:
    """Return what tells this cluster from all others; nothing when we may not know it."""
    try:
        namespace: Obj = cluster.get(NAMESPACES, "kube-system", repeat=False)
    except (Forbidden, NotFound):
        return ""
    return str(namespace["metadata"].get("uid") or "")


def _highest_version(row: models.Cluster, resource: Resource) -> int:
    rows = mirror.MIRRORED[resource].model.everything.filter(cluster=row)
    highest: int | None = rows.aggregate(highest=Max("resource_version"))["highest"]
    return highest or 0
