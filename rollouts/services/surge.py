"""Finds and deletes the surge of a workload: a remedy for surge that takes the room of other pods, or that fails.

Surge is everything beyond the wanted number: replicas of the set, replicas of a scaling group, pods of a clique. The
engine's views say what it is at each level. Of a replica, the owners of its pods are deleted, as the controller does;
of a clique, the pods. No disruption budget is asked, so this is a deletion by force.

While an original is outdated, the controller creates surge again, which may be the purpose: it may start on another
node. The invariants: nothing within the wanted numbers is deleted; and because names are used again, surge is named
with a mark of the objects that were chosen, so an object that has taken a name since is safe.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import InvalidState
from rollouts.cluster import Obj, Resource
from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESCALINGGROUPS, PODS, SERVICES
from rollouts.engine.model.actions import Delete, Kind
from rollouts.engine.model.observed import Observed, Pod
from rollouts.engine.model.workload import Workload
from rollouts.engine.simulation.simulate import BY_HAND
from rollouts.engine.tree.layout import make_layout
from rollouts.engine.tree.tree_builder import build_tree
from rollouts.engine.tree.views import CliqueView, GroupView, ReplicaView
from rollouts.mirror import ObjectChanges
from rollouts.services.audit import Caller, audited_command
from rollouts.services.deletion import (
    ABORTING_RESULTS,
    DeletionMode,
    DeletionResult,
    DeletionRun,
    PodDeleter,
    PodOutcome,
    PodsDeleted,
    render_audit_begin,
    render_audit_outcomes,
    summarize_outcomes,
)
from rollouts.services.edit import fetch_expected
from rollouts.services.pods import read_observed, read_workload
from rollouts.services.workload_client import WorkloadClient, open_writable_client, version_of_object

_MAX_NAMED: Final = 500  # units in the audit log, by name
_MARK_LENGTH: Final = 16
_NO_SURGE: Final = "This surge no longer exists: it was deleted, or its pods are no longer surge."


@dataclass(frozen=True, slots=True)
class PodOwner:
    """An object that owns pods."""

    resource: Resource
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class SurgeUnit:
    """A replica or pod beyond the wanted number, which is deleted as a whole."""

    name: str  # my-3, my-0-decode-2, or the name of a pod
    component: str  # the name of the PodClique, scaling group or set that has the surge
    owners: tuple[PodOwner, ...]  # empty for a single pod
    pods: tuple[Pod, ...]

    @property
    def mark(self) -> str:
        """A hash of its uids, which tells it from a later unit with the same name."""
        uids = [one.uid for one in self.owners or self.pods]
        return hashlib.sha256(" ".join(sorted(uids)).encode()).hexdigest()[:_MARK_LENGTH]


@dataclass(frozen=True, slots=True)
class SurgeUnitRef:
    """A unit of surge by name and mark."""

    name: str
    mark: str


def find_surge(workload: Workload, observed: Observed) -> tuple[SurgeUnit, ...]:
    """Return the surge of a workload at every level, without terminating units."""
    tree = build_tree(make_layout(workload), observed)
    found: list[SurgeUnit] = []
    for replica in tree.replicas.values():
        if replica.index < workload.replicas:
            found += _surge_inside(replica)
        elif replica.has_live_owners:
            found.append(_whole_replica(workload.name, replica))
    return tuple(found)


def plan_surge_deletion(workload: Workload, observed: Observed, chosen: Collection[SurgeUnitRef]) -> tuple[Delete, ...]:
    """Return the deletion of surge, for a simulation."""
    units = _choose_units(find_surge(workload, observed), chosen)
    holders = [Delete(_KINDS[one.resource], one.name, one.uid, BY_HAND) for unit in units for one in unit.owners]
    pods = [Delete(Kind.POD, pod.name, pod.uid, BY_HAND) for unit in units if not unit.owners for pod in unit.pods]
    return (*holders, *pods)


_KINDS: Final = {PODCLIQUESCALINGGROUPS: Kind.GROUP, PODCLIQUES: Kind.CLIQUE, SERVICES: Kind.SERVICE}


def surge_delete(
    caller: Caller,
    place: WorkloadRef,
    chosen: Collection[SurgeUnitRef],
    *,
    expected: str | None = None,
    dry_run: bool = False,
) -> PodsDeleted:
    """Delete the chosen surge, and return what happened to each of its pods."""
    with audited_command(caller, Command.DELETE_ANY_PODS, place, dry_run=dry_run) as audited:
        client = open_writable_client(place)
        live = fetch_expected(client, expected)
        units = _choose_units(_read_surge(client, live), chosen)
        if not units:
            raise InvalidState(_NO_SURGE)
        surge = {"surge": [unit.name for unit in units[:_MAX_NAMED]]}
        audited.begin(after={**surge, **render_audit_begin([pod for unit in units for pod in unit.pods])})
        outcomes = _delete_pods(client, units, dry_run=dry_run)
        run = DeletionRun(is_aborted=any(one.outcome in ABORTING_RESULTS for one in outcomes))
        deleter = _OwnerDeleter(client, run, dry_run=dry_run)
        outcomes += [one for unit in units if unit.owners for one in deleter.delete(unit)]
        outcomes += _report_gone(units, chosen)
        if not dry_run:
            audited.done(after={**surge, **render_audit_outcomes(outcomes)}, detail=summarize_outcomes(outcomes))
        return PodsDeleted(place, version_of_object(live), tuple(outcomes), 0, dry_run, audited.entry_id)


def _choose_units(units: Iterable[SurgeUnit], chosen: Collection[SurgeUnitRef]) -> list[SurgeUnit]:
    return [unit for unit in units if SurgeUnitRef(unit.name, unit.mark) in chosen]


def _report_gone(units: Iterable[SurgeUnit], chosen: Collection[SurgeUnitRef]) -> list[PodOutcome]:
    gone = {*chosen} - {SurgeUnitRef(unit.name, unit.mark) for unit in units}
    return [PodOutcome(name, "", DeletionResult.GONE, _NO_SURGE) for name in sorted({one.name for one in gone})]


# ---- what is surge


def _surge_inside(replica: ReplicaView) -> Iterator[SurgeUnit]:
    for clique in replica.cliques:
        yield from (SurgeUnit(pod.name, clique.name, (), (pod,)) for pod in clique.list_surge(is_extra=False))
    for group in replica.groups:
        for part in group.replicas.values():
            if part.index >= group.wanted and not part.is_leaving:
                yield SurgeUnit(part.name, group.name, tuple(_pod_owners(part.cliques)), tuple(_pods(part.cliques)))


def _whole_replica(name: str, replica: ReplicaView) -> SurgeUnit:
    cliques = [*replica.cliques, *(one for group in replica.groups for one in _members(group))]
    holders = [
        *(PodOwner(PODCLIQUESCALINGGROUPS, one.group.name, one.group.uid) for one in replica.groups if one.group),
        *_pod_owners(cliques),
        *([] if replica.service is None else [PodOwner(SERVICES, replica.service.name, replica.service.uid)]),
    ]
    return SurgeUnit(replica.name, name, tuple(holders), tuple(_pods(cliques)))


def _members(group: GroupView) -> Iterator[CliqueView]:
    for part in group.replicas.values():
        yield from part.cliques


def _pod_owners(cliques: Iterable[CliqueView]) -> Iterator[PodOwner]:
    return (PodOwner(PODCLIQUES, view.clique.name, view.clique.uid) for view in cliques if view.clique)


def _pods(cliques: Iterable[CliqueView]) -> Iterator[Pod]:
    return (pod for view in cliques for pod in view.live)


# ---- its deletion


def _read_surge(client: WorkloadClient, live: Obj) -> tuple[SurgeUnit, ...]:
    return find_surge(read_workload(client, live), read_observed(client, live))


def _delete_pods(client: WorkloadClient, units: Sequence[SurgeUnit], *, dry_run: bool) -> list[PodOutcome]:
    pods = [pod for unit in units if not unit.owners for pod in unit.pods]
    if not pods:
        return []
    sender = PodDeleter(client, DeletionMode.DELETE, dry_run=dry_run)
    outcomes = [*sender.delete_all(pods)]
    if not dry_run:
        client.write_through([ObjectChanges(PODS, sender.found, sender.gone)])
    return outcomes


class _OwnerDeleter:
    """Deletes the objects that own the pods of surge, one after the other."""

    def __init__(self, client: WorkloadClient, run: DeletionRun, *, dry_run: bool) -> None:
        self._client = client
        self._run = run
        self._dry_run = dry_run

    def delete(self, unit: SurgeUnit) -> Iterator[PodOutcome]:
        """Delete a unit, and yield what happened to each of its pods, or to itself if it has none."""
        results = {(one.resource, one.name): self._attempt(one) for one in unit.owners}
        problems = [f"{name}: {said}" for (_, name), (result, said) in results.items() if result not in _SUCCESSFUL]
        is_under_way = any(result is DeletionResult.DELETED for result, _ in results.values())
        for pod in unit.pods:
            # Its clique owns it, and may be deleted with its scaling group before its own turn.
            result, message = results.get((PODCLIQUES, pod.clique), (DeletionResult.UNKNOWN, "Its owner is not known."))
            if result in _SUCCESSFUL and is_under_way:
                # A message about a part that could not be deleted comes with each pod.
                result, message = DeletionResult.DELETED, problems[0] if problems else f"Deleted with {unit.name}."
            yield PodOutcome(pod.name, pod.uid, result, message, pod.clique, pod.index)
        if not unit.pods:
            failed = [result for result, _ in results.values() if result not in _SUCCESSFUL]
            result = failed[0] if failed else DeletionResult.DELETED if is_under_way else DeletionResult.GONE
            yield PodOutcome(unit.name, "", result, problems[0] if problems else "It had no pods.")

    def _attempt(self, owner: PodOwner) -> tuple[DeletionResult, str]:
        message = f"{owner.name} was gone already, or another object has its name."
        return self._run.attempt(partial(self._delete, owner), lambda: (DeletionResult.GONE, message))

    def _delete(self, owner: PodOwner) -> DeletionResult:
        change = _delete_owner(self._client, owner, dry_run=self._dry_run)
        if not self._dry_run:
            self._client.write_through([change])
        return DeletionResult.DELETED


_SUCCESSFUL: Final = frozenset({DeletionResult.DELETED, DeletionResult.GONE})


def _delete_owner(client: WorkloadClient, owner: PodOwner, *, dry_run: bool) -> ObjectChanges:
    """Delete an object, and return the change for the mirror."""
    namespace, resource = client.place.namespace, owner.resource
    answer = client.cluster.delete(
        resource, owner.name, namespace=namespace, uid=owner.uid, propagation="Background", dry_run=dry_run
    )
    metadata = answer.get("metadata") or {}
    if metadata.get("deletionTimestamp") and metadata.get("finalizers"):
        return ObjectChanges(resource, [answer])  # a finalizer keeps it for a while
    return ObjectChanges(resource, (), [{"metadata": {"namespace": namespace, "name": owner.name, "uid": owner.uid}}])
