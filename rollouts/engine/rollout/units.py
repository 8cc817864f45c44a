"""The units of each level: pods, replicas of a scaling group and replicas of the set, as the roller looks at them.

Between `views`, which says what is outdated and available, and `steps`, which asks what is next. The
invariant: however the actions of a step are cut short, there are never more than R + S units that are not leaving, save
for surplus.
"""

from collections.abc import Iterable, Sequence

from rollouts.engine.model.budget import Budget
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
from rollouts.engine.tree.views import CliqueView, GroupView, ReplicaView

NO_STEP = RollerStep((), ())


def pod_units(view: CliqueView, *, rolling: bool) -> list[Unit]:
    """Return the pods of a clique as units, in line to be updated or else scaled in; one that has ended is leaving."""
    wanted, current = view.wanted, view.template_hash
    units = []
    for pod in view.pods:
        live = pod.is_live
        update_order = pod_update_order(pod) if rolling else ()
        scale_in_order = () if rolling else pod_scale_in_order(pod, wanted, current)
        # By position, in the order of the fields: by name it takes twice as long.
        outdated, available = pod.template_hash != current, pod.ready and live
        units.append(Unit(pod.name, pod.index, outdated, available, not live, update_order, scale_in_order))
    return units


def group_units(view: GroupView) -> list[Unit]:
    """Return the replicas of a scaling group as units."""
    return [
        Unit(
            key=replica.name,
            index=replica.index,
            outdated=replica.is_outdated,
            # What somebody scaled below its minimum does not serve; that neither stops an update nor is mended by it.
            available=replica.is_up,
            leaving=replica.is_leaving,
            update_order=group_replica_update_order(replica.index),
            scale_in_order=(),
        )
        for replica in view.replicas.values()
    ]


def set_units(replicas: Iterable[ReplicaView], *, whole: bool, wanted: int) -> list[Unit]:
    """Return the replicas of the set as units, replaced whole or part by part.

    A wanted one of which only PodGangs are left is none: its index is free, and it is built anew around them.
    """
    return [
        _set_unit(replica, whole=whole, is_surge=replica.index >= wanted)
        for replica in replicas
        if replica.index >= wanted or not replica.is_gone
    ]


def _set_unit(replica: ReplicaView, *, whole: bool, is_surge: bool) -> Unit:
    emptied = whole and replica.is_emptied
    return Unit(
        key=replica.name,
        index=replica.index,
        # Surge that was emptied was on its way out when somebody was stopped: it goes, frame and all.
        outdated=replica.is_outdated or (emptied and is_surge),
        available=replica.is_up,
        leaving=not replica.has_live_owners or (emptied and not is_surge),
        update_order=set_replica_update_order(replica),
        scale_in_order=(),
    )


def choose_pod_step(
    view: CliqueView, budget: Budget, *, rolling: bool, freeing: bool = False
) -> tuple[Sequence[Unit], RollerStep]:
    """Return the pods of a clique as units, and what is next for them; no units where all is settled."""
    freeing = freeing and view.outdated > 0 and view.available < len(view.live)
    if not rolling and not freeing and len(view.pods) == len(view.live) == view.wanted:
        return (), NO_STEP  # as it is with most, most of the time
    units = pod_units(view, rolling=rolling)
    step = choose_step(units, view.wanted, budget, POD_INDEX_POLICY, rolling=rolling, freeing=freeing)
    return units, _limit_creates_to_room(step, units, view.wanted, budget)


def choose_replica_step(
    units: Sequence[Unit], wanted: int, budget: Budget, *, rolling: bool, freeing: bool = False, lingering: int = 0
) -> RollerStep:
    """Return what is next for replicas of a group or of the set; `freeing` as in `choose_step`.

    Not rolling, those beyond the wanted number go, but an available one only as the budget allows: it may be the surge
    of an update that was interrupted, or scaled in while others are down. Those `lingering` are leaving and still take
    room.
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
    """Leave out what there is no room for before this step's own deletions are done.

    Nothing else keeps more than R + S from existing for a moment: actions are carried out one by one, creations first.
    """
    if not step.create:
        return step
    going = {removal.unit.key for removal in step.delete}
    surplus = count_surplus([unit for unit in units if unit.key not in going], wanted, budget)
    room = wanted + budget.max_surge + surplus - sum(not unit.leaving for unit in units) - lingering
    return step if len(step.create) <= room else RollerStep(step.delete, step.create[: max(0, room)])
