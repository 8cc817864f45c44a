"""What a delete request does to an object: remove it at once, or mark it with a deletionTimestamp.

Pure functions for `verbs.delete`. Finalizers and a pod's grace period keep a terminating object in the store; the write
that clears the last of them removes it. A second delete request may only shorten the grace period.
"""

from typing import Any

from rollouts.sandbox.apiserver.errors import ApiError, conflict
from rollouts.sandbox.apiserver.objectmeta import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from rollouts.sandbox.apiserver.registry import Kind

Obj = dict[str, Any]

_POLICY_FINALIZERS = {"Foreground": FOREGROUND_FINALIZER, "Orphan": ORPHAN_FINALIZER}


def check_preconditions(kind: Kind, obj: Obj, uid: str | None, resource_version: str | None) -> None:
    """Reject the delete if uid or resourceVersion differ from the precondition."""
    metadata = obj["metadata"]
    if uid is not None and uid != metadata["uid"]:
        raise _precondition_failed(
            kind, obj, f"UID in the precondition ({uid})", f"UID in record ({metadata['uid']})", _MAYBE_RECREATED
        )
    found = metadata["resourceVersion"]
    if resource_version is not None and resource_version != found:
        wanted = f"ResourceVersion in the precondition ({resource_version})"
        raise _precondition_failed(kind, obj, wanted, f"ResourceVersion in record ({found})", _MAYBE_MODIFIED)


_MAYBE_RECREATED = "The object might have been deleted and then recreated"
_MAYBE_MODIFIED = "The object might have been modified"


def _precondition_failed(kind: Kind, obj: Obj, wanted: str, found: str, guess: str) -> ApiError:
    return conflict(kind.qualified_kind(obj["metadata"]["name"]), f"the {wanted} does not match the {found}. {guess}")


def finalizers_for(obj: Obj, propagation: str | None) -> list[str]:
    """Return the finalizers of an object after a delete request with that propagation policy."""
    finalizers = list(obj["metadata"].get("finalizers") or ())
    if propagation is None:
        return finalizers
    finalizers = [one for one in finalizers if one not in _POLICY_FINALIZERS.values()]
    if propagation in _POLICY_FINALIZERS:
        finalizers.append(_POLICY_FINALIZERS[propagation])
    return finalizers


def with_deletion_timestamp(obj: Obj, finalizers: list[str], grace: int, deadline: str) -> Obj:
    """Return the object with its deletionTimestamp; the same object if nothing changes."""
    metadata = {**obj["metadata"]}
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    if "deletionTimestamp" not in metadata:
        if "generation" in metadata:
            metadata["generation"] += 1
        metadata |= {"deletionTimestamp": deadline, "deletionGracePeriodSeconds": grace}
    elif grace < metadata.get("deletionGracePeriodSeconds", 0):
        metadata |= {"deletionTimestamp": deadline, "deletionGracePeriodSeconds": grace}
    return {**obj, "metadata": metadata}


def is_removable(obj: Obj) -> bool:
    """Return whether nothing keeps a terminating object in the store any longer."""
    metadata = obj["metadata"]
    return (
        "deletionTimestamp" in metadata
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
        and not (obj.get("spec") or {}).get("finalizers")
    )
