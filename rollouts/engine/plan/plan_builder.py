"""Turns steps into actions: the objects that are created, patched and deleted so that each level takes its next step.

`steps` decides before it; `planner` collects the actions after it. The invariants: the owner of every created object is
observed; of a replica that is deleted whole the current parts are deleted first, so a deletion that was cut short still
leaves something outdated, and the next pass finishes it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rollouts.engine.model.actions import Action, Create, Delete, Kind, Patch, RemoveGate, TimelineEvent, WriteStatus
from rollouts.engine.model.names import service_name
from rollouts.engine.model.observed import TERMINAL_PHASES, Clique, Group
from rollouts.engine.model.values import value
from rollouts.engine.model.workload import Strategy, Workload
from rollouts.engine.plan import messages
from rollouts.engine.plan.desired import (
    Manifest,
    build_clique,
    build_group,
    build_member_clique,
    build_pod,
    build_service,
    patch_auto_scaling,
    patch_clique_template,
    patch_group,
    patch_replicas,
)
from rollouts.engine.rollout.gangs import GANG_NOT_NEEDED
from rollouts.engine.rollout.roller import Removal
from rollouts.engine.rollout.steps import CliqueStep, GroupStep, ReplicaStep, SetStep
from rollouts.engine.rollout.termination import Termination
from rollouts.engine.tree.availability import (
    CliqueView,
    GroupReplicaView,
    GroupView,
    ReplicaView,
    Tree,
    is_min_available_stale,
)
from rollouts.engine.tree.layout import Layout

GANG_TERMINATED = "GangTerminated"
POD_ENDED = "PodEnded"
# These fields are replaced, not merged: a field that leaves the template is removed.
_POD_SPEC = ("spec.podSpec",)
_AUTO_SCALING = ("spec.autoScalingConfig",)


@dataclass(slots=True)
class PlanBuilder:
    """The actions of a plan in the making, in the order in which the executor applies them."""

    creates: list[Create] = field(default_factory=list)
    patches: list[Patch] = field(default_factory=list)
    deletes: list[Delete] = field(default_factory=list)
    gates: list[RemoveGate] = field(default_factory=list)
    statuses: list[WriteStatus] = field(default_factory=list)
    timeline_events: list[TimelineEvent] = field(default_factory=list)

    def add(self, actions: Iterable[Create | Patch | Delete]) -> None:
        """Add each action to the actions of its type."""
        for action in actions:
            if isinstance(action, Create):
                self.creates.append(action)
            elif isinstance(action, Patch):
                self.patches.append(action)
            else:
                self.deletes.append(action)

    def add_event(self, reason: str, component: str, text: str) -> None:
        """Add an event to the timeline."""
        self.timeline_events.append(TimelineEvent(reason, component, text))

    def actions(self) -> tuple[Action, ...]:
        """Return all actions, creates first and statuses last."""
        return (*self.creates, *self.patches, *self.deletes, *self.gates, *self.statuses)


# ---- replicas of the set


def add_replica_deletions(workload: Workload, tree: Tree, steps: SetStep, plan_builder: PlanBuilder) -> None:
    """Delete the replicas of the set that the step names: for good, or so that they come back with another template."""
    for index in steps.step.create:
        name = service_name(workload.name, index)
        plan_builder.add_event("ReplicaCreated", name, _render_replica_created(name, index, workload.replicas))
    for removal in steps.step.delete:
        replica = tree.replicas[removal.unit.index]
        for_good = replica.index >= workload.replicas
        deletions = [
            *(_replica_deletions(replica, removal.reason) if for_good else contents_deletions(replica, removal.reason))
        ]
        plan_builder.add(deletions)
        if deletions:
            plan_builder.add_event(removal.reason, replica.name, _render_replica_deleted(replica.name, removal))
    for unit in steps.units:
        if unit.leaving and unit.index >= workload.replicas:
            # Somebody else deleted its owners, and its gangs are not deleted with them.
            plan_builder.add(_gang_deletions(tree.replicas[unit.index], GANG_NOT_NEEDED))


def prepare_emptied_replicas(workload: Workload, tree: Tree, steps: SetStep, plan_builder: PlanBuilder) -> None:
    """Give the PodCliques of a replica that is being emptied the current template, before new pods are created.

    Pods in a terminal phase are deleted here, because they do not terminate by themselves.
    """
    for unit in steps.units:
        if steps.is_rolling and unit.leaving and unit.index < workload.replicas:
            for view in tree.replicas[unit.index].cliques:
                if view.clique is not None:
                    _add_clique_patch(workload, view, view.clique, plan_builder, in_place=True)
                plan_builder.add(_ended_pod_deletions(view))


def _replica_deletions(replica: ReplicaView, reason: str) -> Iterator[Delete]:
    """Delete a replica of the set; owners are deleted last, because garbage collection deletes what they own."""
    yield from _gang_deletions(replica, reason)
    if replica.service is not None and not replica.service.leaving:
        yield Delete(Kind.SERVICE, replica.service.name, replica.service.uid, reason)
    for group in sorted(replica.groups, key=lambda view: view.is_outdated):
        if group.group is not None and not group.group.leaving:
            yield Delete(Kind.GROUP, group.name, group.group.uid, reason)
    for view in sorted(replica.cliques, key=_is_outdated):
        yield from _clique_deletion(view, reason)


def _gang_deletions(replica: ReplicaView, reason: str) -> Iterator[Delete]:
    for gang in replica.gangs:
        if not gang.leaving:
            yield Delete(Kind.GANG, gang.name, gang.uid, reason)


def contents_deletions(replica: ReplicaView, reason: str) -> Iterator[Delete]:
    """Delete the pods of a set replica and keep their owners, with the replicas that users and autoscalers have set."""
    for view in sorted(replica.member_cliques, key=_is_outdated):
        yield from _clique_deletion(view, reason)
    for view in sorted(replica.cliques, key=_is_outdated):
        for pod in sorted(view.pods, key=lambda pod: pod.template_hash != view.template_hash):
            if not pod.leaving:
                yield Delete(Kind.POD, pod.name, pod.uid, reason)


def _clique_deletion(view: CliqueView, reason: str) -> Iterator[Delete]:
    if view.clique is not None and not view.clique.leaving:
        yield Delete(Kind.CLIQUE, view.name, view.clique.uid, reason)


def _ended_pod_deletions(view: CliqueView) -> Iterator[Delete]:
    """Delete the pods in a terminal phase: they will never be Ready again."""
    for pod in view.pods:
        if pod.phase in TERMINAL_PHASES and not pod.leaving:
            yield Delete(Kind.POD, pod.name, pod.uid, POD_ENDED)


def _is_outdated(view: CliqueView) -> bool:
    return view.outdated > 0 or view.is_label_outdated


# ---- inside a replica of the set


def add_replica_actions(layout: Layout, step: ReplicaStep, termination: Termination, plan_builder: PlanBuilder) -> None:
    """Create what is missing in a replica of the set and add the step of each component."""
    workload, replica = layout.workload, step.replica
    _add_service_actions(workload, replica, plan_builder)
    for clique in step.cliques:
        _add_clique_actions(workload, clique, replica.index, plan_builder)
    for group in step.groups:
        _add_group_actions(workload, group, replica.index, termination, plan_builder)


def _add_service_actions(workload: Workload, replica: ReplicaView, plan_builder: PlanBuilder) -> None:
    service, wanted = replica.service, workload.publish_not_ready_addresses
    if service is None:
        plan_builder.creates.append(Create(Kind.SERVICE, build_service(workload, replica.index)))
    elif not service.leaving and service.publish_not_ready_addresses != wanted:
        change = {"spec": {"publishNotReadyAddresses": wanted}}
        plan_builder.patches.append(Patch(Kind.SERVICE, service.name, service.uid, "", change))


def _add_clique_actions(workload: Workload, step: CliqueStep, replica: int, plan_builder: PlanBuilder) -> None:
    view = step.view
    if view.clique is None:
        plan_builder.creates.append(Create(Kind.CLIQUE, build_clique(workload, view, replica)))
        return
    _add_clique_patch(workload, view, view.clique, plan_builder, in_place=not step.blocks_creates)
    _add_pod_actions(_ObjectBuilder(workload, replica), step, view.clique, plan_builder)


def _add_group_actions(
    workload: Workload, step: GroupStep, replica: int, termination: Termination, plan_builder: PlanBuilder
) -> None:
    view = step.view
    if view.group is None:
        plan_builder.creates.append(Create(Kind.GROUP, build_group(workload, view.template, replica)))
        return
    if not view.is_live:
        return
    change = patch_group(view.group, view.template)
    if change is not None:
        group = view.group
        plan_builder.patches.append(Patch(Kind.GROUP, group.name, group.uid, group.resource_version, change))
    for index in step.step.create:
        name = f"{view.name}-{index}"
        plan_builder.add_event("ReplicaCreated", name, _render_replica_created(name, index, view.wanted))
    for removal in step.step.delete:
        _add_group_replica_deletion(view.replicas[removal.unit.index], removal, plan_builder)
    for part, cliques in step.replicas:
        if part.name in termination.group_replicas:
            _add_group_replica_termination(part, termination.group_replicas[part.name], plan_builder)
        else:
            _add_group_replica_actions(
                _ObjectBuilder(workload, replica, (view, part.index)), view.group, cliques, plan_builder
            )


def _add_group_replica_deletion(part: GroupReplicaView, removal: Removal, plan_builder: PlanBuilder) -> None:
    deletions = [*_group_replica_deletions(part, removal.reason)]
    plan_builder.add(deletions)
    if deletions:
        plan_builder.add_event(removal.reason, part.name, _render_replica_deleted(part.name, removal))


def _group_replica_deletions(part: GroupReplicaView, reason: str) -> Iterator[Delete]:
    for view in sorted(part.cliques, key=_is_outdated):
        yield from _clique_deletion(view, reason)


@value
class _ObjectBuilder:
    """Builds the pods and PodCliques at one position."""

    workload: Workload
    replica: int
    group_replica: tuple[GroupView, int] | None = None  # the scaling group and the index of its replica

    def pod(self, view: CliqueView, clique: Clique, index: int) -> Create:
        manifest = build_pod(self.workload, view, clique, index, replica=self.replica, group=self.group_replica)
        return Create(Kind.POD, manifest)

    def member(self, view: CliqueView, owner: Group) -> Iterator[Create]:
        if self.group_replica is not None:
            group, index = self.group_replica
            manifest = build_member_clique(self.workload, view, owner, replica=self.replica, group=group, index=index)
            yield Create(Kind.CLIQUE, manifest)


def _add_group_replica_actions(
    builder: _ObjectBuilder, group: Group, cliques: Iterable[CliqueStep], plan_builder: PlanBuilder
) -> None:
    """Create the missing PodCliques of a group replica, and the pods of the others."""
    in_place = builder.workload.strategy is Strategy.ON_DELETE
    for step in cliques:
        view = step.view
        if view.is_empty and not step.blocks_creates:
            plan_builder.creates.extend(builder.member(view, group))
        elif view.clique is not None:
            _add_clique_patch(builder.workload, view, view.clique, plan_builder, in_place=in_place)
            _add_pod_actions(builder, step, view.clique, plan_builder)


def _add_clique_patch(
    workload: Workload, view: CliqueView, clique: Clique, plan_builder: PlanBuilder, *, in_place: bool
) -> None:
    """Patch a PodClique: the replicas of its template, and the template itself if it may change in place."""
    if clique.leaving:
        return
    change: Manifest = patch_replicas(clique, view.template.replicas) or {}
    if is_min_available_stale(view.template, clique):
        change = _merge_patches(change, {"spec": {"minAvailable": view.template.min_available}})
    whole: tuple[str, ...] = ()
    scaling = patch_auto_scaling(clique, view.template)
    settings = (
        () if scaling is None or view.template.auto_scaling is None else _AUTO_SCALING
    )  # null is removed by a merge, too
    if in_place and clique.template_hash != view.template_hash:
        change = _merge_patches(patch_clique_template(workload, view, clique.template_keys), change)
        whole = (*_POD_SPEC, *settings)
    elif scaling is not None:
        change, whole = _merge_patches(scaling, change), settings
    if change:
        plan_builder.patches.append(Patch(Kind.CLIQUE, clique.name, clique.uid, clique.resource_version, change, whole))


def _merge_patches(one: Manifest, other: Manifest) -> Manifest:
    merged = {**one}
    for name, change in other.items():
        both = isinstance(change, dict) and isinstance(merged.get(name), dict)
        merged[name] = _merge_patches(merged[name], change) if both else change
    return merged


def _add_pod_actions(builder: _ObjectBuilder, step: CliqueStep, clique: Clique, plan_builder: PlanBuilder) -> None:
    """Delete and create the pods of a clique that its step names."""
    view = step.view
    if not step.step.create and not step.step.delete and len(view.pods) == len(view.live):
        return
    by_name = {pod.name: pod for pod in view.pods}
    for removal in step.step.delete:
        pod = by_name[removal.unit.key]
        plan_builder.deletes.append(Delete(Kind.POD, pod.name, pod.uid, removal.reason))
        reason = messages.DELETION_REASONS[removal.reason]
        text = messages.POD_DELETED.format(name=pod.name, index=pod.index, clique=view.name, reason=reason)
        plan_builder.add_event(removal.reason, view.name, text)
    if view.is_live:
        plan_builder.add(_ended_pod_deletions(view))
    for index in step.step.create:
        plan_builder.creates.append(builder.pod(view, clique, index))
    if step.step.create:
        indices = ", ".join(map(str, step.step.create))
        text = messages.PODS_CREATED.format(clique=view.name, indices=indices)
        plan_builder.add_event("PodsCreated", view.name, text)


# ---- gang termination


def add_replica_termination(replica: ReplicaView, breached: str, plan_builder: PlanBuilder) -> None:
    """Delete all pods of a replica of the set, so that they are recreated."""
    plan_builder.add(contents_deletions(replica, GANG_TERMINATED))
    text = messages.GANG_TERMINATED.format(name=replica.name, breached=breached)
    plan_builder.add_event(GANG_TERMINATED, replica.name, text)


def _add_group_replica_termination(part: GroupReplicaView, breached: str, plan_builder: PlanBuilder) -> None:
    plan_builder.add(_group_replica_deletions(part, GANG_TERMINATED))
    text = messages.GANG_TERMINATED.format(name=part.name, breached=breached)
    plan_builder.add_event(GANG_TERMINATED, part.name, text)


def _render_replica_created(name: str, index: int, wanted: int) -> str:
    return (messages.SURGE_CREATED if index >= wanted else messages.REPLICA_CREATED).format(name=name)


def _render_replica_deleted(name: str, removal: Removal) -> str:
    return messages.REPLICA_DELETED.format(name=name, reason=messages.DELETION_REASONS[removal.reason])
