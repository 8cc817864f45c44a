"""Who goes first: at each level of an update, and when fewer are wanted.

Each function gives a unit its place as a tuple; the smaller goes first. `units` puts the places into the units that
`roller` works with; replicas are scaled in by their index alone, the highest first, so that no hole is left. Every
tuple ends in something unique, so the same units always come in the same order.
"""

from typing import Any

from rollouts.engine.model.observed import Pod
from rollouts.engine.tree.views import ReplicaView

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}  # a pod that has ended counts like one that has not begun


def pod_update_order(pod: Pod) -> tuple[float, int, str]:
    """Pods are updated oldest first; of those made in the same second, as is usual, the lowest index."""
    return (pod.created, pod.index, pod.name)


def pod_scale_in_order(pod: Pod, wanted: int, current_hash: str) -> tuple[Any, ...]:
    """Pods are scaled in by how little is lost: not scheduled, Pending, not Ready, outdated, extra index, newest.

    Example, 2 wanted of a (Ready, outdated), b (Ready, current) and c (Pending): c goes, and with 1 wanted a goes next.
    """
    return (
        bool(pod.node),
        _PHASES.get(pod.phase, 0),
        pod.ready,
        pod.template_hash == current_hash,
        pod.index < wanted,
        -pod.created,
        -pod.index,
        pod.name,
    )


def set_replica_update_order(replica: ReplicaView) -> tuple[bool, bool, int]:
    """Replicas of a set, by what is observed of them."""
    scheduled = replica.is_anything_scheduled
    return replica_update_order(replica.index, scheduled=scheduled, breached=scheduled and not replica.is_available)


def replica_update_order(index: int, *, scheduled: bool, breached: bool) -> tuple[bool, bool, int]:
    """Replicas of a set: with nothing scheduled, then with minAvailable breached, then the lowest index."""
    return (scheduled, not breached, index)


def group_replica_update_order(index: int) -> tuple[int]:
    """Replicas of a scaling group: the lowest index."""
    return (index,)
