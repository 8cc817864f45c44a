"""The garbage collector: keeps the graph of owners and dependents and carries out what `garbage_collection` decides.

The graph is two dictionaries by uid, changed with every write, so that an owner finds its dependents without
looking at anything else: deleting an owner of n dependents costs n, whatever else is stored. An owner deleted
in the foreground counts the dependents that block it; it is looked at again when that count reaches zero, not
each time one of them goes.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rollouts.sandbox.apiserver.registry import Kind
from rollouts.sandbox.apiserver.storage import Change, Store
from rollouts.sandbox.cluster.cache import is_leaving
from rollouts.sandbox.cluster.client import Writes
from rollouts.sandbox.cluster.controllers import SLICE
from rollouts.sandbox.cluster.garbage_collection import (
    FOREGROUND_FINALIZER,
    ORPHAN_FINALIZER,
    Keep,
    OwnerState,
    Remove,
    is_foreground,
    is_orphaning,
    judge,
    without_finalizer,
    without_owner,
)
from rollouts.sandbox.cluster.timer_queue import Agenda

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Entry:
    """Where an object is, and what of it the graph is made of."""

    kind: Kind
    namespace: str | None
    name: str
    owners: dict[str, bool]  # owner's uid → whether this object blocks its foreground deletion
    foreground: bool


class Collector:
    """Looks at objects whose owners changed, and at owners that wait for their dependents."""

    def __init__(self, store: Store, writes: Writes, clock: Callable[[], datetime]) -> None:
        self._store, self._writes, self._clock = store, writes, clock
        self._entries: dict[str, _Entry] = {}
        self._dependents: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._blockers: defaultdict[str, int] = defaultdict(int)
        self._agenda: Agenda[str] = Agenda()

    # --- the graph -------------------------------------------------------------------------------------------

    def observe(self, change: Change) -> None:
        """Follow a change in the graph and note who has to be looked at."""
        uid = change.obj["metadata"]["uid"]
        before = self._entries.pop(uid, None)
        after = None if change.type == "DELETED" else _read(change.kind, change.obj)
        relinked = before is None or after is None or before.owners != after.owners
        if relinked:
            self._relink(uid, before, after)
        if after is None:
            self._note(*self._dependents.get(uid, ()))
            return
        self._entries[uid] = after
        if after.foreground and not (before and before.foreground):
            self._note(uid, *self._dependents.get(uid, ()))
        elif is_orphaning(change.obj) or (relinked and after.owners):
            self._note(uid)

    def _relink(self, uid: str, before: _Entry | None, after: _Entry | None) -> None:
        for owner, blocks in (before.owners if before else {}).items():
            self._dependents[owner].pop(uid, None)
            if not self._dependents[owner]:
                del self._dependents[owner]
            self._count_blocker(owner, -int(blocks))
        for owner, blocks in (after.owners if after else {}).items():
            self._dependents[owner][uid] = None
            self._count_blocker(owner, int(blocks))

    def _count_blocker(self, owner: str, step: int) -> None:
        self._blockers[owner] += step
        if self._blockers[owner] == 0:
            del self._blockers[owner]
            if owner in self._entries and self._entries[owner].foreground:
                self._note(owner)

    def _note(self, *uids: str) -> None:
        now = self._clock()
        for uid in uids:
            self._agenda.hurry(uid, now)

    # --- the work --------------------------------------------------------------------------------------------

    def work(self, now: datetime) -> None:
        """Look at the objects that are due."""
        for uid in self._agenda.take_due(now, SLICE):
            entry = self._entries.get(uid)
            stored = self._store.get(entry.kind, entry.namespace, entry.name) if entry else None
            if entry is not None and stored is not None and stored.obj["metadata"]["uid"] == uid:
                self._look_at(uid, entry, stored.obj)

    def next_due(self) -> datetime | None:
        """Say when an object has to be looked at."""
        return self._agenda.next_due()

    def _look_at(self, uid: str, entry: _Entry, obj: Obj) -> None:
        if is_orphaning(obj):
            self._orphan_some(uid, entry, obj)
        elif is_foreground(obj) and uid not in self._blockers:
            self._writes.replace(entry.kind, without_finalizer(obj, FOREGROUND_FINALIZER))
        elif not is_leaving(obj):
            self._collect(uid, entry, obj)

    def _orphan_some(self, uid: str, entry: _Entry, obj: Obj) -> None:
        """Free a slice of the dependents; the owner may go when none is left."""
        for dependent in [*self._dependents.get(uid, ())][:SLICE]:
            other = self._entries[dependent]
            stored = self._store.get(other.kind, other.namespace, other.name)
            if stored is not None:
                self._writes.replace(other.kind, without_owner(stored.obj, [uid]))
        if self._dependents.get(uid):
            self._note(uid)
        else:
            self._writes.replace(entry.kind, without_finalizer(obj, ORPHAN_FINALIZER))

    def _collect(self, uid: str, entry: _Entry, obj: Obj) -> None:
        verdict = judge(
            obj,
            lambda reference: self._state_of(entry, reference),
            has_dependents=bool(self._dependents.get(uid)),
        )
        match verdict:
            case Remove(propagation):
                self._writes.delete(entry.kind, obj, propagation=propagation)
            case Keep(drop) if drop:
                self._writes.replace(entry.kind, without_owner(obj, drop))

    def _state_of(self, dependent: _Entry, reference: Obj) -> OwnerState:
        owner = self._entries.get(reference["uid"])
        if owner is None or not _is_the_one(owner, dependent, reference):
            return OwnerState.ABSENT
        return OwnerState.WAITING if owner.foreground else OwnerState.SOLID


def _is_the_one(owner: _Entry, dependent: _Entry, reference: Obj) -> bool:
    """Say whether the object with the reference's uid is what the reference names, and within reach.

    An owner is in the dependent's namespace or in none; anything else does not exist as far as the dependent
    goes.
    """
    group = reference["apiVersion"].rpartition("/")[0]
    named = (owner.kind.group, owner.kind.kind, owner.name) == (group, reference["kind"], reference["name"])
    return named and (not owner.kind.namespaced or owner.namespace == dependent.namespace)


def _read(kind: Kind, obj: Obj) -> _Entry:
    metadata = obj["metadata"]
    owners = {entry["uid"]: bool(entry.get("blockOwnerDeletion")) for entry in metadata.get("ownerReferences") or ()}
    return _Entry(kind, metadata.get("namespace"), metadata["name"], owners, is_foreground(obj))
