"""Empties namespaces that are being deleted, and lets them go when nothing is left.

Objects are deleted as anyone would delete them: pods gracefully, objects with finalizers when those are gone.
While something is left the namespace is looked at again after every deletion in it.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

from rollouts.sandbox.apiserver.registry import Kind, Registry
from rollouts.sandbox.apiserver.storage import Change, Store
from rollouts.sandbox.cluster.cache import Kinds, is_leaving
from rollouts.sandbox.cluster.client import Writes
from rollouts.sandbox.cluster.controllers import SLICE
from rollouts.sandbox.cluster.timer_queue import Agenda

Obj = dict[str, Any]


class Emptying:
    """Looks at namespaces that are leaving."""

    def __init__(
        self, store: Store, registry: Registry, kinds: Kinds, writes: Writes, clock: Callable[[], datetime]
    ) -> None:
        self._store, self._registry, self._kinds = store, registry, kinds
        self._writes, self._clock = writes, clock
        self._leaving: set[str] = set()
        self._agenda: Agenda[str] = Agenda()

    def observe(self, change: Change) -> None:
        """Note namespaces that are leaving, and deletions in them."""
        if change.kind is self._kinds.namespaces:
            name = change.obj["metadata"]["name"]
            if change.type == "DELETED":
                self._leaving.discard(name)
            elif is_leaving(change.obj):
                self._leaving.add(name)
                self._agenda.hurry(name, self._clock())
        elif change.type == "DELETED" and change.obj["metadata"].get("namespace") in self._leaving:
            self._agenda.hurry(change.obj["metadata"]["namespace"], self._clock())

    def work(self, now: datetime) -> None:
        """Delete a slice of what is in a leaving namespace, or the namespace."""
        for name in self._agenda.take_due(now, 1):
            stored = self._store.get(self._kinds.namespaces, None, name)
            if stored is None:
                continue
            batch = list(islice(self._removable(name), SLICE))
            for kind, obj in batch:
                self._writes.delete(kind, obj, propagation="Background")
            if batch:
                self._agenda.hurry(name, now)
            elif not any(True for _ in self._contents(name)):
                self._writes.release_namespace(self._kinds.namespaces, stored.obj)

    def next_due(self) -> datetime | None:
        """Say when a namespace has to be looked at."""
        return self._agenda.next_due()

    def _removable(self, namespace: str) -> Iterator[tuple[Kind, Obj]]:
        return ((kind, obj) for kind, obj in self._contents(namespace) if not is_leaving(obj))

    def _contents(self, namespace: str) -> Iterator[tuple[Kind, Obj]]:
        for kind in self._registry:
            if kind.namespaced:
                yield from ((kind, stored.obj) for stored in self._store.list(kind, namespace))
