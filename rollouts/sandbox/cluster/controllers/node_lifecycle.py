"""Keeps every Node reporting: first capacity, readiness, and the taints that follow (`node` decides)."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from rollouts.sandbox.apiserver.storage import Change, Store
from rollouts.sandbox.cluster.cache import Census
from rollouts.sandbox.cluster.client import Writes
from rollouts.sandbox.cluster.conditions import find_condition, is_true
from rollouts.sandbox.cluster.controllers import SLICE
from rollouts.sandbox.cluster.controllers.event_recorder import Recorder
from rollouts.sandbox.cluster.node import compute_status, compute_taints
from rollouts.sandbox.cluster.timer_queue import Agenda

Obj = dict[str, Any]
log: Final = logging.getLogger(__name__)

KUBELET_VERSION: Final = "v1.36.0"


class Machines:
    """Looks at each node that changed."""

    def __init__(
        self,
        store: Store,
        census: Census,
        writes: Writes,
        recorder: Recorder,
        clock: Callable[[], datetime],
    ) -> None:
        self._store, self._census, self._writes, self._recorder = store, census, writes, recorder
        self._clock = clock
        self._agenda: Agenda[str] = Agenda()

    def observe(self, change: Change) -> None:
        """Note the node."""
        if change.kind is not self._census.kinds.nodes:
            return
        name = change.obj["metadata"]["name"]
        if change.type == "DELETED":
            self._agenda.drop(name)
        else:
            self._agenda.hurry(name, self._clock())

    def work(self, now: datetime) -> None:
        """Write what the nodes that are due report."""
        for name in self._agenda.take_due(now, SLICE):
            self._report(name, now)
            self._taint(name, now)

    def next_due(self) -> datetime | None:
        """Say when a node has to be looked at."""
        return self._agenda.next_due()

    def _report(self, name: str, now: datetime) -> None:
        node = self._find(name)
        if node is None:
            return
        status = compute_status(node, self._free_address(), KUBELET_VERSION, now)
        was_ready = is_true(node, "Ready")
        self._writes.put_status(self._census.kinds.nodes, node, status)
        if is_true({"status": status}, "Ready") != was_ready:
            reason = "NodeNotReady" if was_ready else "NodeReady"
            incident = ("Normal", reason, f"Node {name} status is now: {reason}")
            if was_ready or find_condition(node, "Ready") is not None:
                log.info("node %s is %s", name, "down" if was_ready else "back")
            self._recorder.record(self._census.kinds.nodes, node, incident, "node-controller")

    def _taint(self, name: str, now: datetime) -> None:
        node = self._find(name)
        if node is None:
            return
        taints = compute_taints(node, now)
        if taints != ((node.get("spec") or {}).get("taints") or []):
            spec = {**(node.get("spec") or {}), "taints": taints}
            self._writes.replace(self._census.kinds.nodes, {**node, "spec": spec})

    def _find(self, name: str) -> Obj | None:
        stored = self._store.get(self._census.kinds.nodes, None, name)
        return None if stored is None else stored.obj

    def _free_address(self) -> str:
        """Find an address no node has: 10.0.0.1, 10.0.0.2, …"""
        taken = {node.address for node in self._census.nodes.values()}
        number = 1
        while (address := f"10.0.{number >> 8}.{number & 255}") in taken:
            number += 1
        return address
