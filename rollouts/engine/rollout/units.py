"""The units of each level for the roller: pods, replicas of a scaling group, replicas of the set.

Between `tree.availability`, which says what is outdated and available, and `steps`, which asks for the step of each
level. The invariant: even if only some actions of a step are carried out, there are never more than R + S units that
are not leaving, except for surplus.
"""

from collections.abc import Iterable, Sequence

from rollouts.engine.model.budget import Budget
from rollouts.engine.model.observed import TERMINAL_PHASES
from rollouts.engine.rollout.order import (
    group_replica_update_order,
    pod_scale_in_order,
    pod_update_order,
    set_replica_update_order,
)
from rollouts.engine.rollout.roller import (
    POD_INDEX_POLICY,
    REPLICA_INDEX_POLICY,
    RollerStep,
    Unit,
    choose_step,
    count_surplus,
)
from rollouts.engine.tree.availability import CliqueView, GroupView, ReplicaView

NO_STEP = RollerStep((), ())


def pod_units(view: CliqueView, *, rolling: bool) -> list[Unit]:
    """Return the pods of a clique as units, with keys for update or scale-in; an ended pod counts as leaving."""
    wanted, current = view.wanted, view.template_hash
    units = []
    for pod in view.pods:
        # The same as `Pod.is_live`, without a call for each of thousands of pods.
        leaving = pod.leaving or pod.phase in TERMINAL_PHASES
        update_order = pod_update_order(pod) if rolling else ()
        scale_in_order = () if rolling else pod_scale_in_order(pod, wanted, current)
        # By position, in the order of the fields: by name it takes twice as long.
        outdated, available = pod.template_hash != current, pod.ready and not leaving
        units.append(Unit(pod.name, pod.index, outdated, available, leaving, update_order, scale_in_order))
    return units


def group_units(view: GroupView) -> list[Unit]:
    """Return the replicas of a scaling group as units."""
    return [
        Unit(
            key=replica.name,
            index=replica.index,
            outdated=replica.is_outdated,
            # Up, not available: an update does not wait for a component that is scaled below its minimum.
            available=replica.is_up,
            leaving=replica.is_leaving,
            update_order=group_replica_update_order(replica.index),
            scale_in_order=(),
        )
        for replica in view.replicas.values()
    ]


def set_units(replicas: Iterable[ReplicaView], *, whole: bool, wanted: int) -> list[Unit]:
    """Return the replicas of the set as units, replaced whole or component by component.

    A wanted replica of which only PodGangs are left is no unit: its index is free, and it is created around them.
    """
    return [
        _set_unit(replica, whole=whole, is_surge=replica.index >= wanted)
        for replica in replicas
        if replica.index >= wanted or not replica.is_gone
    ]


def _set_unit(replica: ReplicaView, *, whole: bool, is_surge: bool) -> Unit:
    emptied = whole and replica.is_emptied
    # A worker that emptied a surge replica was stopped before it deleted the owners: they go now.
    outdated = replica.is_outdated or (emptied and is_surge)
    return Unit(
        key=replica.name,
        index=replica.index,
        outdated=outdated,
        available=replica.is_up,
        leaving=not replica.has_live_owners or (emptied and not is_surge),
        update_order=set_replica_update_order(replica) if outdated else (),
        scale_in_order=(),
    )


def choose_pod_step(
    view: CliqueView, budget: Budget, *, rolling: bool, freeing: bool = False
) -> tuple[Sequence[Unit], RollerStep]:
    """Return the pods of a clique as units, and their next step; no units if nothing is to do."""
    freeing = freeing and view.outdated > 0 and view.available < len(view.live)
    if not rolling and not freeing and len(view.pods) == len(view.live) == view.wanted:
        return (), NO_STEP  # the usual case, so it must be cheap
    units = pod_units(view, rolling=rolling)
    step = choose_step(units, view.wanted, budget, POD_INDEX_POLICY, rolling=rolling, freeing=freeing)
    return units, _limit_creates_to_room(step, units, view.wanted, budget)


def choose_replica_step(
    units: Sequence[Unit], wanted: int, budget: Budget, *, rolling: bool, freeing: bool = False, lingering: int = 0
) -> RollerStep:
    """Return the next step for replicas of a group or of the set; `freeing` as in `choose_step`.

    Outside an update, replicas beyond the wanted number go, but available ones only as the budget allows: they may be
    surge of an interrupted update, or scaled in while others are down. `lingering` counts leaving replicas that still
    take room.
    """
    step = choose_step(units, wanted, budget, REPLICA_INDEX_POLICY, rolling=rolling, freeing=freeing)
    if not rolling and step.delete:
        allowed = choose_step(units, wanted, Budget(budget.max_unavailable, 0), REPLICA_INDEX_POLICY, rolling=True)
        going = {removal.unit.key for removal in allowed.delete}
        step = RollerStep(tuple(removal for removal in step.delete if removal.unit.key in going), step.create)
    return _limit_creates_to_room(step, units, wanted, budget, lingering)


def _limit_creates_to_room(
    step: RollerStep, units: Sequence[Unit], wanted: int, budget: Budget, lingering: int = 0
) -> RollerStep:
    """Return the step without the creations that have no room until its deletions are done.

    Creations are carried out before deletions, so without this there could be more than R + S units for a moment.
    """
    if not step.create:
        return step
    going = {removal.unit.key for removal in step.delete}
    surplus = count_surplus([unit for unit in units if unit.key not in going], wanted, budget)
    room = wanted + budget.max_surge + surplus - sum(not unit.leaving for unit in units) - lingering
    return step if len(step.create) <= room else RollerStep(step.delete, step.create[: max(0, room)])
