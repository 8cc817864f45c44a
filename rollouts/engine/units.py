"""The units of each level: pods, replicas of a scaling group and replicas of the set, as the roller looks at them.

Between `arrange`, which says what belongs together, and `roller`, which says what goes next. Here is decided what makes
a unit outdated, available or leaving (DESIGN 6.1):

    pod             available when Ready; outdated by its own hash
    group replica   available when each of its cliques is; outdated when a PodClique or pod in it is; leaving once none of
                    its PodCliques is there to stay, until the last pod is gone
    set replica     available when each clique in no group and each group is; what is *in* it is its pods and the PodCliques
                    of its groups. What merely holds them (service, groups, cliques in no group) survives a recreation, so
                    that replicas set by others do too
"""

from collections.abc import Iterable, Iterator, Sequence

from rollouts.engine.arrange import CliqueView, GroupReplica, GroupView, Replica
from rollouts.engine.budget import Budget
from rollouts.engine.order import (
    group_replica_update_order,
    pod_scale_in_order,
    pod_update_order,
    replica_scale_in_order,
    replica_update_order,
)
from rollouts.engine.roller import PODS, REPLICAS, Step, Unit, choose_step, is_complete

NO_STEP = Step((), ())


def pod_units(view: CliqueView) -> list[Unit]:
    """Return the pods of a clique as units; one that has ended is as good as gone."""
    live = {pod.name for pod in view.live}
    return [
        Unit(
            key=pod.name,
            index=pod.index,
            outdated=pod.template_hash != view.template_hash,
            available=pod.available,
            leaving=pod.name not in live,
            update_order=pod_update_order(pod),
            scale_in_order=pod_scale_in_order(pod, view.wanted, view.template_hash),
        )
        for pod in view.pods
    ]


def group_units(view: GroupView) -> list[Unit]:
    """Return the replicas of a scaling group as units."""
    return [
        Unit(
            key=replica.name,
            index=replica.index,
            outdated=is_group_replica_outdated(replica),
            available=is_group_replica_available(replica),
            leaving=is_group_replica_leaving(replica),
            update_order=group_replica_update_order(replica.index),
            scale_in_order=replica_scale_in_order(replica.index),
        )
        for replica in view.replicas.values()
    ]


def set_units(replicas: Iterable[Replica], *, whole: bool) -> list[Unit]:
    """Return the replicas of the set as units, replaced whole or part by part."""
    return [_set_unit(replica, whole=whole) for replica in replicas]


def _set_unit(replica: Replica, *, whole: bool) -> Unit:
    available = is_replica_available(replica)
    scheduled = is_anything_scheduled(replica)
    return Unit(
        key=replica.name,
        index=replica.index,
        outdated=is_replica_outdated(replica),
        available=available,
        leaving=not has_live_frame(replica) or (whole and is_replica_emptied(replica)),
        update_order=replica_update_order(replica.index, scheduled=scheduled, breached=scheduled and not available),
        scale_in_order=replica_scale_in_order(replica.index),
    )


def is_group_replica_outdated(replica: GroupReplica) -> bool:
    """Whether a PodClique that is there to stay, or a pod, is of another template than the current one."""
    for view in replica.cliques:
        if view.outdated or (view.clique is not None and is_label_outdated(view)):
            return True
    return False


def is_label_outdated(view: CliqueView) -> bool:
    """Whether a live PodClique promises its pods another template than the current one."""
    clique = view.clique
    return clique is not None and not clique.leaving and clique.template_hash != view.template_hash


def is_group_replica_available(replica: GroupReplica) -> bool:
    """Whether each of its cliques is there with enough available pods."""
    return all(view.is_live and view.available >= view.needed for view in replica.cliques)


def is_group_replica_scheduled(replica: GroupReplica) -> bool:
    """Whether each of its cliques is there with enough scheduled pods."""
    return all(view.is_live and view.scheduled >= view.needed for view in replica.cliques)


def is_group_replica_leaving(replica: GroupReplica) -> bool:
    """Whether none of its PodCliques is there to stay."""
    return not any(view.is_live for view in replica.cliques)


def count_available(view: GroupView) -> int:
    """How many of its replicas are available, extra ones as well."""
    return sum(is_group_replica_available(replica) for replica in view.replicas.values())


def is_replica_available(replica: Replica) -> bool:
    """Whether each clique in no group and each scaling group of a set replica is there and available."""
    for view in replica.cliques:
        if view.available < view.needed or not view.is_live:
            return False
    return all(view.is_live and count_available(view) >= view.needed for view in replica.groups)


