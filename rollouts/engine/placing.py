"""Which waiting pod of a simulated world goes to which node: gangs whole or not at all.

`world` hands in the pods that have no gate and no node, and binds what comes back. A gang names groups of pods, each
with a minimum. While some group has fewer pods on nodes than its minimum, what all groups miss is placed together or
not at all; pods beyond the minimum follow one by one. So a surge pod without room never blocks a gang that stands.

The invariant: no node holds more than it has room for, and no gang is left between nothing and all of its minimum.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from rollouts.engine.observed import Gang, Pod

Amounts = Mapping[str, float]
"""How much of each resource: bytes, cores, devices."""

NOTHING: Amounts = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the simulated world; what is not named here is not limited."""

    name: str
    pods: int | None = None  # how many may run here
    resources: Amounts = field(default_factory=dict)


@dataclass
class Rooms:
    """The nodes and what is taken on them."""

    nodes: tuple[Node, ...]
    _pods: dict[str, int] = field(default_factory=dict)
    _taken: dict[tuple[str, str], float] = field(default_factory=dict)  # by node and resource

    def fork(self) -> "Rooms":
        """Return the same rooms, to be filled another way."""
        return Rooms(self.nodes, dict(self._pods), dict(self._taken))

    def take(self, node: str, requests: Amounts, sign: int = 1) -> None:
        """Put a pod on a node, or with sign -1 take it off again."""
        self._pods[node] = self._pods.get(node, 0) + sign
        for resource, amount in requests.items():
            key = (node, resource)
            self._taken[key] = self._taken.get(key, 0.0) + sign * amount

    def find(self, requests: Amounts) -> str | None:
        """Return the first node with room for a pod, if there is one."""
        return next((node.name for node in self.nodes if self._fits(node, requests)), None)

    def _fits(self, node: Node, requests: Amounts) -> bool:
        if node.pods is not None and self._pods.get(node.name, 0) >= node.pods:
            return False
        return all(
            amount <= node.resources.get(resource, amount) - self._taken.get((node.name, resource), 0.0)
            for resource, amount in requests.items()
            if resource in node.resources
        )


@dataclass(frozen=True, slots=True)
class Placement:
    """What one look decided."""

    bound: tuple[tuple[str, str], ...]  # pod and node, in the order decided; `rooms` holds them already
    refused: tuple[tuple[str, str], ...]  # pod and why it stays without a node


def place(
    waiting: Sequence[Pod],
    gangs: Iterable[Gang],
    pods: Mapping[str, Pod],
    rooms: Rooms,
    requests: Mapping[str, Amounts],
) -> Placement:
    """Choose nodes for the waiting pods, gang by gang, and take the room for them.

    `gangs` are those that list a waiting pod; `requests` says by name what a pod asks for, nothing where it is silent.
    """
    bound: list[tuple[str, str]] = []
    refused = {pod.name: "waits to be listed by its PodGang" for pod in waiting}
    names = frozenset(refused)
    for gang in gangs:
        minimum, spare, absent = _cut(gang, names, pods)
        if absent:
            refused.update((name, f"PodGang {gang.name} lacks pods: {absent}") for name in (*minimum, *spare))
            continue
        placed = _place_all(minimum, rooms, requests)
        if placed is None:
            text = f"no room for the {len(minimum)} pods that PodGang {gang.name} needs at once"
            refused.update((name, text) for name in (*minimum, *spare))
            continue
        bound += placed
        for name in spare:
            one = _place_all((name,), rooms, requests)
            bound += one or ()
            refused[name] = "no room on any node"
    for name, _ in bound:
        del refused[name]
    return Placement(tuple(bound), tuple(refused.items()))


def _cut(gang: Gang, waiting: frozenset[str], pods: Mapping[str, Pod]) -> tuple[list[str], list[str], str]:
    """Return the pods that the gang needs to stand, those beyond, and the group that has too few pods, if any."""
    minimum: list[str] = []
    spare: list[str] = []
    absent = ""
    for group, (min_replicas, listed) in gang.pod_groups.items():
        standing = sum(name in pods and pods[name].scheduled for name in listed)
        members = [name for name in listed if name in waiting]
        needed = max(0, min_replicas - standing)
        if len(members) < needed:
            absent = absent or f"{group} has {standing + len(members)} of {min_replicas}"
        minimum += members[:needed]
        spare += members[needed:]
    return minimum, spare, absent


def _place_all(names: Sequence[str], rooms: Rooms, requests: Mapping[str, Amounts]) -> list[tuple[str, str]] | None:
    """Return a node for each pod and take the room, or None and take nothing."""
    placed: list[tuple[str, str]] = []
    for name in names:
        node = rooms.find(requests.get(name, NOTHING))
        if node is None:
            for earlier, taken in placed:
                rooms.take(taken, requests.get(earlier, NOTHING), -1)
            return None
        rooms.take(node, requests.get(name, NOTHING))
        placed.append((name, node))
    return placed
