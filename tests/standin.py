"""Scheduler and kubelets for a real API server that has none: binds pods gang by gang, makes them Ready, lets them go.

A real kube-apiserver keeps pods but runs none. This stands in for the machines, so that tests and benchmarks can watch
the controller at work on the real API. It is a process of its own (`python -m tests.standin`) and a client like any
other: it watches pods, PodGangs and nodes, and writes bindings, statuses and removals. What it decides comes from the
pure functions of the sandbox (`scheduler.schedule`, `pod_lifecycle.compute_status`), so a workload meets the same rules
on both: room by requests and allocatable, cordoned nodes, a gang's minimum all at once, `:broken` images that
never become Ready, `sandbox.grove.io/ready-seconds` on a pod.

The difference to a kubelet is thrift: a pod gets one status, the Ready one, when its time has come, and only what never
becomes Ready is shown on its way. Nothing polls; the process sleeps until a watch tells something or a moment comes.
It keeps nothing: killed and started again it goes on from what the API shows.
"""

import argparse
import contextlib
import heapq
import logging
import os
import queue
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from rollouts.cluster import (
    AlreadyExists,
    Changed,
    ClusterClient,
    ClusterError,
    Conflict,
    Deleted,
    NotFound,
    Obj,
    Resource,
    RetryPolicy,
    Synced,
    Watch,
    kubeconfig,
)
from rollouts.cluster.resources import NODES, PODGANGS, PODS, ResourcePath
from rollouts.engine.model import names
from rollouts.engine.scheduling.constraints import parse_constraints
from rollouts.engine.scheduling.placement import Demand, GangState, NodeCapacity, PodGroupState, WaitingPod, schedule
from rollouts.engine.scheduling.resources import compute_requests
from rollouts.sandbox.cluster import pod_lifecycle
from rollouts.sandbox.cluster.cache import (
    NamespacedName,
    PodGroup,
    clique_key,
    is_finished,
    is_ready,
    is_terminating,
    key_of,
    node_name,
    parse_pod_groups,
    uses_node_resources,
)
from rollouts.sandbox.cluster.node_info import NodeInfo, parse_node_info
from rollouts.sandbox.conditions import find_condition, make_condition, merge_conditions
from rollouts.sandbox.times import render_time
from tests.apiserver import die_with_parent

logger = logging.getLogger(__name__)

WRITERS = 16
SECONDS_TO_RETRY = 0.1
SECONDS_TO_START = 60.0
LISTENING = "listening"
# So many looks ahead find the Ready moment of any pod that has one: creating, some init containers, containers.
LOOKS_AHEAD = 12
# A state that lasts no longer is not written: two writes so close to each other could change places.
A_WHILE = timedelta(seconds=1)
_WATCHED = (PODS, PODGANGS, NODES)


