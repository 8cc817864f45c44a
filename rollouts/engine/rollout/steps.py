"""What each component does next: the roller asked at every level of a replica, with what the strategy allows.

Between `update`, which says whether and where an update is at work, and `planner`, which makes actions of the steps;
`errors` and `diagnosis` read the same steps, so that what is told is what is done. Here is where the strategies differ
(DESIGN 6.5):

    RollingRecreate, RollingUpdate   components of the selected replica roll, with 1/0 or their own budgets
    ReplicaRecreate                  the set rolls; inside a replica everything is just kept up
    OnDelete                         nothing rolls

What is replaced whole and outdated gets no new pods meanwhile: they would be of the current template, and two versions
never meet inside it. What is outdated and serves nobody is replaced at once, also where the turn has not come.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from enum import Enum
from typing import Final

from rollouts.engine.model.budget import Budget
from rollouts.engine.model.values import value
from rollouts.engine.rollout.levels import ONE_AT_A_TIME, budget_of_component, budget_of_set
from rollouts.engine.rollout.roller import Step, Unit
from rollouts.engine.rollout.units import NO_STEP, choose_pod_step, choose_replica_step, group_units, set_units
from rollouts.engine.rollout.update import Update
from rollouts.engine.tree.layout import Shape
from rollouts.engine.tree.steady_state import find_busy
from rollouts.engine.tree.views import CliqueView, GroupReplica, GroupView, Replica, Tree

_NONE: Final[Set[int]] = frozenset()


class Mode(Enum):
    """What is done inside a replica of the set."""

    KEEP = "Keep"  # it gets what is missing, and loses what is too much
    ROLL = "Roll"  # its components are updated
    FREE = "Free"  # the same as KEEP, and what is outdated and serves nobody goes: its turn has not come
    HOLD = "Hold"  # it is replaced whole: nothing new comes until then


@value
class CliqueStep:
    """What is next for the pods of a clique."""

    view: CliqueView
    budget: Budget
    is_rolling: bool
    is_held: bool  # outdated and to be replaced whole: no new pods until then
    units: Sequence[Unit]  # its pods, where anything moves
    step: Step


@value
class GroupStep:
    """What is next for the replicas of a scaling group, and inside those that stay."""

    view: GroupView
    budget: Budget
    is_rolling: bool
    units: tuple[Unit, ...]
    step: Step
    parts: tuple[tuple[GroupReplica, tuple[CliqueStep, ...]], ...]  # those that stay or are created


@value
class ReplicaStep:
    """What is next inside a replica of the set that stays or is created."""

    replica: Replica
    is_at_work: bool  # an automatic update is replacing parts of it, or all of it
    cliques: tuple[CliqueStep, ...]
    groups: tuple[GroupStep, ...]

    @property
    def clique_steps(self) -> Iterator[CliqueStep]:
        """All its cliques, those of groups as well."""
        yield from self.cliques
        for group in self.groups:
            for _, cliques in group.parts:
                yield from cliques


@value
class SetStep:
    """What is next for the replicas of the set."""

    budget: Budget
    is_rolling: bool
    units: tuple[Unit, ...]
    step: Step
    replicas: tuple[ReplicaStep, ...]  # those that stay or are created, by index, and need anything


def no_steps() -> SetStep:
    """Return that nothing is next anywhere."""
    return SetStep(ONE_AT_A_TIME, is_rolling=False, units=(), step=NO_STEP, replicas=())


def idle_step(replica: Replica, *, at_work: bool) -> ReplicaStep:
    """Return that nothing is next inside a replica of the set: it is leaving, or its update only begins."""
    return ReplicaStep(
        replica,
        at_work,
        cliques=tuple([idle_clique(view) for view in replica.cliques]),
        groups=tuple([_idle_group(view) for view in replica.groups]),
    )


def _idle_group(view: GroupView) -> GroupStep:
    return GroupStep(view, ONE_AT_A_TIME, is_rolling=False, units=(), step=NO_STEP, parts=())


def idle_clique(view: CliqueView) -> CliqueStep:
    """Return that nothing is next for the pods of a clique."""
    return CliqueStep(view, ONE_AT_A_TIME, is_rolling=False, is_held=False, units=(), step=NO_STEP)


def choose_steps(shape: Shape, tree: Tree, update: Update, unsteady: Set[int] = _NONE) -> SetStep:
    """Return what is next at every level; of `unsteady` replicas something is to be said, whatever they look like."""
    rolling = shape.replaces_whole and update.is_under_way
    budget = budget_of_set(shape.workload)
    units, step = _choose_set_step(shape, tree, budget, rolling=rolling)
    staying = (find_busy(tree, update) | unsteady) & tree.replicas.keys()
    if units or step.create:  # else just the wanted ones are there, to stay
        staying = (staying - _find_leaving(units, step)).union(step.create)
    replicas = [tree.replicas.get(index) or shape.replica(index) for index in sorted(staying)]
    steps = tuple([_choose_replica_parts(shape, replica, update) for replica in replicas])
    return SetStep(budget, rolling, tuple(units), step, steps)


def _choose_set_step(shape: Shape, tree: Tree, budget: Budget, *, rolling: bool) -> tuple[Sequence[Unit], Step]:
    workload = shape.workload
    if not rolling and _is_settled(shape, tree):
        return (), NO_STEP
    units = set_units(tree.replicas.values(), whole=rolling, wanted=workload.replicas)
    lingering = sum(replica.is_lingering for replica in tree.replicas.values())
    step = choose_replica_step(units, workload.replicas, budget, rolling=rolling, lingering=lingering)
    return units, step


def _find_leaving(units: Iterable[Unit], step: Step) -> set[int]:
    """Return the indices of what is leaving, and of what this step deletes."""
    return {unit.index for unit in units if unit.leaving}.union([removal.unit.index for removal in step.delete])


def _is_settled(shape: Shape, tree: Tree) -> bool:
    """Whether just the wanted replicas are there, all of them to stay."""
    if shape.replaces_whole and tree.outdated:
        return False
    return not tree.frameless and tree.has_just(shape.workload.replicas)


def _choose_replica_parts(shape: Shape, replica: Replica, update: Update) -> ReplicaStep:
    whole = shape.replaces_whole
    held = whole and (replica.is_outdated or replica.has_former_pods)
    mode = _choose_mode(replica, update, whole=whole, held=held)
    at_work = mode is Mode.ROLL or (whole and update.is_under_way and replica.index in update.former.updating)
    if whole and not held and any(view.is_label_outdated for view in replica.cliques):
        return _relabel(shape, replica, at_work=at_work)
    return ReplicaStep(
        replica,
        is_at_work=at_work,
        cliques=tuple([_choose_clique(shape, view, mode) for view in replica.cliques]),
        groups=tuple([_choose_group(shape, view, mode) for view in replica.groups]),
    )


def _choose_mode(replica: Replica, update: Update, *, whole: bool, held: bool) -> Mode:
    if held:
        return Mode.HOLD
    if whole or not update.is_under_way:
        return Mode.KEEP
    return Mode.ROLL if update.is_rolling(replica.index) else Mode.FREE


def _relabel(shape: Shape, replica: Replica, *, at_work: bool) -> ReplicaStep:
    """Let the PodCliques of an emptied replica promise the current template before anything moves in.

    Else a pass that is cut short could leave new pods under an old promise, which looks like two versions.
    """
    cliques = (
        CliqueStep(view, ONE_AT_A_TIME, is_rolling=False, is_held=False, units=(), step=NO_STEP)
        for view in replica.cliques
    )
    groups = (_choose_group(shape, view, Mode.HOLD) for view in replica.groups)
    return ReplicaStep(replica, at_work, tuple(cliques), tuple(groups))


def _choose_clique(shape: Shape, view: CliqueView, mode: Mode) -> CliqueStep:
    # One that the new templates do not concern is left alone, and so are the indices that scaling in has left it.
    if mode is Mode.ROLL and not (view.outdated or view.is_updating):
        mode = Mode.KEEP
    is_rolling = mode is Mode.ROLL
    budget = budget_of_component(shape.workload, view.template.budget, view.wanted) if is_rolling else ONE_AT_A_TIME
    return _keep_up(view, budget, mode)


def _keep_up(view: CliqueView, budget: Budget, mode: Mode) -> CliqueStep:
    is_rolling, is_held = mode is Mode.ROLL, mode is Mode.HOLD
    if not view.is_live:
        return CliqueStep(view, budget, is_rolling, is_held, (), NO_STEP)  # pods come after their PodClique
    units, step = choose_pod_step(view, budget, rolling=is_rolling, freeing=mode is Mode.FREE)
    return CliqueStep(view, budget, is_rolling, is_held, units, Step(step.delete, ()) if is_held else step)


def _choose_group(shape: Shape, view: GroupView, mode: Mode) -> GroupStep:
    budget = budget_of_component(shape.workload, view.template.budget, view.wanted)
    is_rolling = mode is Mode.ROLL
    if not view.is_live:
        return GroupStep(view, budget, is_rolling, (), NO_STEP, ())  # PodCliques come after their scaling group
    units = group_units(view)
    step = choose_replica_step(units, view.wanted, budget, rolling=is_rolling, freeing=mode is Mode.FREE)
    if mode is Mode.HOLD:
        step = Step(step.delete, ())
    staying = sorted((view.replicas.keys() - _find_leaving(units, step)).union(step.create))
    parts = (view.replicas.get(index) or shape.group_replica(view.name, view.template, index) for index in staying)
    steps = tuple((part, tuple(_part_steps(shape, part, mode))) for part in parts)
    return GroupStep(view, budget, is_rolling, tuple(units), step, steps)


def _part_steps(shape: Shape, part: GroupReplica, mode: Mode) -> Iterator[CliqueStep]:
    """Keep up what is inside a replica of a group; one that is outdated is replaced whole, unless by hand."""
    is_held = mode is Mode.HOLD or (not shape.is_on_delete and part.is_outdated)
    for view in part.cliques:
        yield _keep_up(view, ONE_AT_A_TIME, Mode.HOLD if is_held else Mode.KEEP)
