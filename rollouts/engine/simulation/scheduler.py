"""The scheduler of a simulated cluster: it applies `scheduling.placement` to the nodes of one cluster.

`cluster` hands in the pods without gate and node, and binds the result. The minimum of a gang is placed whole or not at
all; the pods beyond it follow one by one, so a surge pod that fits no node never blocks a scheduled gang.
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
    """A node of the simulated cluster."""

    name: str
    pods: int | None = None  # the most pods that it runs; None: by `resources`
    resources: ResourceList = field(default_factory=dict)  # in thousandths
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    cordoned: bool = False
    # Whether a resource that is not named is missing, as on a real node; else it is unlimited.
    is_exhaustive: bool = False
    takes_all: bool = False  # whether it ignores the node selectors, affinity and tolerations of pods

    @property
    def has_devices(self) -> bool:
        """Whether it offers extended resources such as GPUs."""
        return has_devices(self.resources)

    @property
    def capacity(self) -> NodeCapacity:
        """Its capacity before any pod of the cluster is placed."""
        free = dict(self.resources) if self.pods is None else {**self.resources, PODS: self.pods * MILLI_PER_UNIT}
        return NodeCapacity(self, free)


class SimulatedScheduler:
    """The nodes and their free capacity."""

    def __init__(self, nodes: Sequence[SimulatedNode]) -> None:
        """Begin with empty nodes."""
        self._capacity = _make_capacity_tracker(nodes)
        self._takes_all = any(node.takes_all for node in nodes)
        self._reserved: dict[str, tuple[str, Demand]] = {}  # node and demand, by the name of the pod

    def fork(self) -> "SimulatedScheduler":
        """Return a copy that changes independently."""
        other = SimulatedScheduler(())
        other._capacity, other._reserved, other._takes_all = (
            self._capacity.fork(),
            dict(self._reserved),
            self._takes_all,
        )
        return other

    def replace(self, nodes: Sequence[SimulatedNode]) -> None:
        """Replace the nodes; pods keep their capacity on nodes that still exist."""
        self._capacity = _make_capacity_tracker(nodes)
        self._takes_all = any(node.takes_all for node in nodes)
        for node, demand in self._reserved.values():
            self._capacity.reserve(node, demand)

    def reserve(self, pod: str, node: str, demand: Demand) -> None:
        """Reserve the capacity for a pod on its node."""
        self._reserved[pod] = (node, demand)
        self._capacity.reserve(node, demand)

    def release(self, pod: str) -> None:
        """Free the capacity of a removed pod."""
        held = self._reserved.pop(pod, None)
        if held is not None:
            self._capacity.release(*held)

    def place(
        self, waiting: Sequence[Pod], gangs: Iterable[Gang], pods: Mapping[str, Pod], demands: Mapping[str, Demand]
    ) -> "Placement":
        """Choose nodes for the waiting pods and reserve the capacity.

        `gangs` are those that list a waiting pod; `demands` has the demands by pod, none for a pod that is missing.
        """
        states = {("", gang.name): _make_gang_state(gang, pods) for gang in gangs}
        gang_of = {member[1]: key for key, gang in states.items() for group in gang.groups for member in group.members}
        unplaced = {pod.name: _NOT_LISTED for pod in waiting if pod.name not in gang_of}
        found = [
            WaitingPod(
                ("", pod.name), 0, f"{pod.created:017.0f}", self._find_demand(demands, pod.name), gang_of[pod.name]
            )
            for pod in waiting
            if pod.name in gang_of
        ]
        decision = schedule_on(self._capacity, found, states)
        bound = tuple((binding.pod[1], binding.node) for binding in decision.bindings)
        for name, node in bound:
            self._reserved[name] = (node, self._find_demand(demands, name))
        unplaced.update((key[1], why) for key, why in decision.unplaced.items())
        return Placement(bound, tuple(unplaced.items()))

    def _find_demand(self, demands: Mapping[str, Demand], pod: str) -> Demand:
        demand = demands.get(pod, NO_DEMAND)
        return Demand(demand.requests) if self._takes_all else demand


@dataclass(frozen=True, slots=True)
class Placement:
    """The result of one scheduling pass."""

    bound: tuple[tuple[str, str], ...]  # pod and node, in order; the capacity is reserved already
    unplaced: tuple[tuple[str, str], ...]  # pod, and why it has no node


def read_demand(pod_spec: Mapping[str, Any]) -> Demand:
    """Return what a pod demands of a node: resources and constraints."""
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
