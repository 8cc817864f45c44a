"""Figures of the controller on a real kube-apiserver, each beside a reference from the same run.

    a pod at a time    30 pods that take 100 ms to become Ready, replaced one after the other: with no controller at all
                       (delete, create, Ready: the floor of this machine), by the StatefulSet controller, by ours
    many pods          500 replicas of 2 pods, from the creation of the set until all are Ready
    one pass           over those 1,000 pods when nothing is to be done
    memory             of each process with 10,000 pods in the mirror

All cases use the tests' stand-in for scheduler and kubelets, so only the controller differs.
"""

import contextlib
import copy
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rollouts.cluster import Changed, ClusterClient, Obj, Resource, Watch, kubeconfig
from rollouts.cluster.resources import NAMESPACES, PODCLIQUESETS, PODS
from rollouts.engine.model import names
from rollouts.sandbox.cluster.pod_lifecycle import READY_SECONDS_ANNOTATION
from tests.apiserver import (
    GARBAGE_COLLECTOR,
    STATEFULSET_CONTROLLER,
    install_definitions,
    running_apiserver,
    running_controller_manager,
)
from tests.controlling import BEAT, WATCHER, WORKER, Controller, running_controller
from tests.deploy.manifests import GROVE, load
from tests.nodes import make_nodes
from tests.scenarios.scene import is_leaving, is_ready
from tests.standin.process import running_standin

STATEFULSETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
PODS_IN_A_ROW = 30
READY_SECONDS = 0.1
NODES = 20
NAMESPACE = "bench"
MIRRORED = 10_000
WRITERS = 16
DEADLINE = 600.0

Report = Callable[[str, str], None]


