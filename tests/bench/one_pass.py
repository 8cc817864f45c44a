"""`python -m tests.bench.one_pass <key>`: the time of one pass over a workload, in a process like a worker's.

`tests.bench.controller` runs it in the environment of a running controller. Prints one figure a line.
"""

import os
import sys
import time
from collections.abc import Callable

import django

TIMES = 15


def main() -> None:
    """Measure passes over the workload of a key."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "grove_ui.settings")
    django.setup()
    from rollouts import mirror
    from rollouts.controller import reconciler
    from rollouts.engine.manifest.parsing import parse_workload
    from rollouts.engine.model.workload import Workload
    from rollouts.engine.plan.planner import plan
    from rollouts.models import Cluster
    from tests.bench.controller import median_ms

    key = sys.argv[1]
    name, namespace, workload = key.split("/")
    cluster = Cluster.objects.get(name=name)
    seen = mirror.fetch_workload(cluster, namespace, workload)
    assert seen is not None, f"{key} is not in the mirror"
    parsed = parse_workload(seen.manifest)
    assert isinstance(parsed, Workload), parsed
    outcome = reconciler.reconcile(key)
    figures: list[tuple[str, Callable[[], object]]] = [
        (f"one pass over 1,000 settled pods ({type(outcome).__name__})", lambda: reconciler.reconcile(key)),
        ("  of which reading the mirror", lambda: mirror.fetch_workload(cluster, namespace, workload)),
        ("  of which planning", lambda: plan(parsed, seen.observed, time.time())),
    ]
    for what, work in figures:
        print(f"{what}\t{median_ms([_time(work) for _ in range(TIMES)])}")  # noqa: T201


def _time(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
