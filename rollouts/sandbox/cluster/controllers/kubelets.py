"""The kubelets of all nodes: give each bound pod the status of the moment, and end the pods that are deleted.

`pod_lifecycle.compute_outlook` decides; this asks it when a pod is bound or changed, when its next moment comes,
when its node goes or comes back, and when a clique it waits for gets or loses a Ready pod. Exact moments
(bound, deleted, unblocked) are kept while the process lives; after a restart they are read from the stored
pod, to the second.

A kubelet on a node that is not ready does nothing: its pods are marked not Ready once and keep existing,
deleted or not, until the node is back, is deleted, or somebody deletes them by force.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rollouts.sandbox.apiserver.storage import Change
from rollouts.sandbox.cluster import pod_lifecycle
from rollouts.sandbox.cluster.cache import Census, Key, clique_of, is_finished, is_leaving, is_ready, key_of, node_of
from rollouts.sandbox.cluster.client import Writes
from rollouts.sandbox.cluster.conditions import is_true
from rollouts.sandbox.cluster.controllers import SLICE
from rollouts.sandbox.cluster.controllers.event_recorder import Recorder
from rollouts.sandbox.cluster.timer_queue import Agenda

Obj = dict[str, Any]

COMPONENT: Final = "kubelet"
_NETWORK: Final = 10 << 24 | 244 << 16  # pod addresses are 10.244.0.1 and up
_ADDRESSES: Final = 1 << 18


@dataclass(slots=True)
class _Tenancy:
    """What is known of a pod on a node besides its manifest."""

    uid: str
    bound_at: datetime
    address: str  # empty until one is needed: at a restart the pods that have one must be known first
    deleted_at: datetime | None = None
    stopping: bool = False  # the event that says so is recorded
    unblocked_at: datetime | None = None
    dependencies: tuple[pod_lifecycle.Dependency, ...] = ()


class Kubelets:
    """Keeps the status of every bound pod what its age and surroundings make it."""

    def __init__(
        self,
        census: Census,
        writes: Writes,
        recorder: Recorder,
        clock: Callable[[], datetime],
        pace: pod_lifecycle.Pace,
    ) -> None:
        self._census, self._writes, self._recorder = census, writes, recorder
        self._clock, self._pace = clock, pace
        self._agenda: Agenda[Key] = Agenda()
        self._tenancies: dict[Key, _Tenancy] = {}
        self._dependents: defaultdict[Key, dict[Key, None]] = defaultdict(dict)  # clique → pods that wait for it
        self._addresses = _Addresses()
        self._writing: Key | None = None

    def observe(self, change: Change) -> None:
        """Note the pods whose status a change may move."""
        if change.kind is self._census.kinds.pods:
            self._observe_pod(change)
        elif change.kind is self._census.kinds.nodes:
            self._observe_node(change)

    def work(self, now: datetime) -> None:
        """Look at the pods that are due."""
        for key in self._agenda.take_due(now, SLICE):
            pod = self._census.pod(key)
            tenancy = self._tenancies.get(key)
            if pod is None or tenancy is None:
                continue
            self._writing = key
            try:
                self._look_after(key, pod, tenancy, now)
            finally:
                self._writing = None

    def next_due(self) -> datetime | None:
        """Say when the next pod is due."""
        return self._agenda.next_due()

    # --- what changed ----------------------------------------------------------------------------------------

    def _observe_pod(self, change: Change) -> None:
        key, pod = key_of(change.obj), change.obj
        if is_ready(change.old) != is_ready(None if change.type == "DELETED" else pod):
            self._hurry_all(self._dependents.get(clique_of(pod), {}))
        known = self._tenancies.get(key)
        if known is not None and (change.type == "DELETED" or known.uid != pod["metadata"]["uid"]):
            self._move_out(key, known)
            known = None
        if change.type == "DELETED" or node_of(pod) is None:
            return
        if known is None:
            known = self._move_in(key, change)
        if is_leaving(pod) and known.deleted_at is None:
            fresh = change.old is not None
            known.deleted_at = self._clock() if fresh else pod_lifecycle.find_deleted_at(pod)
        # What this controller writes itself needs no second look: the outlook said when to look again.
        if self._writing != key:
            self._agenda.hurry(key, self._clock())

    def _move_in(self, key: Key, change: Change) -> _Tenancy:
        pod = change.obj
        fresh = change.old is not None and node_of(change.old) is None
        tenancy = _Tenancy(
            uid=pod["metadata"]["uid"],
            bound_at=self._clock() if fresh else pod_lifecycle.find_bound_at(pod),
            address=(pod.get("status") or {}).get("podIP") or "",
            dependencies=pod_lifecycle.parse_dependencies(pod),
        )
        self._tenancies[key] = tenancy
        self._addresses.keep(tenancy.address)
        for dependency in tenancy.dependencies:
            self._dependents[(key[0], dependency.clique)][key] = None
        if tenancy.dependencies:
            tenancy.unblocked_at = pod_lifecycle.find_initialized_at(pod)
        return tenancy

    def _move_out(self, key: Key, tenancy: _Tenancy) -> None:
        del self._tenancies[key]
        self._agenda.drop(key)
        self._addresses.give_back(tenancy.address)
        self._stop_waiting(key, tenancy)

    def _stop_waiting(self, key: Key, tenancy: _Tenancy) -> None:
        for clique in {(key[0], dependency.clique) for dependency in tenancy.dependencies}:
            self._dependents[clique].pop(key, None)
            if not self._dependents[clique]:
                del self._dependents[clique]

    def _observe_node(self, change: Change) -> None:
        name = change.obj["metadata"]["name"]
        if change.old is None or change.type == "DELETED" or _is_up(change.old) != _is_up(change.obj):
            self._hurry_all(self._census.tenants.get(name, {}))

    def _hurry_all(self, keys: dict[Key, None]) -> None:
        now = self._clock()
        for key in keys:
            self._agenda.hurry(key, now)

    # --- looking after one pod -------------------------------------------------------------------------------

    def _look_after(self, key: Key, pod: Obj, tenancy: _Tenancy, now: datetime) -> None:
        node = self._census.nodes.get(pod["spec"]["nodeName"])
        node_ready = node is not None and node.ready
        if tenancy.deleted_at is not None and node_ready:
            self._wind_down(key, pod, tenancy, tenancy.deleted_at, now)
        elif not is_finished(pod):
            address = node.address if node is not None else ""
            self._refresh(key, pod, tenancy, (node_ready, address), now)

    def _wind_down(self, key: Key, pod: Obj, tenancy: _Tenancy, deleted_at: datetime, now: datetime) -> None:
        end = pod_lifecycle.compute_end(pod, deleted_at, self._pace)
        if now >= end:
            if pod["metadata"].get("finalizers") and not is_finished(pod):
                self._writes.put_status(self._census.kinds.pods, pod, pod_lifecycle.compute_end_status(pod, now))
            self._writes.delete(self._census.kinds.pods, pod, grace_seconds=0)
            return
        self._agenda.put(key, end)
        if not tenancy.stopping:
            tenancy.stopping = True
            names = ", ".join(container["name"] for container in pod["spec"]["containers"])
            self._tell(pod, ("Normal", "Killing", f"Stopping container {names}"))

    def _refresh(self, key: Key, pod: Obj, tenancy: _Tenancy, node: tuple[bool, str], now: datetime) -> None:
        if tenancy.unblocked_at is None and self._are_met(key[0], tenancy.dependencies):
            tenancy.unblocked_at = now
            self._stop_waiting(key, tenancy)
        tenancy.address = tenancy.address or self._addresses.take()
        node_ready, host_ip = node
        facts = pod_lifecycle.Facts(now, tenancy.bound_at, tenancy.unblocked_at, node_ready, host_ip, tenancy.address)
        outlook = pod_lifecycle.compute_outlook(pod, facts, self._pace)
        before = pod.get("status") or {}
        if self._writes.put_status(self._census.kinds.pods, pod, outlook.status):
            for incident in pod_lifecycle.find_incidents(before, outlook.status):
                self._tell(pod, (incident.type, incident.reason, incident.message))
        if outlook.wake_at is not None:
            self._agenda.put(key, outlook.wake_at)

    def _tell(self, pod: Obj, incident: tuple[str, str, str]) -> None:
        self._recorder.record(self._census.kinds.pods, pod, incident, COMPONENT)

    def _are_met(self, namespace: str, dependencies: tuple[pod_lifecycle.Dependency, ...]) -> bool:
        ready = self._census.ready_pods
        return all(ready.get((namespace, entry.clique), 0) >= entry.ready for entry in dependencies)


class _Addresses:
    """Pod addresses, handed out in a row and again only after all others."""

    def __init__(self) -> None:
        self._taken = {""}
        self._last = 0

    def keep(self, address: str) -> None:
        """Note an address that a stored pod has."""
        self._taken.add(address)

    def take(self) -> str:
        """Take the next free address."""
        address = ""
        while address in self._taken:
            self._last = self._last % _ADDRESSES + 1
            value = _NETWORK + self._last
            address = ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0))
        self._taken.add(address)
        return address

    def give_back(self, address: str) -> None:
        """Free an address."""
        if address:
            self._taken.discard(address)


def _is_up(node: Obj) -> bool:
    return is_true(node, "Ready")
