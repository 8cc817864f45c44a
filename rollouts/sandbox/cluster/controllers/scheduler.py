"""The scheduler: gathers the waiting pods, binds those for which `engine.scheduling.placement.schedule` finds a node,
and writes on the others why they wait.

A pod is tried when it is created, when its gang changes, and when resources become free; until then a pod that found no
node is left alone, so a full cluster costs nothing. Changes are batched for `BATCH_DELAY` and handled in one pass that
binds about `MAX_BINDINGS_PER_PASS` pods before requests get their turn. Pods with scheduling gates are never tried.
The scheduler places pods of every schedulerName.

The reason why a pod waits is written when it changes, and at most every `CONDITION_INTERVAL`: with a thousand waiting
pods, each pod that ends elsewhere would otherwise rewrite a thousand conditions.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from rollouts.engine.scheduling.constraints import parse_constraints
from rollouts.engine.scheduling.placement import Demand, NamespacedName, NodeCapacity, WaitingPod, schedule
from rollouts.engine.scheduling.pod_groups import make_gang_state, parse_pod_groups
from rollouts.engine.scheduling.resources import compute_requests
from rollouts.sandbox.apiserver.storage import StorageChange
from rollouts.sandbox.cluster.cache import (
    ClusterCache,
    is_finished,
    is_terminating,
    key_of,
    node_name,
    uses_node_resources,
)
from rollouts.sandbox.cluster.client import ControllerClient
from rollouts.sandbox.cluster.controllers import ITEMS_PER_TURN
from rollouts.sandbox.cluster.controllers.event_recorder import EventRecorder
from rollouts.sandbox.cluster.timer_queue import TimerQueue
from rollouts.sandbox.conditions import find_condition, make_condition, merge_conditions
from rollouts.sandbox.times import render_time

Obj = dict[str, Any]

BATCH_DELAY: Final = timedelta(milliseconds=20)
CONDITION_INTERVAL: Final = timedelta(seconds=5)
MAX_BINDINGS_PER_PASS: Final = 16
COMPONENT: Final = "default-scheduler"
UNSCHEDULABLE: Final = "Unschedulable"


class Scheduler:
    """Binds waiting pods to nodes, and writes on each pod without a node why it waits."""

    def __init__(
        self, cache: ClusterCache, client: ControllerClient, recorder: EventRecorder, clock: Callable[[], datetime]
    ) -> None:
        self._cache, self._client, self._recorder, self._clock = cache, client, recorder, clock
        self._used_by_node: defaultdict[str, dict[str, int]] = defaultdict(dict)  # node → what its pods request
        self._scheduled_pods: set[NamespacedName] = set()  # pods that have a node and do not terminate
        self._pending_pods: dict[NamespacedName, WaitingPod] = {}
        self._queued_pods: dict[NamespacedName, None] = {}
        self._queued_gangs: dict[NamespacedName, None] = {}
        self._is_all_queued = False
        self._pass_due_at: datetime | None = None
        self._due_conditions: TimerQueue[NamespacedName] = TimerQueue()  # pods whose condition has to be written
        self._pending_messages: dict[NamespacedName, str] = {}  # the message it will have
        self._reported_at: dict[NamespacedName, datetime] = {}
        self._priorities: dict[str, int] = {}
        self.passes = 0
        self.nodes_examined = 0  # since the start, the measure of the scheduler's work

    # --- what changed ----------------------------------------------------------------------------------------

    def observe(self, change: StorageChange) -> None:
        """Queue the pods that a change may make schedulable."""
        kinds = self._cache.kinds
        if change.kind is kinds.pods:
            self._observe_pod(change)
        elif change.kind is kinds.nodes:
            self._observe_node(change)
        elif change.kind is kinds.gangs:
            self._observe_gang(change)
        elif change.kind is kinds.priority_classes:
            self._priorities[change.obj["metadata"]["name"]] = int(change.obj.get("value") or 0)

    def _observe_pod(self, change: StorageChange) -> None:
        key, new = key_of(change.obj), None if change.type == "DELETED" else change.obj
        self._track_resources(change.old, new)
        self._track_scheduled(key, new)
        if new is None or not _is_schedulable(new):
            self._remove_pending_pod(key)
        elif key not in self._pending_pods or change.old is None or change.old["spec"] != new["spec"]:
            self._add_pending_pod(key, new)

    def _track_resources(self, old: Obj | None, new: Obj | None) -> None:
        held, holds = uses_node_resources(old), uses_node_resources(new)
        if old is not None and held and not holds:
            self._add_requests(old, -1)
            self._enqueue_all()
        elif new is not None and holds and not held:
            self._add_requests(new, 1)

    def _add_requests(self, pod: Obj, sign: int) -> None:
        used = self._used_by_node[pod["spec"]["nodeName"]]
        for name, amount in compute_requests(pod["spec"]).items():
            used[name] = used.get(name, 0) + sign * amount

    def _track_scheduled(self, key: NamespacedName, pod: Obj | None) -> None:
        placed = pod is not None and uses_node_resources(pod) and not is_terminating(pod)
        if placed == (key in self._scheduled_pods):
            return
        (self._scheduled_pods.add if placed else self._scheduled_pods.discard)(key)
        gang = self._cache.gang_by_pod.get(key)
        if gang is not None:
            self._enqueue_gang(gang)

    def _observe_node(self, change: StorageChange) -> None:
        if change.type != "DELETED" and (
            change.old is None or _scheduling_fields(change.old) != _scheduling_fields(change.obj)
        ):
            self._enqueue_all()

    def _observe_gang(self, change: StorageChange) -> None:
        """Queue the gang, and the pods it listed before: they may have no gang or their label's gang now."""
        before = () if change.old is None else parse_pod_groups(change.old)
        self._queued_pods.update((pod, None) for group in before for pod in group.members if pod in self._pending_pods)
        self._enqueue_gang(key_of(change.obj))

    def _add_pending_pod(self, key: NamespacedName, pod: Obj) -> None:
        spec = pod["spec"]
        self._pending_pods[key] = WaitingPod(
            pod=key,
            priority=int(spec.get("priority") or self._priorities.get(spec.get("priorityClassName") or "", 0)),
            created=pod["metadata"]["creationTimestamp"],
            demand=Demand(tuple(sorted(compute_requests(spec).items())), parse_constraints(spec)),
        )
        gang = self._cache.gang_by_pod.get(key)
        if gang is not None:
            self._enqueue_gang(gang)
        else:
            self._queued_pods[key] = None
            self._request_pass()

    def _remove_pending_pod(self, key: NamespacedName) -> None:
        self._pending_pods.pop(key, None)
        self._queued_pods.pop(key, None)
        self._due_conditions.cancel(key)
        self._pending_messages.pop(key, None)
        self._reported_at.pop(key, None)

    def _enqueue_gang(self, gang: NamespacedName) -> None:
        self._queued_gangs[gang] = None
        self._request_pass()

    def _enqueue_all(self) -> None:
        self._is_all_queued = True
        self._request_pass()

    def _request_pass(self) -> None:
        if self._pass_due_at is None:
            self._pass_due_at = self._clock() + BATCH_DELAY

    # --- the pass --------------------------------------------------------------------------------------------

    def work(self, now: datetime) -> None:
        """Run a pass when one is due, and write some of the conditions that are due."""
        if self._pass_due_at is not None and self._pass_due_at <= now:
            self._run_pass(now)
        for key in self._due_conditions.pop_due(now, ITEMS_PER_TURN):
            self._write_condition(key, now)

    def next_due(self) -> datetime | None:
        """Return when the next pass or condition is due."""
        moments = (self._pass_due_at, self._due_conditions.next_due())
        return min((moment for moment in moments if moment is not None), default=None)

    def _run_pass(self, now: datetime) -> None:
        candidates = self._pop_candidates()
        self._pass_due_at = None
        if not candidates:
            return
        keys = dict.fromkeys(candidate.gang for candidate in candidates if candidate.gang is not None)
        known = self._cache.gangs
        gangs = {key: make_gang_state(key, known[key], self._scheduled_pods) for key in keys if key in known}
        decision = schedule(candidates, self._snapshot_nodes(), gangs, limit=MAX_BINDINGS_PER_PASS)
        self.passes += 1
        self.nodes_examined += decision.nodes_examined
        for binding in decision.bindings:
            self._bind(binding.pod, binding.node)
        for key, message in decision.unplaced.items():
            self._schedule_condition(key, message)
        if decision.is_cut_short:
            decided = {binding.pod for binding in decision.bindings} | decision.unplaced.keys()
            self._queued_pods.update((c.pod, None) for c in candidates if c.pod not in decided)
            self._pass_due_at = now

    def _pop_candidates(self) -> list[WaitingPod]:
        """Return the queued pods, gangs always whole, and clear the queue."""
        keys = dict.fromkeys(self._pending_pods) if self._is_all_queued else {**self._queued_pods}
        gangs = {**self._queued_gangs}
        gangs.update((self._cache.gang_by_pod[key], None) for key in keys if key in self._cache.gang_by_pod)
        for gang in gangs:
            keys.update(self._cache.pods_by_gang.get(gang, {}))
        self._queued_pods.clear()
        self._queued_gangs.clear()
        self._is_all_queued = False
        gang_of = self._cache.gang_by_pod
        return [replace(self._pending_pods[k], gang=gang_of.get(k)) for k in keys if k in self._pending_pods]

    def _snapshot_nodes(self) -> list[NodeCapacity]:
        capacities = []
        for name, node in self._cache.nodes.items():
            used = self._used_by_node[name]
            free = {resource: amount - used.get(resource, 0) for resource, amount in node.allocatable.items()}
            capacities.append(NodeCapacity(node, free))
        return capacities

    def _bind(self, key: NamespacedName, node: str) -> None:
        pod = self._cache.get_pod(key)
        if pod is not None and self._client.bind(key, node):
            message = f"Successfully assigned {key[0]}/{key[1]} to {node}"
            self._recorder.record(self._cache.kinds.pods, pod, ("Normal", "Scheduled", message), COMPONENT)

    # --- why a pod waits -------------------------------------------------------------------------------------

    def _schedule_condition(self, key: NamespacedName, message: str) -> None:
        now = self._clock()
        self._pending_messages[key] = message
        last = self._reported_at.get(key)
        self._due_conditions.schedule_no_later(key, now if last is None else max(now, last + CONDITION_INTERVAL))

    def _write_condition(self, key: NamespacedName, now: datetime) -> None:
        message = self._pending_messages.pop(key)
        pod = self._cache.get_pod(key)
        if pod is None:
            return
        before = find_condition(pod, "PodScheduled")
        if (before.get("reason"), before.get("message")) == (UNSCHEDULABLE, message):
            return
        self._reported_at[key] = now
        status = pod.get("status") or {}
        condition = make_condition("PodScheduled", holds=False, reason=UNSCHEDULABLE, message=message)
        conditions = merge_conditions(status.get("conditions"), [condition], render_time(now))
        self._client.update_status(self._cache.kinds.pods, pod, {**status, "conditions": conditions})
        event = ("Warning", "FailedScheduling", message)
        self._recorder.record(self._cache.kinds.pods, pod, event, COMPONENT)


def _is_schedulable(pod: Obj) -> bool:
    """Return whether the pod waits for a node: it has none and no gates, and it neither terminates nor has ended."""
    gated = bool(pod["spec"].get("schedulingGates"))
    return not (gated or node_name(pod) or is_terminating(pod) or is_finished(pod))


def _scheduling_fields(node: Obj) -> tuple[Any, ...]:
    """Return what the scheduler reads of a node; a change of anything else, like a heartbeat, queues nothing."""
    status = node.get("status") or {}
    allocatable = status.get("allocatable") or status.get("capacity")
    return node["metadata"].get("labels"), node.get("spec"), allocatable
