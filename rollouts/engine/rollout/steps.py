"""What each component does next: the roller asked at every level of a replica, with what the strategy allows.

Between `update`, which says whether and where an update is at work, and `planner`, which makes actions of the steps;
`status` and `diagnosis` read the same steps, so that what is told is what is done. Here is where the strategies differ
(`docs/semantics.md` 5):

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
from rollouts.engine.rollout.levels import ONE_AT_A_TIME, compute_component_budget, compute_set_budget
from rollouts.engine.rollout.roller import RollerStep, Unit
from rollouts.engine.rollout.units import NO_STEP, choose_pod_step, choose_replica_step, group_units, set_units
from rollouts.engine.rollout.update import Update
from rollouts.engine.tree.layout import Layout
from rollouts.engine.tree.views import CliqueView, GroupReplicaView, GroupView, ReplicaView, Tree

_NONE: Final[Set[int]] = frozenset()


class ReplicaMode(Enum):
    """What is done inside a replica of the set."""

    MAINTAIN = "Keep"  # it gets what is missing, and loses what is too much
    ROLL = "Roll"  # its components are updated
    DELETE_UNAVAILABLE = "Free"  # the same as KEEP, and what is outdated and serves nobody goes: its turn has not come
    BLOCK_CREATES = "Hold"  # it is replaced whole: nothing new comes until then


@value
class CliqueStep:
    """What is next for the pods of a clique."""

    view: CliqueView
    budget: Budget
    is_rolling: bool
    blocks_creates: bool  # outdated and to be replaced whole: no new pods until then
    units: Sequence[Unit]  # its pods, where anything moves
    step: RollerStep


@value
class GroupStep:
    """What is next for the replicas of a scaling group, and inside those that stay."""

    view: GroupView
    budget: Budget
    is_rolling: bool
    units: tuple[Unit, ...]
    step: RollerStep
    replicas: tuple[tuple[GroupReplicaView, tuple[CliqueStep, ...]], ...]  # those that stay or are created


@value
class ReplicaStep:
    """What is next inside a replica of the set that stays or is created."""

    replica: ReplicaView
    is_at_work: bool  # an automatic update is replacing parts of it, or all of it
    cliques: tuple[CliqueStep, ...]
    groups: tuple[GroupStep, ...]

    @property
    def clique_steps(self) -> Iterator[CliqueStep]:
        """All its cliques, those of groups as well."""
        yield from self.cliques
        for group in self.groups:
            for _, cliques in group.replicas:
                yield from cliques


@value
class SetStep:
    """What is next for the replicas of the set."""

    budget: Budget
    is_rolling: bool
    units: tuple[Unit, ...]
    step: RollerStep
    replicas: tuple[ReplicaStep, ...]  # those that stay or are created, by index, and need anything


def make_idle_set_step() -> SetStep:
    """Return that nothing is next anywhere."""
    return SetStep(ONE_AT_A_TIME, is_rolling=False, units=(), step=NO_STEP, replicas=())


def make_idle_replica_step(replica: ReplicaView, *, at_work: bool) -> ReplicaStep:
    """Return that nothing is next inside a replica of the set: it is leaving, or its update only begins."""
    return ReplicaStep(
        replica,
        at_work,
        cliques=tuple([make_idle_clique_step(view) for view in replica.cliques]),
        groups=tuple([_make_idle_group_step(view) for view in replica.groups]),
    )


def _make_idle_group_step(view: GroupView) -> GroupStep:
    return GroupStep(view, ONE_AT_A_TIME, is_rolling=False, units=(), step=NO_STEP, replicas=())


def make_idle_clique_step(view: CliqueView) -> CliqueStep:
    """Return that nothing is next for the pods of a clique."""
    return CliqueStep(view, ONE_AT_A_TIME, is_rolling=False, blocks_creates=False, units=(), step=NO_STEP)


def choose_steps(layout: Layout, tree: Tree, update: Update, unsteady: Set[int] = _NONE) -> SetStep:
    """Return what is next at every level; of `unsteady` replicas something is to be said, whatever they look like."""
    rolling = layout.replaces_whole and update.is_under_way
    budget = compute_set_budget(layout.workload)
    units, step = _choose_set_step(layout, tree, budget, rolling=rolling)
    staying = (find_replicas_to_plan(tree, update) | unsteady) & tree.replicas.keys()
    if units or step.create:  # else just the wanted ones are there, to stay
        staying = (staying - _find_leaving(units, step)).union(step.create)
    replicas = [tree.replicas.get(index) or layout.make_replica_view(index) for index in sorted(staying)]
    steps = tuple([_choose_replica_step(layout, replica, update) for replica in replicas])
    return SetStep(budget, rolling, tuple(units), step, steps)


def find_replicas_to_plan(tree: Tree, update: Update) -> Set[int]:
    """Return the replicas of the set that need a closer look: all about which anything is to be done or said.

    One that is outdated and quiet waits for its turn; without an update under way it would have something to say.
    """
    unfinished = tree.unfinished if update.is_under_way else tree.incomplete
    selected = () if update.selected is None else (update.selected,)
    return tree.unsteady.union(unfinished, update.former.updating, selected)


def _choose_set_step(layout: Layout, tree: Tree, budget: Budget, *, rolling: bool) -> tuple[Sequence[Unit], RollerStep]:
    workload = layout.workload
    if not rolling and _needs_no_set_step(layout, tree):
        return (), NO_STEP
    units = set_units(tree.replicas.values(), whole=rolling, wanted=workload.replicas)
    lingering = sum(replica.awaits_garbage_collection for replica in tree.replicas.values())
    step = choose_replica_step(units, workload.replicas, budget, rolling=rolling, lingering=lingering)
    return units, step


def _find_leaving(units: Iterable[Unit], step: RollerStep) -> set[int]:
    """Return the indices of what is leaving, and of what this step deletes."""
    return {unit.index for unit in units if unit.leaving}.union([removal.unit.index for removal in step.delete])


def _needs_no_set_step(layout: Layout, tree: Tree) -> bool:
    """Whether just the wanted replicas are there, all of them to stay."""
    if layout.replaces_whole and tree.outdated:
        return False
    return not tree.ownerless and tree.has_exactly(layout.workload.replicas)


def _choose_replica_step(layout: Layout, replica: ReplicaView, update: Update) -> ReplicaStep:
    whole = layout.replaces_whole
    held = whole and (replica.is_outdated or replica.has_pods_of_other_templates)
    mode = _choose_mode(replica, update, whole=whole, held=held)
    at_work = mode is ReplicaMode.ROLL or (whole and update.is_under_way and replica.index in update.former.updating)
    if whole and not held and any(view.is_label_outdated for view in replica.cliques):
        return _relabel(layout, replica, at_work=at_work)
    return ReplicaStep(
        replica,
        is_at_work=at_work,
        cliques=tuple([_choose_clique(layout, view, mode) for view in replica.cliques]),
        groups=tuple([_choose_group(layout, view, mode) for view in replica.groups]),
    )


def _choose_mode(replica: ReplicaView, update: Update, *, whole: bool, held: bool) -> ReplicaMode:
    if held:
        return ReplicaMode.BLOCK_CREATES
    if whole or not update.is_under_way:
        return ReplicaMode.MAINTAIN
    return ReplicaMode.ROLL if update.is_rolling(replica.index) else ReplicaMode.DELETE_UNAVAILABLE


def _relabel(layout: Layout, replica: ReplicaView, *, at_work: bool) -> ReplicaStep:
    """Let the PodCliques of an emptied replica promise the current template before anything moves in.

    Else a pass that is cut short could leave new pods under an old promise, which looks like two versions.
    """
    cliques = (
        CliqueStep(view, ONE_AT_A_TIME, is_rolling=False, blocks_creates=False, units=(), step=NO_STEP)
        for view in replica.cliques
    )
    groups = (_choose_group(layout, view, ReplicaMode.BLOCK_CREATES) for view in replica.groups)
    return ReplicaStep(replica, at_work, tuple(cliques), tuple(groups))


def _choose_clique(layout: Layout, view: CliqueView, mode: ReplicaMode) -> CliqueStep:
    # One that the new templates do not concern is left alone, and so are the indices that scaling in has left it.
    if mode is ReplicaMode.ROLL and not (view.outdated or view.is_updating):
        mode = ReplicaMode.MAINTAIN
    is_rolling = mode is ReplicaMode.ROLL
    budget = (
        compute_component_budget(layout.workload, view.template.budget, view.wanted) if is_rolling else ONE_AT_A_TIME
    )
    return _make_clique_step(view, budget, mode)


def _make_clique_step(view: CliqueView, budget: Budget, mode: ReplicaMode) -> CliqueStep:
    is_rolling, is_held = mode is ReplicaMode.ROLL, mode is ReplicaMode.BLOCK_CREATES
    if not view.is_live:
        return CliqueStep(view, budget, is_rolling, is_held, (), NO_STEP)  # pods come after their PodClique
    units, step = choose_pod_step(view, budget, rolling=is_rolling, freeing=mode is ReplicaMode.DELETE_UNAVAILABLE)
    return CliqueStep(view, budget, is_rolling, is_held, units, RollerStep(step.delete, ()) if is_held else step)


def _choose_group(layout: Layout, view: GroupView, mode: ReplicaMode) -> GroupStep:
    budget = compute_component_budget(layout.workload, view.template.budget, view.wanted)
    is_rolling = mode is ReplicaMode.ROLL
    if not view.is_live:
        return GroupStep(view, budget, is_rolling, (), NO_STEP, ())  # PodCliques come after their scaling group
    units = group_units(view)
    step = choose_replica_step(
        units, view.wanted, budget, rolling=is_rolling, freeing=mode is ReplicaMode.DELETE_UNAVAILABLE
    )
    if mode is ReplicaMode.BLOCK_CREATES:
        step = RollerStep(step.delete, ())
    staying = sorted((view.replicas.keys() - _find_leaving(units, step)).union(step.create))
    parts = (
        view.replicas.get(index) or layout.make_group_replica_view(view.name, view.template, index) for index in staying
    )
    steps = tuple((part, tuple(_choose_member_steps(layout, part, mode))) for part in parts)
    return GroupStep(view, budget, is_rolling, tuple(units), step, steps)


def _choose_member_steps(layout: Layout, part: GroupReplicaView, mode: ReplicaMode) -> Iterator[CliqueStep]:
    """Keep up what is inside a replica of a group; one that is outdated is replaced whole, unless by hand."""
    is_held = mode is ReplicaMode.BLOCK_CREATES or (not layout.is_on_delete and part.is_outdated)
    for view in part.cliques:
        yield _make_clique_step(view, ONE_AT_A_TIME, ReplicaMode.BLOCK_CREATES if is_held else ReplicaMode.MAINTAIN)
