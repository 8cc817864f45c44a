"""The groups of a PodGang: read from its manifest, and with the number of their pods that have a node.

`placement` decides over the `GangState` that is made here. The sandbox and the forecast use the same functions, so both
agree on how far a gang is.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from rollouts.engine.scheduling.placement import GangState, NamespacedName, PodGroupState


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A group of a PodGang, as in its manifest."""

    name: str
    min_replicas: int
    members: frozenset[NamespacedName]


def parse_pod_groups(gang: Mapping[str, Any]) -> tuple[PodGroup, ...]:
    """Read the groups of a PodGang; a reference without namespace means the gang's own."""
    namespace = gang["metadata"]["namespace"]
    return tuple(
        PodGroup(
            name=group["name"],
            min_replicas=int(group.get("minReplicas") or 0),
            members=frozenset(
                (reference.get("namespace") or namespace, reference["name"])
                for reference in group.get("podReferences") or ()
            ),
        )
        for group in (gang.get("spec") or {}).get("podgroups") or ()
    )


def make_gang_state(
    key: NamespacedName, groups: Iterable[PodGroup], scheduled: AbstractSet[NamespacedName]
) -> GangState:
    """Return how far a gang is; `scheduled` are the pods that have a node and do not terminate, of any gang."""
    return GangState(
        key,
        tuple(
            PodGroupState(group.name, group.min_replicas, group.members, len(group.members & scheduled))
            for group in groups
        ),
    )
