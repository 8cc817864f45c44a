"""The writes of the controllers: the only module of `cluster` that changes stored objects.

The methods write through `verbs`, as any client would, with the uid of the object that the controller saw. An object
that was deleted or replaced meanwhile is no error: the controller observes that change too. Any other rejected write
is logged and counted, and never stops the controllers.
"""

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from rollouts.sandbox.apiserver.errors import ApiError
from rollouts.sandbox.apiserver.registry import Kind
from rollouts.sandbox.apiserver.verbs import Verbs

Obj = dict[str, Any]
log: Final = logging.getLogger(__name__)

FIELD_MANAGER: Final = "sandbox"
_NOT_FOUND_OR_CONFLICT: Final = (404, 409)
_FORBIDDEN: Final = 403  # a terminating namespace accepts no new objects


class ControllerClient:
    """Writes through the verbs; `write_counts` counts the writes by method, which tests use as the measure of work."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self.write_counts: Counter[str] = Counter()

    def create(self, kind: Kind, namespace: str | None, body: Obj) -> Obj | None:
        """Create an object; return None when it was rejected."""
        return self._write("create", partial(self._verbs.create, kind, namespace, body, manager=FIELD_MANAGER))

    def update_status(self, kind: Kind, obj: Obj, status: Obj) -> bool:
        """Store a status unless it is unchanged; return whether it was written."""
        if obj.get("status") == status:
            return False
        return self._update("status", kind, {**obj, "status": status}, "status") is not None

    def update(self, kind: Kind, obj: Obj) -> bool:
        """Store a changed copy of an object; return whether it was accepted."""
        return self._update("update", kind, obj, None) is not None

    def finalize_namespace(self, kind: Kind, namespace: Obj) -> None:
        """Remove the finalizers of an empty namespace, through its finalize subresource."""
        spec = {**(namespace.get("spec") or {}), "finalizers": []}
        self._update("update", kind, {**namespace, "spec": spec}, "finalize")

    def delete(self, kind: Kind, obj: Obj, *, grace_seconds: int | None = None, propagation: str | None = None) -> None:
        """Delete exactly this object."""
        delete = partial(self._verbs.delete, kind, *_namespace_and_name(obj), uid=obj["metadata"]["uid"])
        self._write("delete", partial(delete, grace_seconds=grace_seconds, propagation=propagation))

    def bind(self, pod: tuple[str, str], node: str) -> bool:
        """Bind a pod to a node; return whether that was accepted."""

        def bind() -> Obj:
            self._verbs.bind(pod[0], pod[1], node)
            return {}

        return self._write("bind", bind) is not None

    def _update(self, what: str, kind: Kind, obj: Obj, subresource: str | None) -> Obj | None:
        update = partial(self._verbs.update, kind, *_namespace_and_name(obj), obj)
        return self._write(what, partial(update, subresource=subresource, manager=FIELD_MANAGER))

    def _write(self, what: str, action: Callable[[], Obj]) -> Obj | None:
        try:
            result = action()
        except ApiError as error:
            if error.code not in (*_NOT_FOUND_OR_CONFLICT, _FORBIDDEN):
                self.write_counts["refused"] += 1
                log.warning("The API server rejected a write (%s): %s", what, error)
            return None
        self.write_counts[what] += 1
        return result


def _namespace_and_name(obj: Obj) -> tuple[str | None, str]:
    return obj["metadata"].get("namespace"), obj["metadata"]["name"]
