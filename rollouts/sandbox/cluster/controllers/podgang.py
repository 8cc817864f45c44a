"""Writes the status of each PodGang: phase Pending, Starting (its minimum has nodes) or Running (its minimum is Ready).

On a real cluster the gang scheduler writes it. This controller owns the conditions `Scheduled` and `Ready` and leaves
`Initialized` and all others alone. It handles a gang once for any number of its pods that changed together.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from rollouts.engine.scheduling.placement import NamespacedName
from rollouts.engine.scheduling.pod_groups import PodGroup
from rollouts.sandbox.apiserver.storage import Storage, StorageChange
from rollouts.sandbox.cluster.cache import (
    ClusterCache,
    is_ready,
    is_terminating,
    key_of,
    uses_node_resources,
)
from rollouts.sandbox.cluster.client import ControllerClient
from rollouts.sandbox.cluster.controllers import QueueController
from rollouts.sandbox.conditions import make_condition, merge_conditions
from rollouts.sandbox.times import render_time

Obj = dict[str, Any]

BATCH_DELAY: Final = timedelta(milliseconds=50)


class PodGangController(QueueController[NamespacedName]):
    """Keeps the status of PodGangs."""

    def __init__(
        self, store: Storage, cache: ClusterCache, client: ControllerClient, clock: Callable[[], datetime]
    ) -> None:
        super().__init__(clock)
        self._store, self._cache, self._client = store, cache, client

    def observe(self, change: StorageChange) -> None:
        """Queue the gang, or the gang of a pod that got or lost its node or its readiness."""
        kinds = self._cache.kinds
        if change.kind is kinds.gangs:
            gang: NamespacedName | None = key_of(change.obj)
        elif change.kind is kinds.pods and _compute_stage(change.old) != _compute_stage(_current_object(change)):
            gang = self._cache.gang_by_pod.get(key_of(change.obj))
        else:
            return
        if gang is not None:
            self._queue.schedule_no_later(gang, self._clock() + BATCH_DELAY)

    def _sync(self, key: NamespacedName, now: datetime) -> None:
        stored = self._store.get(self._cache.kinds.gangs, *key)
        if stored is not None:
            status = compute_status(stored.obj, self._count_pods(key), now)
            self._client.update_status(self._cache.kinds.gangs, stored.obj, status)

    def _count_pods(self, gang: NamespacedName) -> list[tuple[PodGroup, int, int]]:
        """Count, for each group, the pods that have a node and the pods that are Ready."""
        counted = []
        for group in self._cache.gangs.get(gang, ()):
            pods = [self._cache.get_pod(member) for member in group.members]
            stages = [_compute_stage(pod) for pod in pods]
            counted.append((group, sum(stage >= 1 for stage in stages), stages.count(2)))
        return counted


def compute_status(gang: Obj, groups: Iterable[tuple[PodGroup, int, int]], now: datetime) -> Obj:
    """Return the status of a gang, given its groups with the number of scheduled and of Ready pods."""
    groups = list(groups)
    unscheduled = [_describe_missing(group, have) for group, have, _ in groups if have < group.min_replicas]
    unready = [_describe_missing(group, have) for group, _, have in groups if have < group.min_replicas]
    phase = "Pending" if unscheduled or not groups else "Starting" if unready else "Running"
    conditions = [
        _make_gang_condition("Scheduled", unscheduled, ("GangScheduled", "GangNotScheduled")),
        _make_gang_condition("Ready", unready, ("GangReady", "GangNotReady")),
    ]
    status = gang.get("status") or {}
    return {
        **status,
        "phase": phase,
        "conditions": merge_conditions(status.get("conditions"), conditions, render_time(now)),
    }


def _make_gang_condition(kind: str, missing: list[str], reasons: tuple[str, str]) -> Obj:
    message = f"groups below their minimum: {', '.join(missing)}" if missing else "every group has its minimum"
    return make_condition(kind, holds=not missing, reason=reasons[bool(missing)], message=message)


def _describe_missing(group: PodGroup, have: int) -> str:
    return f"{group.name} ({have}/{group.min_replicas})"


def _current_object(change: StorageChange) -> Obj | None:
    return None if change.type == "DELETED" else change.obj


def _compute_stage(pod: Obj | None) -> int:
    """Return 0 for a pod that has no node or terminates, 1 for one with a node, 2 for a Ready one."""
    if pod is None or is_terminating(pod) or not uses_node_resources(pod):
        return 0
    return 2 if is_ready(pod) else 1
