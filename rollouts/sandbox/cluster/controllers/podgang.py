"""Tells on each PodGang how far it is: phase Pending, Starting (its minimum has nodes), Running (its minimum
is Ready).

This is what a gang scheduler reports. The conditions `Scheduled` and `Ready` are kept here; `Initialized` and
whatever else others set is left alone. A gang is looked at once for any number of its pods that changed
together.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from rollouts.sandbox.apiserver.storage import Change, Store
from rollouts.sandbox.cluster.cache import Census, Key, PodGroup, holds_room, is_leaving, is_ready, key_of
from rollouts.sandbox.cluster.client import Writes
from rollouts.sandbox.cluster.conditions import make_condition, merge_conditions
from rollouts.sandbox.cluster.controllers import SLICE
from rollouts.sandbox.cluster.timer_queue import Agenda

Obj = dict[str, Any]

SETTLE: Final = timedelta(milliseconds=50)


class Gangs:
    """Keeps the status of PodGangs."""

    def __init__(self, store: Store, census: Census, writes: Writes, clock: Callable[[], datetime]) -> None:
        self._store, self._census, self._writes, self._clock = store, census, writes, clock
        self._agenda: Agenda[Key] = Agenda()

    def observe(self, change: Change) -> None:
        """Note the gang, or the gang of a pod that got or lost its node or its readiness."""
        kinds = self._census.kinds
        if change.kind is kinds.gangs:
            gang: Key | None = key_of(change.obj)
        elif change.kind is kinds.pods and _stage(change.old) != _stage(_now(change)):
            gang = self._census.gang_of.get(key_of(change.obj))
        else:
            return
        if gang is not None:
            self._agenda.hurry(gang, self._clock() + SETTLE)

    def work(self, now: datetime) -> None:
        """Write the status of the gangs that are due."""
        for key in self._agenda.take_due(now, SLICE):
            stored = self._store.get(self._census.kinds.gangs, *key)
            if stored is not None:
                status = compute_status(stored.obj, self._count(key), now)
                self._writes.put_status(self._census.kinds.gangs, stored.obj, status)

    def next_due(self) -> datetime | None:
        """Say when a gang has to be looked at."""
        return self._agenda.next_due()

    def _count(self, gang: Key) -> list[tuple[PodGroup, int, int]]:
        """Count, for each group, the pods that have a node and the pods that are Ready."""
        counted = []
        for group in self._census.gangs.get(gang, ()):
            pods = [self._census.pod(member) for member in group.members]
            stages = [_stage(pod) for pod in pods]
            counted.append((group, sum(stage >= 1 for stage in stages), stages.count(2)))
        return counted


def compute_status(gang: Obj, groups: Iterable[tuple[PodGroup, int, int]], now: datetime) -> Obj:
    """Say how far a gang is, given its groups with their scheduled and their Ready pods."""
    groups = list(groups)
    unscheduled = [_missing(group, have) for group, have, _ in groups if have < group.min_replicas]
    unready = [_missing(group, have) for group, _, have in groups if have < group.min_replicas]
    phase = "Pending" if unscheduled or not groups else "Starting" if unready else "Running"
    conditions = [
        _condition("Scheduled", unscheduled, ("GangScheduled", "GangNotScheduled")),
        _condition("Ready", unready, ("GangReady", "GangNotReady")),
    ]
    status = gang.get("status") or {}
    return {**status, "phase": phase, "conditions": merge_conditions(status.get("conditions"), conditions, now)}


def _condition(kind: str, missing: list[str], reasons: tuple[str, str]) -> Obj:
    message = f"groups below their minimum: {', '.join(missing)}" if missing else "every group has its minimum"
    return make_condition(kind, holds=not missing, reason=reasons[bool(missing)], message=message)


def _missing(group: PodGroup, have: int) -> str:
    return f"{group.name} ({have}/{group.min_replicas})"


def _now(change: Change) -> Obj | None:
    return None if change.type == "DELETED" else change.obj


def _stage(pod: Obj | None) -> int:
    """Give 0 for a pod without a node or on its way out, 1 with a node, 2 when it is Ready."""
    if pod is None or is_leaving(pod) or not holds_room(pod):
        return 0
    return 2 if is_ready(pod) else 1
