"""The status of the three kinds: what is told to everybody who looks at the resources (DESIGN 6.11).

The last thing a plan decides, from the same views and steps as its actions. Progress lives here and nowhere else: the
next pass reads back what this one wrote. The invariants: a status is written only when it differs from the stored one;
what others put into it stays; `rollingUpdateProgress` is always the same as `updateProgress`.

Counted is what is there and not leaving, originals and surge alike: whatever serves is capacity. So a count may pass
the wanted number for a moment. Only a group below its minimum, and how far an update is, are asked of originals.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from rollouts.engine import names
from rollouts.engine.actions import Wait
from rollouts.engine.conditions import (
    AVAILABLE,
    BREACHED,
    NOTHING_IN_THE_WAY,
    PROGRESSING,
    SCHEDULED,
    STUCK,
    TERMINATING,
    Condition,
    condition,
    find_condition,
    put_conditions,
)
from rollouts.engine.diagnosis import CAUSES, Diagnosis
from rollouts.engine.observed import Clique, Group
from rollouts.engine.roller import Reason, Step, Unit
from rollouts.engine.shape import Shape
from rollouts.engine.steps import CliqueStep, GroupStep, SetStep
from rollouts.engine.termination import count_fine, is_group_breached
from rollouts.engine.times import render_time
from rollouts.engine.update import Turn, Update
from rollouts.engine.values import value
from rollouts.engine.views import CliqueView, GroupReplica, GroupView, Tree
from rollouts.engine.workload import Workload

Status = dict[str, Any]


@value
class Pen:
    """What every status is written with."""

    workload: Workload
    update: Update
    is_on_delete: bool  # pods are replaced by whoever deletes them
    now: str  # as text


def make_pen(shape: Shape, update: Update, now: float) -> Pen:
    """Return what the statuses of this pass are written with."""
    return Pen(shape.workload, update, shape.is_on_delete, render_time(now))


# ---- PodCliques


def clique_status(
    pen: Pen, step: CliqueStep, clique: Clique, *, at_work: bool, terminated: bool, is_member: bool
) -> Status:
    """Return the status of a PodClique."""
    view = step.view
    status: Status = {
        **clique.status,
        "observedGeneration": clique.generation,
        "replicas": len(view.live),
        "readyReplicas": view.available,
        "scheduledReplicas": view.scheduled,
        "scheduleGatedReplicas": view.gated,
        "updatedReplicas": len(view.live) - view.outdated,
    }
    if not is_member:
        status["hpaPodSelector"] = f"{names.PART_OF}={pen.workload.name},{names.CLIQUE}={view.name}"
    done = view.is_complete
    if done:
        status["currentPodTemplateHash"] = view.template_hash
        status["currentPodCliqueSetGenerationHash"] = pen.update.generation_hash
    _put_progress(status, _clique_progress(pen, step, clique.status, at_work=at_work and not is_member, done=done))
    is_updating = at_work and _is_open(status.get("updateProgress"))
    former = [] if terminated else clique.status.get("conditions") or []
    wanted = _clique_conditions(view, clique, pen.now, is_updating=is_updating, terminated=terminated)
    status["conditions"] = put_conditions(former, wanted)
    return status


def _clique_conditions(
    view: CliqueView, clique: Clique, now: str, *, is_updating: bool, terminated: bool
) -> list[Condition]:
    """Return whether enough pods are scheduled, and whether the clique is below its minimum.

    How a PodClique began is dated back to its creation, so that what never was otherwise can be told from what changed.
    After a termination it begins anew.
    """
    began = render_time(clique.created)
    is_new = terminated or not find_condition(clique.status, SCHEDULED)
    placed = f"{view.scheduled} of {len(view.live)} pods are scheduled, {view.needed} must be."
    if view.scheduled >= view.needed and not terminated:
        scheduled = condition(SCHEDULED, "True", "SufficientScheduledPods", placed, now)
    else:
        scheduled = condition(SCHEDULED, "False", "InsufficientScheduledPods", placed, began if is_new else now)
    return [scheduled, _breach(view, began if is_new else now, is_updating=is_updating, terminated=terminated)]


def _breach(view: CliqueView, now: str, *, is_updating: bool, terminated: bool) -> Condition:
    if is_updating:
        return condition(BREACHED, "Unknown", "UpdateInProgress", "Its pods are being updated.", now)
    if terminated:
        return condition(BREACHED, "Unknown", "GangTerminated", "Its pods are being recreated.", now)
    if view.scheduled < view.needed:
        text = f"{view.scheduled} pods are scheduled, {view.needed} must be."
        return condition(BREACHED, "True", "ScheduledReplicasBelowMinAvailable", text, now)
    fine = view.available if view.available >= view.needed else count_fine(view)
    text = f"{fine} pods are Ready or starting, {view.needed} must be."
    if fine < view.needed:
        return condition(BREACHED, "True", "InsufficientReadyPods", text, now)
    return condition(BREACHED, "False", "SufficientReadyPods", text, now)


def _clique_progress(
    pen: Pen, step: CliqueStep, stored: Mapping[str, Any], *, at_work: bool, done: bool
) -> Mapping[str, Any] | None:
    """Return how far the update of a PodClique is; None if it needs none."""
    view = step.view
    former = stored.get("updateProgress")
    hashes = {"podCliqueSetGenerationHash": pen.update.generation_hash, "podTemplateHash": view.template_hash}
    outdated = view.is_outdated or view.is_label_outdated
    progress = _advance(pen, former, stored, hashes, at_work=at_work, outdated=outdated, done=done)
    if progress is None or pen.is_on_delete or _is_stale(progress, pen):
        return progress
    chosen = _removed(step.step, view.wanted, pods=True)
    selected = _select_pods(progress.get("readyPodsSelectedToUpdate") or {}, view, chosen, done=done)
    return {**progress, "readyPodsSelectedToUpdate": selected} if selected else progress


def _select_pods(
    former: Mapping[str, Any], view: CliqueView, chosen: list[Unit], *, done: bool
) -> dict[str, list[str]] | None:
    """Return the pods being replaced and those that have been; as many are on their way as are still missing."""
    before = [*_as_list(former.get("current"))]
    current = [*before, *(unit.key for unit in chosen if unit.key not in before)]
    completed = [*_as_list(former.get("completed"))]
    missing = max(0, view.wanted - (view.available - sum(unit.available for unit in chosen)))
    split = len(current) if done else max(0, len(current) - missing)
    current, completed = current[split:], [*completed, *current[:split]]
    return {"current": current, "completed": completed} if current or completed else None


# ---- PodCliqueScalingGroups


def group_status(pen: Pen, step: GroupStep, group: Group, *, at_work: bool, terminated: bool) -> Status:
    """Return the status of a PodCliqueScalingGroup."""
    view = step.view
    parts = [part for index, part in view.replicas.items() if index < view.wanted]
    available = [part for part in view.replicas.values() if part.is_available]
    status: Status = {
        **group.status,
        "observedGeneration": group.generation,
        "replicas": view.wanted,
        "scheduledReplicas": sum(one.is_scheduled for one in view.replicas.values()),
        "availableReplicas": len(available),
        "updatedReplicas": sum(not part.is_outdated for part in available),
        "selector": f"{names.PART_OF}={pen.workload.name},{names.GROUP}={view.name}",
    }
    done = view.is_complete
    if done:
        status["currentPodCliqueSetGenerationHash"] = pen.update.generation_hash
    _put_progress(status, _group_progress(pen, step, group.status, parts, at_work=at_work, done=done))
    is_updating = at_work and _is_open(status.get("updateProgress"))
    wanted = _group_conditions(pen, view, group, is_updating=is_updating, terminated=terminated)
    dropped = [TERMINATING] if wanted[0]["status"] == "False" else []
    status["conditions"] = put_conditions(group.status.get("conditions") or [], wanted, dropped)
    return status


def _group_conditions(
    pen: Pen, view: GroupView, group: Group, *, is_updating: bool, terminated: bool
) -> list[Condition]:
    """Return whether a scaling group is below its minimum; how it began is dated back to its creation."""
    since = pen.now if find_condition(group.status, BREACHED) else render_time(group.created)
    available = sum(part.is_available for part in view.replicas.values() if part.index < view.wanted)
    text = f"{available} of {view.wanted} replicas are available, {view.needed} must be."
    if is_updating:
        breach = condition(BREACHED, "Unknown", "UpdateInProgress", "Its replicas are being updated.", since)
    elif terminated:
        breach = condition(BREACHED, "Unknown", "GangTerminated", "Its replicas are being recreated.", since)
    elif is_group_breached(view):
        reason = "InsufficientAvailablePodCliqueScalingGroupReplicas"
        breach = condition(BREACHED, "True", reason, text, since)
    else:
        reason = "SufficientAvailablePodCliqueScalingGroupReplicas"
        breach = condition(BREACHED, "False", reason, text, since)
    flag = condition(TERMINATING, "True", "GangTerminationActive", "It was below its minimum for too long.", pen.now)
    return [breach, flag] if terminated else [breach]


def _group_progress(
    pen: Pen,
    step: GroupStep,
    stored: Mapping[str, Any],
    parts: list[GroupReplica],
    *,
    at_work: bool,
    done: bool,
) -> Mapping[str, Any] | None:
    """Return how far the update of a scaling group is; None if it needs none."""
    view = step.view
    hashes = {"podCliqueSetGenerationHash": pen.update.generation_hash}
    former = stored.get("updateProgress")
    progress = _advance(pen, former, stored, hashes, at_work=at_work, outdated=view.is_outdated, done=done)
    if progress is None or _is_stale(progress, pen):
        return progress
    updated = [clique.name for part in parts for clique in part.cliques if is_member_updated(clique)]
    progress = {
        **progress,
        "updatedPodCliques": updated,
        "updatedPodCliquesCount": len(updated),
        "totalPodCliquesCount": view.wanted * len(view.template.clique_names),
    }
    if pen.is_on_delete:
        return progress
    chosen = progress.get("readyReplicaIndicesSelectedToUpdate") or {}
    selected = _select_indices(chosen, step.units, [unit.index for unit in _removed(step.step, view.wanted)])
    return {**progress, "readyReplicaIndicesSelectedToUpdate": selected} if selected else progress


def is_member_updated(view: CliqueView) -> bool:
    """Whether a PodClique of a scaling group is up with the current template and nothing else."""
    return view.is_live and not view.outdated and not view.is_label_outdated and view.available >= view.needed


def _select_indices(former: Mapping[str, Any], units: Iterable[Unit], chosen: list[int]) -> dict[str, list[int]] | None:
    finished = {unit.index for unit in units if unit.available and not unit.outdated and not unit.leaving}
    finished -= {*chosen}
    before: list[int] = [*_as_list(former.get("current"))]
    current = [*before, *(index for index in chosen if index not in before)]
    completed: list[int] = [*_as_list(former.get("completed"))]
    completed += [index for index in current if index in finished and index not in completed]
    current = [index for index in current if index not in finished]
    return {"current": current, "completed": completed} if current or completed else None


# ---- PodCliqueSets


def set_status(
    pen: Pen, stored: Mapping[str, Any], shape: Shape, tree: Tree, *, steps: SetStep, diagnosis: Diagnosis
) -> Status:
    """Return the status of the set."""
    workload = pen.workload
    available = len(tree.replicas) - len(tree.unavailable)
    updated = available - len(tree.outdated) + len(tree.outdated & tree.unavailable)
    status: Status = {
        **stored,
        "observedGeneration": workload.generation,
        "replicas": workload.replicas,
        "availableReplicas": available,
        "updatedReplicas": 0 if pen.update.turn is Turn.START else updated,
        "hpaPodSelector": f"{names.MANAGED_BY}={names.OPERATOR},{names.PART_OF}={workload.name}",
        "currentGenerationHash": pen.update.generation_hash,
    }
    _put_progress(status, _set_progress(pen, stored, shape, tree, steps))
    wanted = _set_conditions(pen, available, tree, diagnosis)
    status["conditions"] = put_conditions(stored.get("conditions") or [], wanted)
    return status


def _set_progress(
    pen: Pen, stored: Mapping[str, Any], shape: Shape, tree: Tree, steps: SetStep
) -> Mapping[str, Any] | None:
    update, former = pen.update, stored.get("updateProgress")
    if update.turn is Turn.START:
        return {**_totals(shape, [], []), "updateStartedAt": pen.now} | (
            {"updateEndedAt": pen.now} if pen.is_on_delete else {}
        )
    if former is None:
        return None
    progress: Status = {**former, **_totals(shape, tree.complete.cliques.names, tree.complete.groups.names)}
    for name in ("updatingReplicas", "currentlyUpdating"):
        progress.pop(name, None)
    if update.turn is Turn.END:
        progress["updateEndedAt"] = pen.now
    updating = _updating_replicas(pen, steps) if update.is_under_way else []
    if updating:
        progress["updatingReplicas"] = progress["currentlyUpdating"] = updating
    return progress


def _totals(shape: Shape, cliques: list[str], groups: list[str]) -> Status:
    replicas = shape.workload.replicas
    return {
        "updatedPodCliques": cliques,
        "updatedPodCliquesCount": len(cliques),
        "totalPodCliquesCount": replicas * len(shape.standalone),
        "updatedPodCliqueScalingGroups": groups,
        "updatedPodCliqueScalingGroupsCount": len(groups),
        "totalPodCliqueScalingGroupsCount": replicas * len(shape.workload.groups),
    }


def _updating_replicas(pen: Pen, steps: SetStep) -> list[Status]:
    """Return the replicas being updated: the one selected, or those replaced whole that are not yet back."""
    update, wanted = pen.update, pen.workload.replicas
    if not steps.is_rolling:
        indices = [] if update.selected is None else [update.selected]
    else:
        finished = {unit.index for unit in steps.units if unit.available and not unit.outdated and not unit.leaving}
        emptied = {unit.index for unit in steps.units if unit.leaving}
        chosen = {unit.index for unit in _removed(steps.step, wanted, every=True)}
        begun = chosen | emptied | ({*update.former.updating} - finished)
        indices = sorted(index for index in begun if index < wanted)
    return [
        {"replicaIndex": index, "updateStartedAt": update.former.updating.get(index) or pen.now} for index in indices
    ]


def _set_conditions(pen: Pen, available: int, tree: Tree, diagnosis: Diagnosis) -> list[Condition]:
    wanted = pen.workload.replicas
    originals = available - len(tree.beyond(wanted) - tree.unavailable)
    counted = min(available, wanted)
    surge = f", {counted - originals} of them surge" if counted > originals else ""
    text = f"{counted} of {wanted} replicas are available{surge}."
    is_available = counted == wanted
    reason = "AllReplicasAvailable" if is_available else "ReplicasUnavailable"
    return [
        condition(AVAILABLE, "True" if is_available else "False", reason, text, pen.now),
        _progressing(pen, tree, diagnosis.waits),
        _stuck(pen, diagnosis),
    ]


def _stuck(pen: Pen, diagnosis: Diagnosis) -> Condition:
    """Say what an update is stuck at, or else what it waits for: in words that are the same for pod after pod."""
    waits, cause = (diagnosis.waits, diagnosis.cause) if pen.update.is_under_way else ((), "")
    problem = next((wait for wait in waits if wait.is_problem), None)
    if problem is not None:
        return condition(STUCK, "True", problem.code, problem.text, pen.now)
    if cause:
        return condition(STUCK, "False", cause, CAUSES[cause], pen.now)
    return condition(STUCK, "False", NOTHING_IN_THE_WAY, "Nothing is in the way.", pen.now)


def _progressing(pen: Pen, tree: Tree, waits: tuple[Wait, ...]) -> Condition:
    if pen.update.is_under_way or (pen.update.turn is Turn.START and not pen.is_on_delete):
        return condition(PROGRESSING, "True", "UpdateInProgress", "An update is under way.", pen.now)
    awaiting = next((wait for wait in waits if wait.code == "AwaitingDeletion"), None)
    if awaiting is not None:
        text = "Pods run an older template until somebody deletes them."
        return condition(PROGRESSING, "False", awaiting.code, text, pen.now)
    if not tree.incomplete and len(tree.replicas) == pen.workload.replicas:
        return condition(PROGRESSING, "False", "Complete", "Every replica is complete.", pen.now)
    problem = next((wait for wait in waits if wait.is_problem), None)
    if problem is not None:
        return condition(PROGRESSING, "False", problem.code, problem.text, pen.now)
    return condition(PROGRESSING, "True", "Deploying", "Not every replica is complete yet.", pen.now)


# ---- of all three


def _advance(
    pen: Pen,
    former: Mapping[str, Any] | None,
    stored: Mapping[str, Any],
    hashes: Mapping[str, str],
    *,
    at_work: bool,
    outdated: bool,
    done: bool,
) -> Mapping[str, Any] | None:
    """Return the progress of a component: begun when the update reaches it, begun anew for another hash, and ended.

    One that was made during the update needs none. It is told by the hash that was written when it was complete; one
    that has none yet, but has something outdated, was only never told so before the update came.
    """
    current = pen.update.generation_hash
    if pen.update.turn is Turn.START:
        return former
    if former is None or former.get("podCliqueSetGenerationHash") != current:
        known = stored.get("currentPodCliqueSetGenerationHash")
        is_new = former is None and (known == current or (known is None and not outdated))
        if is_new or not (at_work or pen.is_on_delete):
            return former
        former = {"updateStartedAt": pen.now, **hashes}
    elif at_work and outdated and not pen.is_on_delete and not _is_open(former):
        # Ended by OnDelete, which leaves outdated pods behind; they are replaced now.
        former = {"updateStartedAt": pen.now, **hashes}
    if (done or pen.is_on_delete) and _is_open(former):
        former = {**former, "updateEndedAt": pen.now}
    return former


def _is_open(progress: Mapping[str, Any] | None) -> bool:
    return progress is not None and not progress.get("updateEndedAt")


def _is_stale(progress: Mapping[str, Any], pen: Pen) -> bool:
    return progress.get("podCliqueSetGenerationHash") != pen.update.generation_hash


def _put_progress(status: Status, progress: Mapping[str, Any] | None) -> None:
    """Put the progress into a status under its name and its former one, or take both out."""
    for name in ("updateProgress", "rollingUpdateProgress"):
        if progress is None:
            status.pop(name, None)
        else:
            status[name] = progress


def _removed(step: Step, wanted: int, *, pods: bool = False, every: bool = False) -> list[Unit]:
    """Return the originals that this step replaces: those whose turn it is, or every outdated one."""
    reasons = {Reason.OUTDATED, Reason.OUTDATED_UNAVAILABLE} if every else {Reason.OUTDATED}
    return [
        removal.unit for removal in step.delete if removal.reason in reasons and (pods or removal.unit.index < wanted)
    ]


def _as_list(value: Any) -> list[Any]:
    """Return what Grove wrote as one value, and we as a list, as a list."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
