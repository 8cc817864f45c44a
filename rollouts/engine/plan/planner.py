"""One pass over a workload: what to do now, what to write down, why it waits, and when to look again.

`plan` is called after every change. It arranges what is observed (`tree_builder`), asks whether an update is under way
(`update`), asks what is next at every level (`timeline_entries`), and makes actions of the answers with `desired` and `podgang`;
`errors` and `diagnosis` tell about them. Nothing is remembered between passes but what the resources' status says.

The invariants: an owner is there before what it owns is created; everything is carried out in the order of the plan, or
not, without harm; the same input gives the same plan.
"""

from collections.abc import Mapping, Set
from typing import Any

from rollouts.engine.model.actions import Kind, Moment, Plan, WriteStatus
from rollouts.engine.model.observed import Observed
from rollouts.engine.model.values import value
from rollouts.engine.model.workload import Workload
from rollouts.engine.plan.diagnosis import NOTHING_WAITS, Examiner
from rollouts.engine.plan.plan_builder import Draft, keep_replica, prepare_emptied, remove_replicas, terminate_replica
from rollouts.engine.plan.status import Pen, clique_status, group_status, is_interrupted, make_pen, set_status
from rollouts.engine.rollout.gangs import WantedGang, plan_gang_statuses, plan_gangs, plan_gates, wanted_gangs
from rollouts.engine.rollout.ready_times import UNMEASURED, ReadyTimes, measure_ready_times
from rollouts.engine.rollout.steps import (
    CliqueStep,
    GroupStep,
    ReplicaStep,
    SetStep,
    choose_steps,
    idle_clique,
    idle_step,
    no_steps,
)
from rollouts.engine.rollout.termination import Termination, decide_termination
from rollouts.engine.rollout.update import Turn, Update, decide_update, read_progress
from rollouts.engine.tree.layout import Shape, make_shape
from rollouts.engine.tree.tree_builder import arrange
from rollouts.engine.tree.views import Tree

Stored = Mapping[str, Any]
"""A status as it is stored."""


def plan(workload: Workload, observed: Observed, now: float) -> Plan:
    """Return what to do about a workload as it is observed."""
    shape = make_shape(workload)
    return plan_tree(shape, arrange(shape, observed), observed.status, now, measure_ready_times(observed))


def plan_tree(shape: Shape, tree: Tree, status: Stored, now: float, ready_times: ReadyTimes = UNMEASURED) -> Plan:
    """Return what to do about a workload that is arranged already, with the status of its set as stored.

    `ready_times` says how long pods usually take, so that a pod that takes much longer is called a problem.
    """
    update = decide_update(shape, tree, read_progress(status))
    if update.turn is Turn.START:
        return _begin(shape, tree, update, status, now)
    return _pass(shape, tree, update, status, now, ready_times)


def _begin(shape: Shape, tree: Tree, update: Update, stored: Stored, now: float) -> Plan:
    """Write down that an update begins, and nothing else: what is replaced for it is replaced by the next pass.

    The statuses are written side by side, and any of them may be lost: the update begins again while the set does not
    say so, and the next pass drops what a component still says about the interrupted one (`errors`).
    """
    workload, draft = shape.workload, Draft(moments=_update_moments(shape.workload, update))
    pen = make_pen(shape, update, now)
    writer = _Writer(pen, draft, frozenset(), at_work=False, terminated=False)
    for replica in tree.replicas.values():
        writer.drop_progress(idle_step(replica, at_work=False))
    status = set_status(pen, stored, shape, tree, steps=no_steps(), diagnosis=NOTHING_WAITS)
    draft.statuses.append(WriteStatus(Kind.SET, workload.name, workload.uid, status))
    return Plan(draft.actions(), tuple(draft.moments), (), tree.strangers, None)


def _pass(  # noqa: PLR0917 - as many as `plan_tree` takes, and where the update stands
    shape: Shape, tree: Tree, update: Update, stored: Stored, now: float, ready_times: ReadyTimes
) -> Plan:
    """Take the next step at every level."""
    workload = shape.workload
    steps = choose_steps(shape, tree, update, {one.replica for one in ready_times.list_unsteady(now)})
    termination = decide_termination(workload, steps, now)
    draft = Draft(moments=_update_moments(workload, update))
    remove_replicas(workload, tree, steps, draft)
    prepare_emptied(workload, tree, steps, draft)
    gangs = {step.replica.index: _step_replica(shape, step, termination, draft) for step in steps.replicas}
    bases = {index: wanted[0] for index, wanted in gangs.items()}
    diagnosis = Examiner(shape, update, now, ready_times).diagnose(tree, steps, bases)
    pen = make_pen(shape, update, now)
    _write_statuses(pen, tree, steps, termination, draft)
    gangs |= {index: wanted_gangs(shape, tree.replicas[index]) for index in _find_leaving(steps)}
    _write_gang_statuses(tree, gangs, pen, draft)
    status = set_status(pen, stored, shape, tree, steps=steps, diagnosis=diagnosis)
    if status != stored:
        draft.statuses.append(WriteStatus(Kind.SET, workload.name, workload.uid, status))
    times = [at for at in (termination.due_at, diagnosis.look_again_at) if at is not None]
    return Plan(draft.actions(), tuple(draft.moments), diagnosis.waits, tree.strangers, min(times, default=None))


