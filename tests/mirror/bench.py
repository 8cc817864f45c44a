"""Measures the mirror: run `python -m tests.mirror.bench`. It prints figures and asserts nothing.

Each figure is the best of several runs, in CPU time of this process: wall time would also measure what else the machine
does. The database is that of `DATABASE_URL`, else SQLite; what PostgreSQL itself does is not counted.
"""

import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import django

RUNS = 15


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"DATA_DIR": folder, "DJANGO_SETTINGS_MODULE": "grove_ui.settings"}
        django.setup()
        from django.test.utils import setup_databases, teardown_databases

        databases = setup_databases(verbosity=0, interactive=False)
        try:
            for what, milliseconds in measure():
                sys.stdout.write(f"{what:<60}{milliseconds:8.1f} ms\n")
        finally:
            teardown_databases(databases, verbosity=0)


def measure() -> Iterator[tuple[str, float]]:
    """Yield what was measured and the best time."""
    from django.db import connection

    from rollouts import mirror
    from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESETS, PODS
    from tests.mirror import objects

    cluster = mirror.ensure_cluster("bench")
    versions = itertools.count(10)
    numbers = range(1000)

    def cliques() -> list[dict[str, Any]]:
        version = next(versions)
        return [
            objects.clique(f"my-{number}-c", uid=f"c-{number}", replica=number, version=version) | {"status": _STATUS}
            for number in numbers
        ]

    def pods(count: int = len(numbers), *, ready: bool = True) -> list[dict[str, Any]]:
        version = next(versions)
        return [
            objects.pod(f"p-{n}", uid=f"p-{n}", clique=f"my-{n}-c", owner=f"c-{n}", version=version, ready=ready)
            for n in range(count)
        ]

    database = connection.vendor
    mirror.store(cluster, PODCLIQUESETS, [objects.pod_clique_set()])
    mirror.store(cluster, PODCLIQUES, cliques())
    yield f"{database}: store 1,000 new pods", best(lambda told: mirror.store(cluster, PODS, told), pods, runs=1)
    yield f"{database}: store newer versions of 1,000 pods", best(lambda told: mirror.store(cluster, PODS, told), pods)
    flips = itertools.cycle([True, False])
    one = best(lambda told: mirror.store(cluster, PODS, told), lambda: pods(1, ready=next(flips)))
    yield f"{database}: store 1 pod that changed", one
    yield (
        f"{database}: read 1,000 pods in 1,000 cliques",
        best(lambda _: mirror.fetch_workload(cluster, "web", "my"), lambda: None),
    )


def best(work: Callable[[Any], object], prepare: Callable[[], Any], runs: int = RUNS) -> float:
    """Return the milliseconds of the quickest run."""
    quickest = float("inf")
    for _ in range(runs):
        given = prepare()
        started = time.process_time()
        work(given)
        quickest = min(quickest, time.process_time() - started)
    return quickest * 1000


_CONDITION = {
    "status": "True",
    "reason": "SufficientReadyPods",
    "message": "enough pods are ready",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
    "observedGeneration": 1,
}
_STATUS = {
    "observedGeneration": 1,
    "replicas": 1,
    "readyReplicas": 1,
    "scheduledReplicas": 1,
    "updatedReplicas": 1,
    "currentPodTemplateHash": "6f8b",
    "currentPodCliqueSetGenerationHash": "77c9",
    "conditions": [{"type": kind, **_CONDITION} for kind in ("MinAvailableBreached", "PodCliqueScheduled")],
    "updateProgress": {
        "updateStartedAt": "2026-01-02T03:04:05Z",
        "updateEndedAt": "2026-01-02T03:09:05Z",
        "podCliqueSetGenerationHash": "77c9",
        "podTemplateHash": "6f8b",
    },
}

if __name__ == "__main__":
    main()
