"""`make bench`: figures of the foundation, measured in one run on one machine.

Machines differ and are noisy, so what counts are the ratios: the sandbox beside a real kube-apiserver doing the same
work, the adapter beside the model classes of the kubernetes package reading the same list. Nothing is asserted.
"""

import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kubernetes import client, config

from rollouts.cluster import Cluster, Obj, kubeconfig
from rollouts.cluster.resources import NAMESPACES, PODS
from tests.apiserver import missing_binaries, running_apiserver
from tests.sandbox_process import running_sandbox

POD_COUNT = 2000
WRITERS = 16
NAMESPACE = "bench"


def main() -> None:
    """Measure everything and print it."""
    cores = os.cpu_count()
    print(f"{platform.machine()}, {cores} cores, Python {platform.python_version()}, {POD_COUNT:,} pods\n")  # noqa: T201
    with running_sandbox(SANDBOX_SAMPLES="none", SANDBOX_NODES="200") as sandbox:
        ours = _measure_server("sandbox", sandbox.kubeconfig)
        _report("sandbox: all pods Ready after", f"{_seconds_until_ready(sandbox.kubeconfig):8.2f} s")
        _report("sandbox: memory", f"{_resident_megabytes(sandbox.pid):8.0f} MB")
    _report("kubernetes package: list as models / adapter", f"{ours['models'] / ours['list']:8.1f} ×")
    if missing := missing_binaries():
        _report("kube-apiserver", f"skipped: {', '.join(missing)} not found, set KUBEBUILDER_ASSETS")
    else:
        with running_apiserver() as server:
            real = _measure_server("kube-apiserver", server.kubeconfig)
        for what in ("create", "list", "get"):
            _report(f"{what}: sandbox / kube-apiserver", f"{ours[what] / real[what]:8.2f} ×")
    _report("make run: first start until it answers", f"{_start_seconds(runs=1)[0]:8.1f} s")


def _measure_server(name: str, path: Path) -> dict[str, float]:
    cluster = Cluster(kubeconfig(path), pool_size=WRITERS)
    cluster.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    figures = {
        "create": _time(lambda: _create_pods(cluster)),
        "list": _best(lambda: cluster.list(PODS, namespace=NAMESPACE)),
        "get": _best(lambda: cluster.get(PODS, "bench-0", namespace=NAMESPACE), times=200),
        "models": _best(lambda: _list_as_models(path), times=3),
    }
    _report(f"{name}: create, {WRITERS} writers", f"{POD_COUNT / figures['create']:8.0f} pods/s")
    _report(f"{name}: list", f"{figures['list'] * 1000:8.0f} ms")
    _report(f"{name}: get", f"{figures['get'] * 1000:8.2f} ms")
    return figures


def _create_pods(cluster: Cluster) -> None:
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
    return client.CoreV1Api(config.new_client_from_config(str(path))).list_namespaced_pod(NAMESPACE)


def _seconds_until_ready(path: Path) -> float:
    """Wait until every pod is Ready and return how long the slowest took from its creation."""
    cluster = Cluster(kubeconfig(path))
    while True:
        pods = cluster.list(PODS, namespace=NAMESPACE).items
        if all(_is_ready(pod) for pod in pods):
            return _span(pods)
        time.sleep(0.5)


def _is_ready(pod: Obj) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _span(pods: Sequence[Obj]) -> float:
    from datetime import datetime

    created = min(datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) for pod in pods)
    ready = max(
        datetime.fromisoformat(condition["lastTransitionTime"])
        for pod in pods
        for condition in pod["status"]["conditions"]
        if condition["type"] == "Ready"
    )
    return (ready - created).total_seconds()


def _start_seconds(runs: int) -> list[float]:
    from tests.project.running import product

    seconds = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder, product(Path(folder)) as running:
            started = time.monotonic()
            running.wait_until_it_answers()
            seconds.append(time.monotonic() - started)
            running.interrupt()
    return seconds


def _resident_megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def _time(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _best(work: Callable[[], object], times: int = 5) -> float:
    return statistics.median(_time(work) for _ in range(times))


def _report(what: str, figure: str) -> None:
    print(f"{what:<50} {figure}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
