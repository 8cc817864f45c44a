"""The next step of every component: asks the roller at each level, with the budgets of the strategy.

Between `update`, which selects the replica to update, and `planner`, which makes actions of the steps. `status` and
`diagnosis` read the same steps, so that they report what is done. The strategies differ here (`docs/semantics.md` 5):

    RollingRecreate, RollingUpdate   components of the selected replica roll, with 1/0 or their own budgets
    ReplicaRecreate                  the set rolls; inside a replica everything is only maintained
    OnDelete                         nothing rolls

The invariants: a replica that is replaced whole gets no new pods while it is outdated, since new pods have the current
template and two versions never meet inside it; outdated units that serve nobody are replaced at once, also in replicas
that are not selected.
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
from rollouts.engine.tree.availability import CliqueView, GroupReplicaView, GroupView, ReplicaView, Tree
from rollouts.engine.tree.layout import Layout

_NONE: Final[Set[int]] = frozenset()


class ReplicaMode(Enum):
    """What happens inside a replica of the set."""

    MAINTAIN = "Maintain"  # missing units are created, surplus ones deleted
    ROLL = "Roll"  # its components are updated
    DELETE_UNAVAILABLE = "DeleteUnavailable"  # not selected: MAINTAIN, and outdated unavailable units are replaced
    BLOCK_CREATES = "BlockCreates"  # to be replaced whole: nothing is created until it is empty


@value
class CliqueStep:
    """The next step for the pods of a clique."""

    view: CliqueView
    budget: Budget
    is_rolling: bool
    blocks_creates: bool  # outdated and to be replaced whole: no new pods until then
    units: Sequence[Unit]  # its pods; empty if nothing is to do
    step: RollerStep


@value
class GroupStep:
    """The next step for the replicas of a scaling group, and inside those that stay."""

    view: GroupView
    budget: Budget
    is_rolling: bool
    units: tuple[Unit, ...]
    step: RollerStep
    replicas: tuple[tuple[GroupReplicaView, tuple[CliqueStep, ...]], ...]  # those that stay or are created


@value
class ReplicaStep:
    """The next step inside a replica of the set that stays or is created."""

    replica: ReplicaView
    is_at_work: bool  # an automatic update replaces parts of it, or all of it
    cliques: tuple[CliqueStep, ...]
    groups: tuple[GroupStep, ...]


@value
class SetStep:
    """The next step for the replicas of the set."""

    budget: Budget
    is_rolling: bool
    units: tuple[Unit, ...]
    step: RollerStep
    replicas: tuple[ReplicaStep, ...]  # by index: those that stay or are created and are not steady


def make_idle_set_step() -> SetStep:
    """Return a step with nothing to do."""
    return SetStep(ONE_AT_A_TIME, is_rolling=False, units=(), step=NO_STEP, replicas=())


def make_idle_replica_step(replica: ReplicaView, *, at_work: bool) -> ReplicaStep:
    """Return a step with nothing to do inside a replica of the set: it is leaving, or its update only begins."""
    return ReplicaStep(
        replica,
        at_work,
        cliques=tuple([make_idle_clique_step(view) for view in replica.cliques]),
        groups=tuple([_make_idle_group_step(view) for view in replica.groups]),
    )


def _make_idle_group_step(view: GroupView) -> GroupStep:
    return GroupStep(view, ONE_AT_A_TIME, is_rolling=False, units=(), step=NO_STEP, replicas=())


def make_idle_clique_step(view: CliqueView) -> CliqueStep:
    """Return a step with nothing to do for the pods of a clique."""
    return CliqueStep(view, ONE_AT_A_TIME, is_rolling=False, blocks_creates=False, units=(), step=NO_STEP)


def choose_steps(layout: Layout, tree: Tree, update: Update, unsteady: Set[int] = _NONE) -> SetStep:
    """Return the next step at every level; `unsteady` replicas get a step even if they need nothing."""
    rolling = layout.replaces_whole and update.is_under_way
    budget = compute_set_budget(layout.workload)
    units, step = _choose_set_step(layout, tree, budget, rolling=rolling)
    staying = (find_replicas_to_plan(tree, update) | unsteady) & tree.replicas.keys()
    if units or step.create:  # else exactly the wanted replicas exist and stay
        staying = (staying - _find_leaving(units, step)).union(step.create)
    replicas = [tree.replicas.get(index) or layout.make_replica_view(index) for index in sorted(staying)]
    steps = tuple([_choose_replica_step(layout, replica, update) for replica in replicas])
    return SetStep(budget, rolling, tuple(units), step, steps)


def find_replicas_to_plan(tree: Tree, update: Update) -> Set[int]:
    """Return the replicas of the set that need a step: all that the pass may change or report on.

    A replica that is outdated and steady waits for its turn, unless no update is under way.
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
    """Return the indices of leaving units, and of those that this step deletes."""
    return {unit.index for unit in units if unit.leaving}.union([removal.unit.index for removal in step.delete])


def _needs_no_set_step(layout: Layout, tree: Tree) -> bool:
    """Whether exactly the wanted replicas exist and all of them stay."""
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
    """Update the template-hash label of the PodCliques of an emptied replica before any pod is created in it.

    Otherwise an interrupted pass could leave new pods under PodCliques with the old hash, as if two versions met.
    """
    cliques = (
        CliqueStep(view, ONE_AT_A_TIME, is_rolling=False, blocks_creates=False, units=(), step=NO_STEP)
        for view in replica.cliques
    )
    groups = (_choose_group(layout, view, ReplicaMode.BLOCK_CREATES) for view in replica.groups)
    return ReplicaStep(replica, at_work, tuple(cliques), tuple(groups))


def _choose_clique(layout: Layout, view: CliqueView, mode: ReplicaMode) -> CliqueStep:
    # A clique whose template did not change does not roll, so a gap from a scale-in stays.
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
    """Yield steps that maintain a replica of a group; an outdated one is replaced whole, except under OnDelete."""
    is_held = mode is ReplicaMode.BLOCK_CREATES or (not layout.is_on_delete and part.is_outdated)
    for view in part.cliques:
        yield _make_clique_step(view, ONE_AT_A_TIME, ReplicaMode.BLOCK_CREATES if is_held else ReplicaMode.MAINTAIN)
