"""Deletes an object and reads from the answer whether the object still exists.

Before it: the executor and the services, which decide what to delete. After it: `client`. The API server answers a
delete with the object while a grace period or finalizers keep it, with the object's last state or with a Status
otherwise; and with NotFound or Conflict if the object is gone or another one has its name. All of that is read here.

The invariant: an object counts as gone only if the API server says so about this uid or this name.
"""

from dataclasses import dataclass

from rollouts.cluster.client import ClusterClient, Obj, Propagation
from rollouts.cluster.errors import NotFound
from rollouts.cluster.resources import Resource


@dataclass(frozen=True, slots=True)
class Deletion:
    """What the cluster says about an object that was to be deleted; one of the two, or none if nothing is known."""

    current: Obj | None = None  # what has its name now: itself, or another object
    gone: Obj | None = None  # its last state, or only namespace, name and uid


def delete_object(
    cluster: ClusterClient,
    resource: Resource,
    name: str,
    *,
    namespace: str,
    uid: str,
    resource_version: str | None = None,
    grace_seconds: int | None = None,
    propagation: Propagation | None = None,
    dry_run: bool = False,
) -> Deletion:
    """Delete an object if it still has this uid, and return what the answer says about it."""
    answer = cluster.delete(
        resource,
        name,
        namespace=namespace,
        uid=uid,
        resource_version=resource_version,
        grace_seconds=grace_seconds,
        propagation=propagation,
        dry_run=dry_run,
    )
    if answer.get("kind") == "Status" or "uid" not in answer.get("metadata", {}):
        return Deletion(gone=make_reference(namespace, name, uid))
    return Deletion(current=answer) if _is_terminating(answer) else Deletion(gone=answer)


def fetch_deletion(
    cluster: ClusterClient, resource: Resource, name: str, *, namespace: str, uid: str, retry: bool = True
) -> Deletion:
    """Fetch what now has the name of an object; with an empty uid nothing counts as gone.

    Call it after an eviction, whose answer does not show the pod, and after a write that got NotFound or Conflict.
    """
    try:
        return Deletion(current=cluster.get(resource, name, namespace=namespace, retry=retry))
    except NotFound:
        return Deletion(gone=make_reference(namespace, name, uid) if uid else None)


def make_reference(namespace: str, name: str, uid: str) -> Obj:
    """Return the least that says which object is gone."""
    return {"metadata": {"namespace": namespace, "name": name, "uid": uid}}


def _is_terminating(obj: Obj) -> bool:
    """Return whether a deleted object still exists: its grace period runs, or it has finalizers."""
    metadata = obj["metadata"]
    return "deletionTimestamp" in metadata and bool(
        metadata.get("deletionGracePeriodSeconds") or metadata.get("finalizers")
    )
