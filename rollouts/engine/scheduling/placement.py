"""Which waiting pod goes to which node: the decision, over values.

Both clusters that we simulate decide here: the forecast (`scheduler`) and the sandbox, whose
`controllers/scheduling.py` gathers the waiting pods, the free room of the nodes and the gangs. So a forecast and a
sandbox never disagree about room. Gated pods are not handed in at all.

Gangs. A PodGang names groups of pods, each with `minReplicas`. While some group has fewer scheduled pods than
that, the missing ones of all groups form one *minimum*: it is placed whole or not at all. Everything else is
placed pod by pod: pods without a gang, and the pods a gang has beyond its minimum (those wait until the
minimum stands).

Order. Higher priority first. Within one priority: what a gang lacks that has pods running (it lost one, or the sandbox
was killed between two bindings), then gang minimums and lone pods, then pods beyond a minimum — a spare pod of one
workload must not keep another from starting. Then the older, then the name. So the same input gives the same answer,
always.

Choice of node. The first that fits, nodes without devices first, then by name: pods without GPUs stay off the
GPU nodes, and GPU pods fill one node before they open the next, which leaves whole nodes for pods that need
whole nodes. It also makes the pass cheap: room only shrinks during a pass, so where one pod of a template
found no room, the next one need not look again. A pass costs about (distinct templates times nodes, plus
pods), not pods times nodes.

Invariants: no node is ever asked for more than it has free; no gang is left between none and all of its
minimum.
"""

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from rollouts.engine.scheduling.constraints import ANYWHERE, Constraints, Labelled, find_obstacle
from rollouts.engine.scheduling.resources import PODS, THOUSAND, Amounts

Key = tuple[str, str]
"""Namespace and name."""

NO_NODES: Final = "no nodes available to schedule pods"


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pod asks of a node. Pods of one template share one value."""

    requests: tuple[tuple[str, int], ...]  # resource → thousandths, sorted by name
    constraints: Constraints = ANYWHERE


NO_DEMAND: Final = Demand(((PODS, THOUSAND),))
"""Of a pod that requests nothing: it is one of the pods of its node all the same."""


class Machine(Labelled, Protocol):
    """What is asked of a node to choose one."""

    @property
    def has_devices(self) -> bool:
        """Whether it offers extended resources such as GPUs."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod without gates that has no node yet."""

    pod: Key
    priority: int
    created: str  # RFC 3339, as stored: it sorts as it is
    demand: Demand
    gang: Key | None = None  # the PodGang it belongs to, whether or not that exists yet


@dataclass(frozen=True, slots=True)
class Group:
    """One PodGroup of a gang."""

    name: str
    min_replicas: int
    members: frozenset[Key]  # every pod it references
    scheduled: int  # members that have a node and are not leaving


@dataclass(frozen=True, slots=True)
class Gang:
    """A PodGang and how far it is."""

    key: Key
    groups: tuple[Group, ...]

    @property
    def stands(self) -> bool:
        """Say whether every group has its minimum scheduled."""
        return all(group.scheduled >= group.min_replicas for group in self.groups)

    @property
    def has_begun(self) -> bool:
        """Say whether some pod of the gang is scheduled."""
        return any(group.scheduled for group in self.groups)


@dataclass(frozen=True, slots=True)
class Room:
    """A node and what is free on it."""

    node: Machine
    free: Amounts


@dataclass(frozen=True, slots=True)
class Binding:
    """A pod and the node it goes to."""

    pod: Key
    node: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What one pass decided."""

    bindings: tuple[Binding, ...]  # in the order they were decided; the pods of a minimum stand together
    refusals: Mapping[Key, str]  # why a pod stays without a node
    unfinished: bool  # the limit was reached: pods in neither of the two are for the next pass
    looked_at: int  # nodes examined, the measure of the work done


@dataclass(frozen=True, slots=True)
class _Unit:
    """Pods that are placed together: a gang's minimum, or one pod."""

    pods: tuple[Waiting, ...]  # never empty
    gang: Gang | None
    spare: bool  # beyond the minimum of its gang

    def rank(self) -> tuple[int, int, str, Key]:
        completes = not self.spare and self.gang is not None and self.gang.has_begun
        turn = 0 if completes else 1 + self.spare
        return -max(pod.priority for pod in self.pods), turn, self.pods[0].created, self.pods[0].pod


