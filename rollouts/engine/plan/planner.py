"""One pass over a workload: its actions, its statuses, why it waits, and when to run again.

The controller calls `plan_tree` after every change. It decides whether an update is under way (`update`) and the next
step at every level (`steps`), turns the steps into actions (`plan_builder`), and adds statuses (`status`) and waits
(`diagnosis`). Between passes nothing is stored except in the statuses of the resources.

The invariants: an owner exists before what it owns is created; any action may fail or be lost without harm, because
the next pass plans again from what it observes; the same input gives the same plan.
"""

from collections.abc import Mapping, Set
from typing import Any

from rollouts.engine.model.actions import Kind, Plan, TimelineEvent, WriteStatus
from rollouts.engine.model.observed import Observed
from rollouts.engine.model.values import value
from rollouts.engine.model.workload import Workload
from rollouts.engine.plan import messages
from rollouts.engine.plan.diagnosis import NOTHING_WAITS, WaitCollector
from rollouts.engine.plan.plan_builder import (
    PlanBuilder,
    add_replica_actions,
    add_replica_deletions,
    add_replica_termination,
    prepare_emptied_replicas,
)
from rollouts.engine.plan.status import compute_clique_status, compute_group_status, compute_set_status, is_interrupted
from rollouts.engine.plan.status_conditions import StatusContext, make_status_context
from rollouts.engine.rollout.gangs import (
    WantedGang,
    compute_wanted_gangs,
    plan_gang_statuses,
    plan_gangs,
    plan_gate_removals,
)
from rollouts.engine.rollout.ready_times import UNMEASURED, ReadyTimes, measure_ready_times
from rollouts.engine.rollout.steps import (
    CliqueStep,
    GroupStep,
    ReplicaStep,
    SetStep,
    choose_steps,
    make_idle_clique_step,
    make_idle_replica_step,
    make_idle_set_step,
)
from rollouts.engine.rollout.termination import Termination, decide_termination
from rollouts.engine.rollout.update import Update, UpdatePhase, decide_update, read_progress
from rollouts.engine.tree.availability import Tree
from rollouts.engine.tree.layout import Layout, make_layout
from rollouts.engine.tree.tree_builder import build_tree

StoredStatus = Mapping[str, Any]
"""The status of the set as stored."""


def plan(workload: Workload, observed: Observed, now: float) -> Plan:
    """Return the plan for a workload from its observed objects."""
    layout = make_layout(workload)
    return plan_tree(layout, build_tree(layout, observed), observed.status, now, measure_ready_times(observed))


def plan_tree(
    layout: Layout, tree: Tree, status: StoredStatus, now: float, ready_times: ReadyTimes = UNMEASURED
) -> Plan:
    """Return the plan for a workload from its tree and the stored status of its set.

    `ready_times` says how long pods usually take to become Ready; a pod that takes much longer is a problem.
    """
    update = decide_update(layout, tree, read_progress(status))
    if update.phase is UpdatePhase.START:
        return _plan_update_start(layout, tree, update, status, now)
    return _plan_pass(layout, tree, update, status, now, ready_times)


def _plan_update_start(layout: Layout, tree: Tree, update: Update, stored: StoredStatus, now: float) -> Plan:
    """Record that an update begins, and change nothing else: the next pass begins to replace.

    Any of the status writes may be lost. Until the status of the set is written, the update begins again in every pass,
    and later passes remove what a component still reports about the interrupted update (`status`).
    """
    workload, plan_builder = layout.workload, PlanBuilder(timeline_events=_make_update_events(layout.workload, update))
    context = make_status_context(layout, update, now)
    writer = _StatusWriter(context, plan_builder, frozenset(), at_work=False, terminated=False)
    for replica in tree.replicas.values():
        writer.drop_progress(make_idle_replica_step(replica, at_work=False))
    status = compute_set_status(context, stored, layout, tree, steps=make_idle_set_step(), diagnosis=NOTHING_WAITS)
    plan_builder.statuses.append(WriteStatus(Kind.SET, workload.name, workload.uid, status))
    return Plan(plan_builder.actions(), tuple(plan_builder.timeline_events), (), tree.strangers, None)


