"""PodGangs: which pods are scheduled together, and when their scheduling gates go (`docs/semantics.md` 9).

Each replica of the set has one base gang (its standalone cliques, and the replicas of each scaling group below the
group's minAvailable) and one scaled gang for each further replica of a group, surge included. `planner` asks for the
wanted gangs, their changes and the gates to remove; `desired` builds the other objects. The invariants: a gate is
removed only from a pod that the stored gang lists; the gates of a scaled gang stay until every pod group of the base
gang has its minimum of pods on nodes.
"""

from collections.abc import Iterator, Mapping, Set
from typing import Any

from rollouts.engine.model import names
from rollouts.engine.model.actions import Create, Delete, Kind, Patch, RemoveGate, WriteStatus
from rollouts.engine.model.conditions import (
    ALL_CREATED_MESSAGE,
    INITIALIZED,
    SCHEDULER_PHASE_MESSAGE,
    find_condition,
    is_phase_reported_by_scheduler,
    make_condition,
    merge_conditions,
    render_phase_message,
)
from rollouts.engine.model.metadata import SCHEDULER_API, default_labels, make_owner_references
from rollouts.engine.model.observed import Gang
from rollouts.engine.model.values import value
from rollouts.engine.model.workload import Workload
from rollouts.engine.tree.availability import CliqueView, GroupView, ReplicaView
from rollouts.engine.tree.layout import Layout

GANG_NOT_NEEDED = "GangNotNeeded"

PodGroups = Mapping[str, tuple[int, tuple[str, ...]]]


@value
class WantedGang:
    """A PodGang that should exist."""

    name: str
    is_base: bool
    cliques: tuple[CliqueView, ...]
    # Cliques that are missing because their scaling group is scaled below its minimum.
    absent: tuple[CliqueView, ...] = ()

    @property
    def pod_groups(self) -> PodGroups:
        """The minimum and the names of the pods of each clique."""
        groups = {view.name: (view.needed, tuple([pod.name for pod in view.live])) for view in self.cliques}
        return groups | {view.name: (view.needed, ()) for view in self.absent} if self.absent else groups

    @property
    def has_minimum_pods(self) -> bool:
        """Whether each clique has its minimum of pods, or all that its scale allows."""
        return all(len(view.live) >= view.attainable_minimum for view in self.cliques)

    @property
    def has_all_pods(self) -> bool:
        """Whether each clique has all its pods."""
        return all(len(view.live) >= view.wanted for view in self.cliques)

    @property
    def is_scheduled(self) -> bool:
        """Whether each clique has its minimum of pods on nodes, or all that its scale allows."""
        return all(view.scheduled >= view.attainable_minimum for view in self.cliques)

    @property
    def phase(self) -> str:
        """The phase in the words of the API: Running once the minimum of each clique is available."""
        views = (*self.cliques, *self.absent)
        if all(view.available >= view.needed for view in views):
            return "Running"
        return "Starting" if all(view.scheduled >= view.needed for view in views) else "Pending"


def compute_wanted_gangs(layout: Layout, replica: ReplicaView) -> tuple[WantedGang, ...]:
    """Return the wanted gangs of a replica of the set, the base gang first."""
    base = [*replica.cliques]
    absent: list[CliqueView] = []
    scaled = []
    for group in replica.groups:
        for index in range(group.wanted, group.needed):
            if index not in group.replicas:
                absent.extend(layout.make_group_replica_view(group.name, group.template, index).cliques)
        for index, cliques in _iter_group_replicas(layout, group):
            if index < group.template.min_available:
                base.extend(cliques)
            else:
                name = names.scaled_gang_name(group.name, index, group.template.min_available)
                scaled.append(WantedGang(name, is_base=False, cliques=cliques))
    name = names.base_gang_name(layout.workload.name, replica.index)
    return (WantedGang(name, is_base=True, cliques=tuple(base), absent=tuple(absent)), *scaled)


def _iter_group_replicas(layout: Layout, group: GroupView) -> Iterator[tuple[int, tuple[CliqueView, ...]]]:
    """Yield the replicas of a group that are wanted or exist."""
    for index in sorted({*range(group.wanted), *group.replicas}):
        part = group.replicas.get(index) or layout.make_group_replica_view(group.name, group.template, index)
        yield index, part.cliques


def plan_gangs(
    layout: Layout, replica: ReplicaView, wanted: tuple[WantedGang, ...]
) -> Iterator[Create | Patch | Delete]:
    """Yield the actions that turn the stored gangs of a replica into the wanted ones."""
    for gang in wanted:
        stored = replica.find_gang(gang.name)
        if stored is None:
            if gang.has_minimum_pods:
                yield Create(Kind.GANG, build_gang(layout, replica.index, gang))
        elif not stored.leaving and (patch := _build_patch(layout, stored, gang)):
            yield Patch(Kind.GANG, stored.name, stored.uid, stored.resource_version, patch)
    if replica.scaled_gangs:
        known = {gang.name for gang in wanted}
        for name, stored in sorted(replica.scaled_gangs.items()):
            if name not in known and not stored.leaving:
                yield Delete(Kind.GANG, name, stored.uid, GANG_NOT_NEEDED)


