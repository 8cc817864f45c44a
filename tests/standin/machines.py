"""The scheduler and the kubelets: what the API shows, what is due, and what is written."""

import contextlib
import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count

from rollouts.cluster import (
    Changed,
    ClusterClient,
    ClusterError,
    Conflict,
    Deleted,
    NotFound,
    Obj,
    Resource,
    Synced,
    Watch,
)
from rollouts.cluster.resources import NODES, PODGANGS, PODS, ResourcePath
from rollouts.engine.model import names
from rollouts.engine.scheduling.constraints import parse_constraints
from rollouts.engine.scheduling.placement import Demand, GangState, NamespacedName, WaitingPod, schedule
from rollouts.engine.scheduling.pod_groups import PodGroup, make_gang_state, parse_pod_groups
from rollouts.engine.scheduling.resources import compute_requests
from rollouts.sandbox.cluster import pod_lifecycle
from rollouts.sandbox.cluster.cache import (
    clique_key,
    is_finished,
    is_ready,
    is_terminating,
    key_of,
    node_name,
    uses_node_resources,
)
from rollouts.sandbox.cluster.node_info import parse_node_info
from rollouts.sandbox.conditions import find_condition, make_condition, merge_conditions
from rollouts.sandbox.times import render_time
from tests.standin.node_resources import NodeResources
from tests.standin.process import LISTENING
from tests.standin.timer_heap import TimerHeap

logger = logging.getLogger(__name__)

WRITERS = 16
SECONDS_TO_RETRY = 0.1
# So many steps ahead reach the Ready status of any pod that has one: creating, some init containers, containers.
LOOKS_AHEAD = 12
# A shorter state is not written: two writes so close together could be reordered.
A_WHILE = timedelta(seconds=1)
WATCHED = (PODS, PODGANGS, NODES)


@dataclass(slots=True)
class PodOnNode:
    """What the stand-in knows of a pod on a node besides its manifest."""

    uid: str
    bound_at: datetime
    address: str
    deleted_at: datetime | None = None
    unblocked_at: datetime | None = None


