"""Which waiting pod goes to which node.

The simulated cluster of a forecast (`simulation.scheduler`) and the scheduler of the sandbox both decide here, so they
never disagree about capacity. Callers hand in the waiting pods without gates, the free capacity of the nodes, and the
gangs.

Gangs. A PodGang names groups of pods, each with `minReplicas`. While some group has fewer scheduled pods than
that, the missing ones of all groups form one *minimum*: it is placed whole or not at all. Everything else is
placed pod by pod: pods without a gang, and the pods a gang has beyond its minimum (those wait until the
minimum is scheduled).

Order. Higher priority first. Within one priority: what a gang lacks that has pods running (it lost one, or the sandbox
was killed between two bindings), then gang minimums and lone pods, then pods beyond a minimum — a spare pod of one
workload must not keep another from starting. Then the older, then the name. So the same input gives the same answer,
always.

Choice of node. The first that fits, nodes without devices first, then by name: pods without GPUs stay off the
GPU nodes, and GPU pods fill one node before they open the next, which leaves whole nodes for pods that need
whole nodes. It also makes the pass cheap: capacity only shrinks during a pass, so a node that one pod of a template
did not fit is not examined again for the next. A pass costs about (distinct templates times nodes, plus
pods), not pods times nodes.

Invariants: no node gets more than its free capacity; no gang has only a part of its minimum placed.
"""

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from rollouts.engine.scheduling.constraints import ANYWHERE, Constraints, NodeProperties, find_unmet_constraint
from rollouts.engine.scheduling.resources import MILLI_PER_UNIT, PODS, ResourceList

NamespacedName = tuple[str, str]
"""Namespace and name."""

NO_NODES: Final = "no nodes available to schedule pods"


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pod demands of a node. Pods of one template share one value."""

    requests: tuple[tuple[str, int], ...]  # resource → thousandths, sorted by name
    constraints: Constraints = ANYWHERE


NO_DEMAND: Final = Demand(((PODS, MILLI_PER_UNIT),))
"""The demand of a pod without requests: it still counts as one of the pods of its node."""


class SchedulableNode(NodeProperties, Protocol):
    """What the choice of a node depends on."""

    @property
    def has_devices(self) -> bool:
        """Whether it offers extended resources such as GPUs."""


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod without gates that has no node yet."""

    pod: NamespacedName
    priority: int
    created: str  # RFC 3339, as stored, which sorts by time
    demand: Demand
    gang: NamespacedName | None = None  # the PodGang it belongs to, whether or not that exists yet


@dataclass(frozen=True, slots=True)
class PodGroupState:
    """One PodGroup of a gang."""

    name: str
    min_replicas: int
    members: frozenset[NamespacedName]  # every pod it references
    scheduled: int  # members that have a node and are not terminating


@dataclass(frozen=True, slots=True)
class GangState:
    """A PodGang and how many of its pods are scheduled."""

    key: NamespacedName
    groups: tuple[PodGroupState, ...]

    @property
    def has_minimum(self) -> bool:
        """Whether every group has its minimum scheduled."""
        return all(group.scheduled >= group.min_replicas for group in self.groups)

    @property
    def has_scheduled_pods(self) -> bool:
        """Whether some pod of the gang is scheduled."""
        return any(group.scheduled for group in self.groups)


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """A node and its free capacity."""

    node: SchedulableNode
    free: ResourceList


@dataclass(frozen=True, slots=True)
class Binding:
    """A pod and the node it goes to."""

    pod: NamespacedName
    node: str


@dataclass(frozen=True, slots=True)
class SchedulingDecision:
    """What one pass decided."""

    bindings: tuple[Binding, ...]  # in order; the pods of a minimum are consecutive
    unplaced: Mapping[NamespacedName, str]  # why a pod has no node
    is_cut_short: bool  # the limit was reached; the remaining pods are for the next pass
    nodes_examined: int  # the measure of the work done


@dataclass(frozen=True, slots=True)
class _PlacementUnit:
    """Pods that are placed together: a gang's minimum, or one pod."""

    pods: tuple[WaitingPod, ...]  # never empty
    gang: GangState | None
    is_beyond_minimum: bool  # beyond the minimum of its gang

    def rank(self) -> tuple[int, int, str, NamespacedName]:
        completes = not self.is_beyond_minimum and self.gang is not None and self.gang.has_scheduled_pods
        turn = 0 if completes else 1 + self.is_beyond_minimum
        return -max(pod.priority for pod in self.pods), turn, self.pods[0].created, self.pods[0].pod


def schedule(
    waiting: Iterable[WaitingPod],
    rooms: Iterable[NodeCapacity],
    gangs: Mapping[NamespacedName, GangState],
    *,
    limit: int | None = None,
) -> SchedulingDecision:
    """Choose nodes for the waiting pods; for about `limit` pods at most, but never for a part of a minimum."""
    return schedule_on(CapacityTracker(rooms), waiting, gangs, limit=limit)


