"""The garbage collector: keeps the graph of owners and dependents and carries out what `garbage_collection` decides.

The graph is two dictionaries by uid, updated with every write, so the dependents of an owner are found without a
search: deleting an owner of n dependents costs n, whatever else is stored. For an owner that is deleted in the
foreground the graph counts the dependents that block it; the owner is queued again when that count reaches zero, not
each time one of them is removed.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rollouts.sandbox.apiserver.objectmeta import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from rollouts.sandbox.apiserver.registry import Kind
from rollouts.sandbox.apiserver.storage import Storage, StorageChange
from rollouts.sandbox.cluster.cache import is_terminating
from rollouts.sandbox.cluster.client import ControllerClient
from rollouts.sandbox.cluster.controllers import ITEMS_PER_TURN, QueueController
from rollouts.sandbox.cluster.garbage_collection import (
    Delete,
    Keep,
    OwnerState,
    choose_action,
    is_deleting_dependents,
    is_orphaning,
    without_finalizer,
    without_owner_references,
)

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _GraphNode:
    """An object in the graph: its key and its owners."""

    kind: Kind
    namespace: str | None
    name: str
    owners: dict[str, bool]  # owner's uid → whether this object blocks its foreground deletion
    is_deleting_dependents: bool


class GarbageCollector(QueueController[str]):
    """Processes objects whose owners changed, and owners that wait for their dependents."""

    def __init__(self, store: Storage, client: ControllerClient, clock: Callable[[], datetime]) -> None:
        super().__init__(clock)
        self._store, self._client = store, client
        self._nodes: dict[str, _GraphNode] = {}
        self._dependents: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._blocking_dependents: defaultdict[str, int] = defaultdict(int)

    # --- the graph -------------------------------------------------------------------------------------------

    def observe(self, change: StorageChange) -> None:
        """Update the graph with a change, and queue the objects that it concerns."""
        uid = change.obj["metadata"]["uid"]
        before = self._nodes.pop(uid, None)
        after = None if change.type == "DELETED" else _parse_graph_node(change.kind, change.obj)
        relinked = before is None or after is None or before.owners != after.owners
        if relinked:
            self._update_edges(uid, before, after)
        if after is None:
            self._enqueue(*self._dependents.get(uid, ()))
            return
        self._nodes[uid] = after
        if after.is_deleting_dependents and not (before and before.is_deleting_dependents):
            self._enqueue(uid, *self._dependents.get(uid, ()))
        elif is_orphaning(change.obj) or (relinked and after.owners):
            self._enqueue(uid)

    def _update_edges(self, uid: str, before: _GraphNode | None, after: _GraphNode | None) -> None:
        for owner, blocks in (before.owners if before else {}).items():
            self._dependents[owner].pop(uid, None)
            if not self._dependents[owner]:
                del self._dependents[owner]
            self._count_blocking_dependent(owner, -int(blocks))
        for owner, blocks in (after.owners if after else {}).items():
            self._dependents[owner][uid] = None
            self._count_blocking_dependent(owner, int(blocks))

    def _count_blocking_dependent(self, owner: str, step: int) -> None:
        self._blocking_dependents[owner] += step
        if self._blocking_dependents[owner] == 0:
            del self._blocking_dependents[owner]
            if owner in self._nodes and self._nodes[owner].is_deleting_dependents:
                self._enqueue(owner)

    def _enqueue(self, *uids: str) -> None:
        now = self._clock()
        for uid in uids:
            self._queue.schedule_no_later(uid, now)

    # --- the work --------------------------------------------------------------------------------------------

    def _sync(self, key: str, now: datetime) -> None:
        entry = self._nodes.get(key)
        stored = self._store.get(entry.kind, entry.namespace, entry.name) if entry else None
        if entry is not None and stored is not None and stored.obj["metadata"]["uid"] == key:
            self._process(key, entry, stored.obj)

    def _process(self, uid: str, entry: _GraphNode, obj: Obj) -> None:
        if is_orphaning(obj):
            self._orphan_dependents(uid, entry, obj)
        elif is_deleting_dependents(obj) and uid not in self._blocking_dependents:
            self._client.update(entry.kind, without_finalizer(obj, FOREGROUND_FINALIZER))
        elif not is_terminating(obj):
            self._attempt_to_delete(uid, entry, obj)

    def _orphan_dependents(self, uid: str, entry: _GraphNode, obj: Obj) -> None:
        """Remove the owner from a slice of its dependents; remove its finalizer when none is left."""
        for dependent in [*self._dependents.get(uid, ())][:ITEMS_PER_TURN]:
            other = self._nodes[dependent]
            stored = self._store.get(other.kind, other.namespace, other.name)
            if stored is not None:
                self._client.update(other.kind, without_owner_references(stored.obj, [uid]))
        if self._dependents.get(uid):
            self._enqueue(uid)
        else:
            self._client.update(entry.kind, without_finalizer(obj, ORPHAN_FINALIZER))

    def _attempt_to_delete(self, uid: str, entry: _GraphNode, obj: Obj) -> None:
        action = choose_action(
            obj,
            lambda reference: self._get_owner_state(entry, reference),
            has_dependents=bool(self._dependents.get(uid)),
        )
        match action:
            case Delete(propagation):
                self._client.delete(entry.kind, obj, propagation=propagation)
            case Keep(drop) if drop:
                self._client.update(entry.kind, without_owner_references(obj, drop))

    def _get_owner_state(self, dependent: _GraphNode, reference: Obj) -> OwnerState:
        owner = self._nodes.get(reference["uid"])
        if owner is None or not _matches_reference(owner, dependent, reference):
            return OwnerState.DANGLING
        return OwnerState.WAITING_FOR_DEPENDENTS if owner.is_deleting_dependents else OwnerState.SOLID


def _matches_reference(owner: _GraphNode, dependent: _GraphNode, reference: Obj) -> bool:
    """Return whether the object with the uid of a reference is the one that the reference names.

    An owner is cluster-scoped or in the dependent's namespace; any other object counts as absent.
    """
    group = reference["apiVersion"].rpartition("/")[0]
    named = (owner.kind.group, owner.kind.kind, owner.name) == (group, reference["kind"], reference["name"])
    return named and (not owner.kind.namespaced or owner.namespace == dependent.namespace)


def _parse_graph_node(kind: Kind, obj: Obj) -> _GraphNode:
    metadata = obj["metadata"]
    owners = {entry["uid"]: bool(entry.get("blockOwnerDeletion")) for entry in metadata.get("ownerReferences") or ()}
    return _GraphNode(kind, metadata.get("namespace"), metadata["name"], owners, is_deleting_dependents(obj))
