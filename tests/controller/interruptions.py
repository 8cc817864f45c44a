"""A cluster whose writes are interrupted: before they take effect, after that, or by the end of the process.

It stands between the reconciler and a real cluster. Nothing handles `Killed`; and since a killed process writes nothing
more, the database then rejects everything until the test lets the next process begin.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, cast

from django.db import connection

from rollouts.cluster import ClusterClient, Conflict, Obj, Resource, Unavailable


class Killed(BaseException):
    """The process was killed."""


class Way(Enum):
    """How a write is interrupted."""

    CUT_BEFORE = "cut off before it took effect"
    CUT_AFTER = "cut off after it took effect"
    KILLED_BEFORE = "killed before it took effect"
    KILLED_AFTER = "killed after it took effect"
    CONFLICT = "rejected with a conflict"


class Interrupted:
    """A cluster as the reconciler uses it; `is_due` is asked with the number and the name of every write."""

    def __init__(self, cluster: ClusterClient, way: Way, is_due: Callable[[int, str], bool]) -> None:
        self.writes: list[str] = []  # that were sent
        self.effective: list[str] = []  # that took effect
        self.interruptions = 0
        self.is_dead = False
        self._cluster = cluster
        self._way = way
        self._is_due = is_due
        self._lock = threading.Lock()

    def as_cluster(self) -> ClusterClient:
        """Return it under the type of a client."""
        return cast("ClusterClient", self)

    def get(self, resource: Resource, name: str, **options: Any) -> Obj:
        return self._cluster.get(resource, name, **options)

    def list(self, resource: Resource, **options: Any) -> Any:
        return self._cluster.list(resource, **options)

    def create(self, resource: Resource, obj: Obj) -> Obj:
        name = f"create {resource.plural} {obj['metadata']['name']}"
        return self._write(name, lambda: self._cluster.create(resource, obj))

    def update(self, resource: Resource, obj: Obj, **options: Any) -> Obj:
        name = f"update {resource.plural} {obj['metadata']['name']}"
        return self._write(name, lambda: self._cluster.update(resource, obj, **options))

    def patch_merge(self, resource: Resource, name: str, patch: Obj, **options: Any) -> Obj:
        call = f"patch {resource.plural} {name}"
        return self._write(call, lambda: self._cluster.patch_merge(resource, name, patch, **options))

    def patch_json(self, resource: Resource, name: str, operations: Any, **options: Any) -> Obj:
        call = f"patch {resource.plural} {name}"
        return self._write(call, lambda: self._cluster.patch_json(resource, name, operations, **options))

    def delete(self, resource: Resource, name: str, **options: Any) -> Obj:
        call = f"delete {resource.plural} {name}"
        return self._write(call, lambda: self._cluster.delete(resource, name, **options))

    def _write(self, call: str, write: Callable[[], Obj]) -> Obj:
        with self._lock:
            if self.is_dead:
                raise Killed
            self.writes.append(call)
            is_due = self._is_due(len(self.writes), call)
            self.interruptions += is_due
            self.is_dead = is_due and self._way in (Way.KILLED_BEFORE, Way.KILLED_AFTER)
        if not is_due or self._way in (Way.CUT_AFTER, Way.KILLED_AFTER):
            answer = write()
            self.effective.append(call)
            if not is_due:
                return answer
        if self._way is Way.CONFLICT:
            raise Conflict("the object has been modified")
        raise Killed if self.is_dead else Unavailable("the connection was cut")

    @contextlib.contextmanager
    def one_process(self) -> Iterator[None]:
        """Run a process: if it is killed inside the block it ends there, and writes nothing more anywhere."""

        def execute(call: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
            if self.is_dead:
                raise Killed
            return call(sql, params, many, context)

        with contextlib.suppress(Killed), connection.execute_wrapper(execute):
            yield
        self.is_dead = False


def is_first_time() -> Callable[[int, str], bool]:
    """Return a predicate that interrupts every write when it is sent for the first time."""
    seen: set[str] = set()

    def is_due(_number: int, call: str) -> bool:
        is_new = call not in seen
        seen.add(call)
        return is_new

    return is_due
