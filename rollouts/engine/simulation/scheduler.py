"""Which waiting pod of a simulated world goes to which node: the rule of `placement`, kept over one world's nodes.

`cluster` hands in the pods that have no gate and no node, and binds what comes back. Gangs are placed whole or not at
all; pods beyond a gang's minimum follow one by one, so a surge pod without room never blocks a gang that stands.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rollouts.engine.model.observed import Gang, Pod
from rollouts.engine.scheduling.constraints import Taint, parse_constraints
from rollouts.engine.scheduling.placement import (
    NO_DEMAND,
    CapacityTracker,
    Demand,
    GangState,
    NodeCapacity,
    WaitingPod,
    schedule_on,
)
from rollouts.engine.scheduling.pod_groups import PodGroup, make_gang_state
from rollouts.engine.scheduling.resources import MILLI_PER_UNIT, PODS, ResourceList, compute_requests, has_devices

_NOT_LISTED: Final = "waits to be listed by its PodGang"


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """A node of the simulated world."""

    name: str
    pods: int | None = None  # how many may run here; None: what `resources` says
    resources: ResourceList = field(default_factory=dict)  # in thousandths
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    cordoned: bool = False
    # Whether it offers only what is named here, as a real node does; else what is not named is not limited.
    is_exhaustive: bool = False
    takes_all: bool = False  # whether pods may be here whatever labels they select and taints they tolerate

    @property
    def has_devices(self) -> bool:
        """Whether it offers extended resources such as GPUs."""
        return has_devices(self.resources)

    @property
    def capacity(self) -> NodeCapacity:
        """What is free on it while no pod of the world runs there."""
        free = dict(self.resources) if self.pods is None else {**self.resources, PODS: self.pods * MILLI_PER_UNIT}
        return NodeCapacity(self, free)


class SimulatedScheduler:
    """The nodes and what is free on them."""

    def __init__(self, nodes: Sequence[SimulatedNode]) -> None:
        """Begin with nodes on which nothing of the world runs."""
        self._capacity = _make_capacity_tracker(nodes)
        self._takes_all = any(node.takes_all for node in nodes)
        self._reserved: dict[str, tuple[str, Demand]] = {}  # node and demand, by the name of the pod

    def fork(self) -> "SimulatedScheduler":
        """Return the same rooms, to be filled another way."""
        other = SimulatedScheduler(())
        other._capacity, other._reserved, other._takes_all = (
            self._capacity.fork(),
            dict(self._reserved),
            self._takes_all,
        )
        return other

    def replace(self, nodes: Sequence[SimulatedNode]) -> None:
        """Go on with other nodes; pods keep the node that they are on, as far as it is still there."""
        self._capacity = _make_capacity_tracker(nodes)
        self._takes_all = any(node.takes_all for node in nodes)
        for node, demand in self._reserved.values():
            self._capacity.reserve(node, demand)

    def reserve(self, pod: str, node: str, demand: Demand) -> None:
        """Take the room of a pod that is on a node."""
        self._reserved[pod] = (node, demand)
        self._capacity.reserve(node, demand)

    def release(self, pod: str) -> None:
        """Free the room of a pod that is gone."""
        held = self._reserved.pop(pod, None)
        if held is not None:
            self._capacity.release(*held)

    def place(
        self, waiting: Sequence[Pod], gangs: Iterable[Gang], pods: Mapping[str, Pod], demands: Mapping[str, Demand]
    ) -> "Placement":
        """Choose nodes for the waiting pods and take the room for them.

        `gangs` are those that list a waiting pod; `demands` says by name what a pod requests, nothing where it is
        silent.
        """
        standing = {("", gang.name): _make_gang_state(gang, pods) for gang in gangs}
        gang_of = {
            member[1]: key for key, gang in standing.items() for group in gang.groups for member in group.members
        }
        refused = {pod.name: _NOT_LISTED for pod in waiting if pod.name not in gang_of}
        found = [
            WaitingPod(
                ("", pod.name), 0, f"{pod.created:017.0f}", self._find_demand(demands, pod.name), gang_of[pod.name]
            )
            for pod in waiting
            if pod.name in gang_of
        ]
        decision = schedule_on(self._capacity, found, standing)
        bound = tuple((binding.pod[1], binding.node) for binding in decision.bindings)
        for name, node in bound:
            self._reserved[name] = (node, self._find_demand(demands, name))
        refused.update((key[1], why) for key, why in decision.unplaced.items())
        return Placement(bound, tuple(refused.items()))

    def _find_demand(self, demands: Mapping[str, Demand], pod: str) -> Demand:
        demand = demands.get(pod, NO_DEMAND)
        return Demand(demand.requests) if self._takes_all else demand


@dataclass(frozen=True, slots=True)
class Placement:
    """What one look decided."""

    bound: tuple[tuple[str, str], ...]  # pod and node, in the order decided; `SimulatedScheduler` holds them already
    unplaced: tuple[tuple[str, str], ...]  # pod and why it stays without a node


def read_demand(pod_spec: Mapping[str, Any]) -> Demand:
    """Return what a pod asks of its node: room, and what kind of node."""
    return Demand(tuple(sorted(compute_requests(pod_spec).items())), parse_constraints(pod_spec))


def _make_capacity_tracker(nodes: Sequence[SimulatedNode]) -> CapacityTracker:
    is_closed = any(node.is_exhaustive for node in nodes)
    return CapacityTracker([node.capacity for node in nodes], unnamed=0 if is_closed else math.inf)


def _make_gang_state(gang: Gang, pods: Mapping[str, Pod]) -> GangState:
    groups = [
        PodGroup(name, min_replicas, frozenset(("", pod) for pod in listed))
        for name, (min_replicas, listed) in gang.pod_groups.items()
    ]
    listed_pods = (pod for _, listed in gang.pod_groups.values() for pod in listed)
    scheduled = {("", pod) for pod in listed_pods if pod in pods and pods[pod].scheduled}
    return make_gang_state(("", gang.name), groups, scheduled)
