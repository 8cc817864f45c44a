"""Many viewers while a workload of a thousand pods is updated: `python -m tests.bench.viewers [viewers] [--browser]`.

Asserts nothing.

The product runs as with `make run`, with a sandbox that has enough nodes. Each viewer does what live-updates.js does:
sends what its page shows, receives updates from the stream, and fetches what the stream names; every fourth has the
page of the large workload open, the others the list. Meanwhile small workloads are created and pods of the large one
deleted; the benchmark measures how long it takes until each viewer has the change in its list or pod grid. Everything,
viewers included, runs on one machine, so it also prints the processor time of each program, the memory of the web
process over time, and when the change feed had a change: before that it is the time of the controller, after it the
time of the pages. With `--browser` one more viewer is a Chromium with the page of the large workload, and the measure
is when its screen shows the change.
"""

import asyncio
import contextlib
import http.cookiejar
import json
import os
import re
import statistics
import sys
import tempfile
import time
import urllib.parse
import urllib.request
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from rollouts.cluster import ClusterClient, kubeconfig
from rollouts.cluster.resources import PODCLIQUESETS, PODS
from rollouts.engine.model.names import PART_OF, TEMPLATE_HASH
from tests.bench.screen import Screen, open_screen
from tests.browser.conftest import PASSWORD
from tests.browser.visiting import Sandbox
from tests.project.running import Product, product, wait_until

VIEWERS: Final = 200
SESSIONS: Final = 8
PROBES: Final = 10
SECONDS_BETWEEN: Final = 5.0
SECONDS_TO_SEE: Final = 60.0
PROBES_OF_A_ROLLOUT: Final = 3  # then the next update begins, so that there is always one
_PARTS: Final = re.compile(r'data-live="([^"]+)" data-live-src="([^"]+)"')
_LIST: Final = urllib.parse.quote_plus("/live/workloads/")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Viewer:
    """A viewer with a page open."""

    port: int
    cookie: str
    address: str  # of the stream of their page
    seen: dict[str, float] = field(default_factory=dict)  # when each probe was first seen
    looked_for: set[str] = field(default_factory=set)  # pods that are deleted
    ready: dict[str, frozenset[str]] = field(default_factory=dict)  # pods that their pod grid shows as ready, by tile
    brought: int = 0
    received: int = 0  # bytes
    _fetching: set[asyncio.Task[None]] = field(default_factory=set)

    async def watch(self) -> None:
        """Read the stream until cancelled."""
        async for piece in _listen(self.port, self.cookie, self.address, Accept_Encoding="gzip"):
            self.received += len(piece)
            brought = _unpack(piece)
            self.brought += brought.parts
            self.ready |= brought.ready
            for name in brought.added | (self.looked_for.difference(*self.ready.values()) if brought.ready else set()):
                self.seen.setdefault(name, time.monotonic())
            for src in brought.to_fetch:
                self._fetching.add(task := asyncio.create_task(self._fetch(src)))
                task.add_done_callback(self._fetching.discard)

    async def _fetch(self, src: str) -> None:
        reader, writer = await send_request(self.port, self.cookie, src, Connection="close", Accept_Encoding="gzip")
        self.received += len(await reader.read())
        writer.close()


