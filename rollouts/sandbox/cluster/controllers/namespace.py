"""Empties terminating namespaces, and removes their finalizers when nothing is left in them.

It deletes objects as a client would: pods gracefully, and objects with finalizers stay until those are removed. While
something is left, every deletion in the namespace queues it again.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

from rollouts.sandbox.apiserver.registry import Kind, Registry
from rollouts.sandbox.apiserver.storage import Storage, StorageChange
from rollouts.sandbox.cluster.cache import Kinds, is_terminating
from rollouts.sandbox.cluster.client import ControllerClient
from rollouts.sandbox.cluster.controllers import ITEMS_PER_TURN, QueueController

Obj = dict[str, Any]


class NamespaceController(QueueController[str]):
    """Empties terminating namespaces."""

    items_per_turn = 1  # a namespace deletes ITEMS_PER_TURN objects a turn

    def __init__(
        self, store: Storage, registry: Registry, kinds: Kinds, client: ControllerClient, clock: Callable[[], datetime]
    ) -> None:
        super().__init__(clock)
        self._store, self._registry, self._kinds, self._client = store, registry, kinds, client
        self._terminating: set[str] = set()

    def observe(self, change: StorageChange) -> None:
        """Queue terminating namespaces, and again after each deletion in them."""
        if change.kind is self._kinds.namespaces:
            name = change.obj["metadata"]["name"]
            if change.type == "DELETED":
                self._terminating.discard(name)
            elif is_terminating(change.obj):
                self._terminating.add(name)
                self._queue.schedule_no_later(name, self._clock())
        elif change.type == "DELETED" and change.obj["metadata"].get("namespace") in self._terminating:
            self._queue.schedule_no_later(change.obj["metadata"]["namespace"], self._clock())

    def _sync(self, key: str, now: datetime) -> None:
        """Delete a slice of the objects in a namespace, or finalize the namespace once it is empty."""
        stored = self._store.get(self._kinds.namespaces, None, key)
        if stored is None:
            return
        batch = list(islice(self._list_deletable(key), ITEMS_PER_TURN))
        for kind, obj in batch:
            self._client.delete(kind, obj, propagation="Background")
        if batch:
            self._queue.schedule_no_later(key, now)
        elif not any(True for _ in self._list_contents(key)):
            self._client.finalize_namespace(self._kinds.namespaces, stored.obj)

    def _list_deletable(self, namespace: str) -> Iterator[tuple[Kind, Obj]]:
        return ((kind, obj) for kind, obj in self._list_contents(namespace) if not is_terminating(obj))

    def _list_contents(self, namespace: str) -> Iterator[tuple[Kind, Obj]]:
        for kind in self._registry:
            if kind.namespaced:
                yield from ((kind, stored.obj) for stored in self._store.list(kind, namespace))
