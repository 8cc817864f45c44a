"""Adopts the objects of a workload that have no controller, as the controllers of Kubernetes do.

`kubectl delete --cascade=orphan` leaves the children of a set or of a scaling group without an owner. A set that is
created under the same name would wait for their names forever. `reconciler` calls this before it plans: each object
that fits into the workload and has no controller gets its set or its scaling group as its controller.

The invariants: an object that has another controller stays unchanged, and so does an object of Grove's own operator,
which only a takeover changes. No object is adopted for an owner that is being deleted. All of this is read from the
cluster right before the write, and the write carries uid and resourceVersion. An object that cannot be adopted does not
keep the others from being adopted.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollouts.cluster import ClusterClient, Conflict, Forbidden, Invalid, NotFound, Obj
from rollouts.cluster.resources import PODCLIQUESCALINGGROUPS, PODCLIQUESETS
from rollouts.controller.executor import RESOURCES, WriteRecord, WriteResult, write_key_of
from rollouts.engine.model import names
from rollouts.engine.model.actions import Patch
from rollouts.engine.model.metadata import make_owner_references
from rollouts.engine.plan.adoption import GROVE_FINALIZERS
from rollouts.engine.tree.tree_builder import Orphan
from rollouts.mirror.other_operator import is_written_by_grove


@dataclass(frozen=True, slots=True)
class AdoptionResult:
    """The results of adopting orphans."""

    records: Sequence[WriteRecord] = ()
    # Orphans whose scaling group does not exist yet: they must not be created before they are adopted.
    without_owner: Sequence[Orphan] = ()


def adopt_orphans(
    cluster: ClusterClient, manifest: Obj, orphans: Sequence[Orphan], backed_off: Container[str]
) -> AdoptionResult:
    """Give orphans the set or the scaling group that they belong to, except where the write is backed off."""
    metadata = manifest["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    references = _OwnerReferences(cluster, namespace, name, metadata["uid"])
    records, without_owner = list[WriteRecord](), list[Orphan]()
    for orphan in orphans:
        action = Patch(orphan.kind, orphan.name, orphan.uid, "", {})
        if write_key_of(action) in backed_off:
            records.append(WriteRecord(action, WriteResult.SKIPPED))
            continue
        try:
            reference = references.find(orphan.group)
        except NotFound:
            without_owner.append(orphan)
            continue
        try:
            stored = _adopt_one(cluster, namespace, name, orphan, reference) if reference else None
        except (NotFound, Conflict):
            continue  # it has changed or is gone; the next pass looks again
        except (Forbidden, Invalid) as error:
            records.append(WriteRecord(action, WriteResult.REJECTED, error=error))
            continue
        if stored is not None:
            records.append(WriteRecord(action, WriteResult.APPLIED, stored))
    return AdoptionResult(records, without_owner)


def _adopt_one(
    cluster: ClusterClient, namespace: str, name: str, orphan: Orphan, reference: list[dict[str, Any]]
) -> Obj | None:
    """Add the reference to an orphan that may be adopted, and return the object as stored; None if it may not."""
    resource = RESOURCES[orphan.kind]
    found = cluster.get(resource, orphan.name, namespace=namespace)
    if found["metadata"]["uid"] != orphan.uid or not _is_adoptable(found, name):
        return None
    change = {"metadata": _render_adoption(found["metadata"], reference)}
    return cluster.patch_merge(resource, orphan.name, change, namespace=namespace)


class _OwnerReferences:
    """The owner references for children of the set and of its scaling groups, as the cluster has these now."""

    def __init__(self, cluster: ClusterClient, namespace: str, name: str, uid: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._uid = uid
        self._found: dict[str, list[dict[str, Any]]] = {}

    def find(self, group: str) -> list[dict[str, Any]]:
        """Return the reference to a scaling group by name, or to the set for none; empty if it is being deleted."""
        if group not in self._found:
            self._found[group] = self._fetch(group)
        return self._found[group]

    def _fetch(self, group: str) -> list[dict[str, Any]]:
        resource = PODCLIQUESCALINGGROUPS if group else PODCLIQUESETS
        owner = self._cluster.get(resource, group or self._name, namespace=self._namespace)["metadata"]
        if owner.get("deletionTimestamp") or (not group and owner["uid"] != self._uid):
            return []
        return make_owner_references(resource.kind, owner["name"], owner["uid"])


def _is_adoptable(obj: Obj, name: str) -> bool:
    """Whether an object has the labels of the set and no controller, is not being deleted and is not Grove's."""
    metadata = obj["metadata"]
    labels = metadata.get("labels") or {}
    is_labelled = labels.get(names.MANAGED_BY) == names.OPERATOR and labels.get(names.PART_OF) == name
    owners = metadata.get("ownerReferences") or ()
    is_groves = is_written_by_grove(obj) or not GROVE_FINALIZERS.isdisjoint(metadata.get("finalizers") or ())
    is_free = not is_groves and not any(one.get("controller") for one in owners)
    return is_labelled and is_free and not metadata.get("deletionTimestamp")


def _render_adoption(metadata: Mapping[str, Any], reference: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "uid": metadata["uid"],
        "resourceVersion": metadata["resourceVersion"],
        "ownerReferences": [*(metadata.get("ownerReferences") or ()), *reference],
    }
