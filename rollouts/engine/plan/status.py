"""The status of the three kinds: what is told to everybody who looks at the resources (DESIGN 6.11).

The last thing a plan decides, from the same views and steps as its actions. Progress lives here and nowhere else: the
next pass reads back what this one wrote. The invariants: a status is written only when it differs from the stored one;
what others put into it stays; `rollingUpdateProgress` is always the same as `updateProgress`.

What is leaving is never counted. `availableReplicas` counts whatever serves, surge included, up to the wanted number:
an update with maxUnavailable 0 never shows less. `updatedReplicas` counts originals only, so that fewer than `replicas`
means that something is still outdated or not available. `surgeReplicas` says how many there are beyond `replicas`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rollouts.engine.model import names
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
    condition,
    find_condition,
    put_conditions,
)
from rollouts.engine.model.container_faults import Fault
from rollouts.engine.model.observed import Clique, Group
from rollouts.engine.model.times import render_time
from rollouts.engine.model.values import value
from rollouts.engine.model.workload import Workload
from rollouts.engine.plan.diagnosis import CAUSES, Diagnosis, find_problem
from rollouts.engine.rollout.roller import Reason, Step, Unit
from rollouts.engine.rollout.steps import CliqueStep, GroupStep, SetStep
from rollouts.engine.rollout.termination import count_fine, is_breached, is_group_breached
from rollouts.engine.rollout.update import Turn, Update
from rollouts.engine.tree.layout import Shape
from rollouts.engine.tree.views import CliqueView, GroupReplica, GroupView, Tree

Status = dict[str, Any]

# What the progress of a component says only while its update runs.
_SELECTION: Final = frozenset({"readyPodsSelectedToUpdate", "readyReplicaIndicesSelectedToUpdate", "updatedReplicas"})


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
    _put_surge(status, _count_surge_pods(view))
    if not is_member:
        status["hpaPodSelector"] = f"{names.PART_OF}={pen.workload.name},{names.CLIQUE}={view.name}"
    # Where nothing rolls nothing closes a gap either.
    done = view.is_complete or (pen.update.turn not in {Turn.START, Turn.WORK} and view.is_settled)
    if done:
        status["currentPodTemplateHash"] = view.template_hash
        status["currentPodCliqueSetGenerationHash"] = pen.update.generation_hash
    _put_progress(status, _clique_progress(pen, step, clique.status, at_work=at_work and not is_member, done=done))
    is_updating = at_work and _is_open(status.get("updateProgress"))
    wanted = _clique_conditions(view, clique, pen.now, is_updating=is_updating, terminated=terminated)
    former = [] if terminated else _start_clock(clique.status, wanted[-1])
    status["conditions"] = put_conditions(former, wanted)
    return status


def _start_clock(stored: Mapping[str, Any], breach: Condition) -> list[Mapping[str, Any]]:
    """Return the stored conditions, without a breach that a scale made if by now it is another one: it begins anew."""
    former: list[Mapping[str, Any]] = stored.get("conditions") or []
    if find_condition(stored, BREACHED).get("reason") != SCALED_BELOW or breach["reason"] == SCALED_BELOW:
        return former
    return [one for one in former if one.get("type") != BREACHED]


def _clique_conditions(
    view: CliqueView, clique: Clique, now: str, *, is_updating: bool, terminated: bool
) -> list[Condition]:
    """Return whether enough pods are scheduled, and whether the clique is below its minimum.

    How a PodClique began is dated back to its creation, so that what never was otherwise can be told from what changed.
    After a termination it begins anew.
    """
    began, now = render_time(clique.created), _after(clique.created, now)
    is_new = terminated or not find_condition(clique.status, SCHEDULED)
    placed = f"{view.scheduled} of {len(view.live)} pods are scheduled, {view.needed} must be."
    if view.scheduled >= view.needed and not terminated:
        scheduled = condition(SCHEDULED, "True", "SufficientScheduledPods", placed, now)
    else:
        scheduled = condition(SCHEDULED, "False", "InsufficientScheduledPods", placed, began if is_new else now)
    return [scheduled, _breach(view, began if is_new else now, is_updating=is_updating, terminated=terminated)]


def _after(created: float, now: str) -> str:
    """Return when a condition changed: after the creation, though it be in the same second.

    Conditions that say how an object began have its creation as their time, and `termination` tells them apart by it.
    """
    return max(now, render_time(created + 1))


def _breach(view: CliqueView, now: str, *, is_updating: bool, terminated: bool) -> Condition:
    if is_updating:
        return condition(BREACHED, "Unknown", "UpdateInProgress", "Its pods are being updated.", now)
    if terminated:
        return condition(BREACHED, "Unknown", "GangTerminated", "Its pods are being recreated.", now)
    if view.is_scaled_below and not is_breached(view):
        text = f"It is scaled to {view.wanted} pods, {view.needed} must be available."
        return condition(BREACHED, "True", SCALED_BELOW, text, now)
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
    if progress is None or _is_stale(progress, pen):
        return progress
    if not _is_open(progress):
        return _without_selection(progress)
    selected = _select_pods(progress.get("readyPodsSelectedToUpdate") or {}, view, _removed(step.step))
    told = {**progress, "updatedReplicas": len(_updated_indices(view))}
    return {**told, "readyPodsSelectedToUpdate": selected} if selected else told


def _select_pods(former: Mapping[str, Any], view: CliqueView, chosen: list[Unit]) -> dict[str, list[Any]] | None:
    """Return the pods being replaced, with the index of each, and those whose replacement is Ready.

    A replacement has the index of the pod that it replaces, and another name. Surge that is Ready replaces nobody.
    """
    names: list[str] = _as_list(former.get("current"))
    indices: list[int] = _as_list(former.get("currentIndices"))
    replaced = dict(zip(names, indices, strict=False))
    replaced |= {unit.key: unit.index for unit in chosen}
    going = {unit.index for unit in chosen}
    ready = _updated_indices(view) - going
    completed: list[str] = [*_as_list(former.get("completed"))]
    completed += [name for name, index in replaced.items() if index in ready]
    current = {name: index for name, index in replaced.items() if index not in ready and index < view.wanted}
    if not current and not completed:
        return None
    return {"current": [*current], "currentIndices": [*current.values()], "completed": completed}


def _updated_indices(view: CliqueView) -> set[int]:
    """Return the indices at which a pod of the current template serves; surge is none of them."""
    current = view.template_hash
    return {pod.index for pod in view.live if pod.ready and pod.template_hash == current and pod.index < view.wanted}


def _count_surge_pods(view: CliqueView) -> int:
    """Count the pods beyond the wanted ones; scaling in may leave a clique with higher indices, which are no surge."""
    if view.is_updating:
        return view.count_surge(is_extra=False)
    return max(0, len(view.live) - view.wanted)


# ---- PodCliqueScalingGroups


def group_status(pen: Pen, step: GroupStep, group: Group, *, at_work: bool, terminated: bool) -> Status:
    """Return the status of a PodCliqueScalingGroup."""
    view = step.view
    parts = [part for index, part in view.replicas.items() if index < view.wanted]
    available = sum(part.is_available for part in view.replicas.values())
    scheduled = sum(part.is_scheduled for part in view.replicas.values())
    status: Status = {
        **group.status,
        "observedGeneration": group.generation,
        "replicas": view.wanted,
        "scheduledReplicas": min(scheduled, view.wanted),
        "availableReplicas": min(available, view.wanted),
        "updatedReplicas": sum(part.is_available and not part.is_outdated for part in parts),
        "selector": f"{names.PART_OF}={pen.workload.name},{names.GROUP}={view.name}",
    }
    extra = (part for index, part in view.replicas.items() if index >= view.wanted)
    _put_surge(status, sum(not part.is_leaving for part in extra))
    done = view.is_complete
    if done:
        status["currentPodCliqueSetGenerationHash"] = pen.update.generation_hash
    _put_progress(status, _group_progress(pen, step, group.status, parts, at_work=at_work, done=done))
    is_updating = at_work and _is_open(status.get("updateProgress"))
    wanted = _group_conditions(pen, view, group, is_updating=is_updating, terminated=terminated)
    dropped = [TERMINATING] if wanted[0]["status"] == "False" else []
    status["conditions"] = put_conditions(_start_clock(group.status, wanted[0]), wanted, dropped)
    return status


def _group_conditions(
    pen: Pen, view: GroupView, group: Group, *, is_updating: bool, terminated: bool
) -> list[Condition]:
    """Return whether a scaling group is below its minimum; how it began is dated back to its creation."""
    since = _after(group.created, pen.now) if find_condition(group.status, BREACHED) else render_time(group.created)
    available = sum(part.is_available for part in view.replicas.values() if part.index < view.wanted)
    text = f"{available} of {view.wanted} replicas are available, {view.needed} must be."
    if is_updating:
        breach = condition(BREACHED, "Unknown", "UpdateInProgress", "Its replicas are being updated.", since)
    elif terminated:
        breach = condition(BREACHED, "Unknown", "GangTerminated", "Its replicas are being recreated.", since)
    elif is_group_breached(view):
        reason = "InsufficientAvailablePodCliqueScalingGroupReplicas"
        breach = condition(BREACHED, "True", reason, text, since)
    elif is_group_scaled_below(view):
        breach = condition(BREACHED, "True", SCALED_BELOW, text, since)
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
    if not _is_open(progress):
        return _without_selection(progress)
    former_ones = progress.get("readyReplicaIndicesSelectedToUpdate") or {}
    selected = _select_indices(former_ones, step.units, [unit.index for unit in _removed(step.step)], view.wanted)
    return {**progress, "readyReplicaIndicesSelectedToUpdate": selected} if selected else progress


def is_group_scaled_below(view: GroupView) -> bool:
    """Whether a scaling group cannot have its minimum: it, or cliques in its replicas, are scaled to less."""
    whole = [part for index, part in view.replicas.items() if index < view.wanted and not _is_part_scaled_below(part)]
    return view.is_scaled_below or (len(view.replicas) >= view.needed > len(whole))


def _is_part_scaled_below(part: GroupReplica) -> bool:
    return any(view.is_live and view.is_scaled_below for view in part.cliques)


def is_member_updated(view: CliqueView) -> bool:
    """Whether a PodClique of a scaling group is up with the current template and nothing else."""
    return view.is_up and not view.outdated and not view.is_label_outdated


def _select_indices(
    former: Mapping[str, Any], units: Iterable[Unit], chosen: list[int], wanted: int
) -> dict[str, list[int]] | None:
    """Return the replicas being replaced, and those that are back."""
    finished = {unit.index for unit in units if unit.available and not unit.outdated and not unit.leaving}
    finished -= {*chosen}
    before: list[int] = [*_as_list(former.get("current"))]
    current = [*before, *(index for index in chosen if index not in before)]
    completed: list[int] = [*_as_list(former.get("completed"))]
    completed += [index for index in current if index in finished and index not in completed]
    current = [index for index in current if index not in finished and index < wanted]
    return {"current": current, "completed": completed} if current or completed else None


# ---- PodCliqueSets


def set_status(
    pen: Pen, stored: Mapping[str, Any], shape: Shape, tree: Tree, *, steps: SetStep, diagnosis: Diagnosis
) -> Status:
    """Return the status of the set."""
    workload = pen.workload
    available = len(tree.replicas) - len(tree.unavailable)
    extra = tree.beyond(workload.replicas)
    lacking = (tree.unavailable | tree.outdated) - extra
    updated = 0 if pen.update.turn is Turn.START else len(tree.replicas) - len(extra) - len(lacking)
    status: Status = {
        **stored,
        "observedGeneration": workload.generation,
        "replicas": workload.replicas,
        "availableReplicas": min(available, workload.replicas),
        "updatedReplicas": updated,
        "hpaPodSelector": f"{names.MANAGED_BY}={names.OPERATOR},{names.PART_OF}={workload.name}",
        "currentGenerationHash": pen.update.generation_hash,
    }
    _put_surge(status, len(extra - tree.frameless))
    _put_progress(status, _set_progress(pen, stored, shape, tree, steps=steps, updated=updated))
    wanted = _set_conditions(pen, available, tree, diagnosis)
    status["conditions"] = put_conditions(stored.get("conditions") or [], wanted)
    return status


def _set_progress(
    pen: Pen, stored: Mapping[str, Any], shape: Shape, tree: Tree, *, steps: SetStep, updated: int
) -> Mapping[str, Any] | None:
    update, former = pen.update, stored.get("updateProgress")
    if update.turn is Turn.START:
        return {**_totals(shape, [], []), "updateStartedAt": pen.now} | (
            {"updateEndedAt": pen.now} if pen.is_on_delete else {"updatedReplicas": 0}
        )
    if former is None:
        return None
    progress: Status = {**former, **_totals(shape, tree.complete.cliques.names, tree.complete.groups.names)}
    for name in ("updatingReplicas", "currentlyUpdating", "updatedReplicas"):
        progress.pop(name, None)
    if update.turn is Turn.END:
        progress["updateEndedAt"] = pen.now
    elif _is_open(progress):
        progress["updatedReplicas"] = updated
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
        chosen = {unit.index for unit in _removed(steps.step, every=True)}
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
    scales = _render_scales(diagnosis.waits)
    if scales and not is_available:
        reason, text = SCALED_BELOW, f"{text} {scales}"
    return [
        condition(AVAILABLE, "True" if is_available else "False", reason, text, pen.now),
        _progressing(pen, tree, diagnosis.waits),
        _stuck(pen, diagnosis),
    ]


def _stuck(pen: Pen, diagnosis: Diagnosis) -> Condition:
    """Say what an update is stuck at, or else what it waits for: in words that are the same for pod after pod."""
    waits, cause = (diagnosis.waits, diagnosis.cause) if pen.update.is_under_way else ((), "")
    # What is scaled below its minimum is down, and the update goes on.
    problem = find_problem([wait for wait in waits if wait.code != SCALED_BELOW])
    if problem is not None:
        return condition(STUCK, "True", problem.code, problem.text, pen.now)
    if cause:
        return condition(STUCK, "False", cause, CAUSES[cause], pen.now)
    return condition(STUCK, "False", NOTHING_IN_THE_WAY, "Nothing is in the way.", pen.now)


def _progressing(pen: Pen, tree: Tree, waits: tuple[Wait, ...]) -> Condition:
    if pen.update.is_under_way or (pen.update.turn is Turn.START and not pen.is_on_delete):
        return condition(PROGRESSING, "True", "UpdateInProgress", "An update is under way.", pen.now)
    scales = _render_scales(waits)
    if scales:
        return condition(PROGRESSING, "False", SCALED_BELOW, scales, pen.now)
    is_complete = not tree.incomplete and len(tree.replicas) == pen.workload.replicas
    # What is complete can still crash: a container without a readiness probe is Ready as long as it runs.
    problem = find_problem([wait for wait in waits if wait.code == Fault.CRASH] if is_complete else waits)
    if problem is not None:
        return condition(PROGRESSING, "False", problem.code, problem.text, pen.now)
    awaiting = next((wait for wait in waits if wait.code == "AwaitingDeletion"), None)
    if awaiting is not None:
        text = "Pods run an older template until somebody deletes them."
        return condition(PROGRESSING, "False", awaiting.code, text, pen.now)
    if is_complete:
        return condition(PROGRESSING, "False", "Complete", "Every replica is complete.", pen.now)
    return condition(PROGRESSING, "True", "Deploying", "Not every replica is complete yet.", pen.now)


def _render_scales(waits: Iterable[Wait]) -> str:
    """Return which scales keep components below their minimum; empty where none does."""
    return " ".join(wait.text for wait in waits if wait.code == SCALED_BELOW)


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

    One that was made during the update needs none: nothing in it is outdated, and the hash that was written when it was
    complete is the current one, or none was written yet. An update that interrupts another takes its progress out; the
    write may be lost, so every later pass drops an open progress of other templates too.
    """
    current = pen.update.generation_hash
    if pen.update.turn is Turn.START:
        return None if is_interrupted(pen.update, former) else former
    if former is None or former.get("podCliqueSetGenerationHash") != current:
        known = stored.get("currentPodCliqueSetGenerationHash")
        is_new = former is None and known in (current, None) and not outdated
        if is_new or not (at_work or pen.is_on_delete):
            return None if _is_open(former) else former
        former = {"updateStartedAt": pen.now, **hashes}
    elif at_work and outdated and not pen.is_on_delete and not _is_open(former):
        # Ended by OnDelete, which leaves outdated pods behind; they are replaced now.
        former = {"updateStartedAt": pen.now, **hashes}
    if (done or pen.is_on_delete) and _is_open(former):
        former = {**former, "updateEndedAt": pen.now}
    return former


def is_interrupted(update: Update, progress: Mapping[str, Any] | None) -> bool:
    """Whether an update that begins takes out the progress of a component: it is open, or of the superseded update."""
    if progress is None:
        return False
    superseded = update.supersedes and progress.get("podCliqueSetGenerationHash") == update.former.generation_hash
    return superseded or _is_open(progress)


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


def _without_selection(progress: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a progress that names nothing that is being replaced: nothing is once it has ended."""
    if _SELECTION.isdisjoint(progress):
        return progress
    return {name: told for name, told in progress.items() if name not in _SELECTION}


def _put_surge(status: Status, count: int) -> None:
    """Say how many there are beyond the wanted ones, where there are any."""
    if count:
        status["surgeReplicas"] = count
    else:
        status.pop("surgeReplicas", None)


def _removed(step: Step, *, every: bool = False) -> list[Unit]:
    """Return the units that this step replaces: those whose turn it is, or every outdated one."""
    reasons = {Reason.OUTDATED, Reason.OUTDATED_UNAVAILABLE} if every else {Reason.OUTDATED}
    return [removal.unit for removal in step.delete if removal.reason in reasons]


def _as_list(value: Any) -> list[Any]:
    """Return what Grove wrote as one value, and we as a list, as a list."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
