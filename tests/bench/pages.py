"""How long the pages take: run `python -m tests.bench.pages`. Prints figures, asserts nothing.

Processor time in this process, from the request to the rendered page, without the network; the best of several runs, as
slower ones measure the other load of the machine. Also the cost of sending a change to many viewers of the list: one
rendering, and one event on the stream of each.
"""

import asyncio
import gzip
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

from tests.bench.ground import empty_installation
from tests.mirror.bench import best

ROWS = 1000
VIEWERS = 200
CHANGES = 5
SIGN_OF_LIFE = 200  # bytes; an event with a part is longer
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
    """Yield the name of each measurement and its figure."""
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
    spent = asyncio.run(_bring(row, [_open_list(client) for _ in range(VIEWERS)])) * 1000
    yield f"list, a change brought to {VIEWERS} viewers, all together", f"{spent:7.1f} ms"


def _open_list(client: Any) -> Any:
    """Open the stream of the list, as its page does."""
    shown = urlencode({"show": ["- /live/workloads/ workload", "- /live/clusters/ cluster every:15"]}, doseq=True)
    return client.get(f"/live/stream/?{shown}", headers={"Accept-Encoding": "gzip"})


async def _bring(row: Any, answers: Sequence[Any]) -> float:
    """Return the processor seconds from the creation of a workload until the last viewer has it; the best run."""
    from rollouts.live import change_feed
    from rollouts.live.change_feed import Change
    from rollouts.runtime.connections import redis_client
    from tests.api.read import fleet

    received = [0] * len(answers)

    async def read(number: int) -> None:
        async for piece in answers[number].streaming_content:
            received[number] += len(piece) > SIGN_OF_LIFE

    async def wait_for_more_than(before: Sequence[int]) -> None:
        while any(now <= then for now, then in zip(received, before, strict=True)):
            await asyncio.sleep(0.01)

    readers = [asyncio.create_task(read(number)) for number in range(len(answers))]
    await wait_for_more_than([0] * len(answers))
    figures = []
    for number in range(CHANGES):
        await asyncio.sleep(1)  # a viewer gets no second event within a moment
        before, began = [*received], time.process_time()
        await asyncio.to_thread(_store, row, fleet.podcliqueset(f"new-{number}"))
        change_feed.publish(redis_client(), [Change("sandbox", "workload", f"sandbox/default/new-{number}")])
        await wait_for_more_than(before)
        figures.append(time.process_time() - began)
    for reader in readers:
        reader.cancel()
    return min(figures)


def _store(row: Any, manifest: Any) -> None:
    from django.db import connections

    from tests.api.read import fleet

    fleet.store_sets(row, [manifest])
    connections.close_all()


def _get(client: Any, address: str) -> bytes:
    answer = client.get(address)
    assert answer.status_code == 200, answer.content
    body: bytes = answer.content
    return body


if __name__ == "__main__":
    main()
