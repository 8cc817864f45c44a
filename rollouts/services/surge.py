"""Deletes the surge of a workload: a remedy for surge that takes the room of other pods, or that fails.

`engine.tree.surge` finds it: replicas of the set, replicas of a scaling group, pods of a clique. Of a replica, the
owners of its pods are deleted, as the controller does; of a clique, the pods. No disruption budget is asked, so this is
a deletion by force.

While an original is outdated, the controller creates surge again, which may be the purpose: it may start on another
node. The invariants: nothing within the wanted numbers is deleted; and because names are used again, surge is named
with a mark of the objects that were chosen, so an object that has taken a name since is safe.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import InvalidState
from rollouts.cluster import Obj
from rollouts.cluster.deletion import Deletion, delete_object
from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESCALINGGROUPS, SERVICES
from rollouts.engine.model.actions import Delete, Kind
from rollouts.engine.model.observed import Observed
from rollouts.engine.model.workload import Workload
from rollouts.engine.tree.surge import PodOwner, SurgeUnit, find_surge, plan_unit_deletions
from rollouts.services.audit import Caller, audited_command
from rollouts.services.deletion import (
    ABORTING_RESULTS,
    DeletionMode,
    DeletionResult,
    DeletionRun,
    PodDeleter,
    PodOutcome,
    PodsDeleted,
    make_changes,
    render_audit_begin,
    render_audit_outcomes,
    summarize_outcomes,
)
from rollouts.services.edit import fetch_expected
from rollouts.services.pods import read_observed, read_workload
from rollouts.services.workload_client import WorkloadClient, open_writable_client, version_of_object

_MAX_NAMED: Final = 500  # units in the audit log, by name
_RESOURCES: Final = {Kind.GROUP: PODCLIQUESCALINGGROUPS, Kind.CLIQUE: PODCLIQUES, Kind.SERVICE: SERVICES}
_NO_SURGE: Final = "This surge no longer exists: it was deleted, or its pods are no longer surge."


@dataclass(frozen=True, slots=True)
class SurgeUnitRef:
    """A unit of surge by name and mark."""

    name: str
    mark: str


def plan_surge_deletion(workload: Workload, observed: Observed, chosen: Collection[SurgeUnitRef]) -> tuple[Delete, ...]:
    """Return the deletion of chosen surge, for a simulation."""
    return plan_unit_deletions(_choose_units(find_surge(workload, observed), chosen))


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
        client.write_through([sender.changes])
    return outcomes


class _OwnerDeleter:
    """Deletes the objects that own the pods of surge, one after the other."""

    def __init__(self, client: WorkloadClient, run: DeletionRun, *, dry_run: bool) -> None:
        self._client = client
        self._run = run
        self._dry_run = dry_run

    def delete(self, unit: SurgeUnit) -> Iterator[PodOutcome]:
        """Delete a unit, and yield what happened to each of its pods, or to itself if it has none."""
        results = {(one.kind, one.name): self._attempt(one) for one in unit.owners}
        problems = [f"{name}: {said}" for (_, name), (result, said) in results.items() if result not in _SUCCESSFUL]
        is_under_way = any(result is DeletionResult.DELETED for result, _ in results.values())
        for pod in unit.pods:
            # Its clique owns it, and may be deleted with its scaling group before its own turn.
            result, message = results.get(
                (Kind.CLIQUE, pod.clique), (DeletionResult.UNKNOWN, "Its owner is not known.")
            )
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
        deletion = _delete_owner(self._client, owner, dry_run=self._dry_run)
        if not self._dry_run:
            self._client.write_through([make_changes(_RESOURCES[owner.kind], [deletion])])
        return DeletionResult.DELETED


_SUCCESSFUL: Final = frozenset({DeletionResult.DELETED, DeletionResult.GONE})


def _delete_owner(client: WorkloadClient, owner: PodOwner, *, dry_run: bool) -> Deletion:
    return delete_object(
        client.cluster,
        _RESOURCES[owner.kind],
        owner.name,
        namespace=client.place.namespace,
        uid=owner.uid,
        propagation="Background",
        dry_run=dry_run,
    )
