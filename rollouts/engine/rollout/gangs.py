"""PodGangs: which pods are placed together, and when a pod may be placed at all (`docs/semantics.md` 9).

One base gang a replica of the set (its cliques in no group, and as many replicas of each scaling group as its minimum
says), one scaled gang for each further replica of a group, surge included. `planner` asks for the gangs that should be
and the gates that may open; `desired` builds everything else. The invariants: a gate opens only for a pod that its
gang, as it is stored, refers to; a scaled gang waits until every group of the base gang has its minimum placed.
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
from rollouts.engine.tree.layout import Layout
from rollouts.engine.tree.views import CliqueView, GroupView, ReplicaView

GANG_NOT_NEEDED = "GangNotNeeded"

PodGroups = Mapping[str, tuple[int, tuple[str, ...]]]


@value
class WantedGang:
    """A gang that should be."""

    name: str
    is_base: bool
    cliques: tuple[CliqueView, ...]  # those whose pods are in it
    # Those that would be in it if their scaling group had not been scaled below its minimum.
    absent: tuple[CliqueView, ...] = ()

    @property
    def pod_groups(self) -> PodGroups:
        """How many pods of each clique it takes, and which there are."""
        groups = {view.name: (view.needed, tuple([pod.name for pod in view.live])) for view in self.cliques}
        return groups | {view.name: (view.needed, ()) for view in self.absent} if self.absent else groups

    @property
    def has_minimum_pods(self) -> bool:
        """Whether each clique in it has as many pods as must be placed together, or all that its scale allows."""
        return all(len(view.live) >= view.attainable_minimum for view in self.cliques)

    @property
    def has_all_pods(self) -> bool:
        """Whether each clique in it has all its pods."""
        return all(len(view.live) >= view.wanted for view in self.cliques)

    @property
    def is_scheduled(self) -> bool:
        """Whether the minimum of each clique in it is placed, or all that its scale allows."""
        return all(view.scheduled >= view.attainable_minimum for view in self.cliques)

    @property
    def phase(self) -> str:
        """How far it is, in the words of the API: Running once its minimum serves."""
        views = (*self.cliques, *self.absent)
        if all(view.available >= view.needed for view in views):
            return "Running"
        return "Starting" if all(view.scheduled >= view.needed for view in views) else "Pending"


def compute_wanted_gangs(layout: Layout, replica: ReplicaView) -> tuple[WantedGang, ...]:
    """Return the gangs that a replica of the set should have, the base gang first."""
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
    """Go through the replicas of a group that are wanted or exist."""
    for index in sorted({*range(group.wanted), *group.replicas}):
        part = group.replicas.get(index) or layout.make_group_replica_view(group.name, group.template, index)
        yield index, part.cliques


def plan_gangs(
    workload: Workload, replica: ReplicaView, wanted: tuple[WantedGang, ...]
) -> Iterator[Create | Patch | Delete]:
    """Yield what makes the stored gangs of a replica those that should be."""
    for gang in wanted:
        stored = replica.find_gang(gang.name)
        if stored is None:
            if gang.has_minimum_pods:
                yield Create(Kind.GANG, build_gang(workload, replica.index, gang))
        elif not stored.leaving and (spec := _patch_spec(workload, stored, gang)):
            yield Patch(Kind.GANG, stored.name, stored.uid, stored.resource_version, {"spec": spec})
    if replica.scaled_gangs:
        known = {gang.name for gang in wanted}
        for name, stored in sorted(replica.scaled_gangs.items()):
            if name not in known and not stored.leaving:
                yield Delete(Kind.GANG, name, stored.uid, GANG_NOT_NEEDED)


def _patch_spec(workload: Workload, stored: Gang, gang: WantedGang) -> dict[str, Any]:
    """Return the fields of a stored gang that must change now."""
    spec: dict[str, Any] = {}
    if _is_patch_due(stored, gang):
        spec["podgroups"] = _render_pod_groups(workload, gang.pod_groups)
    if stored.priority_class != workload.priority_class:
        spec["priorityClassName"] = workload.priority_class or None
    return spec


def _is_patch_due(stored: Gang, gang: WantedGang) -> bool:
    """Whether the stored gang must be brought up to date now.

    A pod that went is struck out together with the entry of the one that takes its place: one write for both.
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
    """Yield the statuses of stored gangs that differ from what there is to say; none of those that are `going`."""
    for gang in wanted:
        stored = replica.find_gang(gang.name)
        if stored is not None and not stored.leaving and stored.uid not in going:
            status = compute_gang_status(stored, gang, now)
            if status != stored.status:
                yield WriteStatus(Kind.GANG, stored.name, stored.uid, status)


def compute_gang_status(stored: Gang, gang: WantedGang, now: str) -> dict[str, Any]:
    """Return the status of a gang: whether its pods were all created once, and how far it is.

    How far it is a gang scheduler says, where one reports anything (`conditions`).
    """
    is_reported = is_phase_reported_by_scheduler(stored.status)
    phase = SCHEDULER_PHASE_MESSAGE if is_reported else render_phase_message(gang.phase)
    is_created = find_condition(stored.status, INITIALIZED).get("status") == "True" or _lists_all_pods(stored, gang)
    if is_created:
        initialized = make_condition(INITIALIZED, "True", "PodGangPodsCreated", f"{ALL_CREATED_MESSAGE} {phase}", now)
    else:
        text = f"Pods are still to be created. {phase}"
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
    """Yield the gates that may open; `going` are the uids of what this pass deletes."""
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


def build_gang(workload: Workload, replica: int, gang: WantedGang) -> dict[str, Any]:
    """Return a PodGang with the pods there are."""
    labels = default_labels(workload.name, "podgang", gang.name) | {names.REPLICA_INDEX: str(replica)}
    labels[names.SCHEDULER] = _scheduler_name(workload)
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


def _scheduler_name(workload: Workload) -> str:
    """Return who places the pods: all cliques of a set name the same scheduler, or none."""
    named = (clique.pod_spec.get("schedulerName") for clique in workload.cliques)
    return next((name for name in named if name), "default-scheduler")


def _render_pod_groups(workload: Workload, groups: PodGroups) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "minReplicas": least,
            "podReferences": [{"namespace": workload.namespace, "name": pod} for pod in pods],
        }
        for name, (least, pods) in groups.items()
    ]
