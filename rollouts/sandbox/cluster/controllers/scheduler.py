"""The scheduler at work: gathers what waits, asks `scheduler.schedule`, binds, and tells the others why they
wait.

A pod is tried when it comes, when its gang changes, and when room appears; between these a pod that found no
room is left alone, so a full cluster costs nothing. Changes are gathered for a moment (`SETTLE`) and answered
by one pass, which binds about `BATCH` pods before requests get their turn. Pods with gates are never tried.
Every schedulerName is served: whatever a template names, the sandbox is that scheduler.

Why a pod waits is written when it changes, and at most every `REPORT_EVERY`: with a thousand pods waiting,
each pod that ends elsewhere would otherwise rewrite a thousand conditions.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from rollouts.engine.scheduling.constraints import parse_constraints
from rollouts.engine.scheduling.placement import Demand, Gang, Group, Room, Waiting, schedule
from rollouts.engine.scheduling.resources import compute_requests
from rollouts.sandbox.apiserver.storage import Change
from rollouts.sandbox.cluster.cache import (
    Census,
    Key,
    holds_room,
    is_finished,
    is_leaving,
    key_of,
    node_of,
    parse_groups,
)
from rollouts.sandbox.cluster.client import Writes
from rollouts.sandbox.cluster.conditions import find_condition, make_condition, merge_conditions
from rollouts.sandbox.cluster.controllers import SLICE
from rollouts.sandbox.cluster.controllers.event_recorder import Recorder
from rollouts.sandbox.cluster.timer_queue import Agenda

Obj = dict[str, Any]

SETTLE: Final = timedelta(milliseconds=20)
REPORT_EVERY: Final = timedelta(seconds=5)
BATCH: Final = 16
COMPONENT: Final = "default-scheduler"
UNSCHEDULABLE: Final = "Unschedulable"


class Scheduling:
    """Keeps every pod that can have a node on one, and every other pod told why not."""

    def __init__(self, census: Census, writes: Writes, recorder: Recorder, clock: Callable[[], datetime]) -> None:
        self._census, self._writes, self._recorder, self._clock = census, writes, recorder, clock
        self._used: defaultdict[str, dict[str, int]] = defaultdict(dict)  # node → what its pods take
        self._placed: set[Key] = set()  # pods that have a node and stay
        self._waiting: dict[Key, Waiting] = {}
        self._pods_to_try: dict[Key, None] = {}
        self._gangs_to_try: dict[Key, None] = {}
        self._try_all = False
        self._pass_due: datetime | None = None
        self._reports: Agenda[Key] = Agenda()  # pods whose condition has to be written
        self._reasons: dict[Key, str] = {}  # the message it will have
        self._reported_at: dict[Key, datetime] = {}
        self._priorities: dict[str, int] = {}
        self.passes = 0
        self.looked_at = 0  # nodes examined since the start, the measure of the scheduler's work

    # --- what changed ----------------------------------------------------------------------------------------

    def observe(self, change: Change) -> None:
        """Note the pods that a change gives a chance."""
        kinds = self._census.kinds
        if change.kind is kinds.pods:
            self._observe_pod(change)
        elif change.kind is kinds.nodes:
            self._observe_node(change)
        elif change.kind is kinds.gangs:
            self._observe_gang(change)
        elif change.kind is kinds.priorities:
            self._priorities[change.obj["metadata"]["name"]] = int(change.obj.get("value") or 0)

    def _observe_pod(self, change: Change) -> None:
        key, new = key_of(change.obj), None if change.type == "DELETED" else change.obj
        self._count_room(change.old, new)
        self._count_placed(key, new)
        if new is None or not _is_waiting(new):
            self._forget(key)
        elif key not in self._waiting or change.old is None or change.old["spec"] != new["spec"]:
            self._expect(key, new)

    def _count_room(self, old: Obj | None, new: Obj | None) -> None:
        held, holds = holds_room(old), holds_room(new)
        if old is not None and held and not holds:
            self._use(old, -1)
            self._try_everything()
        elif new is not None and holds and not held:
            self._use(new, 1)

    def _use(self, pod: Obj, sign: int) -> None:
        used = self._used[pod["spec"]["nodeName"]]
        for name, amount in compute_requests(pod["spec"]).items():
            used[name] = used.get(name, 0) + sign * amount

    def _count_placed(self, key: Key, pod: Obj | None) -> None:
        placed = pod is not None and holds_room(pod) and not is_leaving(pod)
        if placed == (key in self._placed):
            return
        (self._placed.add if placed else self._placed.discard)(key)
        gang = self._census.gang_of.get(key)
        if gang is not None:
            self._try_gang(gang)

    def _observe_node(self, change: Change) -> None:
        if change.type != "DELETED" and (change.old is None or _offer(change.old) != _offer(change.obj)):
            self._try_everything()

    def _observe_gang(self, change: Change) -> None:
        """Try the gang again, and the pods it listed before: they may stand alone or under their label's gang now."""
        before = () if change.old is None else parse_groups(change.old)
        self._pods_to_try.update((pod, None) for group in before for pod in group.members if pod in self._waiting)
        self._try_gang(key_of(change.obj))

    def _expect(self, key: Key, pod: Obj) -> None:
        spec = pod["spec"]
        self._waiting[key] = Waiting(
            pod=key,
            priority=int(spec.get("priority") or self._priorities.get(spec.get("priorityClassName") or "", 0)),
            created=pod["metadata"]["creationTimestamp"],
            demand=Demand(tuple(sorted(compute_requests(spec).items())), parse_constraints(spec)),
        )
        gang = self._census.gang_of.get(key)
        if gang is not None:
            self._try_gang(gang)
        else:
            self._pods_to_try[key] = None
            self._ask_for_pass()

    def _forget(self, key: Key) -> None:
        self._waiting.pop(key, None)
        self._pods_to_try.pop(key, None)
        self._reports.drop(key)
        self._reasons.pop(key, None)
        self._reported_at.pop(key, None)

    def _try_gang(self, gang: Key) -> None:
        self._gangs_to_try[gang] = None
        self._ask_for_pass()

    def _try_everything(self) -> None:
        self._try_all = True
        self._ask_for_pass()

    def _ask_for_pass(self) -> None:
        if self._pass_due is None:
            self._pass_due = self._clock() + SETTLE

    # --- the pass --------------------------------------------------------------------------------------------

    def work(self, now: datetime) -> None:
        """Run a pass when one is due, and write some of the conditions that are."""
        if self._pass_due is not None and self._pass_due <= now:
            self._run_pass(now)
        for key in self._reports.take_due(now, SLICE):
            self._write_report(key, now)

    def next_due(self) -> datetime | None:
        """Say when the next pass or report is due."""
        moments = (self._pass_due, self._reports.next_due())
        return min((moment for moment in moments if moment is not None), default=None)

    def _run_pass(self, now: datetime) -> None:
        candidates = self._take_candidates()
        self._pass_due = None
        if not candidates:
            return
        gangs = {c.gang: self._survey_gang(c.gang) for c in candidates if c.gang in self._census.gangs}
        decision = schedule(candidates, self._survey_rooms(), {gang.key: gang for gang in gangs.values()}, limit=BATCH)
        self.passes += 1
        self.looked_at += decision.looked_at
        for binding in decision.bindings:
            self._bind(binding.pod, binding.node)
        for key, message in decision.refusals.items():
            self._report(key, message)
        if decision.unfinished:
            decided = {binding.pod for binding in decision.bindings} | decision.refusals.keys()
            self._pods_to_try.update((c.pod, None) for c in candidates if c.pod not in decided)
            self._pass_due = now

    def _take_candidates(self) -> list[Waiting]:
        """Take the pods that have a chance, gangs always whole."""
        keys = dict.fromkeys(self._waiting) if self._try_all else {**self._pods_to_try}
        gangs = {**self._gangs_to_try}
        gangs.update((self._census.gang_of[key], None) for key in keys if key in self._census.gang_of)
        for gang in gangs:
            keys.update(self._census.claimants.get(gang, {}))
        self._pods_to_try.clear()
        self._gangs_to_try.clear()
        self._try_all = False
        gang_of = self._census.gang_of
        return [replace(self._waiting[k], gang=gang_of.get(k)) for k in keys if k in self._waiting]

    def _survey_gang(self, gang: Key) -> Gang:
        groups = self._census.gangs[gang]
        return Gang(
            gang,
            tuple(Group(g.name, g.min_replicas, g.members, len(g.members & self._placed)) for g in groups),
        )

    def _survey_rooms(self) -> list[Room]:
        rooms = []
        for name, node in self._census.nodes.items():
            used = self._used[name]
            free = {resource: amount - used.get(resource, 0) for resource, amount in node.allocatable.items()}
            rooms.append(Room(node, free))
        return rooms

    def _bind(self, key: Key, node: str) -> None:
        pod = self._census.pod(key)
        if pod is not None and self._writes.bind(key, node):
            message = f"Successfully assigned {key[0]}/{key[1]} to {node}"
            self._recorder.record(self._census.kinds.pods, pod, ("Normal", "Scheduled", message), COMPONENT)

    # --- why a pod waits -------------------------------------------------------------------------------------

    def _report(self, key: Key, message: str) -> None:
        now = self._clock()
        self._reasons[key] = message
        last = self._reported_at.get(key)
        self._reports.hurry(key, now if last is None else max(now, last + REPORT_EVERY))

    def _write_report(self, key: Key, now: datetime) -> None:
        message = self._reasons.pop(key)
        pod = self._census.pod(key)
        before = find_condition(pod, "PodScheduled") if pod is not None else None
        if pod is None or (before and (before.get("reason"), before.get("message")) == (UNSCHEDULABLE, message)):
            return
        self._reported_at[key] = now
        status = pod.get("status") or {}
        condition = make_condition("PodScheduled", holds=False, reason=UNSCHEDULABLE, message=message)
        conditions = merge_conditions(status.get("conditions"), [condition], now)
        self._writes.put_status(self._census.kinds.pods, pod, {**status, "conditions": conditions})
        incident = ("Warning", "FailedScheduling", message)
        self._recorder.record(self._census.kinds.pods, pod, incident, COMPONENT)


def _is_waiting(pod: Obj) -> bool:
    """Say whether the pod is for the scheduler: not gated, without a node, and staying."""
    gated = bool(pod["spec"].get("schedulingGates"))
    return not (gated or node_of(pod) or is_leaving(pod) or is_finished(pod))


def _offer(node: Obj) -> tuple[Any, ...]:
    """Give what of a node matters to the scheduler, so that a heartbeat wakes nobody."""
    status = node.get("status") or {}
    allocatable = status.get("allocatable") or status.get("capacity")
    return node["metadata"].get("labels"), node.get("spec"), allocatable