@contextlib.contextmanager
def running_standin(path: Path, *, ready: float = 0.1, termination: float = 0.0) -> Iterator[subprocess.Popen[str]]:
    """Run the stand-in for the cluster of a kubeconfig, from when it listens until the block ends."""
    command = [sys.executable, "-m", "tests.standin", str(path), f"--ready={ready}", f"--termination={termination}"]
    process = subprocess.Popen(
        command,
        cwd=Path(__file__).parents[1],
        env={name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 (it takes no lock)
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        if said.strip() != LISTENING:
            raise RuntimeError(f"the stand-in did not start: {said!r}, exit code {process.poll()}")
        yield process
    finally:
        process.kill()
        process.wait()


def make_nodes(
    cluster: ClusterClient,
    names: Iterable[str],
    labels: dict[str, str] | None = None,
    *,
    pods: int = 110,
    cpus: int = 32,
) -> None:
    """Create nodes that are up and have room for 128 GiB and a number of cpus and pods each."""
    capacity = {"cpu": str(cpus), "memory": "128Gi", "pods": str(pods)}
    for name in names:
        node = {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
            "status": {
                "capacity": capacity,
                "allocatable": capacity,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            },
        }
        with contextlib.suppress(AlreadyExists):
            cluster.create(NODES, node)


@dataclass(slots=True)
class Tenancy:
    """A pod on a node, beyond what its manifest says."""

    uid: str
    bound_at: datetime
    address: str
    deleted_at: datetime | None = None
    unblocked_at: datetime | None = None


class Moments:
    """What is to be done when: a heap of calls."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def put(self, at: float, work: Callable[[], None]) -> None:
        """Note something to be done."""
        heapq.heappush(self._heap, (at, next(self._order), work))

    def seconds_left(self) -> float | None:
        """Say how long it is until the next one."""
        return max(0.0, self._heap[0][0] - time.monotonic()) if self._heap else None

    def run_due(self) -> None:
        """Do what is due."""
        while self._heap and self._heap[0][0] <= time.monotonic():
            heapq.heappop(self._heap)[2]()


class Rooms:
    """Which pod takes how much of which node: pods that the API shows there, and those on their way."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeInfo] = {}
        self._taken: dict[NamespacedName, tuple[str, dict[str, int]]] = {}
        self._used: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def take(self, key: NamespacedName, node: str, requests: dict[str, int]) -> None:
        """Note a pod's place."""
        if key not in self._taken:
            self._taken[key] = (node, requests)
            self._used[node].update(requests)

    def give_back(self, key: NamespacedName) -> bool:
        """Forget a pod; say whether that made room."""
        node, requests = self._taken.pop(key, ("", {}))
        if node:
            self._used[node].subtract(requests)
        return bool(node)

    def survey(self) -> list[NodeCapacity]:
        """Say what is free where."""
        return [
            NodeCapacity(
                node, {name: amount - self._used[node.name][name] for name, amount in node.allocatable.items()}
            )
            for node in self.nodes.values()
        ]


class StandIn:
    """The machines of one cluster. Everything but the writes happens in the thread that calls `run`."""

    def __init__(self, cluster: ClusterClient, pace: pod_lifecycle.KubeletTimings) -> None:
        self._cluster, self._pace = cluster, pace
        self._news: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._writers = ThreadPoolExecutor(WRITERS)
        self._moments = Moments()
        self._rooms = Rooms()
        self._pods: dict[NamespacedName, Obj] = {}
        self._gangs: dict[NamespacedName, tuple[PodGroup, ...]] = {}
        self._listing: dict[NamespacedName, NamespacedName] = {}  # pod → the gang that lists it
        self._waiting: dict[NamespacedName, WaitingPod] = {}
        self._placed: set[NamespacedName] = set()  # pods that have a node or are on their way to one, and stay
        self._tenancies: dict[NamespacedName, Tenancy] = {}
        self._ready: Counter[NamespacedName] = Counter()  # namespace and clique → Ready pods
        self._blocked: set[NamespacedName] = set()  # pods that wait for other cliques
        self._told: dict[NamespacedName, tuple[str, str]] = {}  # waiting pod → the version that was told why, and why
        self._must_schedule = False
        self._synced = 0
        self._addresses = count(1)

    def run(self) -> None:
        """Listen and work until the process ends."""
        for resource in _WATCHED:
            threading.Thread(target=self._listen, args=(resource,), daemon=True).start()
        while True:
            self._hear()
            self._moments.run_due()
            if self._must_schedule and self._synced == len(_WATCHED):
                self._must_schedule = False
                self._schedule()

    def _hear(self) -> None:
        """Take in everything that was told, waiting for the first of it until the next moment."""
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
                    self._news.put(lambda known=known: self._forget_others(resource, known))  # type: ignore[misc]
                    if not has_synced:
                        has_synced = True
                        self._news.put(self._note_synced)

    def _note_synced(self) -> None:
        self._synced += 1
        if self._synced == len(_WATCHED):
            print(LISTENING, flush=True)  # noqa: T201 (whoever started us waits for it)

    # --- what is there ---------------------------------------------------------------------------------------

    def _observe(self, resource: Resource, obj: Obj, *, gone: bool) -> None:
        if resource is PODS:
            self._observe_pod(obj, gone=gone)
        elif resource is PODGANGS:
            self._observe_gang(obj, gone=gone)
        else:
            self._observe_node(obj, gone=gone)

    def _forget_others(self, resource: Resource, known: frozenset[NamespacedName]) -> None:
        """After a list: what it does not show is gone."""
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
            self._lose(key)
            before = None
        self._count_ready(before, None if gone else pod)
        if gone:
            self._lose(key)
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
            self._look_after(key)

    def _lose(self, key: NamespacedName) -> None:
        """Forget a pod that is no more."""
        self._pods.pop(key, None)
        self._waiting.pop(key, None)
        self._told.pop(key, None)
        self._tenancies.pop(key, None)
        self._blocked.discard(key)
        self._placed.discard(key)
        if self._rooms.give_back(key):
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
        decision = schedule(candidates, self._rooms.survey(), {gang.key: gang for gang in gangs.values()})
        for binding in decision.bindings:
            self._assume(binding.pod, binding.node)
        for key, why in decision.unplaced.items():
            self._tell_why(key, why)

    def _gang_of(self, key: NamespacedName) -> NamespacedName | None:
        label = (self._pods[key]["metadata"].get("labels") or {}).get(names.GANG)
        return self._listing.get(key) or ((key[0], label) if label else None)

    def _survey_gang(self, gang: NamespacedName) -> GangState:
        groups = self._gangs[gang]
        return GangState(
            gang, tuple(PodGroupState(g.name, g.min_replicas, g.members, len(g.members & self._placed)) for g in groups)
        )

    def _assume(self, key: NamespacedName, node: str) -> None:
        """Count a pod where it will be, and bind it."""
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
        self._rooms.give_back(key)
        if _is_waiting(pod):
            self._expect(key, pod)

    def _tell_why(self, key: NamespacedName, why: str) -> None:
        pod = self._pods[key]
        before = find_condition(pod, "PodScheduled")
        if before.get("message") == why or self._told.get(key) == (pod["metadata"]["resourceVersion"], why):
            return
        self._told[key] = pod["metadata"]["resourceVersion"], why
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
        elif self._rooms.give_back(key):
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
            self._tenancies[key] = Tenancy(pod["metadata"]["uid"], bound_at, address)
            self._look_after(key)
        elif is_terminating(pod) and self._tenancies[key].deleted_at is None:
            self._look_after(key)

    def _look_after(self, key: NamespacedName) -> None:
        """Do what is to be done for a pod on a node now, or note when."""
        pod, tenancy = self._pods[key], self._tenancies[key]
        if is_terminating(pod):
            self._wind_down(key, pod, tenancy)
        elif not is_ready(pod) and not is_finished(pod):
            self._raise(key, pod, tenancy)

    def _wind_down(self, key: NamespacedName, pod: Obj, tenancy: Tenancy) -> None:
        now = datetime.now(UTC)
        tenancy.deleted_at = tenancy.deleted_at or now
        self._blocked.discard(key)
        end = pod_lifecycle.compute_stopped_at(pod, tenancy.deleted_at, self._pace)
        self._at(end, tenancy, key, lambda: self._write(lambda: self._remove(pod), lambda: self._look_after_soon(key)))

    def _raise(self, key: NamespacedName, pod: Obj, tenancy: Tenancy) -> None:
        dependencies = pod_lifecycle.parse_dependencies(pod)
        if tenancy.unblocked_at is None:
            if all(self._ready[key[0], entry.clique] >= entry.ready for entry in dependencies):
                tenancy.unblocked_at = datetime.now(UTC)
                self._blocked.discard(key)
            elif key in self._blocked:
                return
            else:
                self._blocked.add(key)
        at, outlook = self._foresee(pod, tenancy)
        self._at(at, tenancy, key, lambda: self._show(key, pod["metadata"]["uid"], outlook.status))
        if outlook.next_change_at is not None and not is_ready({**pod, "status": outlook.status}):
            self._at(outlook.next_change_at, tenancy, key, lambda: self._look_after(key))

    def _foresee(self, pod: Obj, tenancy: Tenancy) -> tuple[datetime, pod_lifecycle.ComputedStatus]:
        """Find the next state of a pod that lasts, and when it comes: Ready, or whatever holds for a while."""
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

    def _look_at(self, pod: Obj, tenancy: Tenancy, at: datetime) -> pod_lifecycle.ComputedStatus:
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

    def _at(self, moment: datetime, tenancy: Tenancy, key: NamespacedName, work: Callable[[], None]) -> None:
        """Do something for a pod at a moment, unless another pod has its name by then."""

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
            self._look_after(key)

    def _write(self, work: Callable[[], None], on_failure: Callable[[], None]) -> None:
        """Write in the background; on a failure that may pass, think again after a moment."""
        self._writers.submit(self._attempt, work, on_failure)

    def _attempt(self, work: Callable[[], None], on_failure: Callable[[], None]) -> None:
        try:
            work()
        except (NotFound, Conflict):
            self._news.put(self._think_again)  # the watch tells what came between
        except ClusterError as error:
            logger.warning("%s", error)
            again = time.monotonic() + SECONDS_TO_RETRY
            self._news.put(lambda: self._moments.put(again, on_failure))


def _is_waiting(pod: Obj) -> bool:
    gated = bool(pod["spec"].get("schedulingGates"))
    return not (gated or node_name(pod) or is_terminating(pod) or is_finished(pod))


def main() -> None:
    """Stand in until killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.standin", description="Schedule and run pods, in pretence.")
    parser.add_argument("kubeconfig", type=Path)
    parser.add_argument("--ready", type=float, default=0.1, help="seconds from binding to Ready")
    parser.add_argument("--termination", type=float, default=0.0, help="seconds from delete to gone")
    options = parser.parse_args()
    # Quick tries: the tests restart the server and want to go on as soon as it is back.
    patience = RetryPolicy(max_backoff=0.5, initial_backoff=0.05)
    cluster = ClusterClient(kubeconfig(options.kubeconfig), retry_policy=patience, pool_size=WRITERS + len(_WATCHED))
    StandIn(cluster, pod_lifecycle.KubeletTimings(ready=options.ready, termination=options.termination)).run()


if __name__ == "__main__":
    main()