def schedule_on(
    tracker: "CapacityTracker",
    waiting: Iterable[WaitingPod],
    gangs: Mapping[NamespacedName, GangState],
    *,
    limit: int | None = None,
) -> SchedulingDecision:
    """Do the same with a tracker that is kept between passes, and reserve the capacity of the bound pods."""
    units, refusals = _form_units(waiting, gangs)
    bindings: list[Binding] = []
    standing = {key for key, gang in gangs.items() if gang.has_minimum}
    for unit in sorted(units, key=_PlacementUnit.rank):
        if limit is not None and len(bindings) >= limit:
            return SchedulingDecision(
                tuple(bindings), refusals, is_cut_short=True, nodes_examined=tracker.nodes_examined
            )
        if unit.gang is not None and unit.is_beyond_minimum and unit.gang.key not in standing:
            refusals[unit.pods[0].pod] = (
                f"pod is beyond the minimum of PodGang {unit.gang.key[1]}, which is not placed yet"
            )
            continue
        placed = tracker.place_all([pod.demand for pod in unit.pods])
        if isinstance(placed, str):
            refusals.update(_explain_unplaced(unit, placed))
            continue
        bindings.extend(Binding(pod.pod, node) for pod, node in zip(unit.pods, placed, strict=True))
        if unit.gang is not None:
            standing.add(unit.gang.key)
    return SchedulingDecision(tuple(bindings), refusals, is_cut_short=False, nodes_examined=tracker.nodes_examined)


def _explain_unplaced(unit: _PlacementUnit, reason: str) -> dict[NamespacedName, str]:
    if unit.gang is not None and len(unit.pods) > 1:
        reason += f" PodGang {unit.gang.key[1]} is placed all or nothing: {len(unit.pods)} pods need room at once."
    return {pod.pod: reason for pod in unit.pods}


def _form_units(
    waiting: Iterable[WaitingPod], gangs: Mapping[NamespacedName, GangState]
) -> tuple[list[_PlacementUnit], dict[NamespacedName, str]]:
    """Cut the waiting pods into units; the second value holds the pods that cannot be tried at all."""
    units: list[_PlacementUnit] = []
    refusals: dict[NamespacedName, str] = {}
    by_gang: dict[NamespacedName, list[WaitingPod]] = {}
    for pod in waiting:
        if pod.gang is None:
            units.append(_PlacementUnit((pod,), None, is_beyond_minimum=False))
        else:
            by_gang.setdefault(pod.gang, []).append(pod)
    for key, pods in by_gang.items():
        gang = gangs.get(key)
        if gang is None:
            refusals.update((pod.pod, f"pod waits for PodGang {key[1]}, which does not exist") for pod in pods)
            continue
        gang_units, gang_refusals = _form_gang_units(gang, pods)
        units.extend(gang_units)
        refusals.update(gang_refusals)
    return units, refusals


def _form_gang_units(gang: GangState, pods: list[WaitingPod]) -> tuple[list[_PlacementUnit], dict[NamespacedName, str]]:
    pods = sorted(pods, key=lambda pod: (-pod.priority, pod.created, pod.pod))
    listed, unlisted = _split_by_group(gang, pods)
    refusals = {pod.pod: f"pod waits to be listed by PodGang {gang.key[1]}" for pod in unlisted}
    minimum: list[WaitingPod] = []
    spares: list[WaitingPod] = []
    for group, members in zip(gang.groups, listed, strict=True):
        needed = max(0, group.min_replicas - group.scheduled)
        if len(members) < needed:
            absent = f"pod group {group.name} has {group.scheduled + len(members)} of {group.min_replicas} pods"
            reason = f"PodGang {gang.key[1]} is placed all or nothing: {absent}"
            return [], refusals | {pod.pod: reason for group_pods in listed for pod in group_pods}
        minimum += members[:needed]
        spares += members[needed:]
    units = [_PlacementUnit((pod,), gang, is_beyond_minimum=True) for pod in spares]
    if minimum:
        minimum.sort(key=lambda pod: (pod.created, pod.pod))
        units.append(_PlacementUnit(tuple(minimum), gang, is_beyond_minimum=False))
    return units, refusals


def _split_by_group(gang: GangState, pods: list[WaitingPod]) -> tuple[list[list[WaitingPod]], list[WaitingPod]]:
    listed: list[list[WaitingPod]] = [[] for _ in gang.groups]
    unlisted: list[WaitingPod] = []
    for pod in pods:
        index = next((i for i, group in enumerate(gang.groups) if pod.pod in group.members), None)
        (unlisted if index is None else listed[index]).append(pod)
    return listed, unlisted


