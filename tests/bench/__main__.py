"""`make bench`: figures of the foundation and of the controller, measured in one run on one machine.

Machines differ and are noisy, so compare the ratios: the sandbox beside a real kube-apiserver that does the same work,
the adapter beside the model classes of the kubernetes package that read the same list. Asserts nothing.
"""

import contextlib
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

from kubernetes import client, config

from rollouts.cluster import ClusterClient, Obj, kubeconfig
from rollouts.cluster.resources import NAMESPACES, PODS
from tests.apiserver import missing_binaries, running_apiserver
from tests.bench.controller import measure_controller
from tests.contract.sandbox_process import SandboxProcess
from tests.project.running import product

POD_COUNT = 2000
WRITERS = 16
NAMESPACE = "bench"


def main() -> None:
    """Measure everything and print it."""
    cores = os.cpu_count()
    print(f"{platform.machine()}, {cores} cores, Python {platform.python_version()}, {POD_COUNT:,} pods\n")  # noqa: T201
    with (
        tempfile.TemporaryDirectory() as folder,
        SandboxProcess(Path(folder), SANDBOX_NODES="cpu=100,gpu=8") as sandbox,
    ):
        ours = _measure_server("sandbox", sandbox.kubeconfig, _wait_until_ready)
        _report("sandbox: memory", f"{_resident_megabytes(_sandbox_pid(folder)):8.0f} MB")
    _report("kubernetes package: list as models / adapter", f"{ours['models'] / ours['list']:8.1f} ×")
    if missing := missing_binaries():
        _report("kube-apiserver", f"skipped: {', '.join(missing)} not found, set KUBEBUILDER_ASSETS")
    else:
        with running_apiserver() as server:
            real = _measure_server("kube-apiserver", server.kubeconfig, lambda _: None)
        for what in ("create", "list", "get"):
            _report(f"{what}: sandbox / kube-apiserver", f"{ours[what] / real[what]:8.2f} ×")
    if lacking := missing_binaries("kube-controller-manager"):
        _report("controller", f"skipped: {', '.join(lacking)} not found, set KUBEBUILDER_ASSETS")
    else:
        measure_controller(_report)
    _report("make run: seconds until it answers, new data", f"{_start_seconds():8.1f} s")


def _measure_server(name: str, path: Path, settle: Callable[[ClusterClient], None]) -> dict[str, float]:
    cluster = ClusterClient(kubeconfig(path), pool_size=WRITERS)
    cluster.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    create = _time(lambda: _create_pods(cluster))
    _report(f"{name}: create, {WRITERS} writers", f"{POD_COUNT / create:8.0f} pods/s")
    settle(cluster)
    figures = {
        "create": create,
        "list": _median(lambda: cluster.list(PODS, namespace=NAMESPACE)),
        "get": _median(lambda: cluster.get(PODS, "bench-0", namespace=NAMESPACE), times=200),
        "models": _median(lambda: _list_as_models(path), times=3),
    }
    _report(f"{name}: list", f"{figures['list'] * 1000:8.0f} ms")
    _report(f"{name}: get", f"{figures['get'] * 1000:8.2f} ms")
    return figures


def _create_pods(cluster: ClusterClient) -> None:
    with ThreadPoolExecutor(WRITERS) as pool:
        for _ in pool.map(lambda index: cluster.create(PODS, _pod(index)), range(POD_COUNT)):
            pass


def _pod(index: int) -> Obj:
    requests = {"cpu": "100m", "memory": "64Mi"}
    return {
        "metadata": {"name": f"bench-{index}", "namespace": NAMESPACE, "labels": {"app": "bench"}},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "bench:v1", "resources": {"requests": requests}}],
        },
    }


def _list_as_models(path: Path) -> Any:
    return client.CoreV1Api(config.new_client_from_config(str(path))).list_namespaced_pod(NAMESPACE)  # type: ignore[no-untyped-call]


def _wait_until_ready(cluster: ClusterClient) -> None:
    """Wait until every pod is Ready; return the seconds since the first creation."""
    pods: Sequence[Obj] = ()
    while not pods or not all(_is_ready(pod) for pod in pods):
        time.sleep(0.5)
        pods = cluster.list(PODS, namespace=NAMESPACE).items
    _report("sandbox: all pods Ready, from the first creation", f"{_span(pods):8.0f} s")


def _is_ready(pod: Obj) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _span(pods: Sequence[Obj]) -> float:

    created = min(datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) for pod in pods)
    ready = max(
        datetime.fromisoformat(condition["lastTransitionTime"])
        for pod in pods
        for condition in pod["status"]["conditions"]
        if condition["type"] == "Ready"
    )
    return (ready - created).total_seconds()


def _start_seconds() -> float:
    with tempfile.TemporaryDirectory() as folder, product(Path(folder), WORKERS="") as running:
        started = time.monotonic()
        running.wait_until_it_answers()
        seconds = time.monotonic() - started
        running.interrupt()
    return seconds


def _sandbox_pid(folder: str) -> int:
    """Find the sandbox by the data folder in its environment."""
    wanted = f"DATA_DIR={folder}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in path.read_bytes().split(b"\0"):
                return int(path.parent.name)
    raise LookupError(folder)


def _resident_megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def _time(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _median(work: Callable[[], object], times: int = 5) -> float:
    return statistics.median(_time(work) for _ in range(times))


def _report(what: str, figure: str) -> None:
    print(f"{what:<50} {figure}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
