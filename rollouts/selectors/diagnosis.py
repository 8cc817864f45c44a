"""Why a workload is not moving: what the engine would wait for if it looked now, in its own words.

The same plan that the controller makes, over what the mirror has, carried out by nobody. Of the remedies for a problem
only those are told that help in this cluster (`remedies`).
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rollouts.accounts.commands import Place
from rollouts.engine.manifest.findings import Finding
from rollouts.engine.model.actions import Kind, Wait, WriteStatus
from rollouts.engine.model.conditions import STUCK, find_condition
from rollouts.engine.plan.planner import plan_tree
from rollouts.engine.rollout.ready_times import measure_ready_times
from rollouts.mirror.other_operator import find_observing, find_other_keeper
from rollouts.selectors.remedies import sift_remedies
from rollouts.selectors.timestamps import moment, moment_or_none
from rollouts.selectors.tree import Stranger
from rollouts.selectors.workload_snapshot import Look, look_at


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a workload waits for."""

    cluster: str
    namespace: str
    name: str
    version: str
    at: datetime  # when it was looked at
    is_stuck: bool
    steps: int  # writes that the controller would send now; with none it only waits
    waits: tuple[Wait, ...]
    strangers: tuple[Stranger, ...]
    look_again_at: datetime | None  # when a wait becomes a problem
    findings: tuple[Finding, ...]  # why it cannot be acted on
    obstacle: str  # why the controller does not look at all; empty when it does


def diagnosis_detail(place: Place) -> Diagnosis:
    """Return what a workload waits for; raises NotThere."""
    return diagnosis_in(place, look_at(place))


def diagnosis_in(place: Place, look: Look) -> Diagnosis:
    """Return what a workload that was looked at waits for."""
    if look.arranged is None or look.seen.leaving:
        return Diagnosis(
            **_common(place, look),
            is_stuck=False,
            steps=0,
            waits=(),
            strangers=_strangers(look.seen.strangers),
            look_again_at=None,
        )
    observed = look.seen.observed
    ready_times = measure_ready_times(observed)
    planned = plan_tree(look.arranged.shape, look.arranged.tree, observed.status, look.now, ready_times)
    statuses = [one for one in planned.actions if isinstance(one, WriteStatus) and one.kind is Kind.SET]
    status = statuses[-1].status if statuses else look.seen.observed.status
    return Diagnosis(
        **_common(place, look),
        is_stuck=find_condition(status, STUCK).get("status") == "True",
        steps=sum(not isinstance(one, WriteStatus) for one in planned.actions),
        waits=sift_remedies(look, planned.waits),
        strangers=_strangers((*look.seen.strangers, *planned.strangers)),
        look_again_at=moment_or_none(planned.look_again_at),
    )


def _common(place: Place, look: Look) -> dict[str, Any]:
    return {
        "cluster": place.cluster,
        "namespace": place.namespace,
        "name": place.name,
        "version": look.version,
        "at": moment(look.now),
        "findings": look.findings,
        "obstacle": _obstacle(look),
    }


def _obstacle(look: Look) -> str:
    if look.seen.leaving:
        return f"{look.seen.manifest['metadata']['name']} is being deleted."
    if look.cluster.trouble_code:
        return look.cluster.trouble
    if observing := find_observing():
        return observing
    if look.cluster.other_operator:
        return look.cluster.other_operator
    if keeper := find_other_keeper(look.seen.manifest, look.seen.written_by_grove):
        return keeper
    return "" if look.cluster.complete else f"The cluster {look.cluster.name} has not been listed to its end yet."


def _strangers(found: tuple[tuple[str, str], ...]) -> tuple[Stranger, ...]:
    return tuple(Stranger(name, why) for name, why in sorted(found))
