"""The statuses of PodCliqueSets, PodCliques and scaling groups (`docs/semantics.md` 11).

Computed last in a pass, from the same views and steps as its actions; `status_conditions` adds the conditions. The
progress of an update is stored only here: the next pass reads what this one wrote. The invariants: a status is written
only when it differs from the stored one; fields of other writers stay; `rollingUpdateProgress` always equals
`updateProgress`.

Terminating objects are never counted. `availableReplicas` counts everything available, surge included, up to the wanted
number, so an update with maxUnavailable 0 never shows fewer. `updatedReplicas` counts originals only: if it is below
`replicas`, something is outdated or not available. `surgeReplicas` counts what exists beyond the wanted number.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rollouts.engine.model import names
from rollouts.engine.model.conditions import TERMINATING, merge_conditions
from rollouts.engine.model.observed import Clique, Group
from rollouts.engine.plan.diagnosis import WaitDiagnosis
from rollouts.engine.plan.status_conditions import (
    StatusContext,
    make_clique_conditions,
    make_group_conditions,
    make_set_conditions,
    reset_breach_clock,
)
from rollouts.engine.rollout.roller import Reason, RollerStep, Unit
from rollouts.engine.rollout.steps import CliqueStep, GroupStep, SetStep
from rollouts.engine.rollout.update import Update, UpdatePhase
from rollouts.engine.tree.availability import CliqueView, GroupReplicaView, Tree
from rollouts.engine.tree.layout import Layout
from rollouts.engine.tree.surge import count_surge_pods, list_surge_replicas, list_surge_set_replicas

Status = dict[str, Any]

# Fields of a component's progress that exist only while its update runs.
_SELECTION: Final = frozenset({"readyPodsSelectedToUpdate", "readyReplicaIndicesSelectedToUpdate", "updatedReplicas"})


# ---- PodCliques


def compute_clique_status(
    context: StatusContext, step: CliqueStep, clique: Clique, *, at_work: bool, terminated: bool, is_member: bool
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
    _put_surge(status, count_surge_pods(view, is_extra=False))
    if not is_member:
        status["hpaPodSelector"] = f"{names.PART_OF}={context.workload.name},{names.CLIQUE}={view.name}"
    # Outside an update nothing closes a gap in the indices.
    done = view.is_complete or (
        context.update.phase not in {UpdatePhase.START, UpdatePhase.WORK} and view.is_complete_but_for_gaps
    )
    if done:
        status["currentPodTemplateHash"] = view.template_hash
        status["currentPodCliqueSetGenerationHash"] = context.update.generation_hash
    _put_progress(status, _clique_progress(context, step, clique.status, at_work=at_work and not is_member, done=done))
    is_updating = at_work and _is_open(status.get("updateProgress"))
    wanted = make_clique_conditions(view, clique, context.now, is_updating=is_updating, terminated=terminated)
    former = [] if terminated else reset_breach_clock(clique.status, wanted[-1])
    status["conditions"] = merge_conditions(former, wanted)
    return status


def _clique_progress(
    context: StatusContext, step: CliqueStep, stored: Mapping[str, Any], *, at_work: bool, done: bool
) -> Mapping[str, Any] | None:
    """Return the progress of a PodClique; None if it needs no update."""
    view = step.view
    former = stored.get("updateProgress")
    hashes = {"podCliqueSetGenerationHash": context.update.generation_hash, "podTemplateHash": view.template_hash}
    outdated = view.is_outdated or view.is_label_outdated
    progress = _advance_progress(context, former, stored, hashes, at_work=at_work, outdated=outdated, done=done)
    if progress is None or _is_stale(progress, context):
        return progress
    if not _is_open(progress):
        return _without_selection(progress)
    selected = _select_pods(progress.get("readyPodsSelectedToUpdate") or {}, view, _list_replaced_units(step.step))
    open_progress = {**_without_selection(progress), "updatedReplicas": len(_updated_indices(view))}
    return {**open_progress, "readyPodsSelectedToUpdate": selected} if selected else open_progress


def _select_pods(former: Mapping[str, Any], view: CliqueView, chosen: list[Unit]) -> dict[str, list[Any]] | None:
    """Return the pods being replaced, with their indices, and the pods whose replacement is Ready.

    A replacement has the index of the pod that it replaces, and another name. Surge replaces no pod. A pod is listed
    before it is deleted; a pod that still exists is not being replaced.
    """
    names: list[str] = _as_list(former.get("current"))
    indices: list[int] = _as_list(former.get("currentIndices"))
    staying = {pod.name for pod in view.live}
    replaced = {name: index for name, index in zip(names, indices, strict=False) if name not in staying}
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
    """Return the indices of originals that are Ready and of the current template."""
    current = view.template_hash
    return {pod.index for pod in view.live if pod.ready and pod.template_hash == current and pod.index < view.wanted}


# ---- PodCliqueScalingGroups


def compute_group_status(
    context: StatusContext, step: GroupStep, group: Group, *, at_work: bool, terminated: bool
) -> Status:
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
        "selector": f"{names.PART_OF}={context.workload.name},{names.GROUP}={view.name}",
    }
    _put_surge(status, len(list_surge_replicas(view)))
    done = view.is_complete
    if done:
        status["currentPodCliqueSetGenerationHash"] = context.update.generation_hash
    _put_progress(status, _group_progress(context, step, group.status, parts, at_work=at_work, done=done))
    is_updating = at_work and _is_open(status.get("updateProgress"))
    wanted = make_group_conditions(view, group, context.now, is_updating=is_updating, terminated=terminated)
    dropped = [TERMINATING] if wanted[0]["status"] == "False" else []
    status["conditions"] = merge_conditions(reset_breach_clock(group.status, wanted[0]), wanted, dropped)
    return status


def _group_progress(
    context: StatusContext,
    step: GroupStep,
    stored: Mapping[str, Any],
    parts: list[GroupReplicaView],
    *,
    at_work: bool,
    done: bool,
) -> Mapping[str, Any] | None:
    """Return the progress of a scaling group; None if it needs no update."""
    view = step.view
    hashes = {"podCliqueSetGenerationHash": context.update.generation_hash}
    former = stored.get("updateProgress")
    progress = _advance_progress(context, former, stored, hashes, at_work=at_work, outdated=view.is_outdated, done=done)
    if progress is None or _is_stale(progress, context):
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
    selected = _select_indices(
        former_ones, step.units, [unit.index for unit in _list_replaced_units(step.step)], view.wanted
    )
    told_progress = _without_selection(progress)
    return {**told_progress, "readyReplicaIndicesSelectedToUpdate": selected} if selected else told_progress


def is_member_updated(view: CliqueView) -> bool:
    """Whether a PodClique of a scaling group is up, with pods of the current template only."""
    return view.is_up and not view.outdated and not view.is_label_outdated


def _select_indices(
    former: Mapping[str, Any], units: Iterable[Unit], chosen: list[int], wanted: int
) -> dict[str, list[int]] | None:
    """Return the replicas being replaced, and those whose replacement is available.

    A replica is listed before it is deleted; one that is still available with the old template is not being replaced.
    """
    staying = {unit.index for unit in units if unit.available and unit.outdated and not unit.leaving}
    finished = {unit.index for unit in units if unit.available and not unit.outdated and not unit.leaving}
    finished -= {*chosen}
    before: list[int] = [index for index in _as_list(former.get("current")) if index not in staying]
    current = [*before, *(index for index in chosen if index not in before)]
    completed: list[int] = [*_as_list(former.get("completed"))]
    completed += [index for index in current if index in finished and index not in completed]
    current = [index for index in current if index not in finished and index < wanted]
    return {"current": current, "completed": completed} if current or completed else None


# ---- PodCliqueSets


def compute_set_status(
    context: StatusContext,
    stored: Mapping[str, Any],
    layout: Layout,
    tree: Tree,
    *,
    steps: SetStep,
    diagnosis: WaitDiagnosis,
) -> Status:
    """Return the status of the set."""
    workload = context.workload
    available = len(tree.replicas) - len(tree.unavailable)
    extra = tree.beyond(workload.replicas)
    lacking = (tree.unavailable | tree.outdated) - extra
    updated = 0 if context.update.phase is UpdatePhase.START else len(tree.replicas) - len(extra) - len(lacking)
    status: Status = {
        **stored,
        "observedGeneration": workload.generation,
        "replicas": workload.replicas,
        "availableReplicas": min(available, workload.replicas),
        "updatedReplicas": updated,
        "hpaPodSelector": f"{names.MANAGED_BY}={names.OPERATOR},{names.PART_OF}={workload.name}",
        "currentGenerationHash": context.update.generation_hash,
    }
    _put_surge(status, len(list_surge_set_replicas(tree, workload.replicas)))
    _put_progress(status, _set_progress(context, stored, layout, tree, steps=steps, updated=updated))
    wanted = make_set_conditions(context, available, tree, diagnosis)
    status["conditions"] = merge_conditions(stored.get("conditions") or [], wanted)
    return status


def _set_progress(
    context: StatusContext, stored: Mapping[str, Any], layout: Layout, tree: Tree, *, steps: SetStep, updated: int
) -> Mapping[str, Any] | None:
    update, former = context.update, stored.get("updateProgress")
    if update.phase is UpdatePhase.START:
        return {**_totals(layout, [], []), "updateStartedAt": context.now} | (
            {"updateEndedAt": context.now} if context.is_on_delete else {"updatedReplicas": 0}
        )
    if former is None:
        return None
    progress: Status = {**former, **_totals(layout, tree.complete.cliques.names, tree.complete.groups.names)}
    for name in ("updatingReplicas", "currentlyUpdating", "updatedReplicas"):
        progress.pop(name, None)
    if update.phase is UpdatePhase.END:
        progress["updateEndedAt"] = context.now
    elif _is_open(progress):
        progress["updatedReplicas"] = updated
    updating = _updating_replicas(context, steps) if update.is_under_way else []
    if updating:
        progress["updatingReplicas"] = progress["currentlyUpdating"] = updating
    return progress


def _totals(layout: Layout, cliques: list[str], groups: list[str]) -> Status:
    replicas = layout.workload.replicas
    return {
        "updatedPodCliques": cliques,
        "updatedPodCliquesCount": len(cliques),
        "totalPodCliquesCount": replicas * len(layout.standalone),
        "updatedPodCliqueScalingGroups": groups,
        "updatedPodCliqueScalingGroupsCount": len(groups),
        "totalPodCliqueScalingGroupsCount": replicas * len(layout.workload.groups),
    }


def _updating_replicas(context: StatusContext, steps: SetStep) -> list[Status]:
    """Return the replicas being updated: the selected one, or those replaced whole that are not available yet."""
    update, wanted = context.update, context.workload.replicas
    if not steps.is_rolling:
        indices = [] if update.selected is None else [update.selected]
    else:
        finished = {unit.index for unit in steps.units if unit.available and not unit.outdated and not unit.leaving}
        emptied = {unit.index for unit in steps.units if unit.leaving}
        chosen = {unit.index for unit in _list_replaced_units(steps.step, every=True)}
        begun = chosen | emptied | ({*update.former.updating} - finished)
        indices = sorted(index for index in begun if index < wanted)
    return [
        {"replicaIndex": index, "updateStartedAt": update.former.updating.get(index) or context.now}
        for index in indices
    ]


# ---- of all three


def _advance_progress(
    context: StatusContext,
    former: Mapping[str, Any] | None,
    stored: Mapping[str, Any],
    hashes: Mapping[str, str],
    *,
    at_work: bool,
    outdated: bool,
    done: bool,
) -> Mapping[str, Any] | None:
    """Return the progress of a component: it begins when the update reaches the component, and again for another hash.

    A component that was created during the update has none: nothing in it is outdated, and the hash that it recorded
    when it was complete is the current one or missing. An update that interrupts another removes its progress. That
    write may be lost, so every later pass removes an open progress of other templates, too.
    """
    current = context.update.generation_hash
    if context.update.phase is UpdatePhase.START:
        return None if is_interrupted(context.update, former) else former
    if former is None or former.get("podCliqueSetGenerationHash") != current:
        known = stored.get("currentPodCliqueSetGenerationHash")
        is_new = former is None and known in (current, None) and not outdated
        if is_new or not (at_work or context.is_on_delete):
            return None if _is_open(former) else former
        former = {"updateStartedAt": context.now, **hashes}
    elif at_work and outdated and not context.is_on_delete and not _is_open(former):
        # OnDelete ended the progress and left outdated pods; they are replaced now.
        former = {"updateStartedAt": context.now, **hashes}
    if (done or context.is_on_delete) and _is_open(former):
        former = {**former, "updateEndedAt": context.now}
    return former


def is_interrupted(update: Update, progress: Mapping[str, Any] | None) -> bool:
    """Whether an update that begins removes the progress of a component: it is open, or of the superseded update."""
    if progress is None:
        return False
    superseded = update.supersedes and progress.get("podCliqueSetGenerationHash") == update.former.generation_hash
    return superseded or _is_open(progress)


def _is_open(progress: Mapping[str, Any] | None) -> bool:
    return progress is not None and not progress.get("updateEndedAt")


def _is_stale(progress: Mapping[str, Any], context: StatusContext) -> bool:
    return progress.get("podCliqueSetGenerationHash") != context.update.generation_hash


def _put_progress(status: Status, progress: Mapping[str, Any] | None) -> None:
    """Store the progress in a status under its name and its deprecated name, or remove both."""
    for name in ("updateProgress", "rollingUpdateProgress"):
        if progress is None:
            status.pop(name, None)
        else:
            status[name] = progress


def _without_selection(progress: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the progress without the fields that name what is being replaced."""
    if _SELECTION.isdisjoint(progress):
        return progress
    return {name: content for name, content in progress.items() if name not in _SELECTION}


def _put_surge(status: Status, count: int) -> None:
    """Store the surge count, or remove the field if there is no surge."""
    if count:
        status["surgeReplicas"] = count
    else:
        status.pop("surgeReplicas", None)


def _list_replaced_units(step: RollerStep, *, every: bool = False) -> list[Unit]:
    """Return the units that this step replaces within the budget, with `every` also those that are not available."""
    reasons = {Reason.OUTDATED, Reason.OUTDATED_UNAVAILABLE} if every else {Reason.OUTDATED}
    return [removal.unit for removal in step.delete if removal.reason in reasons]


def _as_list(value: Any) -> list[Any]:
    """Return a list, also of what Grove stores as a single value."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
