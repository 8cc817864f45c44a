"""How long the API takes to read: run `python -m tests.bench.api`. Prints figures, asserts nothing.

Processor time in this process, from the request to the rendered response, without the network; the best of several
runs, as slower ones measure the other load of the machine. Beside each is the time to read the same rows through
Django's models, so that the ratio can be compared between machines. The database is the one of `DATABASE_URL`, else
SQLite; the time of PostgreSQL itself is not counted.
"""

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

from tests.bench.ground import empty_installation
from tests.mirror.bench import best

ROWS = 1000
VIEWERS = 200


def main() -> None:
    """Measure and print."""
    with empty_installation():
        for what, figure in measure():
            sys.stdout.write(f"{what:<70}{figure:>12}\n")


def measure() -> Iterator[tuple[str, str]]:
    """Yield the name of each measurement and its figure."""
    from django.db import connection
    from django.test import Client

    from rollouts.models import Pod, User, Workload
    from tests.api.read import fleet

    row = fleet.make_cluster()
    fleet.store_fleet(row, ROWS)
    fleet.store_parts(row, fleet.big_workload(pods=ROWS), outdated=range(0, ROWS, 2))
    client = Client()
    client.force_login(User.objects.create_superuser("bench"))

    def request(path: str) -> Callable[[Any], object]:
        return lambda _: _succeeded(client.get(f"/api/v1/{path}"))

    database = connection.vendor
    workloads = _time(lambda _: list(Workload.objects.filter(cluster=row)))
    pods = _time(lambda _: list(Pod.objects.filter(cluster=row, workload="big")))
    for what, path, rows in (
        (f"a page of 500 of {ROWS:,} workloads", "workloads/?page_size=500", workloads),
        (f"a page of 100 of {ROWS:,} workloads", "workloads/", workloads),
        (f"both pages of {ROWS:,} workloads", "workloads/?page_size=500", workloads),
        (f"tree of {ROWS:,} pods", "workloads/sandbox/default/big/tree/", pods),
        (f"diagnosis of {ROWS:,} pods", "workloads/sandbox/default/big/diagnosis/", pods),
        (f"strategy of {ROWS:,} pods", "workloads/sandbox/default/big/strategy/", pods),
    ):
        pages = ["&page=1", "&page=2"] if what.startswith("both") else [""]
        spent = sum(_time(request(f"{path}{page}")) for page in pages)
        yield f"{database}: {what}", f"{spent:8.1f} ms"
        yield f"{database}: {what} / reading the same rows as models", f"{spent / rows:8.2f} ×"
    yield f"feed: memory for {VIEWERS} viewers with as much waiting as may", f"{_viewer_megabytes():8.1f} MB"


def _time(work: Callable[[Any], object]) -> float:
    work(None)
    return best(work, lambda: None, runs=10)


def _succeeded(answer: Any) -> Any:
    assert answer.status_code == 200, answer.content
    return answer


def _viewer_megabytes() -> float:
    """Return the megabytes to keep the maximum number of changes for each of many viewers, all different."""
    from rollouts.api.feed import FeedFilter
    from rollouts.live.change_feed import Change
    from rollouts.live.hub import MAX_PENDING, FeedSubscriber

    keys = [f"sandbox/default/workload-{number}" for number in range(MAX_PENDING)]
    changes = [Change("sandbox", "workload", key, ("pods",)) for key in keys]
    tracemalloc.start()
    viewers = [FeedSubscriber(FeedFilter().matches) for _ in range(VIEWERS)]
    for viewer in viewers:
        viewer.on_changes(changes, "1-0", 0.0)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return used / 1e6


if __name__ == "__main__":
    main()
