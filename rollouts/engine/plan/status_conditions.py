"""The conditions of the three kinds: what is true of a PodCliqueSet, a PodClique or a scaling group, and since when.

`status` puts them into the statuses that it writes; `termination` reads since when a breach holds. The invariants: the
first condition of an object is dated back to its creation, so `termination` can tell an object that was never scheduled
from one that lost its pods; a breach that a scale explains does not start the clock of gang termination.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from rollouts.engine.model.actions import Wait
from rollouts.engine.model.conditions import (
    AVAILABLE,
    BREACHED,
    NOTHING_IN_THE_WAY,
    PROGRESSING,
    SCALED_BELOW,
    SCHEDULED,
    STUCK,
    TERMINATING,
    Condition,
    find_condition,
    make_condition,
)
from rollouts.engine.model.observed import Clique, Group
from rollouts.engine.model.times import render_time
from rollouts.engine.model.values import value
from rollouts.engine.model.workload import Workload
from rollouts.engine.plan import messages
from rollouts.engine.plan.diagnosis import WaitDiagnosis
from rollouts.engine.plan.wait_codes import WaitCode, find_problem
from rollouts.engine.rollout.termination import count_healthy, is_breached, is_group_breached
from rollouts.engine.rollout.update import Update, UpdatePhase
from rollouts.engine.tree.availability import CliqueView, GroupReplicaView, GroupView, Tree
from rollouts.engine.tree.layout import Layout


@value
class StatusContext:
    """What every status of a pass depends on."""

    workload: Workload
    update: Update
    is_on_delete: bool  # a pod is replaced when it is deleted by hand
    now: str  # as text


def make_status_context(layout: Layout, update: Update, now: float) -> StatusContext:
    """Return what every status of this pass depends on."""
    return StatusContext(layout.workload, update, layout.is_on_delete, render_time(now))


def reset_breach_clock(stored: Mapping[str, Any], breach: Condition) -> list[Mapping[str, Any]]:
    """Return the stored conditions, without a breach by a scale that is now a breach for another reason.

    That breach begins now: gang termination does not count the time for which the component was scaled down.
    """
    former: list[Mapping[str, Any]] = stored.get("conditions") or []
    if find_condition(stored, BREACHED).get("reason") != SCALED_BELOW or breach["reason"] == SCALED_BELOW:
        return former
    return [one for one in former if one.get("type") != BREACHED]


# ---- PodCliques


def make_clique_conditions(
    view: CliqueView, clique: Clique, now: str, *, is_updating: bool, terminated: bool
) -> list[Condition]:
    """Return whether enough pods are scheduled, and whether the PodClique is below its minimum.

    The first condition has the time of the creation. Gang termination starts the clock anew.
    """
    began, now = render_time(clique.created), _transition_time_after(clique.created, now)
    is_new = terminated or not find_condition(clique.status, SCHEDULED)
    text = messages.CLIQUE_SCHEDULED.format(scheduled=view.scheduled, live=len(view.live), minimum=view.needed)
    if view.scheduled >= view.needed and not terminated:
        scheduled = make_condition(SCHEDULED, "True", "SufficientScheduledPods", text, now)
    else:
        scheduled = make_condition(SCHEDULED, "False", "InsufficientScheduledPods", text, began if is_new else now)
    return [
        scheduled,
        _make_clique_breach(view, began if is_new else now, is_updating=is_updating, terminated=terminated),
    ]


def _transition_time_after(created: float, now: str) -> str:
    """Return when a condition changed: after the creation, even if both are in the same second.

    A condition with the time of the creation is the first one, and `termination` tells it apart by that.
    """
    return max(now, render_time(created + 1))


def _make_clique_breach(view: CliqueView, now: str, *, is_updating: bool, terminated: bool) -> Condition:
    if is_updating:
        return make_condition(BREACHED, "Unknown", "UpdateInProgress", messages.CLIQUE_UPDATING, now)
    if terminated:
        return make_condition(BREACHED, "Unknown", "GangTerminated", messages.CLIQUE_TERMINATED, now)
    if view.is_scaled_below_minimum and not is_breached(view):
        text = messages.CLIQUE_SCALED_BELOW.format(wanted=view.wanted, minimum=view.needed)
        return make_condition(BREACHED, "True", SCALED_BELOW, text, now)
    if view.scheduled < view.needed:
        text = messages.CLIQUE_BREACHED_SCHEDULED.format(scheduled=view.scheduled, minimum=view.needed)
        return make_condition(BREACHED, "True", "ScheduledReplicasBelowMinAvailable", text, now)
    healthy = view.available if view.available >= view.needed else count_healthy(view)
    text = messages.CLIQUE_HEALTHY_PODS.format(healthy=healthy, minimum=view.needed)
    if healthy < view.needed:
        return make_condition(BREACHED, "True", "InsufficientReadyPods", text, now)
    return make_condition(BREACHED, "False", "SufficientReadyPods", text, now)


# ---- PodCliqueScalingGroups


def make_group_conditions(
    view: GroupView, group: Group, now: str, *, is_updating: bool, terminated: bool
) -> list[Condition]:
    """Return whether a scaling group is below its minimum; the first condition has the time of the creation."""
    is_new = not find_condition(group.status, BREACHED)
    since = render_time(group.created) if is_new else _transition_time_after(group.created, now)
    if is_updating:
        return [make_condition(BREACHED, "Unknown", "UpdateInProgress", messages.GROUP_UPDATING, since)]
    if terminated:
        return [
            make_condition(BREACHED, "Unknown", "GangTerminated", messages.GROUP_TERMINATED, since),
            make_condition(TERMINATING, "True", "GangTerminationActive", messages.GROUP_TERMINATING, now),
        ]
    return [_make_group_breach(view, since)]


def _make_group_breach(view: GroupView, since: str) -> Condition:
    available = sum(part.is_available for part in view.replicas.values() if part.index < view.wanted)
    text = messages.GROUP_AVAILABLE.format(available=available, wanted=view.wanted, minimum=view.needed)
    if is_group_breached(view):
        reason = "InsufficientAvailablePodCliqueScalingGroupReplicas"
        return make_condition(BREACHED, "True", reason, text, since)
    if _is_group_scaled_below(view):
        return make_condition(BREACHED, "True", SCALED_BELOW, text, since)
    return make_condition(BREACHED, "False", "SufficientAvailablePodCliqueScalingGroupReplicas", text, since)


def _is_group_scaled_below(view: GroupView) -> bool:
    """Whether a scaling group cannot have its minimum: it, or cliques in its replicas, are scaled to less."""
    whole = [
        part
        for index, part in view.replicas.items()
        if index < view.wanted and not _is_group_replica_scaled_below(part)
    ]
    return view.is_scaled_below_minimum or (len(view.replicas) >= view.needed > len(whole))


def _is_group_replica_scaled_below(part: GroupReplicaView) -> bool:
    return any(view.is_live and view.is_scaled_below_minimum for view in part.cliques)


# ---- PodCliqueSets


def make_set_conditions(
    context: StatusContext, available: int, tree: Tree, diagnosis: WaitDiagnosis
) -> list[Condition]:
    """Return whether the set is available, whether it progresses, and whether its update is stuck."""
    return [
        _make_available(context, available, tree, diagnosis),
        _make_progressing(context, tree, diagnosis.waits),
        _make_stuck(context, diagnosis),
    ]


def _make_available(context: StatusContext, available: int, tree: Tree, diagnosis: WaitDiagnosis) -> Condition:
    wanted = context.workload.replicas
    originals = available - len(tree.beyond(wanted) - tree.unavailable)
    counted = min(available, wanted)
    surge = messages.AVAILABLE_SURGE.format(surge=counted - originals) if counted > originals else ""
    text = messages.AVAILABLE.format(available=counted, wanted=wanted, surge=surge)
    if counted == wanted:
        return make_condition(AVAILABLE, "True", "AllReplicasAvailable", text, context.now)
    scales = _render_scales(diagnosis.waits)
    if scales:
        return make_condition(AVAILABLE, "False", SCALED_BELOW, f"{text} {scales}", context.now)
    return make_condition(AVAILABLE, "False", "ReplicasUnavailable", text, context.now)


def _make_stuck(context: StatusContext, diagnosis: WaitDiagnosis) -> Condition:
    """Return what an update is stuck at, or else what it waits for: the same sentence for one pod after another."""
    waits, cause = (diagnosis.waits, diagnosis.cause) if context.update.is_under_way else ((), "")
    # What is scaled below its minimum is not available, and the update goes on.
    problem = find_problem([wait for wait in waits if wait.code != SCALED_BELOW])
    if problem is not None:
        return make_condition(STUCK, "True", problem.code, problem.text, context.now)
    if cause:
        return make_condition(STUCK, "False", cause, messages.CAUSES[cause], context.now)
    return make_condition(STUCK, "False", NOTHING_IN_THE_WAY, messages.NOT_STUCK, context.now)


def _make_progressing(context: StatusContext, tree: Tree, waits: tuple[Wait, ...]) -> Condition:
    if context.update.is_under_way or (context.update.phase is UpdatePhase.START and not context.is_on_delete):
        return make_condition(PROGRESSING, "True", "UpdateInProgress", messages.UPDATING, context.now)
    scales = _render_scales(waits)
    if scales:
        return make_condition(PROGRESSING, "False", SCALED_BELOW, scales, context.now)
    is_complete = not tree.incomplete and len(tree.replicas) == context.workload.replicas
    # A complete replica can still crash: a container without a readiness probe is Ready as long as it runs.
    problem = find_problem([wait for wait in waits if wait.code == WaitCode.CRASH_LOOP] if is_complete else waits)
    if problem is not None:
        return make_condition(PROGRESSING, "False", problem.code, problem.text, context.now)
    if any(wait.code == WaitCode.AWAITING_DELETION for wait in waits):
        reason, text = str(WaitCode.AWAITING_DELETION), messages.OUTDATED_UNTIL_DELETED
        return make_condition(PROGRESSING, "False", reason, text, context.now)
    if is_complete:
        return make_condition(PROGRESSING, "False", "Complete", messages.COMPLETE, context.now)
    return make_condition(PROGRESSING, "True", "Deploying", messages.DEPLOYING, context.now)


def _render_scales(waits: Iterable[Wait]) -> str:
    """Return which components are scaled below their minimum; empty if none is."""
    return " ".join(wait.text for wait in waits if wait.code == SCALED_BELOW)