def _plan_pass(  # noqa: PLR0917 - the arguments of `plan_tree`, and the update
    layout: Layout, tree: Tree, update: Update, stored: StoredStatus, now: float, ready_times: ReadyTimes
) -> Plan:
    """Plan the next step at every level."""
    workload = layout.workload
    steps = choose_steps(layout, tree, update, {one.replica for one in ready_times.list_unstable(now)})
    termination = decide_termination(workload, steps, now)
    plan_builder = PlanBuilder(timeline_events=_make_update_events(workload, update))
    add_replica_deletions(workload, tree, steps, plan_builder)
    prepare_emptied_replicas(workload, tree, steps, plan_builder)
    gangs = {step.replica.index: _plan_replica(layout, step, termination, plan_builder) for step in steps.replicas}
    bases = {index: wanted[0] for index, wanted in gangs.items()}
    diagnosis = WaitCollector(layout, update, now, ready_times).collect(tree, steps, bases)
    context = make_status_context(layout, update, now)
    _write_statuses(context, tree, steps, termination, plan_builder)
    gangs |= {index: compute_wanted_gangs(layout, tree.replicas[index]) for index in _find_leaving(steps)}
    _write_gang_statuses(tree, gangs, context, plan_builder)
    status = compute_set_status(context, stored, layout, tree, steps=steps, diagnosis=diagnosis)
    if status != stored:
        plan_builder.statuses.append(WriteStatus(Kind.SET, workload.name, workload.uid, status))
    times = [at for at in (termination.due_at, diagnosis.requeue_at) if at is not None]
    return Plan(
        plan_builder.actions(),
        tuple(plan_builder.timeline_events),
        diagnosis.waits,
        tree.strangers,
        min(times, default=None),
    )


def _plan_replica(
    layout: Layout, step: ReplicaStep, termination: Termination, plan_builder: PlanBuilder
) -> tuple[WantedGang, ...]:
    """Plan the next step in a replica of the set; return the gangs that it should have, the base gang first."""
    replica = step.replica
    gangs = compute_wanted_gangs(layout, replica)
    if replica.index in termination.replicas:
        add_replica_termination(replica, termination.replicas[replica.index], plan_builder)
        return gangs
    before = len(plan_builder.deletes)
    add_replica_actions(layout, step, termination, plan_builder)
    deleted_uids = {deletion.uid for deletion in plan_builder.deletes[before:]}
    plan_builder.add(plan_gangs(layout, replica, gangs))
    plan_builder.gates.extend(plan_gate_removals(replica, gangs, deleted_uids))
    return gangs


def _write_statuses(
    context: StatusContext, tree: Tree, steps: SetStep, termination: Termination, plan_builder: PlanBuilder
) -> None:
    """Add the statuses of PodCliques and PodCliqueScalingGroups that differ from the stored ones.

    Also in replicas of the set that are terminating, so that no status shows pods as available that are not.
    """
    deleted_uids = {deletion.uid for deletion in plan_builder.deletes}
    for step in steps.replicas:
        terminated = step.replica.index in termination.replicas
        _StatusWriter(
            context, plan_builder, deleted_uids, at_work=step.is_at_work, terminated=terminated
        ).write_replica(step)
    for index in _find_leaving(steps):
        at_work = steps.is_rolling and index < context.workload.replicas
        writer = _StatusWriter(context, plan_builder, deleted_uids, at_work=at_work, terminated=False)
        writer.write_replica(make_idle_replica_step(tree.replicas[index], at_work=at_work))


def _find_leaving(steps: SetStep) -> list[int]:
    """Return the replicas of the set that are terminating or that this step deletes."""
    leaving = {unit.index for unit in steps.units if unit.leaving}
    leaving.update(removal.unit.index for removal in steps.step.delete)
    return sorted(leaving.difference(step.replica.index for step in steps.replicas))


