"""Who goes first in an update and in a scale-in, at each level (`docs/semantics.md` 6).

Each function returns a sort key: the unit with the smaller key goes first. `units` puts the keys into the units that
`roller` sorts, after it has put unavailable outdated units and surge before the others. Replicas are scaled in by index
alone, the highest first, so that no gap is left. The invariant: every key ends in a unique value, so the same units
always have the same order.
"""

from typing import Any

from rollouts.engine.model.observed import Pod
from rollouts.engine.tree.availability import ReplicaView

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}  # a pod that has ended counts like a Pending one


def pod_update_order(pod: Pod) -> tuple[float, int, str]:
    """Pods: the oldest, and the lowest index among pods that were created in the same second."""
    return (pod.created, pod.index, pod.name)


def pod_scale_in_order(pod: Pod, wanted: int, current_hash: str) -> tuple[Any, ...]:
    """Scale-in of pods: not scheduled, Pending, not Ready, outdated, index beyond the wanted number, newest.

    Example: of a (Ready, outdated), b (Ready, current) and c (Pending), c goes when 2 are wanted, then a for 1.
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
    """Replicas of a set: nothing scheduled, then minAvailable breached, then the lowest index."""
    return (scheduled, not breached, index)


def group_replica_update_order(index: int) -> tuple[int]:
    """Replicas of a scaling group: the lowest index."""
    return (index,)
