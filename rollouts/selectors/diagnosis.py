"""Why a workload waits: the waits of the engine's plan for the present state.

This computes the plan that the controller would compute, from the mirror, and executes nothing. Only remedies that help
in this cluster are returned (`remedies`). Faults come from the conditions of the set (`set_conditions`): a plan does
not know what the cluster rejects, and the controller makes no plan for a new set with an invalid manifest.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rollouts.accounts.commands import WorkloadRef
from rollouts.engine.manifest.findings import Finding
from rollouts.engine.model.actions import Kind, Wait, WriteStatus
from rollouts.engine.model.conditions import STUCK, VALID, find_condition
from rollouts.engine.plan.planner import plan_tree
from rollouts.engine.plan.wait_codes import count_budgets_to_problems
from rollouts.engine.rollout.ready_times import measure_ready_times
from rollouts.mirror.other_operator import find_grove_management, find_observe_only
from rollouts.selectors.remedies import filter_remedies
from rollouts.selectors.set_conditions import ConditionNote, list_conditions, list_faults
from rollouts.selectors.timestamps import to_datetime, to_datetime_or_none
from rollouts.selectors.tree import Stranger
from rollouts.selectors.workload_snapshot import WorkloadSnapshot, read_snapshot

_INVALID_AND_IGNORED: Final = "The manifest is not valid, so the controller does nothing until you correct it."


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a workload waits for."""

    cluster: str
    namespace: str
    name: str
    version: str
    at: datetime  # of the snapshot
    is_stuck: bool
    steps: int  # how many writes the controller would send now; 0: it only waits
    waits: tuple[Wait, ...]
    strangers: tuple[Stranger, ...]
    look_again_at: datetime | None  # when a wait becomes a problem
    findings: tuple[Finding, ...]  # why the manifest cannot be parsed
    faults: tuple[ConditionNote, ...]  # why the controller cannot act as the manifest says, the most important first
    obstacle: str  # why the controller does not reconcile it; empty: it does


def diagnosis_detail(place: WorkloadRef) -> Diagnosis:
    """Return what a workload waits for; raises NotFound."""
    return snapshot_diagnosis(place, read_snapshot(place))


def snapshot_diagnosis(place: WorkloadRef, snapshot: WorkloadSnapshot) -> Diagnosis:
    """Return what a workload waits for, from its snapshot."""
    common = _common(place, snapshot)
    if snapshot.planner_input is None or snapshot.mirrored.leaving or _is_ignored(snapshot, common["faults"]):
        return Diagnosis(
            **common,
            is_stuck=False,
            steps=0,
            waits=(),
            strangers=_strangers(snapshot.mirrored.strangers),
            look_again_at=None,
        )
    observed = snapshot.mirrored.observed
    ready_times = measure_ready_times(observed)
    planned = plan_tree(
        snapshot.planner_input.layout, snapshot.planner_input.tree, observed.status, snapshot.now, ready_times
    )
    statuses = [one for one in planned.actions if isinstance(one, WriteStatus) and one.kind is Kind.SET]
    status = statuses[-1].status if statuses else snapshot.mirrored.observed.status
    return Diagnosis(
        **common,
        is_stuck=find_condition(status, STUCK).get("status") == "True",
        steps=sum(not isinstance(one, WriteStatus) for one in planned.actions),
        waits=filter_remedies(snapshot, count_budgets_to_problems(planned.waits)),
        strangers=_strangers((*snapshot.mirrored.strangers, *planned.strangers)),
        look_again_at=to_datetime_or_none(planned.requeue_at),
    )


def _common(place: WorkloadRef, snapshot: WorkloadSnapshot) -> dict[str, Any]:
    faults = list_faults(list_conditions(snapshot.mirrored.manifest))
    return {
        "cluster": place.cluster,
        "namespace": place.namespace,
        "name": place.name,
        "version": snapshot.version,
        "at": to_datetime(snapshot.now),
        "findings": snapshot.findings,
        "faults": faults,
        "obstacle": _obstacle(snapshot, faults),
    }


def _is_ignored(snapshot: WorkloadSnapshot, faults: Iterable[ConditionNote]) -> bool:
    """Return whether the controller leaves the workload alone until its manifest is corrected."""
    if snapshot.workload is None:
        return True
    return not snapshot.mirrored.was_acted_on and any(fault.type == VALID for fault in faults)


def _obstacle(snapshot: WorkloadSnapshot, faults: Iterable[ConditionNote]) -> str:
    if snapshot.mirrored.leaving:
        return f"{snapshot.mirrored.manifest['metadata']['name']} is being deleted."
    if snapshot.cluster.trouble_code:
        return snapshot.cluster.trouble
    if not_written := find_observe_only() or snapshot.cluster.other_operator:
        return not_written
    if keeper := find_grove_management(snapshot.mirrored.manifest, snapshot.mirrored.written_by_grove):
        return keeper
    if not snapshot.cluster.complete:
        return f"The objects of {snapshot.cluster.name} are still being listed."
    return _INVALID_AND_IGNORED if _is_ignored(snapshot, faults) else ""


def _strangers(found: tuple[tuple[str, str], ...]) -> tuple[Stranger, ...]:
    return tuple(Stranger(name, why) for name, why in sorted(found))
