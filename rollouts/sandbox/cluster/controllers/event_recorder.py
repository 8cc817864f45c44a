"""Events: what happened to an object, in words, for `kubectl describe` and the dashboard.

The other controllers record them. An incident that happens again to the same object raises the count of its Event, and
an Event is deleted an hour after its last occurrence, as on a real cluster; so the number of Events stays bounded
however long the sandbox runs.
"""

import zlib
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from rollouts.engine.scheduling.placement import NamespacedName
from rollouts.sandbox.apiserver.registry import Kind
from rollouts.sandbox.apiserver.storage import Storage, StorageChange
from rollouts.sandbox.cluster.cache import Kinds, key_of
from rollouts.sandbox.cluster.client import ControllerClient
from rollouts.sandbox.cluster.controllers import QueueController
from rollouts.sandbox.times import parse_stored_time, render_time

Obj = dict[str, Any]
EventKey = tuple[str, str, str]
"""Uid of the object, reason, message: what makes two events the same."""

EVENT_TTL: Final = timedelta(hours=1)
_DEFAULT_NAMESPACE: Final = "default"  # of the Events of cluster-scoped objects


class EventRecorder(QueueController[NamespacedName]):
    """Writes and expires Events."""

    def __init__(self, store: Storage, kinds: Kinds, client: ControllerClient, clock: Callable[[], datetime]) -> None:
        super().__init__(clock)
        self._store, self._kinds, self._client = store, kinds, client
        self._keys: dict[EventKey, NamespacedName] = {}

    def record(self, kind: Kind, obj: Obj, event: tuple[str, str, str], component: str) -> None:
        """Record an incident — type, reason, message — that concerns an object."""
        event_type, reason, message = event
        now = render_time(self._clock())
        known = self._find_event((obj["metadata"]["uid"], reason, message))
        if known is not None:
            again = {**known, "count": known.get("count", 1) + 1, "lastTimestamp": now}
            self._client.update(self._kinds.events, again)
            return
        namespace, name = key_of(obj)
        namespace = namespace or _DEFAULT_NAMESPACE
        body = {
            "metadata": {"name": self._choose_name(namespace, f"{name}.{reason}.{message}", name)},
            "involvedObject": _make_reference(kind, obj),
            "type": event_type,
            "reason": reason,
            "message": message,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": component},
            "reportingComponent": component,
            "reportingInstance": component,
        }
        self._client.create(self._kinds.events, namespace, body)

    def observe(self, change: StorageChange) -> None:
        """Index every Event, also those of clients."""
        if change.kind is not self._kinds.events:
            return
        key, event_key = key_of(change.obj), _make_event_key(change.obj)
        if change.type == "DELETED":
            self._keys.pop(event_key, None)
            self._queue.cancel(key)
        else:
            self._keys[event_key] = key
            last = change.obj.get("lastTimestamp") or change.obj["metadata"]["creationTimestamp"]
            self._queue.schedule(key, parse_stored_time(last) + EVENT_TTL)

    def _sync(self, key: NamespacedName, now: datetime) -> None:
        """Delete an Event that has expired."""
        stored = self._store.get(self._kinds.events, *key)
        if stored is not None:
            self._client.delete(self._kinds.events, stored.obj)

    def _find_event(self, event_key: EventKey) -> Obj | None:
        key = self._keys.get(event_key)
        stored = self._store.get(self._kinds.events, *key) if key else None
        return None if stored is None else stored.obj

    def _choose_name(self, namespace: str, seed: str, name: str) -> str:
        """Name an event as clients do, `<object>.<hex>`; the next free one when an older object had the same."""
        number = zlib.crc32(f"{seed}.{self._clock().isoformat()}".encode())
        while self._store.get(self._kinds.events, namespace, f"{name}.{number:016x}") is not None:
            number += 1
        return f"{name}.{number:016x}"


def _make_event_key(event: Obj) -> EventKey:
    involved = event.get("involvedObject") or {}
    return involved.get("uid", ""), event.get("reason", ""), event.get("message", "")


def _make_reference(kind: Kind, obj: Obj) -> Obj:
    metadata = obj["metadata"]
    reference = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "namespace": metadata.get("namespace"),
        "name": metadata["name"],
        "uid": metadata["uid"],
        "resourceVersion": metadata.get("resourceVersion"),
    }
    return {key: value for key, value in reference.items() if value}
