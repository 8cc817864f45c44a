"""The one place where the behaviour half changes anything.

Controllers decide; these methods carry it out through `verbs`, as any client would, with the uid of the
object that was looked at. An object that is gone or was replaced meanwhile is no error: the store's listeners
have told, or will tell, the controller. Anything else that is refused is logged and counted, and never stops
the simulation.
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
_FORBIDDEN: Final = 403  # a namespace that is being emptied takes nothing new


class ControllerClient:
    """Writes through the verbs, one method an intention; `tally` counts them by method for tests and
    curiosity.
    """

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self.write_counts: Counter[str] = Counter()

    def create(self, kind: Kind, namespace: str | None, body: Obj) -> Obj | None:
        """Create an object; None when it was refused."""
        return self._write("create", partial(self._verbs.create, kind, namespace, body, manager=FIELD_MANAGER))

    def update_status(self, kind: Kind, obj: Obj, status: Obj) -> bool:
        """Store a status unless it is the one there is; say whether something was written."""
        if obj.get("status") == status:
            return False
        return self._update("status", kind, {**obj, "status": status}, "status") is not None

    def update(self, kind: Kind, obj: Obj) -> bool:
        """Store a changed copy of an object; say whether it was accepted."""
        return self._update("update", kind, obj, None) is not None

    def finalize_namespace(self, kind: Kind, namespace: Obj) -> None:
        """Let a namespace go that has been emptied, by way of its finalize subresource."""
        spec = {**(namespace.get("spec") or {}), "finalizers": []}
        self._update("update", kind, {**namespace, "spec": spec}, "finalize")

    def delete(self, kind: Kind, obj: Obj, *, grace_seconds: int | None = None, propagation: str | None = None) -> None:
        """Ask for the deletion of exactly this object."""
        delete = partial(self._verbs.delete, kind, *_namespace_and_name(obj), uid=obj["metadata"]["uid"])
        self._write("delete", partial(delete, grace_seconds=grace_seconds, propagation=propagation))

    def bind(self, pod: tuple[str, str], node: str) -> bool:
        """Give a pod its node; say whether it took it."""

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
                log.warning("%s was refused: %s", what, error)
            return None
        self.write_counts[what] += 1
        return result


def _namespace_and_name(obj: Obj) -> tuple[str | None, str]:
    return obj["metadata"].get("namespace"), obj["metadata"]["name"]