def is_replica_outdated(replica: Replica) -> bool:
    """Whether a pod or a PodClique of a group in it is of another template than the current one."""
    for view in replica.cliques:
        if view.outdated:
            return True
    return any(is_group_replica_outdated(part) for view in replica.groups for part in view.replicas.values())


def is_anything_scheduled(replica: Replica) -> bool:
    """Whether any pod of a set replica has a node."""
    return any(view.scheduled for view in all_cliques(replica))


def is_replica_emptied(replica: Replica) -> bool:
    """Whether all that is left in a set replica is leaving, and another template is to move in after it."""
    return not has_live_contents(replica) and any(
        pod.template_hash != view.template_hash for view in all_cliques(replica) for pod in view.pods
    )


def has_live_frame(replica: Replica) -> bool:
    """Whether anything that holds the contents of a set replica is there to stay."""
    return (
        (replica.service is not None and not replica.service.leaving)
        or any(view.is_live for view in replica.cliques)
        or any(view.is_live for view in replica.groups)
    )


def has_live_contents(replica: Replica) -> bool:
    """Whether a pod or a PodClique of a group is there to stay."""
    return any(view.live for view in replica.cliques) or any(
        view.live or view.is_live for view in member_cliques(replica)
    )


def member_cliques(replica: Replica) -> Iterator[CliqueView]:
    """Go through the cliques of the scaling groups of a set replica."""
    for group in replica.groups:
        for part in group.replicas.values():
            yield from part.cliques


def all_cliques(replica: Replica) -> Iterator[CliqueView]:
    """Go through all cliques of a set replica."""
    yield from replica.cliques
    yield from member_cliques(replica)


def has_surge(replica: Replica) -> bool:
    """Whether a component of a set replica has more than it is to have in the end."""
    return any(len(view.live) > view.wanted for view in replica.cliques) or any(
        index >= view.wanted and not is_group_replica_leaving(part)
        for view in replica.groups
        for index, part in view.replicas.items()
    )


def is_clique_complete(view: CliqueView) -> bool:
    """Whether a clique in no group has just its wanted pods, all of them available and of the current template.

    Scaling in may have left it with the pods 0 and 2, which is fine. An update ends with 0 and 1: pod 2 may be surge.
    """
    return (
        view.is_live
        and len(view.live) == view.available == view.wanted
        and not view.outdated
        and not is_label_outdated(view)
        and not (view.is_updating and view.live and view.live[-1].index >= view.wanted)
    )


def is_group_complete(view: GroupView) -> bool:
    """Whether a scaling group has just its wanted replicas, all of them available and of the current template."""
    return view.is_live and is_complete(group_units(view), view.wanted, REPLICAS)


def is_replica_complete(replica: Replica) -> bool:
    """Whether each component of a set replica is complete."""
    return all(is_clique_complete(view) for view in replica.cliques) and all(
        is_group_complete(view) for view in replica.groups
    )


def choose_pod_step(view: CliqueView, budget: Budget, *, rolling: bool) -> Step:
    """Return what is next for the pods of a clique."""
    if not rolling and len(view.pods) == len(view.live) == view.wanted:
        return NO_STEP  # settled, as most are most of the time
    units = pod_units(view)
    return _within_room(choose_step(units, view.wanted, budget, PODS, rolling=rolling), units, view.wanted, budget)


def choose_replica_step(units: Sequence[Unit], wanted: int, budget: Budget, *, rolling: bool, careful: bool) -> Step:
    """Return what is next for replicas of a group or of the set.

    Not rolling, those beyond the wanted number go. When `careful` they may be the surge of an update that was
    interrupted, which others now rely on: then an available one goes only as the budget allows.
    """
    step = choose_step(units, wanted, budget, REPLICAS, rolling=rolling)
    if not rolling and careful and step.delete:
        allowed = choose_step(units, wanted, Budget(budget.max_unavailable, 0), REPLICAS, rolling=True)
        going = {removal.unit.key for removal in allowed.delete}
        step = Step(tuple(removal for removal in step.delete if removal.unit.key in going), step.create)
    return _within_room(step, units, wanted, budget)


def _within_room(step: Step, units: Sequence[Unit], wanted: int, budget: Budget) -> Step:
    """Leave out what there is no room for before this step's own deletions are done.

    Nothing else keeps more than R + S from existing for a moment: actions are carried out one by one, creations first.
    """
    room = wanted + budget.max_surge - sum(not unit.leaving for unit in units)
    return step if len(step.create) <= room else Step(step.delete, step.create[: max(0, room)])