def schedule(
    waiting: Iterable[Waiting], rooms: Iterable[Room], gangs: Mapping[Key, Gang], *, limit: int | None = None
) -> Decision:
    """Decide where the waiting pods go; about `limit` pods at most, but a minimum is never cut."""
    return schedule_on(Board(rooms), waiting, gangs, limit=limit)


def schedule_on(
    board: "Board", waiting: Iterable[Waiting], gangs: Mapping[Key, Gang], *, limit: int | None = None
) -> Decision:
    """Decide the same on rooms that are kept from pass to pass, and take the room of the pods that are bound."""
    units, refusals = _form_units(waiting, gangs)
    bindings: list[Binding] = []
    standing = {key for key, gang in gangs.items() if gang.stands}
    for unit in sorted(units, key=_Unit.rank):
        if limit is not None and len(bindings) >= limit:
            return Decision(tuple(bindings), refusals, unfinished=True, looked_at=board.looked_at)
        if unit.gang is not None and unit.spare and unit.gang.key not in standing:
            refusals[unit.pods[0].pod] = (
                f"pod is beyond the minimum of PodGang {unit.gang.key[1]}, which is not placed yet"
            )
            continue
        placed = board.place_all([pod.demand for pod in unit.pods])
        if isinstance(placed, str):
            refusals.update(_refuse(unit, placed))
            continue
        bindings.extend(Binding(pod.pod, node) for pod, node in zip(unit.pods, placed, strict=True))
        if unit.gang is not None:
            standing.add(unit.gang.key)
    return Decision(tuple(bindings), refusals, unfinished=False, looked_at=board.looked_at)


def _refuse(unit: _Unit, reason: str) -> dict[Key, str]:
    if unit.gang is not None and len(unit.pods) > 1:
        reason += f" PodGang {unit.gang.key[1]} is placed all or nothing: {len(unit.pods)} pods need room at once."
    return {pod.pod: reason for pod in unit.pods}


def _form_units(waiting: Iterable[Waiting], gangs: Mapping[Key, Gang]) -> tuple[list[_Unit], dict[Key, str]]:
    """Cut the waiting pods into units; the second value holds the pods that cannot be tried at all."""
    units: list[_Unit] = []
    refusals: dict[Key, str] = {}
    by_gang: dict[Key, list[Waiting]] = {}
    for pod in waiting:
        if pod.gang is None:
            units.append(_Unit((pod,), None, spare=False))
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


def _form_gang_units(gang: Gang, pods: list[Waiting]) -> tuple[list[_Unit], dict[Key, str]]:
    pods = sorted(pods, key=lambda pod: (-pod.priority, pod.created, pod.pod))
    listed, unlisted = _split_by_group(gang, pods)
    refusals = {pod.pod: f"pod waits to be listed by PodGang {gang.key[1]}" for pod in unlisted}
    minimum: list[Waiting] = []
    spares: list[Waiting] = []
    for group, members in zip(gang.groups, listed, strict=True):
        needed = max(0, group.min_replicas - group.scheduled)
        if len(members) < needed:
            absent = f"pod group {group.name} has {group.scheduled + len(members)} of {group.min_replicas} pods"
            reason = f"PodGang {gang.key[1]} is placed all or nothing: {absent}"
            return [], refusals | {pod.pod: reason for group_pods in listed for pod in group_pods}
        minimum += members[:needed]
        spares += members[needed:]
    units = [_Unit((pod,), gang, spare=True) for pod in spares]
    if minimum:
        minimum.sort(key=lambda pod: (pod.created, pod.pod))
        units.append(_Unit(tuple(minimum), gang, spare=False))
    return units, refusals


def _split_by_group(gang: Gang, pods: list[Waiting]) -> tuple[list[list[Waiting]], list[Waiting]]:
    listed: list[list[Waiting]] = [[] for _ in gang.groups]
    unlisted: list[Waiting] = []
    for pod in pods:
        index = next((i for i, group in enumerate(gang.groups) if pod.pod in group.members), None)
        (unlisted if index is None else listed[index]).append(pod)
    return listed, unlisted


