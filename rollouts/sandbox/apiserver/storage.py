"""All objects of the sandbox, their one resourceVersion counter, and the log of changes that watches read.

`verbs` is the only writer. An object passed to `put` belongs to the store from then on; a returned object is shared
and never changed. Each object is serialised once, when it is written: lists, watches and the database share the bytes.

Kept in SQLite: a write is committed before `put` returns, so a process killed at any line loses nothing that was
acknowledged, and the counter never goes back, not even over a delete. The change log lives in memory and is bounded;
a reader that is behind its oldest entry, or comes from before a restart, gets a `TooOldResourceVersionError` and lists
again.
"""

import sqlite3
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, Self

import orjson

from rollouts.sandbox.apiserver.registry import Kind

Obj = dict[str, Any]
ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]

# How many changes of one kind a watch may lag behind before it has to list again.
WATCH_CACHE_SIZE = 2_000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, revision INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (resource, namespace, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counter (one INTEGER PRIMARY KEY CHECK (one = 1), revision INTEGER NOT NULL);
INSERT OR IGNORE INTO counter VALUES (1, 0);
"""


class TooOldResourceVersionError(Exception):
    """The requested changes are no longer in the log."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"changes before {oldest} are gone")
        self.oldest = oldest


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One version of an object: its value, its bytes and the revision that made it."""

    obj: Obj
    body: bytes
    revision: int


@dataclass(frozen=True, slots=True)
class StorageChange:
    """A write, as subscribers and watches see it."""

    kind: Kind
    type: ChangeType
    obj: Obj
    old: Obj | None
    revision: int
    body: bytes  # the object's bytes


class _KindObjects:
    """The objects of one kind, by namespace and name, with their names kept in listing order."""

    __slots__ = ("by_namespace", "changes", "compacted_revision", "ordered")

    def __init__(self) -> None:
        self.by_namespace: dict[str, dict[str, StoredObject]] = {}
        self.ordered: dict[str, list[str]] = {}  # sorted names, computed on demand, dropped on add and remove
        self.changes: list[StorageChange] = []
        self.compacted_revision = 0  # revision of the newest change no longer in the log

    def sorted_names(self, namespace: str) -> list[str]:
        names = self.ordered.get(namespace)
        if names is None:
            names = self.ordered[namespace] = sorted(self.by_namespace.get(namespace, ()))
        return names

    def append_change(self, change: StorageChange) -> None:
        self.changes.append(change)
        if len(self.changes) >= 2 * WATCH_CACHE_SIZE:  # in halves, so that a write costs the same on average
            self.compacted_revision = self.changes[WATCH_CACHE_SIZE - 1].revision
            del self.changes[:WATCH_CACHE_SIZE]


class Storage:
    """The objects of a sandbox. Single-threaded: all calls come from one event loop."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._objects_by_kind: dict[str, _KindObjects] = {}
        self._subscribers: list[Callable[[StorageChange], None]] = []
        self._undelivered: deque[StorageChange] = deque()  # stored, not yet delivered to the subscribers
        self.revision = 0
        self._load()

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open or create the store kept in a file; `:memory:` keeps nothing."""
        database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        database.execute("PRAGMA journal_mode = WAL")
        # A commit reaches the operating system, which outlives this process; only a power cut may lose the last ones.
        database.execute("PRAGMA synchronous = NORMAL")
        database.executescript(_SCHEMA)
        return cls(database)

    def close(self) -> None:
        self._database.close()

    def _load(self) -> None:
        (self.revision,) = self._database.execute("SELECT revision FROM counter").fetchone()
        rows = self._database.execute("SELECT resource, namespace, name, revision, body FROM objects")
        for resource, namespace, name, revision, body in rows:
            kind_objects = self._objects_by_kind.setdefault(resource, _KindObjects())
            objects = kind_objects.by_namespace.setdefault(namespace, {})
            objects[name] = StoredObject(orjson.loads(body), body, revision)
            self.revision = max(self.revision, revision)
        self._opened_at = self.revision
        for kind_objects in self._objects_by_kind.values():
            kind_objects.compacted_revision = self.revision

    # --- reading ---------------------------------------------------------------------------------------------------

    def get(self, kind: Kind, namespace: str | None, name: str) -> StoredObject | None:
        kind_objects = self._objects_by_kind.get(kind.key)
        return kind_objects.by_namespace.get(namespace or "", {}).get(name) if kind_objects is not None else None

    def list(self, kind: Kind, namespace: str | None = None) -> Iterator[StoredObject]:
        """Yield the objects of a kind, in one namespace or all, ordered by namespace and name."""
        kind_objects = self._objects_by_kind.get(kind.key)
        if kind_objects is None:
            return
        namespaces = sorted(kind_objects.by_namespace) if namespace is None else [namespace]
        for one in namespaces:
            objects = kind_objects.by_namespace.get(one, {})
            for name in tuple(kind_objects.sorted_names(one)):
                yield objects[name]

    def count(self, kind: Kind) -> int:
        kind_objects = self._objects_by_kind.get(kind.key)
        return sum(map(len, kind_objects.by_namespace.values())) if kind_objects is not None else 0

    def changes(self, kind: Kind, since: int) -> Sequence[StorageChange]:
        """Return the changes of a kind after a revision, oldest first; raise if some are no longer in the log."""
        kind_objects = self._objects_of(kind)
        if since < kind_objects.compacted_revision:
            raise TooOldResourceVersionError(kind_objects.compacted_revision + 1)
        if not kind_objects.changes or kind_objects.changes[-1].revision <= since:
            return []
        return kind_objects.changes[bisect_right(kind_objects.changes, since, key=attrgetter("revision")) :]

    # --- writing ---------------------------------------------------------------------------------------------------

    def put(self, kind: Kind, obj: Obj) -> Obj:
        """Store a new version of an object under the next revision, and notify the subscribers."""
        metadata = obj["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        kind_objects = self._objects_of(kind)
        objects = kind_objects.by_namespace.setdefault(namespace, {})
        old = objects.get(name)
        revision = self.revision + 1
        metadata["resourceVersion"] = str(revision)
        body = orjson.dumps(obj)
        self._database.execute(
            "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)", (kind.key, namespace, name, revision, body)
        )
        self.revision = revision
        objects[name] = StoredObject(obj, body, revision)
        if old is None:
            kind_objects.ordered.pop(namespace, None)
        change_type: ChangeType = "ADDED" if old is None else "MODIFIED"
        self._publish(kind_objects, StorageChange(kind, change_type, obj, old.obj if old else None, revision, body))
        return obj

    def remove(self, kind: Kind, obj: Obj) -> Obj:
        """Remove an object; its last version carries the revision of the removal."""
        metadata = {**obj["metadata"]}
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        kind_objects = self._objects_of(kind)
        old = kind_objects.by_namespace[namespace][name]
        revision = self.revision + 1
        metadata["resourceVersion"] = str(revision)
        last = {**obj, "metadata": metadata}
        self._database.execute("BEGIN")
        self._database.execute(
            "DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?", (kind.key, namespace, name)
        )
        self._database.execute("UPDATE counter SET revision = ?", (revision,))
        self._database.execute("COMMIT")
        self.revision = revision
        del kind_objects.by_namespace[namespace][name]
        kind_objects.ordered.pop(namespace, None)
        self._publish(kind_objects, StorageChange(kind, "DELETED", last, old.obj, revision, orjson.dumps(last)))
        return last

    def subscribe(self, callback: Callable[[StorageChange], None]) -> Callable[[], None]:
        """Call back after each stored write, in order; return the function that unsubscribes."""
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

        return unsubscribe

    def _publish(self, kind_objects: _KindObjects, change: StorageChange) -> None:
        """Notify the subscribers, in the order of the writes even when a subscriber writes."""
        kind_objects.append_change(change)
        self._undelivered.append(change)
        if len(self._undelivered) > 1:
            return  # an outer call is delivering and will reach this change
        while self._undelivered:
            for callback in tuple(self._subscribers):
                callback(self._undelivered[0])
            self._undelivered.popleft()

    def _objects_of(self, kind: Kind) -> _KindObjects:
        kind_objects = self._objects_by_kind.get(kind.key)
        if kind_objects is None:
            kind_objects = self._objects_by_kind[kind.key] = _KindObjects()
            # Before the first write of this kind in this process: what an earlier process did is not in the log.
            kind_objects.compacted_revision = self._opened_at
        return kind_objects
