"""All objects of a kind, and then every change to them: list and watch, like an informer of client-go.

Before it: the watcher process, which writes the events into the mirror. After it: `client`, which lists pages and opens
single streams. A single stream ends every few minutes by design, and may break off at any time; `Watch` joins many of
them into one sequence of events:

    Changed... Synced    the list: each object, then the keys of all objects (any other that the listener knows is gone)
    Changed | Deleted    each change since
    Bookmark             no change, and the server answers
    ConnectionLost       the server does not answer, with the error and the pause before the next attempt
    ConnectionRestored   the server answers again

The invariants: after Synced no change is missed: a stream resumes after the last resourceVersion received, and if the
server no longer has that version (410) the whole list comes again and ends with a new Synced. The sequence never raises
a ClusterError and ends only after `stop`.
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

# A stream without events that ended sooner counts as a failure: a server that accepts watches and ends them at once
# must not be called without a pause.
_SHORT_STREAM = 1.0
# A server or a proxy may ask for an hour; a mirror that is out of date for so long is worse than one more request.
_MAX_RETRY_AFTER = 60.0


class ObjectKey(NamedTuple):
    """Namespace, name and uid of an object; the uid differs from that of an earlier object of the name."""

    namespace: str  # empty for cluster-wide objects
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Changed:
    """The object exists and is now like this."""

    obj: Obj


@dataclass(frozen=True, slots=True)
class Deleted:
    """The object is gone; this is its last state."""

    obj: Obj


@dataclass(frozen=True, slots=True)
class Synced:
    """The list is complete; these are the keys of all objects."""

    keys: frozenset[ObjectKey]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Bookmark:
    """All changes up to this resourceVersion have been yielded."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The server does not answer; the next attempt is after `pause` seconds."""

    error: ClusterError
    pause: float


@dataclass(frozen=True, slots=True)
class ConnectionRestored:
    """The server answers again."""


WatchEvent = Changed | Deleted | Synced | Bookmark | ConnectionLost | ConnectionRestored

_EVENT_CLASSES: Mapping[str, type[Changed | Deleted]] = {"ADDED": Changed, "MODIFIED": Changed, "DELETED": Deleted}


class Watch:
    """The events of one kind of objects. Iterate it once, in one thread; stop it from any thread.

    With a `resource_version` up to which the listener has everything, it begins with the changes after that version
    instead of a list.
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
        self._resource_version = resource_version  # all changes up to here have been yielded; None: list first
        self._failures = 0  # streams in a row that were short and had no events
        self._is_lost = False
        self._stopped = threading.Event()
        self._lock = threading.RLock()  # reentrant: a signal handler may call stop in the thread that listens
        self._stream: Stream | None = None  # guarded by the lock, so that stop cannot miss a new one

    def stop(self) -> None:
        """End the iteration: at once in a stream or a pause, else when the call in progress has ended."""
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
        """Yield all objects, page by page."""
        keys: set[ObjectKey] = set()
        continue_token: str | None = None
        while not self._stopped.is_set():
            # Without retries of the client: this class repeats the call, yields ConnectionLost and can be stopped.
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
        """Yield the events of one stream."""
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
    """Return the event in a line of a stream and its resourceVersion; raise an error that the stream reports."""
    call = f"watch {resource}"
    try:
        event = orjson.loads(line)
        kind, obj = event["type"], event["object"]
        if kind == "ERROR":
            raise from_status(call, obj)
        version: str = obj["metadata"]["resourceVersion"]
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise Unavailable(f"{call}: the stream contains a line that is not an event") from error
    if kind == "BOOKMARK":
        return Bookmark(version), version
    if kind not in _EVENT_CLASSES or not is_object(obj):
        raise Unavailable(f"{call}: the stream contains an event of an unknown type")
    return _EVENT_CLASSES[kind](obj), version