class Board:
    """The rooms during a pass, or from pass to pass. What is tried for a minimum that does not fit is taken back.

    `unnamed` is what is free of a resource that a room does not name: nothing in a cluster, and no end of it in a
    simulation that leaves a resource out.
    """

    def __init__(self, rooms: Iterable[Room], unnamed: float = 0) -> None:
        ordered = sorted(rooms, key=lambda room: (room.node.has_devices, room.node.name))
        self._nodes: list[Machine] = [room.node for room in ordered]
        self._free: list[dict[str, float]] = [dict(room.free) for room in ordered]
        self._unnamed = unnamed
        self._position = {node.name: position for position, node in enumerate(self._nodes)}
        self._candidates: dict[Demand, list[int]] = {}  # nodes its constraints allow, in order of preference
        self._obstacles: dict[Constraints, tuple[list[int], Counter[str]]] = {}
        # Candidates before this have no room for it, but for those that something has left since, by position.
        self._cursor: dict[Demand, int] = {}
        self._freed: dict[Demand, list[int]] = {}
        # Sets of demands that found no room earlier in this pass: a hundred gangs of one template that do not
        # fit cost as much as one.
        self._refused: dict[frozenset[tuple[Demand, int]], str] = {}
        self.looked_at = 0

    def fork(self) -> "Board":
        """Return the same rooms, to be filled another way."""
        other = Board((), self._unnamed)
        other._nodes, other._position = self._nodes, self._position
        other._free = [dict(free) for free in self._free]
        other._candidates, other._obstacles = dict(self._candidates), dict(self._obstacles)
        # What found no room is looked for again from the beginning: the same is found.
        return other

    def hold(self, node: str, demand: Demand) -> None:
        """Take the room of a pod that is on a node already; a node that is not among the rooms has none to take."""
        if node in self._position:
            self._take(self._position[node], demand, 1)

    def release(self, node: str, demand: Demand) -> None:
        """Free the room of a pod that has left its node: what found no room before may find some now."""
        if node in self._position:
            self._take(self._position[node], demand, -1)
            self._note_freed(self._position[node])
            self._refused.clear()

    def place_all(self, demands: Sequence[Demand]) -> list[str] | str:
        """Place every demand and give the node names in the same order, or place none and give the reason."""
        shape = frozenset(Counter(demands).items())
        if shape in self._refused:
            return self._refused[shape]
        taken: list[tuple[int, Demand]] = []
        cursors = {demand: self._cursor.get(demand, 0) for demand in demands}
        for demand in demands:
            index = self._find(demand)
            if index is None:
                self._refused[shape] = self._explain(demand)
                self._take_back(taken, cursors)
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
        self.looked_at += 1
        free = self._free[index]
        return all(free.get(name, self._unnamed) >= amount for name, amount in demand.requests)

    def _note_freed(self, index: int) -> None:
        """Have a node looked at again by whoever found no room on it."""
        for demand, cursor in self._cursor.items():
            candidates = self._candidates_of(demand)
            position = bisect_left(candidates, index)
            if position < cursor and candidates[position] == index:
                heapq.heappush(self._freed.setdefault(demand, []), position)

    def _take(self, index: int, demand: Demand, sign: int) -> None:
        free = self._free[index]
        for name, amount in demand.requests:
            free[name] = free.get(name, self._unnamed) - sign * amount

    def _take_back(self, taken: list[tuple[int, Demand]], cursors: dict[Demand, int]) -> None:
        if taken:
            self._cursor.update(cursors)
        for index, demand in taken:
            self._take(index, demand, -1)
            self._note_freed(index)

    def _candidates_of(self, demand: Demand) -> list[int]:
        if demand not in self._candidates:
            self._candidates[demand] = self._sift(demand.constraints)[0]
        return self._candidates[demand]

    def _sift(self, constraints: Constraints) -> tuple[list[int], Counter[str]]:
        """Split the nodes into those allowed and, counted by reason, those that are not."""
        if constraints not in self._obstacles:
            allowed: list[int] = []
            reasons: Counter[str] = Counter()
            for index, node in enumerate(self._nodes):
                self.looked_at += 1
                obstacle = find_obstacle(constraints, node)
                if obstacle is None:
                    allowed.append(index)
                else:
                    reasons[obstacle] += 1
            self._obstacles[constraints] = (allowed, reasons)
        return self._obstacles[constraints]

    def _explain(self, demand: Demand) -> str:
        """Word the refusal as the Kubernetes scheduler does: nodes counted by reason, in the order of the
        text.
        """
        if not self._nodes:
            return NO_NODES
        allowed, obstacles = self._sift(demand.constraints)
        reasons = Counter(obstacles)
        for index in allowed:
            free = self._free[index]
            reasons.update(
                _shortage(name) for name, amount in demand.requests if free.get(name, self._unnamed) < amount
            )
        counted = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
        return f"0/{len(self._nodes)} nodes are available: {counted}."


def _shortage(resource: str) -> str:
    return "Too many pods" if resource == PODS else f"Insufficient {resource}"