async def send_request(
    port: int, cookie: str, address: str, **headers: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request, and return the reader of the response body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    given = {"Host": f"localhost:{port}", "Cookie": cookie, **headers}
    lines = [f"GET {address} HTTP/1.1", *(f"{name.replace('_', '-')}: {value}" for name, value in given.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    assert " 200 " in head, head
    return reader, writer


async def _listen(port: int, cookie: str, address: str, **headers: str) -> AsyncIterator[bytes]:
    """Yield the chunks of a streamed response."""
    reader, _ = await send_request(port, cookie, address, Accept="text/event-stream", **headers)
    while size := int(await reader.readline(), 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)


async def _note_told(told: dict[str, float], port: int, cookie: str) -> None:
    """Record when the change feed first had each probe."""
    async for piece in _listen(port, cookie, "/api/v1/feed/"):
        for name in re.findall(rb"/(probe-\d+)", piece):
            told.setdefault(name.decode(), time.monotonic())


@dataclass(frozen=True, slots=True)
class Brought:
    """The content of one event of a stream."""

    parts: int
    added: frozenset[str]  # workloads that are in the list
    ready: Mapping[str, frozenset[str]]  # pods that the sent tiles show as ready, by tile
    to_fetch: tuple[str, ...]


@lru_cache(maxsize=64)
def _unpack(piece: bytes) -> Brought:
    """Parse an event; once for all viewers that get the same one."""
    text = zlib.decompressobj(-zlib.MAX_WBITS).decompress(piece.removeprefix(_GZIP)).decode()
    to_fetch = re.findall(r'event: look\ndata: {"src":"([^"]+)"}', text)
    pictures = map(json.loads, re.findall(r'^data: ({"src":"[^"]+/parts/pod-grid/".*)', text, re.MULTILINE))
    # The last tile is not sent separately.
    tiles = {name: tile for one in pictures for name, tile in [("", one["html"]), *one["tiles"].items()]}
    ready = {name: frozenset(_READY.findall(tile)) for name, tile in tiles.items()}
    added = frozenset(re.findall(r">(probe-\d+)<", text))
    return Brought(text.count("event: fragment"), added, ready, tuple(to_fetch))


_READY: Final = re.compile(r'id="pod-(\S+)" class="cell [a-z ]*\bready\b')
_GZIP: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"


def _stream_of(page: str) -> str:
    """Return the URL of a page's stream, as live-updates.js builds it."""
    shown = [f"- {src} {words}" for words, src in _PARTS.findall(page)]
    return f"/live/stream/?{urllib.parse.urlencode({'show': shown}, doseq=True)}"


def main() -> None:
    """Start everything, watch, and print."""
    count = next((int(word) for word in sys.argv[1:] if word.isdecimal()), VIEWERS)
    variables = {
        "GROVE_ADMIN_PASSWORD": PASSWORD,
        "SANDBOX_NODES": "cpu=40,gpu=8",
        "STREAM_LIMIT": "off",
        "WORKERS": "",
    }
    with tempfile.TemporaryDirectory() as folder, product(Path(folder), **variables) as running:
        running.wait_until_it_answers()
        cluster = ClusterClient(kubeconfig(running.kubeconfig))
        sandbox = Sandbox(running)
        name = sandbox.add_large()
        (opener, *_), cookies = zip(*(sign_in(running) for _ in range(SESSIONS)), strict=True)
        wait_until(lambda: _is_settled(cluster, name), 600)
        pages = [f"{running.url}/workloads/sandbox/default/{name}/", f"{running.url}/"]
        streams = [_stream_of(opener.open(page).read().decode()) for page in pages]
        viewers = [Viewer(running.port, cookies[number % SESSIONS], streams[number % 4 > 0]) for number in range(count)]
        screen = open_screen(pages[0], _parse_cookies(cookies[0])) if "--browser" in sys.argv else None
        for line in asyncio.run(_measure(running, Probing(cluster, sandbox, name), viewers, screen)):
            sys.stdout.write(f"{line}\n")


def _parse_cookies(header: str) -> dict[str, str]:
    return dict(one.split("=", 1) for one in header.split("; "))


@dataclass(slots=True)
class Probing:
    """Makes the changes that viewers see."""

    cluster: ClusterClient
    sandbox: Sandbox
    large: str
    added: dict[str, float] = field(default_factory=dict)  # workloads, and when
    deleted: dict[str, float] = field(default_factory=dict)  # pods, and when
    rollouts: int = 0

    def roll(self) -> None:
        """Start an update of the large workload."""
        self.rollouts += 1
        self.sandbox.set_image(self.large, f"example/other:v{self.rollouts}")

    def add_workload(self) -> None:
        """Add a small workload."""
        name = f"probe-{len(self.added)}"
        self.sandbox.add(name)
        self.added[name] = time.monotonic()

    def find_pod(self) -> str:
        """Return a pod of the large workload that the pages show as ready, and that the update does not replace."""
        pods = self.cluster.list(PODS, namespace="default", labels=f"{PART_OF}={self.large}").items
        newest = max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        updated = [pod for pod in pods if _template_of(pod) == _template_of(newest) and _is_ready(pod)]
        updated.sort(key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        return str(updated[0]["metadata"]["name"])

    def delete_pod(self, name: str) -> None:
        """Delete it."""
        self.sandbox.delete_pod(name)
        self.deleted[name] = time.monotonic()


def _template_of(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["labels"][TEMPLATE_HASH])


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return is_ready and not pod["metadata"].get("deletionTimestamp")


@dataclass(frozen=True, slots=True)
class Weight:
    """The processor time of each program so far, and the memory of the web process."""

    at: float
    seconds: Mapping[str, float]  # on the processor, by program
    megabytes: float


async def _measure(
    running: Product,
    probing: Probing,
    viewers: Sequence[Viewer],
    opening: contextlib.AbstractAsyncContextManager[Screen] | None,
) -> list[str]:
    async with opening or contextlib.nullcontext() as screen:
        return await _watch(running, probing, viewers, screen)


async def _watch(running: Product, probing: Probing, viewers: Sequence[Viewer], screen: Screen | None) -> list[str]:
    weights = [_weigh(running)]
    tasks = [asyncio.create_task(viewer.watch()) for viewer in viewers]
    told: dict[str, float] = {}
    tasks.append(asyncio.create_task(_note_told(told, running.port, viewers[0].cookie)))
    lists = [viewer for viewer in viewers if _LIST in viewer.address]
    pictures = [viewer for viewer in viewers if _LIST not in viewer.address]
    for number in range(PROBES):
        if number % PROBES_OF_A_ROLLOUT == 0:
            await asyncio.to_thread(probing.roll)
        await asyncio.sleep(SECONDS_BETWEEN)
        weights.append(_weigh(running))
        await asyncio.to_thread(probing.add_workload)
        await asyncio.sleep(SECONDS_BETWEEN)
        pod = await asyncio.to_thread(probing.find_pod)
        for viewer in pictures:
            viewer.looked_for.add(pod)
        if screen is not None:
            await screen.look_for(pod)
        await asyncio.to_thread(probing.delete_pod, pod)
    weights.append(_weigh(running))
    deadline = time.monotonic() + SECONDS_TO_SEE
    while time.monotonic() < deadline and any(len(viewer.seen) < PROBES for viewer in viewers):
        await asyncio.sleep(0.2)
    shown = {} if screen is None else await screen.tell()
    ended = {repr(task.exception()) for task in tasks if task.done()}
    for task in tasks:
        task.cancel()
    return [
        *_report_waits("the list", lists, probing.added, told),
        *_report_waits("the large workload", pictures, probing.deleted, told),
        *_report_screen(shown, probing.deleted),
        *sorted(f"a viewer broke off: {why}" for why in ended),
        *_report(viewers, weights),
    ]


def _report_waits(
    what: str, viewers: Sequence[Viewer], done: Mapping[str, float], told: Mapping[str, float]
) -> Iterator[str]:
    waits = sorted(at - done[name] for viewer in viewers for name, at in viewer.seen.items())
    yield f"{len(viewers)} viewers of {what}, {len(done)} changes; {len(waits)} of {len(viewers) * len(done)} seen"
    if waits:
        late = waits[int(len(waits) * 0.95)]
        yield f"seen after: median {statistics.median(waits):.2f} s, 95 % {late:.2f} s, last {waits[-1]:.2f} s"
    for name in done:
        seen = sorted(viewer.seen[name] - done[name] for viewer in viewers if name in viewer.seen) or [0.0]
        about = f"told {told[name] - done[name]:.2f}, " if name in told else ""
        yield f"  {name:<26} {about}first {seen[0]:.2f}, median {statistics.median(seen):.2f}, last {seen[-1]:.2f} s"


def _report_screen(shown: Mapping[str, float], done: Mapping[str, float]) -> Iterator[str]:
    waits = sorted(at - done[name] for name, at in shown.items())
    if waits:
        each = ", ".join(f"{wait:.2f}" for wait in waits)
        yield f"a browser: on its screen after {each} s, {len(waits)} of {len(done)} changes"


def _report(viewers: Sequence[Viewer], weights: Sequence[Weight]) -> Iterator[str]:
    first, last = weights[1], weights[-1]
    seconds = last.at - first.at
    spent = {name: (last.seconds[name] - first.seconds[name]) / seconds for name in first.seconds}
    brought = sum(viewer.brought for viewer in viewers)
    yield f"{len(viewers)} viewers were brought {brought:,} parts, {brought / len(viewers) / seconds:.1f} a second each"
    yield f"of a processor: {', '.join(f'{name} {share:.0%}' for name, share in spent.items())}"
    received = statistics.mean(viewer.received for viewer in viewers)
    yield f"sent: {received / seconds / 1000:.1f} kB a second for each viewer"
    yield f"memory: {', '.join(f'{weight.megabytes:.0f}' for weight in weights)} MB"


def sign_in(running: Product) -> tuple[urllib.request.OpenerDirector, str]:
    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    page = opener.open(f"{running.url}/sign-in/").read().decode()
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert token
    form = {"username": "admin", "password": PASSWORD, "csrfmiddlewaretoken": token[1], "next": "/help/"}
    opener.open(f"{running.url}/sign-in/", urllib.parse.urlencode(form).encode())
    return opener, "; ".join(f"{one.name}={one.value}" for one in jar)


def _is_settled(cluster: ClusterClient, name: str) -> bool:
    found = cluster.get(PODCLIQUESETS, name, namespace="default")
    conditions = (found or {}).get("status", {}).get("conditions", [])
    return any(one["type"] == "Progressing" and one["reason"] == "Complete" for one in conditions)


_PROGRAMS: Final = {
    "web": "grove_ui.asgi",
    "worker": "worker",
    "watcher": "manage.py watch",
    "Redis": "redis",
    "sandbox": "rollouts.sandbox",
}


def _weigh(running: Product) -> Weight:
    """Measure the processes."""
    processes = running.processes()
    pids = {name: [pid for pid, line in processes.items() if word in line] for name, word in _PROGRAMS.items()}
    seconds = {name: sum(map(_spent, found)) for name, found in pids.items()} | {"viewers": time.process_time()}
    return Weight(time.monotonic(), seconds, sum(map(weigh_process, pids["web"])))


def _spent(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS  # in user mode and in the kernel


def weigh_process(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1000 if found else 0.0


if __name__ == "__main__":
    main()
