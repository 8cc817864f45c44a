"""Takes pods off nodes that are gone or that drive them away.

Two real controllers in one small place. Pods of a node that was deleted are marked Failed and removed at
once, for no kubelet is left to end them. Pods under a NoExecute taint are deleted, gracefully, when their
tolerations have run out; those that say nothing about a node that is not ready stay `Pace.eviction` seconds.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from rollouts.engine.scheduling.constraints import Taint, compute_stay, parse_constraints
from rollouts.sandbox.apiserver.storage import Change, Store
from rollouts.sandbox.cluster.cache import Census, Key, is_finished, is_leaving, key_of, node_of
from rollouts.sandbox.cluster.client import Writes
from rollouts.sandbox.cluster.conditions import make_condition, merge_conditions, parse_time
from rollouts.sandbox.cluster.controllers import SLICE
from rollouts.sandbox.cluster.timer_queue import Agenda

Obj = dict[str, Any]
log: Final = logging.getLogger(__name__)

GARBAGE_REASON: Final = "DeletionByPodGC"
TAINT_REASON: Final = "DeletionByTaintManager"


class Evictions:
    """Looks at the pods of nodes that were deleted or tainted."""

    def __init__(self, store: Store, census: Census, writes: Writes, clock: Callable[[], datetime]) -> None:
        self._store, self._census, self._writes, self._clock = store, census, writes, clock
        self._agenda: Agenda[Key] = Agenda()

    def observe(self, change: Change) -> None:
        """Note pods that came to a node, and the pods of a node that changed for the worse."""
        now = self._clock()
        if change.kind is self._census.kinds.pods:
            if change.type == "DELETED":
                self._agenda.drop(key_of(change.obj))
            elif node_of(change.obj) and node_of(change.old) is None:
                self._agenda.hurry(key_of(change.obj), now)
        elif change.kind is self._census.kinds.nodes and _repels(change):
            name = change.obj["metadata"]["name"]
            tenants = self._census.tenants.get(name, {})
            if change.type == "DELETED":
                log.info("node %s was deleted, and with it %d pods", name, len(tenants))
            for key in tenants:
                self._agenda.hurry(key, now)

    def work(self, now: datetime) -> None:
        """Remove the pods whose time is over."""
        for key in self._agenda.take_due(now, SLICE):
            pod = self._census.pod(key)
            if pod is None:
                continue
            node = self._store.get(self._census.kinds.nodes, None, node_of(pod) or "")
            if node is None:
                self._collect(pod, now)
            elif not is_leaving(pod):
                self._drive_off(key, pod, node.obj, now)

    def next_due(self) -> datetime | None:
        """Say when the next pod has to be looked at."""
        return self._agenda.next_due()

    def _collect(self, pod: Obj, now: datetime) -> None:
        if not is_finished(pod):
            self._mark(pod, GARBAGE_REASON, "PodGC: node no longer exists", now, phase="Failed")
        self._writes.delete(self._census.kinds.pods, pod, grace_seconds=0)

    def _drive_off(self, key: Key, pod: Obj, node: Obj, now: datetime) -> None:
        deadline = compute_deadline(pod, node)
        if deadline is None:
            return
        if now < deadline:
            self._agenda.put(key, deadline)
            return
        self._mark(pod, TAINT_REASON, "Taint manager: deleting due to NoExecute taint", now)
        self._writes.delete(self._census.kinds.pods, pod)

    def _mark(self, pod: Obj, reason: str, message: str, now: datetime, **more: str) -> None:
        status = pod.get("status") or {}
        target = make_condition("DisruptionTarget", holds=True, reason=reason, message=message)
        conditions = merge_conditions(status.get("conditions"), [target], now)
        self._writes.put_status(self._census.kinds.pods, pod, {**status, **more, "conditions": conditions})


def compute_deadline(pod: Obj, node: Obj) -> datetime | None:
    """Say when the pod must leave its node because of a taint; None when it need not.

    A taint without `timeAdded` is not in force yet: `node` is about to date it.
    """
    tolerations = parse_constraints(pod["spec"]).tolerations
    deadlines: list[datetime] = []
    for entry in (node.get("spec") or {}).get("taints") or ():
        taint = Taint(entry["key"], entry.get("value") or "", entry["effect"])
        stay = compute_stay(tolerations, taint)
        if stay is not None and entry.get("timeAdded"):
            deadlines.append(parse_time(entry["timeAdded"]) + timedelta(seconds=stay))
    return min(deadlines, default=None)


def _repels(change: Change) -> bool:
    """Say whether the node is gone or its taints changed."""
    if change.type == "DELETED" or change.old is None:
        return True
    return (change.old.get("spec") or {}).get("taints") != (change.obj.get("spec") or {}).get("taints")
