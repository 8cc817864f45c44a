"""One pass over a workload: what to do now, what to write down, why it waits, and when to look again.

`plan` is called after every change. It arranges what is observed (`arrange`), asks whether an update is under way
(`update`), asks what is next at every level (`steps`), and makes actions of the answers with `desired` and `gangs`;
`status` and `diagnosis` tell about them. Nothing is remembered between passes but what the resources' status says.

The invariants: an owner is there before what it owns is created; everything is carried out in the order of the plan, or
not, without harm; the same input gives the same plan.
"""

from collections.abc import Mapping
from typing import Any

from rollouts.engine.actions import Kind, Moment, Plan, WriteStatus
from rollouts.engine.arrange import arrange
from rollouts.engine.diagnosis import NOTHING_WAITS, Examiner
from rollouts.engine.enact import Draft, keep_replica, relabel_emptied, remove_replicas, terminate_replica
from rollouts.engine.gangs import WantedGang, plan_gangs, plan_gates, wanted_gangs
from rollouts.engine.observed import Observed
from rollouts.engine.shape import Shape, make_shape
from rollouts.engine.status import Pen, clique_status, group_status, make_pen, set_status
from rollouts.engine.steps import CliqueStep, GroupStep, ReplicaStep, SetStep, choose_steps, no_steps
from rollouts.engine.termination import Termination, decide_termination
from rollouts.engine.update import Turn, Update, decide_update, read_progress
from rollouts.engine.values import value
from rollouts.engine.views import Tree
from rollouts.engine.workload import Workload

Stored = Mapping[str, Any]
"""A status as it is stored."""


def plan(workload: Workload, observed: Observed, now: float) -> Plan:
    """Return what to do about a workload as it is observed."""
    shape = make_shape(workload)
    return plan_tree(shape, arrange(shape, observed), observed.status, now)


def plan_tree(shape: Shape, tree: Tree, status: Stored, now: float) -> Plan:
    """Return what to do about a workload that is arranged already, with the status of its set as stored."""
    update = decide_update(shape, tree, read_progress(status))
    if update.turn is Turn.START:
        return _begin(shape, tree, update, status, now)
    return _pass(shape, tree, update, status, now)


def _begin(shape: Shape, tree: Tree, update: Update, stored: Stored, now: float) -> Plan:
    """Write down that an update begins, and nothing else: what is replaced for it is replaced by the next pass."""
    pen = make_pen(shape, update, now)
    status = set_status(pen, stored, shape, tree, steps=no_steps(), diagnosis=NOTHING_WAITS)
    write = WriteStatus(Kind.SET, shape.workload.name, shape.workload.uid, status)
    return Plan((write,), tuple(_update_moments(shape.workload, update)), (), tree.strangers, None)


def _pass(shape: Shape, tree: Tree, update: Update, stored: Stored, now: float) -> Plan:
    """Take the next step at every level."""
    workload = shape.workload
    steps = choose_steps(shape, tree, update)
    termination = decide_termination(workload, steps, now)
    draft = Draft(moments=_update_moments(workload, update))
    remove_replicas(workload, tree, steps, draft)
    relabel_emptied(workload, tree, steps, draft)
    bases = {step.replica.index: _step_replica(shape, step, termination, draft) for step in steps.replicas}
    diagnosis = Examiner(shape, update, now).diagnose(tree, steps, bases)
    pen = make_pen(shape, update, now)
    _write_statuses(pen, steps, termination, draft)
    status = set_status(pen, stored, shape, tree, steps=steps, diagnosis=diagnosis)
    if status != stored:
        draft.statuses.append(WriteStatus(Kind.SET, workload.name, workload.uid, status))
    times = [at for at in (termination.due_at, diagnosis.look_again_at) if at is not None]
    return Plan(draft.actions(), tuple(draft.moments), diagnosis.waits, tree.strangers, min(times, default=None))


def _step_replica(shape: Shape, step: ReplicaStep, termination: Termination, draft: Draft) -> WantedGang:
    """Take the next step in a replica of the set; returns its base gang."""
    replica = step.replica
    gangs = wanted_gangs(shape, replica)
    if replica.index in termination.replicas:
        terminate_replica(replica, termination.replicas[replica.index], draft)
        return gangs[0]
    before = len(draft.deletes)
    keep_replica(shape, step, termination, draft)
    going = {deletion.uid for deletion in draft.deletes[before:]}
    draft.add(plan_gangs(shape.workload, replica, gangs))
    draft.gates.extend(plan_gates(replica, gangs, going))
    return gangs[0]


def _write_statuses(pen: Pen, steps: SetStep, termination: Termination, draft: Draft) -> None:
    """Write the statuses of PodCliques and PodCliqueScalingGroups that differ from the stored ones."""
    for step in steps.replicas:
        writer = _Writer(pen, draft, at_work=step.is_at_work, terminated=step.replica.index in termination.replicas)
        for clique in step.cliques:
            writer.write_clique(clique, is_member=False)
        for group in step.groups:
            if not writer.terminated:  # else its PodCliques are deleted by this very pass
                for _, cliques in group.parts:
                    for clique in cliques:
                        writer.write_clique(clique, is_member=True)
            writer.write_group(group)


@value
class _Writer:
    """Writes the statuses inside one replica of the set."""

    pen: Pen
    draft: Draft
    at_work: bool
    terminated: bool

    def write_clique(self, step: CliqueStep, *, is_member: bool) -> None:
        clique = step.view.clique
        if clique is None or clique.leaving:
            return
        status = clique_status(
            self.pen, step, clique, at_work=self.at_work, terminated=self.terminated, is_member=is_member
        )
        if status != clique.status:
            self.draft.statuses.append(WriteStatus(Kind.CLIQUE, clique.name, clique.uid, status))

    def write_group(self, step: GroupStep) -> None:
        group = step.view.group
        if group is None or group.leaving:
            return
        status = group_status(self.pen, step, group, at_work=self.at_work, terminated=self.terminated)
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
