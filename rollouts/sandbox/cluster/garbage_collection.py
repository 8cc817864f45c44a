"""What happens to objects whose owners are deleted: the rule of owner references, over values.

An owner is *solid* (it exists and is not deleted in the foreground), *dangling* (absent), or *waiting for dependents*
(being deleted in the foreground: it stays until its dependents are removed). An object with a solid owner stays and
only loses its references to the others. An object without one is deleted, in the foreground when its owner waits and
it has dependents itself, so that the wait reaches to the leaves. `controllers.garbage_collector` keeps the graph and
carries the decisions out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rollouts.sandbox.apiserver.objectmeta import FOREGROUND_FINALIZER, ORPHAN_FINALIZER

Obj = dict[str, Any]


class OwnerState(Enum):
    """The state of an owner, as its dependents see it."""

    SOLID = "solid"
    DANGLING = "absent"
    WAITING_FOR_DEPENDENTS = "waiting"


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep the object, without its references to the owners with these uids."""

    drop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object."""

    propagation: str


CollectionAction = Keep | Delete


def choose_action(obj: Obj, state_of: Callable[[Obj], OwnerState], *, has_dependents: bool) -> CollectionAction:
    """Choose what happens to an object, given the state of the owner of each reference."""
    references: Sequence[Obj] = obj["metadata"].get("ownerReferences") or ()
    states = {reference["uid"]: state_of(reference) for reference in references}
    if not states or all(state is OwnerState.SOLID for state in states.values()):
        return Keep()
    if OwnerState.SOLID in states.values():
        return Keep(tuple(uid for uid, state in states.items() if state is not OwnerState.SOLID))
    if OwnerState.WAITING_FOR_DEPENDENTS in states.values() and has_dependents:
        return Delete("Foreground")
    return Delete(_default_propagation(obj))


def is_deleting_dependents(obj: Obj) -> bool:
    """Return whether the object is being deleted in the foreground."""
    return _is_terminating_with(obj, FOREGROUND_FINALIZER)


def is_orphaning(obj: Obj) -> bool:
    """Return whether the object is being deleted and orphans its dependents."""
    return _is_terminating_with(obj, ORPHAN_FINALIZER)


def without_owner_references(obj: Obj, uids: Sequence[str]) -> Obj:
    """Return a copy of an object without its references to these owners."""
    metadata = obj["metadata"]
    kept = [entry for entry in metadata.get("ownerReferences") or () if entry["uid"] not in uids]
    return {**obj, "metadata": {**metadata, "ownerReferences": kept}}


def without_finalizer(obj: Obj, finalizer: str) -> Obj:
    """Return a copy of an object without this finalizer."""
    metadata = obj["metadata"]
    kept = [entry for entry in metadata.get("finalizers") or () if entry != finalizer]
    return {**obj, "metadata": {**metadata, "finalizers": kept}}


def _is_terminating_with(obj: Obj, finalizer: str) -> bool:
    metadata = obj["metadata"]
    return bool(metadata.get("deletionTimestamp")) and finalizer in (metadata.get("finalizers") or ())


def _default_propagation(obj: Obj) -> str:
    """Return the propagation policy that the object's own finalizers ask for, Background by default."""
    finalizers = obj["metadata"].get("finalizers") or ()
    if ORPHAN_FINALIZER in finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND_FINALIZER in finalizers else "Background"
