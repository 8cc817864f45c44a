"""The one place where the behaviour half changes anything.

Controllers decide; these methods carry it out through `verbs`, as any client would, with the uid of the
object that was looked at. An object that is gone or was replaced meanwhile is no error: the store's listeners
have told, or will tell, the controller. Anything else that is refused is logged and counted, and never stops
the simulation.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from rollouts.sandbox.registry import Kind
from rollouts.sandbox.status import ApiError
from rollouts.sandbox.verbs import Verbs

Obj = dict[str, Any]
log: Final = logging.getLogger(__name__)

MANAGER: Final = "sandbox"
_GONE: Final = (404, 409)
_FORBIDDEN: Final = 403  # a namespace that is being emptied takes nothing new


class Writes:
    """Writes through the verbs, one method an intention; `tally` counts them by method for tests and
    curiosity.
    """

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self.tally: Counter[str] = Counter()

    def create(self, kind: Kind, namespace: str | None, body: Obj) -> Obj | None:
        """Create an object; None when it was refused."""
        return self._try("create", lambda: self._verbs.create(kind, namespace, body, manager=MANAGER))

    def put_status(self, kind: Kind, obj: Obj, status: Obj) -> bool:
        """Store a status unless it is the one there is; say whether something was written."""
        if obj.get("status") == status:
            return False
        body = {**obj, "status": status}
        namespace, name = _place(obj)
        update = lambda: self._verbs.update(  # noqa: E731 the verb is the whole body
            kind, namespace, name, body, subresource="status", manager=MANAGER
        )
        return self._try("status", update) is not None

    def replace(self, kind: Kind, obj: Obj) -> bool:
        """Store a changed copy of an object; say whether it was accepted."""
        namespace, name = _place(obj)
        update = lambda: self._verbs.update(kind, namespace, name, obj, manager=MANAGER)  # noqa: E731
        return self._try("update", update) is not None

    def release_namespace(self, kind: Kind, namespace: Obj) -> None:
        """Let a namespace go that has been emptied, by way of its finalize subresource."""
        body = {**namespace, "spec": {**(namespace.get("spec") or {}), "finalizers": []}}
        name = namespace["metadata"]["name"]
        finalize = lambda: self._verbs.update(  # noqa: E731
            kind, None, name, body, subresource="finalize", manager=MANAGER
        )
        self._try("update", finalize)

    def delete(self, kind: Kind, obj: Obj, *, grace_seconds: int | None = None, propagation: str | None = None) -> None:
        """Ask for the deletion of exactly this object."""
        namespace, name = _place(obj)
        uid = obj["metadata"]["uid"]
        delete = lambda: self._verbs.delete(  # noqa: E731
            kind, namespace, name, uid=uid, grace_seconds=grace_seconds, propagation=propagation
        )
        self._try("delete", delete)

    def bind(self, pod: tuple[str, str], node: str) -> bool:
        """Give a pod its node; say whether it took it."""

        def bind() -> Obj:
            self._verbs.bind(pod[0], pod[1], node)
            return {}

        return self._try("bind", bind) is not None

    def _try(self, what: str, action: Callable[[], Obj]) -> Obj | None:
        try:
            result = action()
        except ApiError as error:
            if error.code not in (*_GONE, _FORBIDDEN):
                self.tally["refused"] += 1
                log.warning("%s was refused: %s", what, error)
            return None
        self.tally[what] += 1
        return result


def _place(obj: Obj) -> tuple[str | None, str]:
    return obj["metadata"].get("namespace"), obj["metadata"]["name"]