def measure_controller(report: Report) -> None:
    """Measure everything on one API server and report it."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        server = stack.enter_context(running_apiserver())
        cluster = ClusterClient(kubeconfig(server.kubeconfig), pool_size=WRITERS)
        install_definitions(cluster)
        make_nodes(cluster, (f"node-{number}" for number in range(NODES)))
        cluster.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        stack.enter_context(running_controller_manager(server, GARBAGE_COLLECTOR, STATEFULSET_CONTROLLER))
        stack.enter_context(running_standin(server.kubeconfig, ready=READY_SECONDS))
        floor = measure_floor(cluster)
        report("one pod at a time: floor, no controller", f"{floor * 1000:8.0f} ms a pod")
        statefulset = measure_statefulset(cluster)
        report("one pod at a time: StatefulSet controller", f"{statefulset * 1000:8.0f} ms a pod")
        controller = stack.enter_context(running_controller(folder, server.kubeconfig))
        ours = measure_rollout(cluster)
        report("one pod at a time: Grove UI", f"{ours * 1000:8.0f} ms a pod")
        report("  Grove UI / floor (target 1.3)", f"{ours / floor:8.2f} ×")
        report("  Grove UI / StatefulSet controller (target below 1)", f"{ours / statefulset:8.2f} ×")
        many = measure_creation(cluster)
        report("500 × 2 pods created and Ready", f"{many:8.1f} s")
        report("  pods a second", f"{1000 / many:8.0f}")
        report_passes(controller, report)
        report_memory(cluster, controller, report)


# --- one pod at a time ---------------------------------------------------------------------------------------------


def measure_floor(cluster: ClusterClient) -> float:
    """Replace pods one after the other as fast as the API allows; return the mean seconds of each."""
    with listening(cluster, "app=floor") as ready:
        cluster.create(PODS, _lone_pod(0))
        _wait_for(ready, "floor-0")
        started = time.perf_counter()
        for number in range(PODS_IN_A_ROW):
            cluster.delete(PODS, f"floor-{number}", namespace=NAMESPACE)
            cluster.create(PODS, _lone_pod(number + 1))
            _wait_for(ready, f"floor-{number + 1}")
        seconds = (time.perf_counter() - started) / PODS_IN_A_ROW
        cluster.delete(PODS, f"floor-{PODS_IN_A_ROW}", namespace=NAMESPACE)
    return seconds


def measure_statefulset(cluster: ClusterClient) -> float:
    """Roll a StatefulSet; return the seconds for each of its pods."""
    template = {"metadata": _pod_metadata("stateful"), "spec": _pod_spec("v1")}
    spec = {
        "replicas": PODS_IN_A_ROW,
        "podManagementPolicy": "OrderedReady",
        "selector": {"matchLabels": {"app": "stateful"}},
        "template": template,
    }
    cluster.create(STATEFULSETS, {"metadata": {"name": "stateful", "namespace": NAMESPACE}, "spec": spec})
    with following(cluster, STATEFULSETS, "stateful") as states:
        _until(states, lambda obj: obj["status"].get("readyReplicas") == PODS_IN_A_ROW)
        started = time.perf_counter()
        patch = {"spec": {"template": {"spec": _pod_spec("v2")}}}
        revision = cluster.patch_merge(STATEFULSETS, "stateful", patch, namespace=NAMESPACE)["metadata"]["generation"]
        _until(states, lambda obj: _is_rolled(obj, revision))
        seconds = (time.perf_counter() - started) / PODS_IN_A_ROW
    cluster.delete(STATEFULSETS, "stateful", namespace=NAMESPACE)
    return seconds


def _is_rolled(obj: Obj, generation: int) -> bool:
    status = obj["status"]
    is_all = status.get("updatedReplicas") == status.get("readyReplicas") == PODS_IN_A_ROW
    is_over = status.get("currentRevision") == status.get("updateRevision")
    return bool(status.get("observedGeneration") == generation and is_all and is_over)


def measure_rollout(cluster: ClusterClient) -> float:
    """Roll a set with one clique, one pod at a time; return the seconds for each of its pods."""
    clique = {
        "name": "c",
        "annotations": {READY_SECONDS_ANNOTATION: str(READY_SECONDS)},
        "spec": {"roleName": "c", "replicas": PODS_IN_A_ROW, "minAvailable": 1, "podSpec": _pod_spec("v1")},
    }
    _create_set(cluster, "rolling", {"replicas": 1, "template": {"cliques": [clique]}})
    with following(cluster, PODCLIQUESETS, "rolling") as states:
        _until(states, lambda obj: (obj.get("status") or {}).get("availableReplicas") == 1)
        _wait_until_ready(cluster, "rolling", PODS_IN_A_ROW)
        started = time.perf_counter()
        path = "/spec/template/cliques/0/spec/podSpec/containers/0/image"
        change = [{"op": "replace", "path": path, "value": "bench:v2"}]
        cluster.patch_json(PODCLIQUESETS, "rolling", change, namespace=NAMESPACE)
        _until(states, lambda obj: bool((obj["status"].get("updateProgress") or {}).get("updateEndedAt")))
        seconds = (time.perf_counter() - started) / PODS_IN_A_ROW
    cluster.delete(PODCLIQUESETS, "rolling", namespace=NAMESPACE)
    return seconds


# --- many pods -----------------------------------------------------------------------------------------------------


def measure_creation(cluster: ClusterClient) -> float:
    """Create Grove's set of 500 replicas with 2 pods each; return the seconds until all are Ready."""
    spec = load(next(path for path in GROVE if path.stem == "scale-test-1000"))["spec"]
    ready: set[str] = set()
    with listening(cluster, f"{names.PART_OF}=thousand") as names_of_ready:
        started = time.perf_counter()
        _create_set(cluster, "thousand", spec)
        while len(ready) < 1000:
            ready.add(names_of_ready.get(timeout=DEADLINE))
        return time.perf_counter() - started