class CapacityTracker:
    """The rooms during a pass, or from pass to pass. What is tried for a minimum that does not fit is taken back.

    `unnamed` is what is free of a resource that a room does not name: nothing in a cluster, and no end of it in a
    simulation that leaves a resource out.
    """

    def __init__(self, rooms: Iterable[NodeCapacity], unnamed: float = 0) -> None:
        ordered = sorted(rooms, key=lambda room: (room.node.has_devices, room.node.name))
        self._nodes: list[SchedulableNode] = [room.node for room in ordered]
        self._free: list[dict[str, float]] = [dict(room.free) for room in ordered]
        self._unnamed = unnamed
        self._position = {node.name: position for position, node in enumerate(self._nodes)}
        self._candidates: dict[Demand, list[int]] = {}  # nodes its constraints allow, in order of preference
        self._filtered: dict[Constraints, tuple[list[int], Counter[str]]] = {}
        # Candidates before this position do not fit it, except those where a pod has left since.
        self._cursor: dict[Demand, int] = {}
        self._freed: dict[Demand, list[int]] = {}
        # Sets of demands that did not fit earlier in this pass: a hundred gangs of one template that do not fit cost as
        # much as one.
        self._refused: dict[frozenset[tuple[Demand, int]], str] = {}
        self.nodes_examined = 0

    def fork(self) -> "CapacityTracker":
        """Return a copy that changes independently."""
        other = CapacityTracker((), self._unnamed)
        other._nodes, other._position = self._nodes, self._position
        other._free = [dict(free) for free in self._free]
        other._candidates, other._filtered = dict(self._candidates), dict(self._filtered)
        # The cursors start again at the beginning and end at the same nodes.
        return other

    def reserve(self, node: str, demand: Demand) -> None:
        """Reserve the capacity for a pod that is on a node; an unknown node is ignored."""
        if node in self._position:
            self._take(self._position[node], demand, 1)

    def release(self, node: str, demand: Demand) -> None:
        """Free the capacity of a pod that left its node: demands that did not fit may fit now."""
        if node in self._position:
            self._take(self._position[node], demand, -1)
            self._reconsider_node(self._position[node])
            self._refused.clear()

    def place_all(self, demands: Sequence[Demand]) -> list[str] | str:
        """Place every demand and return the node names in the same order, or place none and return the reason."""
        shape = frozenset(Counter(demands).items())
        if shape in self._refused:
            return self._refused[shape]
        taken: list[tuple[int, Demand]] = []
        cursors = {demand: self._cursor.get(demand, 0) for demand in demands}
        for demand in demands:
            index = self._find(demand)
            if index is None:
                self._refused[shape] = self._explain(demand)
                self._undo(taken, cursors)
                return self._refused[shape]
            self._take(index, demand, 1)
            taken.append((index, demand))
        return [self._nodes[index].name for index, _ in taken]

    def _find(self, demand: Demand) -> int | None:
        candidates = self._candidates_of(demand)
        freed = self._freed.get(demand)
        while freed:
            if self._fits(candidates[freed[0]], demand):
                return candidates[freed[0]]
            heapq.heappop(freed)
        for position in range(self._cursor.get(demand, 0), len(candidates)):
            if self._fits(candidates[position], demand):
                self._cursor[demand] = position
                return candidates[position]
        self._cursor[demand] = len(candidates)
        return None

    def _fits(self, index: int, demand: Demand) -> bool:
        self.nodes_examined += 1
        free = self._free[index]
        return all(free.get(name, self._unnamed) >= amount for name, amount in demand.requests)

    def _reconsider_node(self, index: int) -> None:
        """Examine a node again for every demand that did not fit it."""
        for demand, cursor in self._cursor.items():
            candidates = self._candidates_of(demand)
            position = bisect_left(candidates, index)
            if position < cursor and candidates[position] == index:
                heapq.heappush(self._freed.setdefault(demand, []), position)

    def _take(self, index: int, demand: Demand, sign: int) -> None:
        free = self._free[index]
        for name, amount in demand.requests:
            free[name] = free.get(name, self._unnamed) - sign * amount

    def _undo(self, taken: list[tuple[int, Demand]], cursors: dict[Demand, int]) -> None:
        if taken:
            self._cursor.update(cursors)
        for index, demand in taken:
            self._take(index, demand, -1)
            self._reconsider_node(index)

    def _candidates_of(self, demand: Demand) -> list[int]:
        if demand not in self._candidates:
            self._candidates[demand] = self._filter_nodes(demand.constraints)[0]
        return self._candidates[demand]

    def _filter_nodes(self, constraints: Constraints) -> tuple[list[int], Counter[str]]:
        """Return the allowed nodes, and the others counted by reason."""
        if constraints not in self._filtered:
            allowed: list[int] = []
            reasons: Counter[str] = Counter()
            for index, node in enumerate(self._nodes):
                self.nodes_examined += 1
                obstacle = find_unmet_constraint(constraints, node)
                if obstacle is None:
                    allowed.append(index)
                else:
                    reasons[obstacle] += 1
            self._filtered[constraints] = (allowed, reasons)
        return self._filtered[constraints]

    def _explain(self, demand: Demand) -> str:
        """Render the refusal as the Kubernetes scheduler does: nodes counted by reason, sorted by text."""
        if not self._nodes:
            return NO_NODES
        allowed, obstacles = self._filter_nodes(demand.constraints)
        reasons = Counter(obstacles)
        for index in allowed:
            free = self._free[index]
            reasons.update(
                _render_shortage(name) for name, amount in demand.requests if free.get(name, self._unnamed) < amount
            )
        counted = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
        return f"0/{len(self._nodes)} nodes are available: {counted}."


def _render_shortage(resource: str) -> str:
    return "Too many pods" if resource == PODS else f"Insufficient {resource}"
