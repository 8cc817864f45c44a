"""A simulated cluster: it applies the actions of a plan the way a cluster would, and lets time pass.

`simulate` plans, applies the actions here, observes the objects and plans again. Nothing reads a clock: `now` is a
number, and `advance` moves it to the next event. The invariant: the same objects and the same actions always end in the
same state.

It simulates uids and resourceVersions, so that a late write is refused; names that are taken until their object is
gone; garbage collection; pods that take time to terminate; scheduling gates; gangs that are scheduled whole or not at
all, on nodes with limited capacity (`scheduler`); pods that take time to become Ready, or never do. It leaves out
images, probes, eviction, and the order in which the cliques of a gang start.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, Self, TypeAlias

from rollouts.engine.model import names
from rollouts.engine.model.actions import Action, Create, Delete, Kind, Patch, RemoveGate, WriteStatus
from rollouts.engine.model.observed import TERMINAL_PHASES, Clique, Gang, Group, Observed, Pod, Service
from rollouts.engine.model.values import fast_replace
from rollouts.engine.scheduling.placement import NO_DEMAND, Demand
from rollouts.engine.simulation import objects
from rollouts.engine.simulation.scheduler import SimulatedNode, SimulatedScheduler, read_demand

UNLIMITED_NODES: Final = (SimulatedNode("node", takes_all=True),)

TemplateKey: TypeAlias = tuple[str, str]
"""Name of a clique of the template, and a template hash: cliques with equal templates have equal hashes."""

# The replica of a pod whose PodClique was gone from the start.
UNKNOWN_REPLICA: Final = -1

# The default grace period of a pod, as the API server sets it.
GRACE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class ClusterBehaviour:
    """How a simulated cluster behaves."""

    nodes: tuple[SimulatedNode, ...] = UNLIMITED_NODES
    # From the binding of a pod until it is Ready; `ready_seconds_of` overrides it by clique of the template, template
    # hash, or both.
    ready_seconds: float = 30.0
    ready_seconds_of: Mapping[str | TemplateKey, float] = field(default_factory=dict)
    # How long pods that exist already have been on their node, by name, where it is known.
    seconds_on_node: Mapping[str, float] = field(default_factory=dict)
    # What never becomes Ready: template hashes, also of one clique only, pods by name, or pods and their successors by
    # hostname.
    never_ready: frozenset[str | TemplateKey] = frozenset()
    # From the deletion of a pod until it is gone; a pod without a node is gone at once.
    termination_seconds: float = 5.0
    # From the deletion of an owner until garbage collection deletes what it owned.
    garbage_collection_seconds: float = 0.0
    # Whether owners are deleted in the foreground: they terminate until everything that they own is gone.
    foreground_deletion: bool = False


@dataclass(frozen=True, slots=True)
class RejectedWrite:
    """A write that the cluster refused."""

    action: Action
    reason: str  # AlreadyExists, Conflict, NotFound: the words of the API


class _TimerEvent(IntEnum):
    STARTED = 0
    TERMINATED = 1
    GARBAGE_COLLECT = 2


ClusterObject = Clique | Group | Gang | Service | Pod

_NO_OBJECTS: Final[Mapping[tuple[Kind, str], ClusterObject]] = {}

_PATCHES: Final[Mapping[Kind, Callable[[Any, Mapping[str, Any], str], ClusterObject]]] = {
    Kind.CLIQUE: objects.patch_clique,
    Kind.GROUP: objects.patch_group,
    Kind.GANG: objects.patch_gang,
}


class SimulatedCluster:
    """The objects of one workload in a simulated cluster."""

    def __init__(
        self,
        observed: Observed,
        behaviour: ClusterBehaviour,
        now: float = 0.0,
        demands: Mapping[str, Demand] | None = None,
    ) -> None:
        """Start with the observed objects; `demands` has by name what the observed pods demand of a node."""
        self.now = now
        self.status: Mapping[str, Any] = observed.status
        self._behaviour = behaviour
        self._tables: dict[Kind, dict[str, Any]] = {
            Kind.GROUP: {group.name: group for group in observed.groups},
            Kind.CLIQUE: {clique.name: clique for clique in observed.cliques},
            Kind.GANG: {gang.name: gang for gang in observed.gangs},
            Kind.SERVICE: {service.name: service for service in observed.services},
            Kind.POD: {pod.name: pod for pod in observed.pods},
        }
        self._scheduler = SimulatedScheduler(behaviour.nodes)
        self._demands: dict[str, Demand] = dict(demands or {})
        self._timers: list[tuple[float, int, _TimerEvent, str, str]] = []
        self._objects_created = _highest_uid(observed)  # the counter behind uids
        self._writes = 0  # the counter behind resourceVersions and the order of events
        self._owned: dict[str, dict[str, Kind]] = {}  # names and kinds by the uid of the owner
        self._owner: dict[str, str] = {}  # uid of the owner by uid
        self._terminating_owners: dict[str, tuple[Kind, str]] = {}  # by uid; they are removed after what they own
        self._replica_of: dict[str, int] = {}  # of the set, by the name of a PodClique, also of removed ones
        self._replica_of_pod: dict[str, int] = {}  # of the set, by the name of a pod; it never changes
        self._of_replica: dict[int, dict[tuple[Kind, str], ClusterObject]] = {}  # the objects of each replica
        self._journal: list[int] = []  # the replica of each changed object, in order
        self._gang_of: dict[str, str] = {}  # by the name of a pod
        self._waiting: dict[str, None] = {}  # pods without gate and node, oldest first
        self._import_observed(observed)

    def fork(self) -> Self:
        """Return a copy that changes independently."""
        other = copy(self)
        vars(other).update((name, _copy_table(value)) for name, value in vars(self).items())
        return other

    def observed(self) -> Observed:
        """Return all objects."""
        return self._observe({kind: table.values() for kind, table in self._tables.items()})

    def observed_replicas(self, indices: Iterable[int]) -> Observed:
        """Return the objects of some replicas of the set, without going through the others."""
        found: dict[Kind, list[Any]] = {kind: [] for kind in self._tables}
        for index in indices:
            for (kind, _), thing in self._of_replica.get(index, _NO_OBJECTS).items():
                found[kind].append(thing)
        return self._observe(found)

    def _observe(self, found: Mapping[Kind, Iterable[Any]]) -> Observed:
        return Observed(
            status=self.status,
            cliques=tuple(found[Kind.CLIQUE]),
            groups=tuple(found[Kind.GROUP]),
            gangs=tuple(found[Kind.GANG]),
            services=tuple(found[Kind.SERVICE]),
            pods=tuple(found[Kind.POD]),
        )

    @property
    def journal_position(self) -> int:
        """The end of the journal; every later change comes after it."""
        return len(self._journal)

    def replicas_changed_since(self, position: int) -> set[int]:
        """Return the replicas that changed since a journal position; `UNKNOWN_REPLICA` for objects without one."""
        return {*self._journal[position:]}

    @property
    def has_unknown_replica(self) -> bool:
        """Whether an object exists whose replica is not known."""
        return bool(self._of_replica.get(UNKNOWN_REPLICA))

    @property
    def pods(self) -> Mapping[str, Pod]:
        """The pods by name."""
        return self._tables[Kind.POD]

    @property
    def next_at(self) -> float | None:
        """The time of the next event; None if there is none."""
        return self._timers[0][0] if self._timers else None

    def advance(self, until: float | None = None) -> None:
        """Let time pass until the next event, or until `until`, and handle the events that are due."""
        moment = self.next_at if until is None else until
        self.now = max(self.now, self.now if moment is None else moment)
        while self._timers and self._timers[0][0] <= self.now:
            _, _, event, name, uid = heapq.heappop(self._timers)
            self._handle(event, name, uid)
        self._schedule_pods()

    def apply(self, actions: Iterable[Action]) -> tuple[RejectedWrite, ...]:
        """Apply writes in their order; return the refused ones."""
        rejected = []
        for action in actions:
            reason = self._write(action)
            if reason:
                rejected.append(RejectedWrite(action, reason))
        self._schedule_pods()
        return tuple(rejected)

    # What happens to pods.

    def set_ready(self, pod: str, ready: bool) -> None:
        """Make a pod on a node fail or recover."""
        known = self.pods[pod]
        since = known.ready_since if known.ready == ready else self.now
        healed = {"fault": "", "fault_detail": ""} if ready else {}
        self._store(Kind.POD, fast_replace(known, ready=ready, failing=not ready, ready_since=since, **healed))

    def set_fault(self, pod: str, fault: str, detail: str = "") -> None:
        """Make a container of a pod that is not Ready fail."""
        self._store(Kind.POD, fast_replace(self.pods[pod], failing=True, fault=fault, fault_detail=detail))

    # Writes; each returns the reason of a refusal, or an empty string.

    def _write(self, action: Action) -> str:
        if isinstance(action, Create):
            return self._create(action)
        if isinstance(action, Patch):
            return self._patch(action)
        if isinstance(action, RemoveGate):
            return self._remove_gate(action)
        if isinstance(action, WriteStatus):
            return self._write_status(action)
        return self._delete_if_same(action)

    def _create(self, action: Create) -> str:
        name = action.manifest["metadata"]["name"]
        if name in self._tables[action.kind]:
            return "AlreadyExists"
        owner = action.manifest["metadata"]["ownerReferences"][0]
        if owner["kind"] != Kind.SET and not self._is_same(Kind(owner["kind"]), owner["name"], owner["uid"]):
            return "OwnerNotFound"
        thing = self._parse(action.kind, action.manifest)
        self._set_owner(owner["uid"] if owner["kind"] != Kind.SET else "", action.kind, thing)
        if isinstance(thing, Pod):
            self._demands[name] = read_demand(action.manifest["spec"])
        self._store(action.kind, thing)
        if owner["uid"] in self._terminating_owners:
            # The owner is already terminating: without its new object it would never go.
            self._start_timer(
                _TimerEvent.GARBAGE_COLLECT, owner["name"], owner["uid"], self._behaviour.garbage_collection_seconds
            )
        return ""

    def _parse(self, kind: Kind, manifest: Mapping[str, Any]) -> ClusterObject:
        self._objects_created += 1
        uid, version = f"uid-{self._objects_created}", self._next_version()
        return objects.parse_object(kind, manifest, uid, version, self.now)

    def _patch(self, action: Patch) -> str:
        thing = self._tables[action.kind].get(action.name)
        if thing is None or thing.uid != action.uid:
            return "NotFound"
        if action.kind is Kind.SERVICE:
            self._store(action.kind, objects.patch_service(thing, action.patch))
            return ""
        if thing.resource_version != action.resource_version:
            return "Conflict"
        self._store(action.kind, _PATCHES[action.kind](thing, action.patch, self._next_version()))
        return ""

    def _remove_gate(self, action: RemoveGate) -> str:
        if not self._is_same(Kind.POD, action.pod, action.uid):
            return "NotFound"
        self._store(Kind.POD, fast_replace(self.pods[action.pod], gated=False))
        return ""

    def _write_status(self, action: WriteStatus) -> str:
        if action.kind is Kind.SET:
            self.status = action.status
            return ""
        if not self._is_same(action.kind, action.name, action.uid):
            return "NotFound"
        thing = self._tables[action.kind][action.name]
        self._store(action.kind, fast_replace(thing, status=action.status, resource_version=self._next_version()))
        return ""

    def _delete_if_same(self, action: Delete) -> str:
        if not self._is_same(action.kind, action.name, action.uid):
            return "NotFound"
        self._delete(action.kind, action.name)
        return ""

    # Objects and their owners.

    def _is_same(self, kind: Kind, name: str, uid: str) -> bool:
        thing = self._tables[kind].get(name)
        return thing is not None and thing.uid == uid

    def _set_owner(self, owner: str, kind: Kind, thing: ClusterObject) -> None:
        self._owner[thing.uid] = owner
        self._owned.setdefault(owner, {})[thing.name] = kind

    def _store(self, kind: Kind, thing: ClusterObject) -> None:
        self._tables[kind][thing.name] = thing
        if isinstance(thing, Clique):
            self._replica_of[thing.name] = thing.replica
        elif isinstance(thing, Gang):
            self._gang_of.update((pod, thing.name) for _, pods in thing.pod_groups.values() for pod in pods)
        elif isinstance(thing, Pod):
            self._update_waiting(thing)
        self._record_change(thing)[kind, thing.name] = thing

    def _record_change(self, thing: ClusterObject) -> dict[tuple[Kind, str], ClusterObject]:
        """Record that the replica of an object changed; return the objects of that replica."""
        if isinstance(thing, Pod):
            replica = self._replica_of_pod.setdefault(thing.name, self._replica_of.get(thing.clique, UNKNOWN_REPLICA))
        else:
            replica = thing.replica
        self._journal.append(replica)
        return self._of_replica.setdefault(replica, {})

    def _update_waiting(self, pod: Pod) -> None:
        if pod.gated or pod.node or not pod.is_live:
            self._waiting.pop(pod.name, None)
        else:
            self._waiting[pod.name] = None

    def _delete(self, kind: Kind, name: str) -> None:
        thing = self._tables[kind][name]
        if thing.leaving:
            return
        if isinstance(thing, Pod):
            self._delete_pod(thing)
        elif self._behaviour.foreground_deletion and self._owned.get(thing.uid):
            self._store(kind, fast_replace(thing, leaving=True))
            self._terminating_owners[thing.uid] = (kind, name)
            self._delete_owned(thing.uid)
        else:
            self._remove(kind, thing)

    def _delete_pod(self, pod: Pod) -> None:
        if not pod.node:
            self._remove(Kind.POD, pod)
            return
        self._store(Kind.POD, fast_replace(pod, leaving=True, gone_by=self.now + GRACE_SECONDS))
        self._start_timer(_TimerEvent.TERMINATED, pod.name, pod.uid, self._behaviour.termination_seconds)

    def _remove(self, kind: Kind, thing: ClusterObject) -> None:
        """Remove an object; delete what it owns, and remove an owner that waited for it."""
        del self._tables[kind][thing.name]
        self._record_change(thing).pop((kind, thing.name), None)
        if isinstance(thing, Pod):
            self._waiting.pop(thing.name, None)
            self._replica_of_pod.pop(thing.name)
            self._demands.pop(thing.name, None)
            self._scheduler.release(thing.name)
        else:
            self._start_timer(
                _TimerEvent.GARBAGE_COLLECT, thing.name, thing.uid, self._behaviour.garbage_collection_seconds
            )
        self._leave_owner(thing)

    def _leave_owner(self, thing: ClusterObject) -> None:
        owner = self._owner.pop(thing.uid, "")
        siblings = self._owned.get(owner, {})
        siblings.pop(thing.name, None)
        if not siblings and owner in self._terminating_owners:
            kind, name = self._terminating_owners.pop(owner)
            self._remove(kind, self._tables[kind][name])

    def _delete_owned(self, owner: str) -> None:
        for name, kind in tuple(self._owned.get(owner, {}).items()):
            self._delete(kind, name)

    # Time.

    def _start_timer(self, event: _TimerEvent, name: str, uid: str, seconds: float) -> None:
        if seconds <= 0 and event is _TimerEvent.GARBAGE_COLLECT:
            self._delete_owned(uid)
            return
        self._writes += 1
        heapq.heappush(self._timers, (self.now + seconds, self._writes, event, name, uid))

    def _handle(self, event: _TimerEvent, name: str, uid: str) -> None:
        if event is _TimerEvent.GARBAGE_COLLECT:
            self._delete_owned(uid)
        elif self._is_same(Kind.POD, name, uid):
            pod = self.pods[name]
            if event is _TimerEvent.TERMINATED:
                self._remove(Kind.POD, pod)
            elif pod.is_live:
                keys = {pod.template_hash, self._key_of(pod), pod.name, names.pod_hostname(pod.clique, pod.index)}
                self.set_ready(name, not keys & self._behaviour.never_ready)

    def _key_of(self, pod: Pod) -> TemplateKey:
        clique = self._tables[Kind.CLIQUE].get(pod.clique)
        return clique.template if clique else "", pod.template_hash

    def _schedule_pods(self) -> None:
        if not self._waiting:
            return
        waiting = [self.pods[name] for name in self._waiting]
        listing = dict.fromkeys(self._gang_of.get(pod.name, "") for pod in waiting)
        gangs = self._tables[Kind.GANG]
        listed = [gangs[name] for name in listing if name in gangs]
        placement = self._scheduler.place(waiting, listed, self.pods, self._demands)
        for name, why in placement.unplaced:
            if self.pods[name].message != why:
                self._store(Kind.POD, fast_replace(self.pods[name], message=why))
        for name, node in placement.bound:
            self._start(fast_replace(self.pods[name], node=node, phase="Running", message="", scheduled_at=self.now))

    def _start(self, pod: Pod) -> None:
        """Start a pod on its node: after its time it becomes Ready, or fails."""
        self._store(Kind.POD, pod)
        behaviour, key = self._behaviour, self._key_of(pod)
        found = (behaviour.ready_seconds_of.get(one) for one in (key, pod.template_hash, key[0]))
        seconds = next((one for one in found if one is not None), behaviour.ready_seconds)
        self._start_timer(
            _TimerEvent.STARTED, pod.name, pod.uid, max(0.0, seconds - behaviour.seconds_on_node.get(pod.name, 0.0))
        )

    # The beginning.

    def _next_version(self) -> str:
        self._writes += 1
        return f"simulated-{self._writes}"

    def _import_observed(self, observed: Observed) -> None:
        """Set the owners, reserve the capacity and start the timers of the observed objects."""
        for group in observed.groups:
            self._set_owner("", Kind.GROUP, group)
            self._store(Kind.GROUP, group)
        for service in observed.services:
            self._store(Kind.SERVICE, service)
        for clique in observed.cliques:
            owner = self._tables[Kind.GROUP].get(clique.group)
            self._set_owner(owner.uid if owner else "", Kind.CLIQUE, clique)
            self._store(Kind.CLIQUE, clique)
        for gang in observed.gangs:
            self._store(Kind.GANG, gang)
        for pod in observed.pods:
            self._import_pod(pod)

    def _import_pod(self, pod: Pod) -> None:
        clique = self._tables[Kind.CLIQUE].get(pod.clique)
        self._set_owner(clique.uid if clique else "", Kind.POD, pod)
        self._store(Kind.POD, pod)
        if pod.node and pod.phase not in TERMINAL_PHASES:
            self._scheduler.reserve(pod.name, pod.node, self._demands.get(pod.name, NO_DEMAND))
        if pod.leaving or clique is None:
            self._start_timer(_TimerEvent.TERMINATED, pod.name, pod.uid, self._behaviour.termination_seconds)
        elif (
            pod.node
            and not pod.ready
            and pod.phase not in TERMINAL_PHASES
            and pod.template_hash == clique.template_hash
        ):
            self._start(pod)


def _highest_uid(observed: Observed) -> int:
    """Return the first free number for uids: an earlier simulation may have used some."""
    things = (observed.cliques, observed.groups, observed.gangs, observed.services, observed.pods)
    counted = [thing.uid.rpartition("-")[2] for kind in things for thing in kind]
    return max((int(text) for text in counted if text.isdecimal()), default=0) + 1


def _copy_table(value: Any) -> Any:
    """Return a copy of an attribute; the objects in it are immutable and need none."""
    if isinstance(value, dict):
        return {key: dict(entry) if isinstance(entry, dict) else entry for key, entry in value.items()}
    if isinstance(value, SimulatedScheduler):
        return value.fork()
    return copy(value) if isinstance(value, list | set) else value