def report_passes(controller: Controller, report: Report) -> None:
    """Run passes over the settled workload in a process like a worker's."""
    cluster = controller.environment.get("KUBE_CONTEXT") or "admin"
    command = [sys.executable, "-m", "tests.bench.one_pass", f"{cluster}/{NAMESPACE}/thousand"]
    done = subprocess.run(command, env=controller.environment, check=True, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        what, _, figure = line.partition("\t")
        report(what, figure)


# --- memory --------------------------------------------------------------------------------------------------------


def report_memory(cluster: ClusterClient, controller: Controller, report: Report) -> None:
    """Fill the mirror, restart the watcher, and measure the memory of every process."""
    with ThreadPoolExecutor(WRITERS) as pool:
        for _ in pool.map(lambda number: cluster.create(PODS, _mirrored_pod(number)), range(MIRRORED - 1000)):
            pass
    (watcher,) = controller.of(WATCHER)
    watcher.kill()
    watcher.start()
    count = "from rollouts.models import Pod; print(Pod.objects.count())"
    deadline = time.monotonic() + DEADLINE
    while int(controller.manage("shell", "--verbosity", "0", "-c", count)) < MIRRORED:
        assert time.monotonic() < deadline, "the mirror does not fill"
        time.sleep(1)
    for role in (WATCHER, WORKER, BEAT):
        for one in controller.of(role):
            weights = [_resident_megabytes(pid) for pid in one.processes()]
            report(f"memory, {MIRRORED:,} pods mirrored: {role}", " + ".join(f"{one:.0f}" for one in weights) + " MB")
    database = sum(path.stat().st_size for path in controller.folder.glob("grove.sqlite3*")) / 1e6
    if database:
        report(f"  database of {MIRRORED:,} pods", f"{database:8.0f} MB")


def _mirrored_pod(number: int) -> Obj:
    pod = _lone_pod(number)
    labels = {names.MANAGED_BY: names.OPERATOR, names.PART_OF: f"mirrored-{number % 9}"}
    pod["metadata"] |= {"name": f"mirrored-{number}", "labels": labels}
    pod["spec"]["schedulingGates"] = [{"name": "bench/stays-where-it-is"}]
    return pod


def _resident_megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


# --- objects and listening -----------------------------------------------------------------------------------------


def _pod_spec(tag: str) -> Obj:
    return {"containers": [{"name": "main", "image": f"bench:{tag}"}]}


def _pod_metadata(app: str) -> Obj:
    return {"labels": {"app": app}, "annotations": {READY_SECONDS_ANNOTATION: str(READY_SECONDS)}}


def _lone_pod(number: int) -> Obj:
    metadata = {"name": f"floor-{number}", "namespace": NAMESPACE, **_pod_metadata("floor")}
    return {"metadata": metadata, "spec": _pod_spec("v1")}


def _create_set(cluster: ClusterClient, name: str, spec: Obj) -> None:
    metadata = {"name": name, "namespace": NAMESPACE}
    head = {"apiVersion": PODCLIQUESETS.api_version, "kind": PODCLIQUESETS.kind, "metadata": metadata}
    cluster.create(PODCLIQUESETS, {**head, "spec": copy.deepcopy(spec)})


def _wait_until_ready(cluster: ClusterClient, name: str, number: int) -> None:
    ready: set[str] = set()
    with listening(cluster, f"{names.PART_OF}={name}") as names_of_ready:
        while len(ready) < number:
            ready.add(names_of_ready.get(timeout=DEADLINE))


@contextlib.contextmanager
def listening(cluster: ClusterClient, labels: str) -> Iterator["queue.SimpleQueue[str]"]:
    """Yield the names of pods as they become Ready."""
    heard: queue.SimpleQueue[str] = queue.SimpleQueue()
    watch = Watch(cluster, PODS, namespace=NAMESPACE, labels=labels)

    def listen() -> None:
        for note in watch:
            if isinstance(note, Changed) and is_ready(note.obj) and not is_leaving(note.obj):
                heard.put(note.obj["metadata"]["name"])

    with in_background(listen, watch):
        yield heard


@contextlib.contextmanager
def following(cluster: ClusterClient, resource: Resource, name: str) -> Iterator["queue.SimpleQueue[Obj]"]:
    """Yield the versions of one object."""
    heard: queue.SimpleQueue[Obj] = queue.SimpleQueue()
    watch = Watch(cluster, resource, namespace=NAMESPACE, fields=f"metadata.name={name}")

    def listen() -> None:
        for note in watch:
            if isinstance(note, Changed):
                heard.put(note.obj)

    with in_background(listen, watch):
        yield heard


@contextlib.contextmanager
def in_background(listen: Callable[[], None], watch: Watch) -> Iterator[None]:
    """Watch in a thread of its own."""
    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield
    finally:
        watch.stop()
        thread.join(10)


def _wait_for(ready: "queue.SimpleQueue[str]", name: str) -> None:
    while ready.get(timeout=DEADLINE) != name:
        pass


def _until(states: "queue.SimpleQueue[Obj]", true: Callable[[Obj], bool]) -> None:
    while not true(states.get(timeout=DEADLINE)):
        pass


def median_ms(seconds: list[float]) -> str:
    """Render the median of some times."""
    return f"{statistics.median(seconds) * 1000:8.1f} ms"
