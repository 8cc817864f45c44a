"""Why a workload waits: the waits of the engine's plan for the present state.

This computes the plan that the controller would compute, from the mirror, and executes nothing. Only remedies that help
in this cluster are returned (`remedies`).
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rollouts.accounts.commands import WorkloadRef
from rollouts.engine.manifest.findings import Finding
from rollouts.engine.model.actions import Kind, Wait, WriteStatus
from rollouts.engine.model.conditions import STUCK, find_condition
from rollouts.engine.plan.planner import plan_tree
from rollouts.engine.plan.wait_codes import count_budgets_to_problems
from rollouts.engine.rollout.ready_times import measure_ready_times
from rollouts.mirror.other_operator import find_grove_management, find_observe_only
from rollouts.selectors.remedies import filter_remedies
from rollouts.selectors.timestamps import to_datetime, to_datetime_or_none
from rollouts.selectors.tree import Stranger
from rollouts.selectors.workload_snapshot import WorkloadSnapshot, read_snapshot


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
    findings: tuple[Finding, ...]  # why the manifest is not valid
    obstacle: str  # why the controller does not reconcile it; empty: it does


def diagnosis_detail(place: WorkloadRef) -> Diagnosis:
    """Return what a workload waits for; raises NotFound."""
    return snapshot_diagnosis(place, read_snapshot(place))


def snapshot_diagnosis(place: WorkloadRef, snapshot: WorkloadSnapshot) -> Diagnosis:
    """Return what a workload waits for, from its snapshot."""
    if snapshot.planner_input is None or snapshot.mirrored.leaving:
        return Diagnosis(
            **_common(place, snapshot),
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
        **_common(place, snapshot),
        is_stuck=find_condition(status, STUCK).get("status") == "True",
        steps=sum(not isinstance(one, WriteStatus) for one in planned.actions),
        waits=filter_remedies(snapshot, count_budgets_to_problems(planned.waits)),
        strangers=_strangers((*snapshot.mirrored.strangers, *planned.strangers)),
        look_again_at=to_datetime_or_none(planned.requeue_at),
    )


def _common(place: WorkloadRef, snapshot: WorkloadSnapshot) -> dict[str, Any]:
    return {
        "cluster": place.cluster,
        "namespace": place.namespace,
        "name": place.name,
        "version": snapshot.version,
        "at": to_datetime(snapshot.now),
        "findings": snapshot.findings,
        "obstacle": _obstacle(snapshot),
    }


def _obstacle(snapshot: WorkloadSnapshot) -> str:
    if snapshot.mirrored.leaving:
        return f"{snapshot.mirrored.manifest['metadata']['name']} is being deleted."
    if snapshot.cluster.trouble_code:
        return snapshot.cluster.trouble
    if observing := find_observe_only():
        return observing
    if snapshot.cluster.other_operator:
        return snapshot.cluster.other_operator
    if keeper := find_grove_management(snapshot.mirrored.manifest, snapshot.mirrored.written_by_grove):
        return keeper
    return "" if snapshot.cluster.complete else f"The objects of {snapshot.cluster.name} are still being listed."


def _strangers(found: tuple[tuple[str, str], ...]) -> tuple[Stranger, ...]:
    return tuple(Stranger(name, why) for name, why in sorted(found))
