"""Which waiting pod of a simulated world goes to which node: the rule of `scheduler`, kept over one world's nodes.

`seed` hands in the pods that have no gate and no node, and binds what comes back. Gangs are placed whole or not at
all; pods beyond a gang's minimum follow one by one, so a surge pod without room never blocks a gang that stands.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rollouts.engine.model.observed import Gang, Pod
from rollouts.engine.scheduling.constraints import Taint, parse_constraints
from rollouts.engine.scheduling.placement import NO_DEMAND, Board, Demand, Room, Waiting, schedule_on
from rollouts.engine.scheduling.placement import Gang as StandingGang
from rollouts.engine.scheduling.placement import Group as StandingGroup
from rollouts.engine.scheduling.resources import PODS, THOUSAND, Amounts, compute_requests, has_devices

_UNLISTED: Final = "waits to be listed by its PodGang"


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the simulated world."""

    name: str
    pods: int | None = None  # how many may run here; None: what `handlers` says
    resources: Amounts = field(default_factory=dict)  # in thousandths
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    cordoned: bool = False
    # Whether it offers only what is named here, as a real node does; else what is not named is not limited.
    is_closed: bool = False
    takes_all: bool = False  # whether pods may be here whatever labels they select and taints they tolerate

    @property
    def has_devices(self) -> bool:
        """Whether it offers extended resources such as GPUs."""
        return has_devices(self.resources)

    @property
    def room(self) -> Room:
        """What is free on it while no pod of the world runs there."""
        free = dict(self.resources) if self.pods is None else {**self.resources, PODS: self.pods * THOUSAND}
        return Room(self, free)


class Rooms:
    """The nodes and what is free on them."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        """Begin with nodes on which nothing of the world runs."""
        self._board = _make_board(nodes)
        self._takes_all = any(node.takes_all for node in nodes)
        self._held: dict[str, tuple[str, Demand]] = {}  # node and demand, by the name of the pod

    def fork(self) -> "Rooms":
        """Return the same rooms, to be filled another way."""
        other = Rooms(())
        other._board, other._held, other._takes_all = self._board.fork(), dict(self._held), self._takes_all
        return other

    def replace(self, nodes: Sequence[Node]) -> None:
        """Go on with other nodes; pods keep the node that they are on, as far as it is still there."""
        self._board = _make_board(nodes)
        self._takes_all = any(node.takes_all for node in nodes)
        for node, demand in self._held.values():
            self._board.hold(node, demand)

    def hold(self, pod: str, node: str, demand: Demand) -> None:
        """Take the room of a pod that is on a node."""
        self._held[pod] = (node, demand)
        self._board.hold(node, demand)

    def release(self, pod: str) -> None:
        """Free the room of a pod that is gone."""
        held = self._held.pop(pod, None)
        if held is not None:
            self._board.release(*held)

    def place(
        self, waiting: Sequence[Pod], gangs: Iterable[Gang], pods: Mapping[str, Pod], demands: Mapping[str, Demand]
    ) -> "Placement":
        """Choose nodes for the waiting pods and take the room for them.

        `podgang` are those that list a waiting pod; `demands` says by name what a pod requests, nothing where it is
        silent.
        """
        standing = {("", gang.name): _stand(gang, pods) for gang in gangs}
        gang_of = {
            member[1]: key for key, gang in standing.items() for group in gang.groups for member in group.members
        }
        refused = {pod.name: _UNLISTED for pod in waiting if pod.name not in gang_of}
        found = [
            Waiting(("", pod.name), 0, f"{pod.created:017.0f}", self._read(demands, pod.name), gang_of[pod.name])
            for pod in waiting
            if pod.name in gang_of
        ]
        decision = schedule_on(self._board, found, standing)
        bound = tuple((binding.pod[1], binding.node) for binding in decision.bindings)
        for name, node in bound:
            self._held[name] = (node, self._read(demands, name))
        refused.update((key[1], why) for key, why in decision.refusals.items())
        return Placement(bound, tuple(refused.items()))

    def _read(self, demands: Mapping[str, Demand], pod: str) -> Demand:
        demand = demands.get(pod, NO_DEMAND)
        return Demand(demand.requests) if self._takes_all else demand


@dataclass(frozen=True, slots=True)
class Placement:
    """What one look decided."""

    bound: tuple[tuple[str, str], ...]  # pod and node, in the order decided; `Rooms` holds them already
    refused: tuple[tuple[str, str], ...]  # pod and why it stays without a node


def read_demand(pod_spec: Mapping[str, Any]) -> Demand:
    """Return what a pod asks of its node: room, and what kind of node."""
    return Demand(tuple(sorted(compute_requests(pod_spec).items())), parse_constraints(pod_spec))


def _make_board(nodes: Sequence[Node]) -> Board:
    is_closed = any(node.is_closed for node in nodes)
    return Board([node.room for node in nodes], unnamed=0 if is_closed else math.inf)


def _stand(gang: Gang, pods: Mapping[str, Pod]) -> StandingGang:
    groups = tuple(
        StandingGroup(
            name=name,
            min_replicas=min_replicas,
            members=frozenset(("", pod) for pod in listed),
            scheduled=sum(pod in pods and pods[pod].scheduled for pod in listed),
        )
        for name, (min_replicas, listed) in gang.pod_groups.items()
    )
    return StandingGang(("", gang.name), groups)