def _write_gang_statuses(
    tree: Tree, gangs: Mapping[int, tuple[WantedGang, ...]], context: StatusContext, plan_builder: PlanBuilder
) -> None:
    """Add the statuses of PodGangs that differ from the stored ones."""
    deleted_uids = {deletion.uid for deletion in plan_builder.deletes}
    for index, wanted in gangs.items():
        replica = tree.replicas.get(index)
        if replica is not None:
            plan_builder.statuses.extend(plan_gang_statuses(replica, wanted, context.now, deleted_uids))


@value
class _StatusWriter:
    """Adds the statuses of the components of one replica of the set."""

    context: StatusContext
    plan_builder: PlanBuilder
    deleted_uids: Set[str]  # objects that this pass deletes get no status
    at_work: bool
    terminated: bool

    def write_replica(self, step: ReplicaStep) -> None:
        """Add the statuses of all its components."""
        for clique in step.cliques:
            self.write_clique(clique, is_member=False)
        for group in step.groups:
            owner = group.view.group
            if owner is None or owner.uid not in self.deleted_uids:  # else its PodCliques are deleted with it
                self.write_members(group)
                self.write_group(group)

    def write_members(self, step: GroupStep) -> None:
        """Add the statuses of the PodCliques of a scaling group, also of those that are terminating."""
        staying = {part.index for part, _ in step.replicas}
        for _, cliques in step.replicas:
            for clique in cliques:
                self.write_clique(clique, is_member=True)
        for index, part in step.view.replicas.items():
            if index not in staying:
                for view in part.cliques:
                    self.write_clique(make_idle_clique_step(view), is_member=True)

    def drop_progress(self, step: ReplicaStep) -> None:
        """Add the statuses of the components that have progress of an interrupted update."""
        for clique in step.cliques:
            self._drop_clique_progress(clique, is_member=False)
        for group in step.groups:
            for part in group.view.replicas.values():
                for view in part.cliques:
                    self._drop_clique_progress(make_idle_clique_step(view), is_member=True)
            owner = group.view.group
            if owner is not None and is_interrupted(self.context.update, owner.status.get("updateProgress")):
                self.write_group(group)

    def _drop_clique_progress(self, step: CliqueStep, *, is_member: bool) -> None:
        stored = step.view.clique
        if stored is not None and is_interrupted(self.context.update, stored.status.get("updateProgress")):
            self.write_clique(step, is_member=is_member)

    def write_clique(self, step: CliqueStep, *, is_member: bool) -> None:
        clique = step.view.clique
        if clique is None or clique.uid in self.deleted_uids:
            return
        at_work = self.at_work and not clique.leaving
        status = compute_clique_status(
            self.context, step, clique, at_work=at_work, terminated=self.terminated, is_member=is_member
        )
        if status != clique.status:
            self.plan_builder.statuses.append(WriteStatus(Kind.CLIQUE, clique.name, clique.uid, status))

    def write_group(self, step: GroupStep) -> None:
        group = step.view.group
        if group is None:
            return
        at_work = self.at_work and not group.leaving
        status = compute_group_status(self.context, step, group, at_work=at_work, terminated=self.terminated)
        if status != group.status:
            self.plan_builder.statuses.append(WriteStatus(Kind.GROUP, group.name, group.uid, status))


def _make_update_events(workload: Workload, update: Update) -> list[TimelineEvent]:
    """Return the timeline events of the update: it is superseded, begins, ends, or selects a replica."""
    name, current = workload.name, update.generation_hash
    events = []
    if update.supersedes:
        text = messages.UPDATE_SUPERSEDED.format(name=name, former=update.former.generation_hash, current=current)
        events.append(TimelineEvent("UpdateSuperseded", name, text))
    if update.phase is UpdatePhase.START:
        text = messages.UPDATE_STARTED.format(name=name, current=current, strategy=workload.strategy)
        events.append(TimelineEvent("UpdateStarted", name, text))
    elif update.phase is UpdatePhase.END:
        events.append(TimelineEvent("UpdateEnded", name, messages.UPDATE_ENDED.format(name=name, current=current)))
    elif update.selected is not None and update.selected not in update.former.updating:
        selected = f"{name}-{update.selected}"
        events.append(TimelineEvent("ReplicaSelected", selected, messages.REPLICA_SELECTED.format(name=selected)))
    return events
