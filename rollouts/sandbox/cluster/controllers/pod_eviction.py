"""Deletes pods whose node was deleted, and pods that do not tolerate a taint of their node.

It does the work of two real controllers. Pods of a node that was deleted are marked Failed and removed at once, because
no kubelet is left to stop them. Pods on a node with a NoExecute taint are deleted, gracefully, when their tolerations
have run out. The API server gives every pod a toleration of 300 seconds for nodes that are not ready or unreachable
(`apiserver.pod_strategy`), unless the pod has its own.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from rollouts.engine.scheduling.constraints import Taint, compute_toleration_seconds, parse_constraints
from rollouts.engine.scheduling.placement import NamespacedName
from rollouts.sandbox.apiserver.storage import Storage, StorageChange
from rollouts.sandbox.cluster.cache import ClusterCache, is_finished, is_terminating, key_of, node_name
from rollouts.sandbox.cluster.client import ControllerClient
from rollouts.sandbox.cluster.controllers import QueueController
from rollouts.sandbox.conditions import make_disruption_target, merge_conditions
from rollouts.sandbox.times import parse_stored_time, render_time

Obj = dict[str, Any]
log: Final = logging.getLogger(__name__)

POD_GC_REASON: Final = "DeletionByPodGC"
TAINT_EVICTION_REASON: Final = "DeletionByTaintManager"


class PodEvictionController(QueueController[NamespacedName]):
    """Deletes the pods of nodes that were deleted or tainted."""

    def __init__(
        self, store: Storage, cache: ClusterCache, client: ControllerClient, clock: Callable[[], datetime]
    ) -> None:
        super().__init__(clock)
        self._store, self._cache, self._client = store, cache, client

    def observe(self, change: StorageChange) -> None:
        """Queue a pod that was bound, and the pods of a node that was deleted or whose taints changed."""
        now = self._clock()
        if change.kind is self._cache.kinds.pods:
            if change.type == "DELETED":
                self._queue.cancel(key_of(change.obj))
            elif node_name(change.obj) and node_name(change.old) is None:
                self._queue.schedule_no_later(key_of(change.obj), now)
        elif change.kind is self._cache.kinds.nodes and _is_deleted_or_retainted(change):
            name = change.obj["metadata"]["name"]
            pods = self._cache.pods_by_node.get(name, {})
            if change.type == "DELETED":
                log.info("node %s was deleted; its %d pods will be removed", name, len(pods))
            for key in pods:
                self._queue.schedule_no_later(key, now)

    def _sync(self, key: NamespacedName, now: datetime) -> None:
        """Delete a pod whose node is gone, or whose tolerations have run out."""
        pod = self._cache.get_pod(key)
        if pod is None:
            return
        node = self._store.get(self._cache.kinds.nodes, None, node_name(pod) or "")
        if node is None:
            self._delete_orphaned_pod(pod, now)
        elif not is_terminating(pod):
            self._evict_for_taints(key, pod, node.obj, now)

    def _delete_orphaned_pod(self, pod: Obj, now: datetime) -> None:
        if not is_finished(pod):
            self._set_disruption_target(pod, POD_GC_REASON, "PodGC: node no longer exists", now, phase="Failed")
        self._client.delete(self._cache.kinds.pods, pod, grace_seconds=0)

    def _evict_for_taints(self, key: NamespacedName, pod: Obj, node: Obj, now: datetime) -> None:
        deadline = compute_eviction_time(pod, node)
        if deadline is None:
            return
        if now < deadline:
            self._queue.schedule(key, deadline)
            return
        self._set_disruption_target(pod, TAINT_EVICTION_REASON, "Taint manager: deleting due to NoExecute taint", now)
        self._client.delete(self._cache.kinds.pods, pod)

    def _set_disruption_target(self, pod: Obj, reason: str, message: str, now: datetime, **more: str) -> None:
        status = pod.get("status") or {}
        target = make_disruption_target(reason, message)
        conditions = merge_conditions(status.get("conditions"), [target], render_time(now))
        self._client.update_status(self._cache.kinds.pods, pod, {**status, **more, "conditions": conditions})


def compute_eviction_time(pod: Obj, node: Obj) -> datetime | None:
    """Return when the pod must leave its node because of a taint; None when it need not.

    A taint without `timeAdded` is not in force yet: the node lifecycle controller is about to add the time.
    """
    tolerations = parse_constraints(pod["spec"]).tolerations
    deadlines: list[datetime] = []
    for entry in (node.get("spec") or {}).get("taints") or ():
        taint = Taint(entry["key"], entry.get("value") or "", entry["effect"])
        stay = compute_toleration_seconds(tolerations, taint)
        if stay is not None and entry.get("timeAdded"):
            deadlines.append(parse_stored_time(entry["timeAdded"]) + timedelta(seconds=stay))
    return min(deadlines, default=None)


def _is_deleted_or_retainted(change: StorageChange) -> bool:
    """Return whether the node was deleted or its taints changed."""
    if change.type == "DELETED" or change.old is None:
        return True
    return (change.old.get("spec") or {}).get("taints") != (change.obj.get("spec") or {}).get("taints")
