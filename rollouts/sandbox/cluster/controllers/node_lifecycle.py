"""Writes the status of every Node — capacity and conditions — and the taints that follow, as `node` computes them."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from rollouts.sandbox.apiserver.discovery import KUBERNETES_VERSION
from rollouts.sandbox.apiserver.storage import Storage, StorageChange
from rollouts.sandbox.cluster.cache import ClusterCache
from rollouts.sandbox.cluster.client import ControllerClient
from rollouts.sandbox.cluster.controllers import QueueController
from rollouts.sandbox.cluster.controllers.event_recorder import EventRecorder
from rollouts.sandbox.cluster.node import compute_node_status, compute_node_taints
from rollouts.sandbox.conditions import find_condition, is_true

Obj = dict[str, Any]
log: Final = logging.getLogger(__name__)


class NodeLifecycleController(QueueController[str]):
    """Keeps status and taints of each node current."""

    def __init__(
        self,
        store: Storage,
        cache: ClusterCache,
        client: ControllerClient,
        recorder: EventRecorder,
        clock: Callable[[], datetime],
    ) -> None:
        super().__init__(clock)
        self._store, self._cache, self._client, self._recorder = store, cache, client, recorder

    def observe(self, change: StorageChange) -> None:
        """Queue the node that changed."""
        if change.kind is not self._cache.kinds.nodes:
            return
        name = change.obj["metadata"]["name"]
        if change.type == "DELETED":
            self._queue.cancel(name)
        else:
            self._queue.schedule_no_later(name, self._clock())

    def _sync(self, key: str, now: datetime) -> None:
        self._sync_status(key, now)
        self._sync_taints(key, now)

    def _sync_status(self, name: str, now: datetime) -> None:
        node = self._get_node(name)
        if node is None:
            return
        status = compute_node_status(node, self._choose_address(), KUBERNETES_VERSION, now)
        was_ready = is_true(node, "Ready")
        self._client.update_status(self._cache.kinds.nodes, node, status)
        if is_true({"status": status}, "Ready") != was_ready:
            reason = "NodeNotReady" if was_ready else "NodeReady"
            incident = ("Normal", reason, f"Node {name} status is now: {reason}")
            if was_ready or find_condition(node, "Ready"):
                log.info("node %s is %s", name, "down" if was_ready else "back")
            self._recorder.record(self._cache.kinds.nodes, node, incident, "node-controller")

    def _sync_taints(self, name: str, now: datetime) -> None:
        node = self._get_node(name)
        if node is None:
            return
        taints = compute_node_taints(node, now)
        if taints != ((node.get("spec") or {}).get("taints") or []):
            spec = {**(node.get("spec") or {}), "taints": taints}
            self._client.update(self._cache.kinds.nodes, {**node, "spec": spec})

    def _get_node(self, name: str) -> Obj | None:
        stored = self._store.get(self._cache.kinds.nodes, None, name)
        return None if stored is None else stored.obj

    def _choose_address(self) -> str:
        """Choose an address that no node has: 10.0.0.1, 10.0.0.2, …"""
        taken = {node.address for node in self._cache.nodes.values()}
        number = 1
        while (address := f"10.0.{number >> 8}.{number & 255}") in taken:
            number += 1
        return address
