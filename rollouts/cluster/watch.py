"""All objects of a kind, and then every change to them, for as long as anybody listens.

Before it: the watcher process, which writes what it hears into the mirror. After it: `client`, which lists
pages and opens single streams. A single stream ends every few minutes by design, and at any moment by
accident; `Watch` makes one unbroken account of many streams:

    Changed... Synced    the list: each object as it is, then the keys of all there are (what else a
                         listener knows of is gone)
    Changed | Deleted    what happened since
    Bookmark             nothing happened, and the server is there
    Lost, Regained       the server cannot be heard (and why, and for how long to wait), and is heard again

The invariants: after Synced no change is missed: a stream resumes after the last resourceVersion heard, and
when the server has forgotten that one (410) the whole list comes again, ending in a new Synced. The account
never raises a ClusterError and ends only by `stop`.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from rollouts.cluster.client import PAGE_SIZE, ClusterClient, Obj, is_object
from rollouts.cluster.connection import Stream
from rollouts.cluster.errors import ClusterError, Expired, Unavailable, from_status
from rollouts.cluster.resources import Resource
from rollouts.cluster.retry_policy import compute_backoff

logger = logging.getLogger(__name__)

# A stream that told nothing and ended sooner is a failed try: a server that accepts watches only to end them
# would otherwise be asked without a pause.
_SHORT_STREAM = 1.0
# A server or a proxy may ask for an hour; blindness for so long is worse than one more request.
_MAX_RETRY_AFTER = 60.0


class ObjectKey(NamedTuple):
    """Which object it is; the uid tells it from another one that had the name before."""

    namespace: str  # empty for what is in no namespace
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Changed:
    """The object is there and looks like this now."""

    obj: Obj


@dataclass(frozen=True, slots=True)
class Deleted:
    """The object is gone; this is how it looked last."""

    obj: Obj


@dataclass(frozen=True, slots=True)
class Synced:
    """Every object there is has been told; these are their keys."""

    keys: frozenset[ObjectKey]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Bookmark:
    """All changes up to this resourceVersion have been told."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The server cannot be heard; the next try is after `pause` seconds."""

    error: ClusterError
    pause: float


@dataclass(frozen=True, slots=True)
class ConnectionRestored:
    """The server is heard again."""


WatchEvent = Changed | Deleted | Synced | Bookmark | ConnectionLost | ConnectionRestored

_EVENT_CLASSES: Mapping[str, type[Changed | Deleted]] = {"ADDED": Changed, "MODIFIED": Changed, "DELETED": Deleted}


class Watch:
    """The account of one kind of objects. Iterate it in one thread, once; stop it from any.

    With `since`, a resourceVersion up to which the listener already knows everything, it begins with the
    changes after that one instead of a list.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        resource: Resource,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        resource_version: str | None = None,
        page_size: int = PAGE_SIZE,
    ) -> None:
        self._cluster = cluster
        self._resource = resource
        self._scope: dict[str, Any] = {"namespace": namespace, "labels": labels, "fields": fields}
        self._page_size = page_size
        self._resource_version = resource_version  # up to here everything has been told; None: list first
        self._failures = 0  # tries in a row that told nothing and did not last
        self._is_lost = False
        self._stopped = threading.Event()
        self._lock = threading.RLock()  # reentrant, for a stop by a signal that interrupts the listener itself
        self._stream: Stream | None = None  # guarded by the lock, so that stop cannot miss a new one

    def stop(self) -> None:
        """End the account: at once in a stream or a pause, else when the call under way has ended."""
        with self._lock:
            self._stopped.set()
            if self._stream is not None:
                self._stream.interrupt()

    def __iter__(self) -> Iterator[WatchEvent]:
        while not self._stopped.is_set():
            try:
                if self._resource_version is None:
                    yield from self._list()
                if self._resource_version is not None:
                    yield from self._stream_changes()
                pause = self._back_off()
            except Expired as error:
                logger.info("%s; listing again", error)
                self._resource_version = None
                pause = self._back_off()
            except ClusterError as error:
                if self._stopped.is_set():
                    return
                pause = self._back_off(error.retry_after)
                self._is_lost = True
                yield ConnectionLost(error, pause)
            self._stopped.wait(pause)

    def _list(self) -> Iterator[WatchEvent]:
        """Tell all objects there are, page by page."""
        keys: set[ObjectKey] = set()
        continue_token: str | None = None
        while not self._stopped.is_set():
            # Not repeated down there: the account itself does it, says so, and can be stopped in between.
            page = self._cluster.list_page(
                self._resource, **self._scope, page_size=self._page_size, continue_token=continue_token, retry=False
            )
            yield from self._report_restored()
            for obj in page.items:
                keys.add(key_of(obj))
                yield Changed(obj)
            continue_token = page.continue_token
            if continue_token is None:
                self._resource_version = page.resource_version
                yield Synced(frozenset(keys), page.resource_version)
                return

    def _stream_changes(self) -> Iterator[WatchEvent]:
        """Tell one stream to its end."""
        opened_at = time.monotonic()
        with self._opened() as stream:
            yield from self._report_restored()
            for line in stream.lines():
                event, self._resource_version = _parse_event(self._resource, line)
                self._failures = 0
                yield event
        if time.monotonic() - opened_at > _SHORT_STREAM:
            self._failures = 0

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Stream]:
        stream = self._cluster.open_watch(self._resource, self._resource_version or "", **self._scope)
        try:
            with self._lock:
                self._stream = stream
                if self._stopped.is_set():
                    stream.interrupt()
            yield stream
        finally:
            with self._lock:
                self._stream = None
            stream.close()

    def _report_restored(self) -> Iterator[WatchEvent]:
        if self._is_lost:
            self._is_lost = False
            yield ConnectionRestored()

    def _back_off(self, retry_after: float | None = None) -> float:
        requested = min(retry_after or 0.0, _MAX_RETRY_AFTER)
        pause = compute_backoff(self._cluster.retry_policy, self._failures, requested)
        self._failures += 1
        return pause


def key_of(obj: Mapping[str, Any]) -> ObjectKey:
    """Return the key of an object."""
    metadata = obj["metadata"]
    return ObjectKey(metadata.get("namespace") or "", metadata["name"], metadata.get("uid") or "")


def _parse_event(resource: Resource, line: bytes) -> tuple[WatchEvent, str]:
    """Turn a line of a stream into a note and the version that it reaches; an error in the stream is raised."""
    call = f"watch {resource}"
    try:
        event = orjson.loads(line)
        kind, obj = event["type"], event["object"]
        if kind == "ERROR":
            raise from_status(call, obj)
        version: str = obj["metadata"]["resourceVersion"]
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise Unavailable(f"{call}: the stream holds something that is not an event") from error
    if kind == "BOOKMARK":
        return Bookmark(version), version
    if kind not in _EVENT_CLASSES or not is_object(obj):
        raise Unavailable(f"{call}: the stream holds an event of no known kind")
    return _EVENT_CLASSES[kind](obj), version
