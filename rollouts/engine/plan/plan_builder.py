"""Steps made into actions: what is created, patched and deleted so that each level takes its next step.

Between `timeline_entries`, which decides, and `planner`, which puts the actions of all parts in order. The invariants: whatever is
created has an owner that is observed; of what is deleted whole the parts that would have stayed the same go first, so
that a deletion that was cut short still looks outdated and is finished by the next pass.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rollouts.engine.model.actions import Action, Create, Delete, Kind, Moment, Patch, RemoveGate, WriteStatus
from rollouts.engine.model.names import service_name
from rollouts.engine.model.observed import ENDED, Clique, Group
from rollouts.engine.model.values import value
from rollouts.engine.model.workload import Strategy, Workload
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
from rollouts.engine.tree.layout import Shape
from rollouts.engine.tree.views import CliqueView, GroupReplica, GroupView, Replica, Tree, is_minimum_stale

GANG_TERMINATED = "GangTerminated"
POD_ENDED = "PodEnded"
# These are replaced, not merged: a field left out of the template is gone.
_POD_SPEC = ("spec.podSpec",)
_AUTO_SCALING = ("spec.autoScalingConfig",)


@dataclass(slots=True)
class Draft:
    """The actions of a plan while it is made, in the order in which they are carried out."""

    creates: list[Create] = field(default_factory=list)
    patches: list[Patch] = field(default_factory=list)
    deletes: list[Delete] = field(default_factory=list)
    gates: list[RemoveGate] = field(default_factory=list)
    statuses: list[WriteStatus] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)

    def add(self, actions: Iterable[Create | Patch | Delete]) -> None:
        """Put each action among its like."""
        for action in actions:
            if isinstance(action, Create):
                self.creates.append(action)
            elif isinstance(action, Patch):
                self.patches.append(action)
            else:
                self.deletes.append(action)

    def tell(self, reason: str, component: str, text: str) -> None:
        """Put an entry on the timeline."""
        self.moments.append(Moment(reason, component, text))

    def actions(self) -> tuple[Action, ...]:
        """Return everything: owners first, what tells about it last."""
        return (*self.creates, *self.patches, *self.deletes, *self.gates, *self.statuses)


# ---- replicas of the set


def remove_replicas(workload: Workload, tree: Tree, steps: SetStep, draft: Draft) -> None:
    """Delete the replicas of the set whose turn it is: for good, or so that they come back with another template."""
    for index in steps.step.create:
        name = service_name(workload.name, index)
        draft.tell("ReplicaCreated", name, f"Replica {name} is created{_as_surge(index, workload.replicas)}.")
    for removal in steps.step.delete:
        replica = tree.replicas[removal.unit.index]
        for_good = replica.index >= workload.replicas
        deletions = [*(_delete_all(replica, removal.reason) if for_good else empty(replica, removal.reason))]
        draft.add(deletions)
        if deletions:
            draft.tell(removal.reason, replica.name, f"Replica {replica.name} is deleted: {_why(removal)}.")
    for unit in steps.units:
        if unit.leaving and unit.index >= workload.replicas:
            # Somebody else took what held it, and gangs do not go with that.
            draft.add(_delete_gangs(tree.replicas[unit.index], GANG_NOT_NEEDED))


def prepare_emptied(workload: Workload, tree: Tree, steps: SetStep, draft: Draft) -> None:
    """While the last pods leave a replica, let its PodCliques promise the template that is to move in.

    A pod that ended before anybody deleted it is none of those that leave: it is deleted here.
    """
    for unit in steps.units:
        if steps.is_rolling and unit.leaving and unit.index < workload.replicas:
            for view in tree.replicas[unit.index].cliques:
                if view.clique is not None:
                    _patch_clique(workload, view, view.clique, draft, in_place=True)
                draft.add(_delete_ended(view))


def _delete_all(replica: Replica, reason: str) -> Iterator[Delete]:
    """Delete a replica of the set; what its parts own goes with them, so they go last."""
    yield from _delete_gangs(replica, reason)
    if replica.service is not None and not replica.service.leaving:
        yield Delete(Kind.SERVICE, replica.service.name, replica.service.uid, reason)
    for group in sorted(replica.groups, key=lambda view: view.is_outdated):
        if group.group is not None and not group.group.leaving:
            yield Delete(Kind.GROUP, group.name, group.group.uid, reason)
    for view in sorted(replica.cliques, key=_is_outdated):
        yield from _delete_clique(view, reason)


def _delete_gangs(replica: Replica, reason: str) -> Iterator[Delete]:
    for gang in replica.gangs:
        if not gang.leaving:
            yield Delete(Kind.GANG, gang.name, gang.uid, reason)


def empty(replica: Replica, reason: str) -> Iterator[Delete]:
    """Delete the pods of a set replica and leave what holds them, with the replicas that others have set."""
    for view in sorted(replica.members, key=_is_outdated):
        yield from _delete_clique(view, reason)
    for view in sorted(replica.cliques, key=_is_outdated):
        for pod in sorted(view.pods, key=lambda pod: pod.template_hash != view.template_hash):
            if not pod.leaving:
                yield Delete(Kind.POD, pod.name, pod.uid, reason)


def _delete_clique(view: CliqueView, reason: str) -> Iterator[Delete]:
    if view.clique is not None and not view.clique.leaving:
        yield Delete(Kind.CLIQUE, view.name, view.clique.uid, reason)


def _delete_ended(view: CliqueView) -> Iterator[Delete]:
    """Delete the pods that have ended and that nobody has deleted yet: they will never serve again."""
    for pod in view.pods:
        if pod.phase in ENDED and not pod.leaving:
            yield Delete(Kind.POD, pod.name, pod.uid, POD_ENDED)


def _is_outdated(view: CliqueView) -> bool:
    return view.outdated > 0 or view.is_label_outdated


# ---- inside a replica of the set


def keep_replica(shape: Shape, step: ReplicaStep, termination: Termination, draft: Draft) -> None:
    """Create what is missing in a replica of the set and let each component take its step."""
    workload, replica = shape.workload, step.replica
    _keep_service(workload, replica, draft)
    for clique in step.cliques:
        _keep_clique(workload, clique, replica.index, draft)
    for group in step.groups:
        _keep_group(workload, group, replica.index, termination, draft)


def _keep_service(workload: Workload, replica: Replica, draft: Draft) -> None:
    service, wanted = replica.service, workload.publish_not_ready_addresses
    if service is None:
        draft.creates.append(Create(Kind.SERVICE, build_service(workload, replica.index)))
    elif not service.leaving and service.publish_not_ready_addresses != wanted:
        change = {"spec": {"publishNotReadyAddresses": wanted}}
        draft.patches.append(Patch(Kind.SERVICE, service.name, service.uid, "", change))


def _keep_clique(workload: Workload, step: CliqueStep, replica: int, draft: Draft) -> None:
    view = step.view
    if view.clique is None:
        draft.creates.append(Create(Kind.CLIQUE, build_clique(workload, view, replica)))
        return
    _patch_clique(workload, view, view.clique, draft, in_place=not step.is_held)
    _step_pods(_Builder(workload, replica), step, view.clique, draft)


def _keep_group(workload: Workload, step: GroupStep, replica: int, termination: Termination, draft: Draft) -> None:
    view = step.view
    if view.group is None:
        draft.creates.append(Create(Kind.GROUP, build_group(workload, view.template, replica)))
        return
    if not view.is_live:
        return
    change = patch_group(view.group, view.template)
    if change is not None:
        group = view.group
        draft.patches.append(Patch(Kind.GROUP, group.name, group.uid, group.resource_version, change))
    for index in step.step.create:
        name = f"{view.name}-{index}"
        draft.tell("ReplicaCreated", name, f"Replica {name} is created{_as_surge(index, view.wanted)}.")
    for removal in step.step.delete:
        _remove_part(view.replicas[removal.unit.index], removal, draft)
    for part, cliques in step.parts:
        if part.name in termination.parts:
            _terminate_part(part, termination.parts[part.name], draft)
        else:
            _keep_part(_Builder(workload, replica, (view, part.index)), view.group, cliques, draft)


def _remove_part(part: GroupReplica, removal: Removal, draft: Draft) -> None:
    deletions = [*_delete_part(part, removal.reason)]
    draft.add(deletions)
    if deletions:
        draft.tell(removal.reason, part.name, f"Replica {part.name} is deleted: {_why(removal)}.")


def _delete_part(part: GroupReplica, reason: str) -> Iterator[Delete]:
    for view in sorted(part.cliques, key=_is_outdated):
        yield from _delete_clique(view, reason)


@value
class _Builder:
    """What it takes to build a pod or a PodClique in its place."""

    workload: Workload
    replica: int
    part: tuple[GroupView, int] | None = None  # the scaling group and the index of its replica

    def pod(self, view: CliqueView, clique: Clique, index: int) -> Create:
        manifest = build_pod(self.workload, view, clique, index, replica=self.replica, group=self.part)
        return Create(Kind.POD, manifest)

    def member(self, view: CliqueView, owner: Group) -> Iterator[Create]:
        if self.part is not None:
            group, index = self.part
            manifest = build_member_clique(self.workload, view, owner, replica=self.replica, group=group, index=index)
            yield Create(Kind.CLIQUE, manifest)


def _keep_part(builder: _Builder, group: Group, cliques: Iterable[CliqueStep], draft: Draft) -> None:
    """Create the missing PodCliques of a group replica, and the pods of those there are."""
    in_place = builder.workload.strategy is Strategy.ON_DELETE
    for step in cliques:
        view = step.view
        if view.is_empty and not step.is_held:
            draft.creates.extend(builder.member(view, group))
        elif view.clique is not None:
            _patch_clique(builder.workload, view, view.clique, draft, in_place=in_place)
            _step_pods(builder, step, view.clique, draft)


def _patch_clique(workload: Workload, view: CliqueView, clique: Clique, draft: Draft, *, in_place: bool) -> None:
    """Bring a PodClique up to date: its template if that may change in place, and the replicas of the template."""
    if clique.leaving:
        return
    change: Manifest = patch_replicas(clique, view.template.replicas) or {}
    if is_minimum_stale(view.template, clique):
        change = _merge(change, {"spec": {"minAvailable": view.template.min_available}})
    whole: tuple[str, ...] = ()
    scaling = patch_auto_scaling(clique, view.template)
    settings = () if scaling is None or view.template.auto_scaling is None else _AUTO_SCALING  # null is gone anyway
    if in_place and clique.template_hash != view.template_hash:
        change = _merge(patch_clique_template(workload, view, clique.template_keys), change)
        whole = (*_POD_SPEC, *settings)
    elif scaling is not None:
        change, whole = _merge(scaling, change), settings
    if change:
        draft.patches.append(Patch(Kind.CLIQUE, clique.name, clique.uid, clique.resource_version, change, whole))


def _merge(one: Manifest, other: Manifest) -> Manifest:
    merged = {**one}
    for name, change in other.items():
        both = isinstance(change, dict) and isinstance(merged.get(name), dict)
        merged[name] = _merge(merged[name], change) if both else change
    return merged


def _step_pods(builder: _Builder, step: CliqueStep, clique: Clique, draft: Draft) -> None:
    """Delete and create the pods of a clique whose turn it is."""
    view = step.view
    if not step.step.create and not step.step.delete and len(view.pods) == len(view.live):
        return
    by_name = {pod.name: pod for pod in view.pods}
    for removal in step.step.delete:
        pod = by_name[removal.unit.key]
        draft.deletes.append(Delete(Kind.POD, pod.name, pod.uid, removal.reason))
        text = f"Pod {pod.name} (index {pod.index}) of {view.name} is deleted: {_why(removal)}."
        draft.tell(removal.reason, view.name, text)
    if view.is_live:
        draft.add(_delete_ended(view))
    for index in step.step.create:
        draft.creates.append(builder.pod(view, clique, index))
    if step.step.create:
        indices = ", ".join(map(str, step.step.create))
        draft.tell("PodsCreated", view.name, f"Pods of {view.name} are created with the indices {indices}.")


# ---- gang termination


def terminate_replica(replica: Replica, breached: str, draft: Draft) -> None:
    """Recreate all pods of a replica of the set."""
    draft.add(empty(replica, GANG_TERMINATED))
    text = f"Replica {replica.name} is recreated: {breached} was below its minimum for the termination delay."
    draft.tell(GANG_TERMINATED, replica.name, text)


def _terminate_part(part: GroupReplica, breached: str, draft: Draft) -> None:
    draft.add(_delete_part(part, GANG_TERMINATED))
    text = f"Replica {part.name} is recreated: {breached} was below its minimum for the termination delay."
    draft.tell(GANG_TERMINATED, part.name, text)


_WHY = {
    "OutdatedUnavailable": "it is outdated and serves nobody",
    "Outdated": "it is outdated and its turn has come",
    "OutdatedSurge": "it is surge for a template that is no longer wanted",
    "SurgeNotAllowed": "it is surge beyond what maxSurge allows",
    "SurgeDone": "it was surge, and every original is updated and available",
    "ScaledIn": "fewer are wanted",
}


def _as_surge(index: int, wanted: int) -> str:
    return " as surge" if index >= wanted else ""


def _why(removal: Removal) -> str:
    return _WHY[removal.reason]
