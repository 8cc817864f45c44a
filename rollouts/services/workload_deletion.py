"""Deletes a workload: the PodCliqueSet, and with it everything that it owns.

Only the set is deleted; the cluster's garbage collector deletes the rest, as after `kubectl delete`. The deletion
applies only to the object (uid) that was read, and for a caller who named a version (`expected`) only in that state. A
status that is written in between fails the precondition, so the deletion is tried again as long as only the status has
changed.

A dry run counts, from the mirror, the pods, the gangs and the extended resources that the pods request. The audit log
keeps the manifest, with secrets masked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import VersionConflict
from rollouts.cluster import Conflict, Obj
from rollouts.cluster.deletion import Deletion, delete_object
from rollouts.cluster.resources import PODCLIQUESETS
from rollouts.engine.model.observed import Observed
from rollouts.engine.scheduling.resources import MILLI_PER_UNIT, NATIVE_RESOURCES, add_resources
from rollouts.manifests.masking import RECORD_READER
from rollouts.models import Pod
from rollouts.services.audit import Caller, audited_command
from rollouts.services.deletion import make_changes
from rollouts.services.edit import (
    MAX_ATTEMPTS,
    compute_changes,
    fetch_expected,
    render_audit_side,
    too_many_conflicts,
)
from rollouts.services.pods import read_observed
from rollouts.services.workload_client import (
    WorkloadClient,
    open_writable_client,
    translate_cluster_errors,
    version_of_object,
)

LARGE_POD_COUNT: Final = 10
"""With this many pods, or any extended resource, a form asks for the name of the workload before it deletes it."""

_EMPTY: Final[Obj] = {"metadata": {}}


@dataclass(frozen=True, slots=True)
class Extent:
    """What is deleted with a workload."""

    pods: int
    gangs: int
    resources: Mapping[str, int] = field(default_factory=dict)  # extended resources that the pods request, by name

    @property
    def is_large(self) -> bool:
        """Whether one click must not be enough to delete it."""
        return self.pods >= LARGE_POD_COUNT or bool(self.resources)

    def __str__(self) -> str:
        counts = {"pod": self.pods, "gang": self.gangs}
        parts = [f"{number} {word}{'s' * (number != 1)}" for word, number in counts.items()]
        return ", ".join([*parts, *(f"{number} {name}" for name, number in self.resources.items())])


@dataclass(frozen=True, slots=True)
class WorkloadDeleted:
    """A workload that was deleted, or would be."""

    place: WorkloadRef
    version: str  # of the workload before its deletion
    extent: Extent
    was_leaving: bool  # it was terminating already; nothing was sent
    is_dry_run: bool


def workload_delete(
    caller: Caller, place: WorkloadRef, *, expected: str | None = None, dry_run: bool = False
) -> WorkloadDeleted:
    """Delete a workload with everything that belongs to it."""
    with audited_command(caller, Command.DELETE_WORKLOAD, place, dry_run=dry_run) as audited:
        client = open_writable_client(place)
        live = fetch_expected(client, expected)
        extent = measure_extent(place, read_observed(client, live))
        was_leaving = bool(live["metadata"].get("deletionTimestamp"))
        result = WorkloadDeleted(place, version_of_object(live), extent, was_leaving, dry_run)
        if was_leaving:
            return result
        before = render_audit_side(live, compute_changes(place, live, _EMPTY, RECORD_READER), "before")
        audited.begin(before=before, detail=str(extent))
        deletion = _delete_with_preconditions(client, live, expected, dry_run=dry_run)
        if not dry_run:
            client.write_through([make_changes(PODCLIQUESETS, [deletion])])
            audited.done(before=before, detail=str(extent))
        return result


def measure_extent(place: WorkloadRef, observed: Observed) -> Extent:
    """Count what is deleted with a workload, from the mirror."""
    rows = Pod.objects.filter(cluster__name=place.cluster, namespace=place.namespace, workload=place.name).order_by()
    total: dict[str, int] = {}
    for requests in rows.values_list("requests", flat=True):
        total = add_resources(total, requests)
    resources = {
        name: amount // MILLI_PER_UNIT for name, amount in sorted(total.items()) if name not in NATIVE_RESOURCES
    }
    return Extent(len(observed.pods), len(observed.gangs), resources)


def _delete_with_preconditions(client: WorkloadClient, seen: Obj, expected: str | None, *, dry_run: bool) -> Deletion:
    """Delete the object that was read, and return what the answer says; raises VersionConflict when it has changed."""
    live = seen
    for _ in range(MAX_ATTEMPTS):
        uid, version = live["metadata"]["uid"], live["metadata"]["resourceVersion"]
        with translate_cluster_errors(f"PodCliqueSet {client.place.name}", is_write=not dry_run):
            try:
                return delete_object(
                    *(client.cluster, PODCLIQUESETS, client.place.name),
                    namespace=client.place.namespace,
                    uid=uid,
                    resource_version=None if expected is None else version,
                    propagation="Background",
                    dry_run=dry_run,
                )
            except Conflict:
                pass
        live = fetch_expected(client, expected, seen=live)
        if live["metadata"]["uid"] != uid:
            raise VersionConflict(
                f"{client.place.name} has been deleted and created again since you loaded it; load it again."
            )
    raise too_many_conflicts(client.place.name)
