"""The names, labels and scheduling gate of the objects of a workload.

`desired` builds objects with them; the mirror and the simulation recognise objects by them. They are Grove's, so that
Grove UI can adopt the objects of Grove's operator and Grove's tools find ours:

    set `my`, replica 0, clique `c`, group `sg`, group replica 1
    my-0            headless service, base gang         my-0-sg       scaling group
    my-0-c          standalone PodClique                my-0-sg-1-c   PodClique of a group replica
    my-0-sg-1       scaled gang: counted from the first replica that is not in the base gang
"""

from typing import Final

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
PART_OF: Final = "app.kubernetes.io/part-of"
NAME: Final = "app.kubernetes.io/name"
COMPONENT: Final = "app.kubernetes.io/component"
OPERATOR: Final = "grove-operator"  # the value of MANAGED_BY

CLIQUE: Final = "grove.io/podclique"
GANG: Final = "grove.io/podgang"
SCHEDULER: Final = "grove.io/scheduler-name"  # on a PodGang: the scheduler of its pods
BASE_GANG: Final = "grove.io/base-podgang"  # on the objects of a scaled gang
REPLICA_INDEX: Final = "grove.io/podcliqueset-replica-index"
GROUP: Final = "grove.io/podcliquescalinggroup"
GROUP_REPLICA_INDEX: Final = "grove.io/podcliquescalinggroup-replica-index"
POD_INDEX: Final = "grove.io/podclique-pod-index"
TEMPLATE_HASH: Final = "grove.io/pod-template-hash"

SCHEDULING_GATE: Final = "grove.io/podgang-pending-creation"


def service_name(workload: str, replica: int) -> str:
    """The headless Service of a set replica."""
    return f"{workload}-{replica}"


def base_gang_name(workload: str, replica: int) -> str:
    """The base PodGang of a set replica: the minimum without which the replica is useless."""
    return f"{workload}-{replica}"


def clique_name(workload: str, replica: int, clique: str) -> str:
    """A standalone PodClique."""
    return f"{workload}-{replica}-{clique}"


def group_name(workload: str, replica: int, group: str) -> str:
    """A PodCliqueScalingGroup."""
    return f"{workload}-{replica}-{group}"


def group_clique_name(group: str, group_replica: int, clique: str) -> str:
    """A PodClique of a scaling-group replica; `group` is the full name of the group."""
    return f"{group}-{group_replica}-{clique}"


def scaled_gang_name(group: str, group_replica: int, min_available: int) -> str:
    """The scaled PodGang of a group replica beyond the minimum; `group` is the full name of the group.

    With minAvailable 2, replicas 0 and 1 are in the base gang, and replica 3 is in the gang `...-1`.
    """
    return f"{group}-{group_replica - min_available}"


def pod_hostname(clique: str, index: int) -> str:
    """The stable identity of a pod; `clique` is the full name of its PodClique."""
    return f"{clique}-{index}"
