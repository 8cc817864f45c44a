"""Events: what happened to an object, in words, for `kubectl describe` and the dashboard.

The other controllers record here. The same thing happening again to the same object raises the count of its
one Event instead of making a second, and an Event is dropped an hour after its last time, as on a real
cluster; so the number of Events stays bounded however long the sandbox runs.
"""

import zlib
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from rollouts.sandbox.apiserver.registry import Kind
from rollouts.sandbox.apiserver.storage import Change, Store
from rollouts.sandbox.cluster.cache import Key, Kinds, key_of
from rollouts.sandbox.cluster.client import Writes
from rollouts.sandbox.cluster.conditions import parse_time, render_time
from rollouts.sandbox.cluster.controllers import SLICE
from rollouts.sandbox.cluster.timer_queue import Agenda

Obj = dict[str, Any]
Happening = tuple[str, str, str]
"""Uid of the object, reason, message: what makes two events the same."""

LIFETIME: Final = timedelta(hours=1)
_CLUSTER_EVENTS: Final = "default"  # where the events of objects without a namespace go


class Recorder:
    """Writes and expires Events."""

    def __init__(self, store: Store, kinds: Kinds, writes: Writes, clock: Callable[[], datetime]) -> None:
        self._store, self._kinds, self._writes, self._clock = store, kinds, writes, clock
        self._known: dict[Happening, Key] = {}
        self._expiry: Agenda[Key] = Agenda()

    def record(self, kind: Kind, obj: Obj, incident: tuple[str, str, str], component: str) -> None:
        """Record an incident — type, reason, message — that concerns an object."""
        event_type, reason, message = incident
        now = render_time(self._clock())
        known = self._find((obj["metadata"]["uid"], reason, message))
        if known is not None:
            again = {**known, "count": known.get("count", 1) + 1, "lastTimestamp": now}
            self._writes.replace(self._kinds.events, again)
            return
        namespace, name = key_of(obj)
        namespace = namespace or _CLUSTER_EVENTS
        body = {
            "metadata": {"name": self._free_name(namespace, f"{name}.{reason}.{message}", name)},
            "involvedObject": _reference(kind, obj),
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
        self._writes.create(self._kinds.events, namespace, body)

    def observe(self, change: Change) -> None:
        """Keep the index of events current, whoever wrote them."""
        if change.kind is not self._kinds.events:
            return
        key, happening = key_of(change.obj), _happening(change.obj)
        if change.type == "DELETED":
            self._known.pop(happening, None)
            self._expiry.drop(key)
        else:
            self._known[happening] = key
            last = change.obj.get("lastTimestamp") or change.obj["metadata"]["creationTimestamp"]
            self._expiry.put(key, parse_time(last) + LIFETIME)

    def work(self, now: datetime) -> None:
        """Drop the events whose hour is over."""
        for namespace, name in self._expiry.take_due(now, SLICE):
            stored = self._store.get(self._kinds.events, namespace, name)
            if stored is not None:
                self._writes.delete(self._kinds.events, stored.obj)

    def next_due(self) -> datetime | None:
        """Say when the next event expires."""
        return self._expiry.next_due()

    def _find(self, happening: Happening) -> Obj | None:
        key = self._known.get(happening)
        stored = self._store.get(self._kinds.events, *key) if key else None
        return None if stored is None else stored.obj

    def _free_name(self, namespace: str, seed: str, name: str) -> str:
        """Name an event as clients do, `<object>.<hex>`; the next free one when an older object had the same."""
        number = zlib.crc32(f"{seed}.{self._clock().isoformat()}".encode())
        while self._store.get(self._kinds.events, namespace, f"{name}.{number:016x}") is not None:
            number += 1
        return f"{name}.{number:016x}"


def _happening(event: Obj) -> Happening:
    involved = event.get("involvedObject") or {}
    return involved.get("uid", ""), event.get("reason", ""), event.get("message", "")


def _reference(kind: Kind, obj: Obj) -> Obj:
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
