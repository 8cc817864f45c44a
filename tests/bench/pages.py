"""How long the pages take: run `python -m tests.bench.pages`. Prints figures, asserts nothing.

Server time in process, in time on the processor, from the request to the rendered page, without the network; the best
of several runs, as the rest measures what else the machine was doing. A fragment is asked for by many at once, as when
the change feed tells everybody of the same change: it is rendered once for all of them.
"""

import gzip
import sys
import time
from collections.abc import Iterator
from typing import Any

from tests.bench.ground import empty_installation
from tests.mirror.bench import best

ROWS = 1000
VIEWERS = 200
PAGES = (
    (f"list, a page of {ROWS:,} workloads", "/"),
    (f"list, searched, of {ROWS:,} workloads", "/?search=w-0"),
    (f"list, by strategy, of {ROWS:,} workloads", "/?strategy=OnDelete"),
    (f"workload of {ROWS:,} pods", "/workloads/sandbox/default/big/"),
    ("nodes, 100 of them", "/nodes/"),
    ("clusters", "/clusters/"),
    ("audit", "/audit/"),
)


def main() -> None:
    """Measure and print."""
    with empty_installation():
        for what, figure in measure():
            sys.stdout.write(f"{what:<64}{figure:>24}\n")


def measure() -> Iterator[tuple[str, str]]:
    """Yield what was measured and the figure."""
    from django.test import Client

    from rollouts.models import User
    from tests.api.read import fleet

    row = fleet.make_cluster()
    fleet.store_fleet(row, ROWS)
    fleet.store_nodes(row, 100)
    fleet.store_parts(row, fleet.big_workload(pods=ROWS), outdated=range(0, ROWS, 2))
    client = Client()
    client.force_login(User.objects.create_superuser("bench"))
    for what, address in PAGES:
        page = _get(client, address)
        spent = best(lambda _, address=address: _get(client, address), lambda: None, runs=10)  # type: ignore[misc]
        yield what, f"{spent:7.1f} ms {len(gzip.compress(page)) / 1000:6.1f} kB gz"
    began = time.process_time()
    _ask_together(client, "/live/workloads/")
    spent = (time.process_time() - began) * 1000
    yield f"list, the same fragment for {VIEWERS} viewers at once, each", f"{spent / VIEWERS:7.1f} ms"


def _ask_together(client: Any, address: str) -> None:
    """Ask as many do whom the feed told of the same change."""
    from concurrent.futures import ThreadPoolExecutor

    from django.db import connections
    from django.test import Client

    def ask(_: int) -> None:
        one = Client()
        one.cookies, one.handler = client.cookies, client.handler
        _get(one, address)
        connections.close_all()

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(ask, range(VIEWERS)))


def _get(client: Any, address: str) -> bytes:
    answer = client.get(address)
    assert answer.status_code == 200, answer.content
    body: bytes = answer.content
    return body


if __name__ == "__main__":
    main()
