"""The kubelets of all nodes: write the current status of each bound pod, and remove pods that have terminated.

`pod_lifecycle.compute_status` computes the status. This controller calls it when a pod is bound or changed, when its
status is due to change, when its node becomes ready or not ready, and when a clique it depends on gets or loses a Ready
pod. The exact times of binding, deletion and met dependencies are kept while the process lives; after a restart they
are read from the stored pod, to the second.

A kubelet on a node that is not ready does nothing: its pods are marked not Ready once and stay, deleted or not, until
the node is ready again or deleted, or a client deletes them with a grace period of 0.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rollouts.engine.scheduling.placement import NamespacedName
from rollouts.sandbox.apiserver.storage import StorageChange
from rollouts.sandbox.cluster import pod_lifecycle
from rollouts.sandbox.cluster.cache import (
    ClusterCache,
    clique_key,
    is_finished,
    is_ready,
    is_terminating,
    key_of,
    node_name,
)
from rollouts.sandbox.cluster.client import ControllerClient
from rollouts.sandbox.cluster.controllers import QueueController
from rollouts.sandbox.cluster.controllers.event_recorder import EventRecorder
from rollouts.sandbox.conditions import is_true

Obj = dict[str, Any]

COMPONENT: Final = "kubelet"
_POD_NETWORK: Final = 10 << 24 | 244 << 16  # pod addresses are 10.244.0.1 and up
_ADDRESS_COUNT: Final = 1 << 18


@dataclass(slots=True)
class _PodState:
    """What a kubelet knows of a pod besides its manifest."""

    uid: str
    bound_at: datetime
    address: str  # empty until needed: at a restart the addresses of all stored pods must be reserved first
    deleted_at: datetime | None = None
    is_stop_recorded: bool = False  # the Killing event is recorded
    dependencies_met_at: datetime | None = None
    dependencies: tuple[pod_lifecycle.Dependency, ...] = ()


class Kubelets(QueueController[NamespacedName]):
    """Keeps the status of every bound pod current."""

    def __init__(
        self,
        cache: ClusterCache,
        client: ControllerClient,
        recorder: EventRecorder,
        clock: Callable[[], datetime],
        timings: pod_lifecycle.KubeletTimings,
    ) -> None:
        super().__init__(clock)
        self._cache, self._client, self._recorder = cache, client, recorder
        self._timings = timings
        self._pod_states: dict[NamespacedName, _PodState] = {}
        self._dependents: defaultdict[NamespacedName, dict[NamespacedName, None]] = defaultdict(
            dict
        )  # clique → pods that depend on it
        self._addresses = _PodAddresses()
        self._own_write: NamespacedName | None = None

    def observe(self, change: StorageChange) -> None:
        """Queue the pods whose status a change may affect."""
        if change.kind is self._cache.kinds.pods:
            self._observe_pod(change)
        elif change.kind is self._cache.kinds.nodes:
            self._observe_node(change)

    def _sync(self, key: NamespacedName, now: datetime) -> None:
        pod = self._cache.get_pod(key)
        state = self._pod_states.get(key)
        if pod is None or state is None:
            return
        self._own_write = key
        try:
            self._sync_pod(key, pod, state, now)
        finally:
            self._own_write = None

    # --- what changed ----------------------------------------------------------------------------------------

    def _observe_pod(self, change: StorageChange) -> None:
        key, pod = key_of(change.obj), change.obj
        if is_ready(change.old) != is_ready(None if change.type == "DELETED" else pod):
            self._schedule_all(self._dependents.get(clique_key(pod), {}))
        known = self._pod_states.get(key)
        if known is not None and (change.type == "DELETED" or known.uid != pod["metadata"]["uid"]):
            self._remove_pod(key, known)
            known = None
        if change.type == "DELETED" or node_name(pod) is None:
            return
        if known is None:
            known = self._add_pod(key, change)
        if is_terminating(pod) and known.deleted_at is None:
            fresh = change.old is not None
            known.deleted_at = self._clock() if fresh else pod_lifecycle.find_deleted_at(pod)
        # A write of this controller does not queue the pod: `compute_status` returned when it is due next.
        if self._own_write != key:
            self._queue.schedule_no_later(key, self._clock())

    def _add_pod(self, key: NamespacedName, change: StorageChange) -> _PodState:
        pod = change.obj
        fresh = change.old is not None and node_name(change.old) is None
        state = _PodState(
            uid=pod["metadata"]["uid"],
            bound_at=self._clock() if fresh else pod_lifecycle.find_bound_at(pod),
            address=(pod.get("status") or {}).get("podIP") or "",
            dependencies=pod_lifecycle.parse_dependencies(pod),
        )
        self._pod_states[key] = state
        self._addresses.reserve(state.address)
        for dependency in state.dependencies:
            self._dependents[(key[0], dependency.clique)][key] = None
        if state.dependencies:
            state.dependencies_met_at = pod_lifecycle.find_initialized_at(pod)
        return state

    def _remove_pod(self, key: NamespacedName, state: _PodState) -> None:
        del self._pod_states[key]
        self._queue.cancel(key)
        self._addresses.release(state.address)
        self._forget_dependencies(key, state)

    def _forget_dependencies(self, key: NamespacedName, state: _PodState) -> None:
        for clique in {(key[0], dependency.clique) for dependency in state.dependencies}:
            self._dependents[clique].pop(key, None)
            if not self._dependents[clique]:
                del self._dependents[clique]

    def _observe_node(self, change: StorageChange) -> None:
        name = change.obj["metadata"]["name"]
        if change.old is None or change.type == "DELETED" or _is_node_ready(change.old) != _is_node_ready(change.obj):
            self._schedule_all(self._cache.pods_by_node.get(name, {}))

    def _schedule_all(self, keys: dict[NamespacedName, None]) -> None:
        now = self._clock()
        for key in keys:
            self._queue.schedule_no_later(key, now)

    # --- one pod -------------------------------------------------------------------------------

    def _sync_pod(self, key: NamespacedName, pod: Obj, state: _PodState, now: datetime) -> None:
        node = self._cache.nodes.get(pod["spec"]["nodeName"])
        node_ready = node is not None and node.ready
        if state.deleted_at is not None and node_ready:
            self._terminate_pod(key, pod, state, state.deleted_at, now)
        elif not is_finished(pod):
            address = node.address if node is not None else ""
            self._update_status(key, pod, state, (node_ready, address), now)

    def _terminate_pod(
        self, key: NamespacedName, pod: Obj, state: _PodState, deleted_at: datetime, now: datetime
    ) -> None:
        end = pod_lifecycle.compute_stopped_at(pod, deleted_at, self._timings)
        if now >= end:
            if pod["metadata"].get("finalizers") and not is_finished(pod):
                self._client.update_status(self._cache.kinds.pods, pod, pod_lifecycle.compute_final_status(pod, now))
            self._client.delete(self._cache.kinds.pods, pod, grace_seconds=0)
            return
        self._queue.schedule(key, end)
        if not state.is_stop_recorded:
            state.is_stop_recorded = True
            names = ", ".join(container["name"] for container in pod["spec"]["containers"])
            self._record_event(pod, ("Normal", "Killing", f"Stopping container {names}"))

    def _update_status(
        self, key: NamespacedName, pod: Obj, state: _PodState, node: tuple[bool, str], now: datetime
    ) -> None:
        if state.dependencies_met_at is None and self._are_dependencies_met(key[0], state.dependencies):
            state.dependencies_met_at = now
            self._forget_dependencies(key, state)
        state.address = state.address or self._addresses.allocate()
        node_ready, host_ip = node
        context = pod_lifecycle.PodContext(
            now, state.bound_at, state.dependencies_met_at, node_ready, host_ip, state.address
        )
        computed = pod_lifecycle.compute_status(pod, context, self._timings)
        before = pod.get("status") or {}
        if self._client.update_status(self._cache.kinds.pods, pod, computed.status):
            for event in pod_lifecycle.compute_events(before, computed.status):
                self._record_event(pod, (event.type, event.reason, event.message))
        if computed.next_change_at is not None:
            self._queue.schedule(key, computed.next_change_at)

    def _record_event(self, pod: Obj, event: tuple[str, str, str]) -> None:
        self._recorder.record(self._cache.kinds.pods, pod, event, COMPONENT)

    def _are_dependencies_met(self, namespace: str, dependencies: tuple[pod_lifecycle.Dependency, ...]) -> bool:
        ready = self._cache.ready_count_by_clique
        return all(ready.get((namespace, entry.clique), 0) >= entry.ready for entry in dependencies)


class _PodAddresses:
    """Pod addresses, allocated in order; a released one is used again only after all others."""

    def __init__(self) -> None:
        self._taken = {""}
        self._last = 0

    def reserve(self, address: str) -> None:
        """Reserve an address that a stored pod has."""
        self._taken.add(address)

    def allocate(self) -> str:
        """Allocate the next free address."""
        address = ""
        while address in self._taken:
            self._last = self._last % _ADDRESS_COUNT + 1
            value = _POD_NETWORK + self._last
            address = ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0))
        self._taken.add(address)
        return address

    def release(self, address: str) -> None:
        """Release an address."""
        if address:
            self._taken.discard(address)


def _is_node_ready(node: Obj) -> bool:
    return is_true(node, "Ready")