def _build_patch(layout: Layout, stored: Gang, gang: WantedGang) -> dict[str, Any]:
    """Return the changes to a stored gang that are due."""
    workload, spec, patch = layout.workload, dict[str, Any](), dict[str, Any]()
    if stored.scheduler != layout.scheduler:
        patch["metadata"] = {"labels": {names.SCHEDULER: layout.scheduler}}
    if _is_patch_due(stored, gang):
        spec["podgroups"] = _render_pod_groups(workload, gang.pod_groups)
    if stored.priority_class != workload.priority_class:
        spec["priorityClassName"] = workload.priority_class or None
    return {**patch, "spec": spec} if spec else patch


def _is_patch_due(stored: Gang, gang: WantedGang) -> bool:
    """Whether the pod references of a stored gang must be written now.

    The reference of a deleted pod is removed together with the new reference of its replacement, in one write.
    """
    groups = gang.pod_groups
    if stored.pod_groups == groups:
        return False
    return gang.has_all_pods or any(
        name not in stored.pod_groups or not set(pods) <= set(stored.pod_groups[name][1])
        for name, (_, pods) in groups.items()
    )


def plan_gang_statuses(
    replica: ReplicaView, wanted: tuple[WantedGang, ...], now: str, going: Set[str]
) -> Iterator[WriteStatus]:
    """Yield the statuses of stored gangs that must change; `going` are uids that this pass deletes."""
    for gang in wanted:
        stored = replica.find_gang(gang.name)
        if stored is not None and not stored.leaving and stored.uid not in going:
            status = compute_gang_status(stored, gang, now)
            if status != stored.status:
                yield WriteStatus(Kind.GANG, stored.name, stored.uid, status)


def compute_gang_status(stored: Gang, gang: WantedGang, now: str) -> dict[str, Any]:
    """Return the status of a gang: whether all its pods were created once, and its phase.

    If a gang scheduler reports the phase, it stays as reported (`model.conditions`).
    """
    is_reported = is_phase_reported_by_scheduler(stored.status)
    phase = SCHEDULER_PHASE_MESSAGE if is_reported else render_phase_message(gang.phase)
    is_created = find_condition(stored.status, INITIALIZED).get("status") == "True" or _lists_all_pods(stored, gang)
    if is_created:
        initialized = make_condition(INITIALIZED, "True", "PodGangPodsCreated", f"{ALL_CREATED_MESSAGE} {phase}", now)
    else:
        text = f"Some of its pods have not been created yet. {phase}"
        initialized = make_condition(INITIALIZED, "False", "PodGangPodsCreationPending", text, now)
    status = {**stored.status, "conditions": merge_conditions(stored.status.get("conditions") or [], [initialized])}
    if not is_reported:
        status["phase"] = gang.phase
    return status


def _lists_all_pods(stored: Gang, gang: WantedGang) -> bool:
    return gang.has_all_pods and all(
        view.name in stored.pod_groups and {pod.name for pod in view.live} <= set(stored.pod_groups[view.name][1])
        for view in gang.cliques
    )


def plan_gate_removals(replica: ReplicaView, wanted: tuple[WantedGang, ...], going: Set[str]) -> Iterator[RemoveGate]:
    """Yield the gates to remove; `going` are uids that this pass deletes."""
    base = wanted[0]
    for gang in wanted:
        stored = replica.find_gang(gang.name)
        if stored is None or stored.leaving:
            continue
        for view in gang.cliques:
            if not view.gated or view.clique is None or view.clique.uid in going:
                continue
            if gang.is_base or base.is_scheduled:
                referred = stored.pod_groups.get(view.name, (0, ()))[1]
                waiting = (pod for pod in view.live if pod.gated and pod.uid not in going)
                yield from (RemoveGate(pod.name, pod.uid) for pod in waiting if pod.name in referred)


def build_gang(layout: Layout, replica: int, gang: WantedGang) -> dict[str, Any]:
    """Return the manifest of a PodGang with the existing pods."""
    workload = layout.workload
    labels = default_labels(workload.name, "podgang", gang.name) | {names.REPLICA_INDEX: str(replica)}
    labels[names.SCHEDULER] = layout.scheduler
    if not gang.is_base:
        labels[names.BASE_GANG] = names.base_gang_name(workload.name, replica)
    spec: dict[str, Any] = {"podgroups": _render_pod_groups(workload, gang.pod_groups)}
    if workload.priority_class:
        spec["priorityClassName"] = workload.priority_class
    return {
        "apiVersion": SCHEDULER_API,
        "kind": "PodGang",
        "metadata": {
            "name": gang.name,
            "namespace": workload.namespace,
            "labels": labels,
            "ownerReferences": make_owner_references("PodCliqueSet", workload.name, workload.uid),
        },
        "spec": spec,
    }


def _render_pod_groups(workload: Workload, groups: PodGroups) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "minReplicas": least,
            "podReferences": [{"namespace": workload.namespace, "name": pod} for pod in pods],
        }
        for name, (least, pods) in groups.items()
    ]