class StandIn:
    """The machines of one cluster. The thread that calls `run` does everything but the writes."""

    def __init__(self, cluster: ClusterClient, pace: pod_lifecycle.KubeletTimings) -> None:
        self._cluster, self._pace = cluster, pace
        self._news: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._writers = ThreadPoolExecutor(WRITERS)
        self._moments = TimerHeap()
        self._rooms = NodeResources()
        self._pods: dict[NamespacedName, Obj] = {}
        self._gangs: dict[NamespacedName, tuple[PodGroup, ...]] = {}
        self._listing: dict[NamespacedName, NamespacedName] = {}  # pod → the gang that lists it
        self._waiting: dict[NamespacedName, WaitingPod] = {}
        self._placed: set[NamespacedName] = set()  # pods that have a node or are being bound, and do not terminate
        self._tenancies: dict[NamespacedName, PodOnNode] = {}
        self._ready: Counter[NamespacedName] = Counter()  # namespace and clique → Ready pods
        self._blocked: set[NamespacedName] = set()  # pods that wait for other cliques
        # waiting pod → the version whose condition was written, and the message
        self._reported: dict[NamespacedName, tuple[str, str]] = {}
        self._must_schedule = False
        self._synced = 0
        self._addresses = count(1)

    def run(self) -> None:
        """Process changes and due calls until the process ends."""
        for resource in WATCHED:
            threading.Thread(target=self._listen, args=(resource,), daemon=True).start()
        while True:
            self._process_changes()
            self._moments.run_due()
            if self._must_schedule and self._synced == len(WATCHED):
                self._must_schedule = False
                self._schedule()

    def _process_changes(self) -> None:
        """Process all changes of the watches; wait for the first until the next call is due."""
        with contextlib.suppress(queue.Empty):
            self._news.get(timeout=self._moments.seconds_left())()
            while True:
                self._news.get_nowait()()

    def _listen(self, resource: Resource) -> None:
        has_synced = False
        for note in Watch(self._cluster, resource):
            match note:
                case Changed(obj):
                    self._news.put(lambda obj=obj: self._observe(resource, obj, gone=False))  # type: ignore[misc]
                case Deleted(obj):
                    self._news.put(lambda obj=obj: self._observe(resource, obj, gone=True))  # type: ignore[misc]
                case Synced(keys):
                    known = frozenset((key.namespace, key.name) for key in keys)
                    self._news.put(lambda known=known: self._drop_unlisted(resource, known))  # type: ignore[misc]
                    if not has_synced:
                        has_synced = True
                        self._news.put(self._note_synced)

    def _note_synced(self) -> None:
        self._synced += 1
        if self._synced == len(WATCHED):
            print(LISTENING, flush=True)  # noqa: T201 (whoever started us waits for it)

    # --- what is there ---------------------------------------------------------------------------------------

    def _observe(self, resource: Resource, obj: Obj, *, gone: bool) -> None:
        if resource is PODS:
            self._observe_pod(obj, gone=gone)
        elif resource is PODGANGS:
            self._observe_gang(obj, gone=gone)
        else:
            self._observe_node(obj, gone=gone)

    def _drop_unlisted(self, resource: Resource, known: frozenset[NamespacedName]) -> None:
        """After a list, drop the objects that it does not contain."""
        if resource is PODS:
            for key in self._pods.keys() - known:
                self._observe_pod(self._pods[key], gone=True)

    def _observe_node(self, node: Obj, *, gone: bool) -> None:
        name = node["metadata"]["name"]
        if gone:
            self._rooms.nodes.pop(name, None)
        else:
            self._rooms.nodes[name] = parse_node_info(node)
            self._must_schedule = True

    def _observe_gang(self, gang: Obj, *, gone: bool) -> None:
        key = key_of(gang)
        for group in self._gangs.pop(key, ()):
            for pod in group.members:
                self._listing.pop(pod, None)
        if not gone:
            self._gangs[key] = parse_pod_groups(gang)
            self._listing.update((pod, key) for group in self._gangs[key] for pod in group.members)
        self._must_schedule = True

    def _observe_pod(self, pod: Obj, *, gone: bool) -> None:
        key = key_of(pod)
        before = self._pods.get(key)
        if before is not None and before["metadata"]["uid"] != pod["metadata"]["uid"]:
            self._drop_pod(key)
            before = None
        self._count_ready(before, None if gone else pod)
        if gone:
            self._drop_pod(key)
            return
        self._pods[key] = pod
        if _is_waiting(pod):
            self._expect(key, pod)
        elif node_name(pod):
            self._house(key, pod)
        else:
            self._waiting.pop(key, None)

    def _count_ready(self, before: Obj | None, after: Obj | None) -> None:
        was, is_now = is_ready(before), is_ready(after)
        some = after or before
        if was == is_now or some is None:
            return
        self._ready[clique_key(some)] += 1 if is_now else -1
        for key in list(self._blocked):
            self._sync_pod(key)

    def _drop_pod(self, key: NamespacedName) -> None:
        """Drop a pod that was removed."""
        self._pods.pop(key, None)
        self._waiting.pop(key, None)
        self._reported.pop(key, None)
        self._tenancies.pop(key, None)
        self._blocked.discard(key)
        self._placed.discard(key)
        if self._rooms.release(key):
            self._must_schedule = True

    # --- the scheduler ---------------------------------------------------------------------------------------

    def _expect(self, key: NamespacedName, pod: Obj) -> None:
        if key in self._waiting or key in self._placed:
            return
        spec = pod["spec"]
        self._waiting[key] = WaitingPod(
            pod=key,
            priority=int(spec.get("priority") or 0),
            created=pod["metadata"]["creationTimestamp"],
            demand=Demand(tuple(sorted(compute_requests(spec).items())), parse_constraints(spec)),
        )
        self._must_schedule = True

    def _schedule(self) -> None:
        candidates = [replace(waiting, gang=self._gang_of(key)) for key, waiting in self._waiting.items()]
        if not candidates:
            return
        gangs = {c.gang: self._survey_gang(c.gang) for c in candidates if c.gang in self._gangs}
        decision = schedule(candidates, self._rooms.list_free(), {gang.key: gang for gang in gangs.values()})
        for binding in decision.bindings:
            self._reserve_and_bind(binding.pod, binding.node)
        for key, why in decision.unplaced.items():
            self._tell_why(key, why)

    def _gang_of(self, key: NamespacedName) -> NamespacedName | None:
        label = (self._pods[key]["metadata"].get("labels") or {}).get(names.GANG)
        return self._listing.get(key) or ((key[0], label) if label else None)

    def _survey_gang(self, gang: NamespacedName) -> GangState:
        return make_gang_state(gang, self._gangs[gang], self._placed)

    def _reserve_and_bind(self, key: NamespacedName, node: str) -> None:
        """Reserve the resources of a pod on its node, and bind it."""
        pod = self._pods[key]
        del self._waiting[key]
        self._placed.add(key)
        self._rooms.take(key, node, compute_requests(pod["spec"]))
        uid = pod["metadata"]["uid"]
        self._write(lambda: self._bind(key, uid, node), lambda: self._give_up_binding(key, uid))

    def _bind(self, key: NamespacedName, uid: str, node: str) -> None:
        namespace, name = key
        metadata = {"name": name, "namespace": namespace, "uid": uid}
        binding = {"metadata": metadata, "target": {"apiVersion": "v1", "kind": "Node", "name": node}}
        self._cluster._write("bind", "POST", ResourcePath(PODS, namespace, name, "binding"), binding, query={})

    def _give_up_binding(self, key: NamespacedName, uid: str) -> None:
        pod = self._pods.get(key)
        if pod is None or pod["metadata"]["uid"] != uid or node_name(pod):
            return
        self._placed.discard(key)
        self._rooms.release(key)
        if _is_waiting(pod):
            self._expect(key, pod)

    def _tell_why(self, key: NamespacedName, why: str) -> None:
        pod = self._pods[key]
        before = find_condition(pod, "PodScheduled")
        if before.get("message") == why or self._reported.get(key) == (pod["metadata"]["resourceVersion"], why):
            return
        self._reported[key] = pod["metadata"]["resourceVersion"], why
        condition = make_condition("PodScheduled", holds=False, reason="Unschedulable", message=why)
        conditions = merge_conditions(
            (pod.get("status") or {}).get("conditions"), [condition], render_time(datetime.now(UTC))
        )
        # Only if nothing has happened to the pod meanwhile: it may be bound, and even Ready, when this is written.
        version = pod["metadata"]["resourceVersion"]
        self._write(lambda: self._put_status(pod, {"conditions": conditions}, version), self._think_again)

    def _think_again(self) -> None:
        self._must_schedule = True

    # --- the kubelets ----------------------------------------------------------------------------------------

    def _house(self, key: NamespacedName, pod: Obj) -> None:
        self._waiting.pop(key, None)
        if uses_node_resources(pod):
            self._rooms.take(key, node_name(pod) or "", compute_requests(pod["spec"]))
        elif self._rooms.release(key):
            self._must_schedule = True
        if is_terminating(pod) or is_finished(pod):
            if key in self._placed:
                self._placed.discard(key)
                self._must_schedule = True
        else:
            self._placed.add(key)
        if key not in self._tenancies:
            bound_at = pod_lifecycle.find_bound_at(pod) if is_ready(pod) else datetime.now(UTC)
            number = next(self._addresses)
            address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
            self._tenancies[key] = PodOnNode(pod["metadata"]["uid"], bound_at, address)
            self._sync_pod(key)
        elif is_terminating(pod) and self._tenancies[key].deleted_at is None:
            self._sync_pod(key)

    def _sync_pod(self, key: NamespacedName) -> None:
        """Write what is due for a pod on a node, or schedule it."""
        pod, tenancy = self._pods[key], self._tenancies[key]
        if is_terminating(pod):
            self._wind_down(key, pod, tenancy)
        elif not is_ready(pod) and not is_finished(pod):
            self._raise(key, pod, tenancy)

    def _wind_down(self, key: NamespacedName, pod: Obj, tenancy: PodOnNode) -> None:
        now = datetime.now(UTC)
        tenancy.deleted_at = tenancy.deleted_at or now
        self._blocked.discard(key)
        end = pod_lifecycle.compute_stopped_at(pod, tenancy.deleted_at, self._pace)
        self._at(end, tenancy, key, lambda: self._write(lambda: self._remove(pod), lambda: self._look_after_soon(key)))

    def _raise(self, key: NamespacedName, pod: Obj, tenancy: PodOnNode) -> None:
        dependencies = pod_lifecycle.parse_dependencies(pod)
        if tenancy.unblocked_at is None:
            if all(self._ready[key[0], entry.clique] >= entry.ready for entry in dependencies):
                tenancy.unblocked_at = datetime.now(UTC)
                self._blocked.discard(key)
            elif key in self._blocked:
                return
            else:
                self._blocked.add(key)
        at, outlook = self._find_next_status(pod, tenancy)
        self._at(at, tenancy, key, lambda: self._show(key, pod["metadata"]["uid"], outlook.status))
        if outlook.next_change_at is not None and not is_ready({**pod, "status": outlook.status}):
            self._at(outlook.next_change_at, tenancy, key, lambda: self._sync_pod(key))

    def _find_next_status(self, pod: Obj, tenancy: PodOnNode) -> tuple[datetime, pod_lifecycle.ComputedStatus]:
        """Return the next lasting status of a pod and when it is due: Ready, or another that holds for a while."""
        at = max(tenancy.bound_at, datetime.now(UTC))
        outlook = self._look_at(pod, tenancy, at)
        for _ in range(LOOKS_AHEAD):
            if outlook.next_change_at is None or outlook.next_change_at - at > A_WHILE:
                break
            if is_ready({**pod, "status": outlook.status}):
                break
            at = outlook.next_change_at
            outlook = self._look_at(pod, tenancy, at)
        return at, outlook

    def _look_at(self, pod: Obj, tenancy: PodOnNode, at: datetime) -> pod_lifecycle.ComputedStatus:
        facts = pod_lifecycle.PodContext(at, tenancy.bound_at, tenancy.unblocked_at, True, "127.0.0.1", tenancy.address)
        return pod_lifecycle.compute_status(pod, facts, self._pace)

    def _show(self, key: NamespacedName, uid: str, status: Obj) -> None:
        pod = self._pods.get(key)
        if pod is not None and not is_terminating(pod) and pod.get("status") != status:
            self._write(lambda: self._put_status(pod, status), lambda: self._look_after_soon(key))

    def _put_status(self, pod: Obj, status: Obj, version: str | None = None) -> None:
        namespace, name = key_of(pod)
        metadata = {"uid": pod["metadata"]["uid"], "resourceVersion": version}
        patch = {"metadata": {name: value for name, value in metadata.items() if value}, "status": status}
        self._cluster.patch_merge(PODS, name, patch, namespace=namespace, subresource="status")

    def _remove(self, pod: Obj) -> None:
        namespace, name = key_of(pod)
        self._cluster.delete(PODS, name, namespace=namespace, uid=pod["metadata"]["uid"], grace_seconds=0)

    # --- moments and writes ----------------------------------------------------------------------------------

    def _at(self, moment: datetime, tenancy: PodOnNode, key: NamespacedName, work: Callable[[], None]) -> None:
        """Schedule a call for a pod; skip it if another pod has the name by then."""

        def do() -> None:
            if self._tenancies.get(key) is tenancy:
                work()

        left = (moment - datetime.now(UTC)).total_seconds()
        if left <= 0:
            do()
        else:
            self._moments.put(time.monotonic() + left, do)

    def _look_after_soon(self, key: NamespacedName) -> None:
        if key in self._tenancies:
            self._sync_pod(key)

    def _write(self, work: Callable[[], None], on_failure: Callable[[], None]) -> None:
        """Write in the background; after a temporary failure, process the pod again a moment later."""
        self._writers.submit(self._attempt, work, on_failure)

    def _attempt(self, work: Callable[[], None], on_failure: Callable[[], None]) -> None:
        try:
            work()
        except (NotFound, Conflict):
            self._news.put(self._think_again)  # the watch reports what came between
        except ClusterError as error:
            logger.warning("%s", error)
            again = time.monotonic() + SECONDS_TO_RETRY
            self._news.put(lambda: self._moments.put(again, on_failure))


def _is_waiting(pod: Obj) -> bool:
    gated = bool(pod["spec"].get("schedulingGates"))
    return not (gated or node_name(pod) or is_terminating(pod) or is_finished(pod))
