"""Steady replicas: those that need nothing. They are recognised cheaply, because most replicas are steady.

`tree_builder` checks each replica twice: from the observed objects alone whether it is steady and complete, and if not,
from its views whether it is steady. `steps` plans only the others. The invariant: a replica is skipped only if the pass
would write nothing to it and report nothing about it, so without this module every plan is the same and costs more.

A status is not computed again to be compared. It was written from the counts that it shows and the generation that it
has observed; if these still hold, so does the rest.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

from rollouts.engine.manifest.references import MAX_PODS
from rollouts.engine.model.conditions import (
    ALL_CREATED_MESSAGE,
    BREACHED,
    INITIALIZED,
    SCHEDULED,
    SCHEDULER_PHASE_MESSAGE,
    TERMINATING,
    find_condition,
    is_phase_reported_by_scheduler,
    render_phase_message,
)
from rollouts.engine.model.names import scaled_gang_name
from rollouts.engine.model.observed import TERMINAL_PHASES, Clique, Gang, Pod
from rollouts.engine.model.template_keys import find_scaling_keys
from rollouts.engine.model.workload import CliqueTemplate
from rollouts.engine.tree.availability import (
    CliqueView,
    GroupView,
    ReplicaView,
    compute_min_available,
    is_min_available_stale,
)
from rollouts.engine.tree.layout import Layout, ObjectIndex

_clique_counts = itemgetter(
    "replicas", "readyReplicas", "updatedReplicas", "scheduledReplicas", "scheduleGatedReplicas"
)
_clique_counts_and_hash = itemgetter(
    "replicas",
    "readyReplicas",
    "updatedReplicas",
    "scheduledReplicas",
    "scheduleGatedReplicas",
    "currentPodTemplateHash",
)
# The fields of a progress that name what is being replaced now.
_SELECTION = frozenset({"readyPodsSelectedToUpdate", "readyReplicaIndicesSelectedToUpdate"})
# The message of Initialized on a PodGang whose pods all exist.
_RUNNING_MESSAGE = f"{ALL_CREATED_MESSAGE} {render_phase_message('Running')}"
_SCHEDULER_MESSAGE = f"{ALL_CREATED_MESSAGE} {SCHEDULER_PHASE_MESSAGE}"
_pod_state = attrgetter("template_hash", "ready", "leaving", "gated")


def is_steady(layout: Layout, replica: ReplicaView) -> bool:
    """Whether a replica of the set has exactly its wanted objects, outdated or not, with statuses that show it."""
    service = replica.service
    if service is None or service.leaving:
        return False
    if service.publish_not_ready_addresses != layout.workload.publish_not_ready_addresses:
        return False
    # A replica that is replaced whole keeps its labels until then.
    keeps_label = layout.replaces_whole
    current = layout.generation_hash
    for view in replica.cliques:
        if not _is_clique_steady(layout, view, current, keeps_label=keeps_label):
            return False
    for group in replica.groups:
        if not _is_group_steady(layout, group, current):
            return False
    return _are_gangs_steady(layout, replica)


def is_steady_and_complete(layout: Layout, index: int, found: ObjectIndex) -> bool:
    """Whether a replica of the set is steady and complete, judged by its objects before any view is made.

    False also where that is not quick to see: with scaling groups, or with pods beyond the wanted ones.
    """
    service, gang = found.services.get(index), found.base_gangs.get(index)
    if service is None or service.leaving or gang is None or layout.groups:
        return False
    if service.publish_not_ready_addresses != layout.workload.publish_not_ready_addresses:
        return False
    if index in found.scaled_gangs or len(gang.pod_groups) != len(layout.standalone):
        return False
    prefix = layout.prefixes[index]
    for template in layout.standalone:
        name = f"{prefix}-{template.name}"
        clique, pods = found.cliques.get(name), found.pods.get(name, ())
        if clique is None or not _is_clique_steady_and_complete(layout, template, clique, pods):
            return False
        if gang.pod_groups.get(name) != (compute_min_available(template, clique), tuple([pod.name for pod in pods])):
            return False
    return _is_gang_current(layout, gang)


def _is_clique_steady_and_complete(
    layout: Layout, template: CliqueTemplate, clique: Clique, pods: Sequence[Pod]
) -> bool:
    """Whether a clique has exactly its wanted pods, all current and available, and its status shows it."""
    current, count, status = layout.hashes[template.name], clique.replicas, clique.status
    if len(pods) != count or count > MAX_PODS or clique.leaving or clique.template_hash != current:
        return False
    if clique.template_replicas != template.replicas or (count and pods[-1].index >= count):
        return False
    if is_min_available_stale(template, clique):
        return False
    expected = (current, True, False, False)
    for pod in pods:
        if _pod_state(pod) != expected or not pod.node or pod.phase in TERMINAL_PHASES:
            return False
    try:
        counted = _clique_counts_and_hash(status)
    except KeyError:
        return False
    return (
        counted == (count, count, count, count, 0, current)
        and count >= compute_min_available(template, clique)
        and find_scaling_keys(clique.template_keys) == layout.scaling_keys[template.name]
        and _is_status_steady(status, clique.generation, layout.generation_hash, complete=True)
        and _has_healthy_clique_conditions(status)
    )


def _is_clique_steady(layout: Layout, view: CliqueView, current: str, *, keeps_label: bool) -> bool:
    """Whether a clique has exactly its wanted pods, outdated or not, and its status shows it."""
    clique, count = view.clique, view.wanted
    if clique is None or not len(view.pods) == len(view.live) == view.available == count or view.gated:
        return False
    if (
        clique.leaving
        or clique.template_replicas != view.template.replicas
        or is_min_available_stale(view.template, clique)
    ):
        return False
    if not keeps_label and clique.template_hash != view.template_hash:
        return False
    if find_scaling_keys(clique.template_keys) != layout.scaling_keys[view.template.name]:
        return False
    status = clique.status
    try:
        counted = _clique_counts(status)
    except KeyError:
        return False
    return (
        counted == (count, count, count - view.outdated, view.scheduled, 0)
        and view.scheduled >= view.needed
        and (not view.is_complete or status.get("currentPodTemplateHash") == view.template_hash)
        and _is_status_steady(status, clique.generation, current, complete=view.is_complete)
        and _has_healthy_clique_conditions(status)
    )


def _is_group_steady(layout: Layout, view: GroupView, current: str) -> bool:
    """Whether a scaling group has exactly its wanted replicas, outdated or not, and its status shows it."""
    group, wanted = view.group, view.wanted
    if group is None or group.leaving or wanted < view.needed or group.template_replicas != view.template.replicas:
        return False
    if group.template_keys != layout.group_keys[view.template.name]:
        return False
    updated = 0
    for index, part in view.replicas.items():
        if index >= wanted or not part.is_available:
            return False
        updated += not part.is_outdated
        for clique in part.cliques:
            if not _is_clique_steady(layout, clique, current, keeps_label=part.is_outdated):
                return False
    status = group.status
    progress = status.get("updateProgress") or {}
    return (
        len(view.replicas) == wanted
        and status.get("replicas") == wanted
        and status.get("scheduledReplicas") == wanted
        and status.get("availableReplicas") == wanted
        and status.get("updatedReplicas") == updated
        and _is_status_steady(status, group.generation, current, complete=updated == wanted)
        and _has_healthy_group_conditions(status)
        and (updated < wanted or progress.get("updatedPodCliquesCount") in (None, _count_cliques(view)))
    )


def _count_cliques(view: GroupView) -> int:
    return view.wanted * len(view.template.clique_names)


def _is_status_steady(status: Mapping[str, Any], generation: int, current: str, *, complete: bool) -> bool:
    """Whether a status is of the current generation and, if the object is complete, of the current templates."""
    if status.get("observedGeneration") != generation or "surgeReplicas" in status:
        return False
    progress = status.get("updateProgress")
    if status.get("rollingUpdateProgress") != progress:
        return False
    is_current = progress is not None and progress.get("podCliqueSetGenerationHash") == current
    if not complete:
        return not is_current and (progress is None or bool(progress.get("updateEndedAt")))
    if status.get("currentPodCliqueSetGenerationHash") != current:
        return False
    return progress is None or (is_current and _is_progress_closed(progress))


def _is_progress_closed(progress: Mapping[str, Any]) -> bool:
    return bool(progress.get("updateEndedAt")) and _SELECTION.isdisjoint(progress)


def _has_healthy_clique_conditions(status: Mapping[str, Any]) -> bool:
    """Whether the conditions say that a PodClique is scheduled and not below its minimum."""
    scheduled = breached = ""
    for condition in status.get("conditions") or ():
        kind = condition.get("type")
        if kind == SCHEDULED:
            scheduled = condition.get("status")
        elif kind == BREACHED:
            breached = condition.get("status")
    return scheduled == "True" and breached == "False"


def _has_healthy_group_conditions(status: Mapping[str, Any]) -> bool:
    """Whether the conditions say that a PodCliqueScalingGroup is not below its minimum."""
    return find_condition(status, BREACHED).get("status") == "False" and not find_condition(status, TERMINATING)


def _is_gang_current(layout: Layout, gang: Gang) -> bool:
    """Whether a PodGang stays, has the priority and scheduler of its set, and reports that all its pods exist."""
    if gang.leaving or gang.priority_class != layout.workload.priority_class or gang.scheduler != layout.scheduler:
        return False
    return _has_running_gang_status(gang.status)


def _has_running_gang_status(status: Mapping[str, Any]) -> bool:
    """Whether the status of a PodGang says that all its pods exist and run; a scheduler may report another phase."""
    created = find_condition(status, INITIALIZED)
    if created.get("status") != "True":
        return False
    message = created.get("message")
    if is_phase_reported_by_scheduler(status):
        return message == _SCHEDULER_MESSAGE
    return status.get("phase") == "Running" and message == _RUNNING_MESSAGE


def _are_gangs_steady(layout: Layout, replica: ReplicaView) -> bool:
    """Whether the stored gangs are exactly the wanted ones."""
    if not replica.groups:
        return not replica.scaled_gangs and _is_gang_steady(layout, replica.base_gang, replica.cliques)
    base = [*replica.cliques]
    scaled = 0
    for group in replica.groups:
        for index, part in group.replicas.items():
            if index < group.template.min_available:
                base.extend(part.cliques)
                continue
            name = scaled_gang_name(group.name, index, group.template.min_available)
            if not _is_gang_steady(layout, replica.scaled_gangs.get(name), part.cliques):
                return False
            scaled += 1
    return len(replica.scaled_gangs) == scaled and _is_gang_steady(layout, replica.base_gang, base)


def _is_gang_steady(layout: Layout, gang: Gang | None, cliques: Iterable[CliqueView]) -> bool:
    if gang is None or not _is_gang_current(layout, gang):
        return False
    groups = gang.pod_groups
    count = 0
    for view in cliques:
        if groups.get(view.name) != (view.needed, tuple([pod.name for pod in view.live])):
            return False
        count += 1
    return len(groups) == count