def _step_replica(shape: Shape, step: ReplicaStep, termination: Termination, draft: Draft) -> tuple[WantedGang, ...]:
    """Take the next step in a replica of the set; returns the gangs that it should have, the base gang first."""
    replica = step.replica
    gangs = wanted_gangs(shape, replica)
    if replica.index in termination.replicas:
        terminate_replica(replica, termination.replicas[replica.index], draft)
        return gangs
    before = len(draft.deletes)
    keep_replica(shape, step, termination, draft)
    going = {deletion.uid for deletion in draft.deletes[before:]}
    draft.add(plan_gangs(shape.workload, replica, gangs))
    draft.gates.extend(plan_gates(replica, gangs, going))
    return gangs


def _write_statuses(pen: Pen, tree: Tree, steps: SetStep, termination: Termination, draft: Draft) -> None:
    """Write the statuses of PodCliques and PodCliqueScalingGroups that differ from the stored ones.

    Also in replicas of the set that are emptied or leave: whoever looks at one must not read that it still serves.
    """
    going = {deletion.uid for deletion in draft.deletes}
    for step in steps.replicas:
        terminated = step.replica.index in termination.replicas
        _Writer(pen, draft, going, at_work=step.is_at_work, terminated=terminated).write_replica(step)
    for index in _find_leaving(steps):
        at_work = steps.is_rolling and index < pen.workload.replicas
        writer = _Writer(pen, draft, going, at_work=at_work, terminated=False)
        writer.write_replica(idle_step(tree.replicas[index], at_work=at_work))


def _find_leaving(steps: SetStep) -> list[int]:
    """Return the replicas of the set that are emptied or leave, or do so by this very step."""
    leaving = {unit.index for unit in steps.units if unit.leaving}
    leaving.update(removal.unit.index for removal in steps.step.delete)
    return sorted(leaving.difference(step.replica.index for step in steps.replicas))


def _write_gang_statuses(tree: Tree, gangs: Mapping[int, tuple[WantedGang, ...]], pen: Pen, draft: Draft) -> None:
    """Write the statuses of PodGangs that differ from the stored ones."""
    going = {deletion.uid for deletion in draft.deletes}
    for index, wanted in gangs.items():
        replica = tree.replicas.get(index)
        if replica is not None:
            draft.statuses.extend(plan_gang_statuses(replica, wanted, pen.now, going))


@value
class _Writer:
    """Writes the statuses inside one replica of the set."""

    pen: Pen
    draft: Draft
    going: Set[str]  # uids of what this pass deletes: nobody will read their status
    at_work: bool
    terminated: bool

    def write_replica(self, step: ReplicaStep) -> None:
        """Write the statuses of all its components."""
        for clique in step.cliques:
            self.write_clique(clique, is_member=False)
        for group in step.groups:
            owner = group.view.group
            if owner is None or owner.uid not in self.going:  # else its PodCliques go with it
                self.write_members(group)
                self.write_group(group)

    def write_members(self, step: GroupStep) -> None:
        """Write the statuses of the PodCliques of a scaling group, also of those that leave."""
        staying = {part.index for part, _ in step.parts}
        for _, cliques in step.parts:
            for clique in cliques:
                self.write_clique(clique, is_member=True)
        for index, part in step.view.replicas.items():
            if index not in staying:
                for view in part.cliques:
                    self.write_clique(idle_clique(view), is_member=True)

    def drop_progress(self, step: ReplicaStep) -> None:
        """Write the statuses of those components that have progress of the update that is interrupted."""
        for clique in step.cliques:
            self._drop_of_clique(clique, is_member=False)
        for group in step.groups:
            for part in group.view.replicas.values():
                for view in part.cliques:
                    self._drop_of_clique(idle_clique(view), is_member=True)
            owner = group.view.group
            if owner is not None and is_interrupted(self.pen.update, owner.status.get("updateProgress")):
                self.write_group(group)

    def _drop_of_clique(self, step: CliqueStep, *, is_member: bool) -> None:
        stored = step.view.clique
        if stored is not None and is_interrupted(self.pen.update, stored.status.get("updateProgress")):
            self.write_clique(step, is_member=is_member)

    def write_clique(self, step: CliqueStep, *, is_member: bool) -> None:
        clique = step.view.clique
        if clique is None or clique.uid in self.going:
            return
        at_work = self.at_work and not clique.leaving
        status = clique_status(self.pen, step, clique, at_work=at_work, terminated=self.terminated, is_member=is_member)
        if status != clique.status:
            self.draft.statuses.append(WriteStatus(Kind.CLIQUE, clique.name, clique.uid, status))

    def write_group(self, step: GroupStep) -> None:
        group = step.view.group
        if group is None:
            return
        at_work = self.at_work and not group.leaving
        status = group_status(self.pen, step, group, at_work=at_work, terminated=self.terminated)
        if status != group.status:
            self.draft.statuses.append(WriteStatus(Kind.GROUP, group.name, group.uid, status))


def _update_moments(workload: Workload, update: Update) -> list[Moment]:
    """Tell what becomes of the update."""
    name, short = workload.name, update.generation_hash
    moments = []
    if update.supersedes:
        text = f"The update of {name} to {update.former.generation_hash} is superseded by one to {short}."
        moments.append(Moment("UpdateSuperseded", name, text))
    if update.turn is Turn.START:
        moments.append(Moment("UpdateStarted", name, f"An update of {name} to {short} begins ({workload.strategy})."))
    elif update.turn is Turn.END:
        moments.append(Moment("UpdateEnded", name, f"The update of {name} to {short} has ended."))
    elif update.selected is not None and update.selected not in update.former.updating:
        text = f"Replica {name}-{update.selected} is selected to be updated."
        moments.append(Moment("ReplicaSelected", f"{name}-{update.selected}", text))
    return moments
