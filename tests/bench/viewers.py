"""Many who watch while a workload of a thousand pods rolls: `python -m tests.bench.viewers [viewers]`. Asserts nothing.

The product runs as with `make run`, with a sandbox that has room. Each viewer does what static/live.js does: holds the
feed open and fetches the list when it is told that something changed, with the ETag of what it has, and no sooner than
three times as long as the last answer took. Meanwhile small workloads are added; what counts is how long it takes until
each viewer has them in their list, and what the web process weighs before and after.
"""

import asyncio
import http.cookiejar
import re
import statistics
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from rollouts.cluster import Cluster, kubeconfig
from rollouts.cluster.resources import PODCLIQUESETS
from tests.browser.conftest import PASSWORD
from tests.browser.visiting import Sandbox
from tests.project.running import ROOT, Product, product, wait_until

VIEWERS: Final = 200
PROBES: Final = 10
SECONDS_BETWEEN: Final = 5.0
SECONDS_TO_SEE: Final = 60.0
GAP: Final = 0.4
LARGE: Final = ROOT / "deploy" / "samples" / "large" / "thousand-pods.yaml"


@dataclass(slots=True)
class Viewer:
    """Somebody with the list open."""

    port: int
    cookie: str
    seen: dict[str, float] = field(default_factory=dict)  # when each workload was first in the list
    answers: int = 0
    _etag: str = ""
    _told: asyncio.Event = field(default_factory=asyncio.Event)

    async def watch(self) -> None:
        """Listen and look until cancelled."""
        await asyncio.gather(self._listen(), self._look())

    async def _listen(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(self._request("/api/v1/feed/", accept="text/event-stream"))
        while line := await reader.readline():
            if line.startswith((b"event: change", b"event: reset")):
                self._told.set()

    async def _look(self) -> None:
        while True:
            await self._told.wait()
            self._told.clear()
            began = time.monotonic()
            # A connection each: the server closes those that were idle for a while, as it may.
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(self._request("/live/workloads/", if_none_match=self._etag, connection="close"))
            self._take(*await _read_answer(reader))
            writer.close()
            await asyncio.sleep(max(GAP, 3 * (time.monotonic() - began)))

    def _take(self, head: str, body: bytes) -> None:
        self.answers += 1
        self._etag = _header(head, "etag")
        for name in re.findall(rb">(probe-\d+)<", body):
            self.seen.setdefault(name.decode(), time.monotonic())

    def _request(self, path: str, **headers: str) -> bytes:
        lines = [f"GET {path} HTTP/1.1", f"Host: localhost:{self.port}", f"Cookie: {self.cookie}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items() if value]
        return "\r\n".join([*lines, "", ""]).encode()


async def _read_answer(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    return head, await reader.readexactly(int(_header(head, "content-length") or 0))


def _header(head: str, name: str) -> str:
    found = re.search(rf"^{name}: *(.*?)\r$", head, re.IGNORECASE | re.MULTILINE)
    return found[1] if found else ""


def main() -> None:
    """Start everything, watch, and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else VIEWERS
    variables = {"GROVE_ADMIN_PASSWORD": PASSWORD, "SANDBOX_NODES": "cpu=40,gpu=8"}
    with tempfile.TemporaryDirectory() as folder, product(Path(folder), **variables) as running:
        running.wait_until_it_answers()
        cluster = Cluster(kubeconfig(running.kubeconfig))
        large = next(yaml.safe_load_all(LARGE.read_text()))
        large["metadata"].setdefault("namespace", "default")
        cluster.create(PODCLIQUESETS, large)
        cookie = _sign_in(running)
        wait_until(lambda: _is_settled(cluster, large["metadata"]["name"]), 600)
        Sandbox(running).set_image(large["metadata"]["name"], "example/other:v2")
        for line in asyncio.run(_measure(running, cookie, count)):
            sys.stdout.write(f"{line}\n")


async def _measure(running: Product, cookie: str, count: int) -> list[str]:
    before = _web_megabytes(running)
    viewers = [Viewer(running.port, cookie) for _ in range(count)]
    tasks = [asyncio.create_task(viewer.watch()) for viewer in viewers]
    await asyncio.sleep(SECONDS_BETWEEN)
    began: dict[str, float] = {}
    for number in range(PROBES):
        name = f"probe-{number}"
        await asyncio.to_thread(Sandbox(running).add, name)
        began[name] = time.monotonic()
        await asyncio.sleep(SECONDS_BETWEEN)
    deadline = time.monotonic() + SECONDS_TO_SEE
    while time.monotonic() < deadline and any(len(viewer.seen) < PROBES for viewer in viewers):
        await asyncio.sleep(0.2)
    after = _web_megabytes(running)
    ended = {repr(task.exception()) for task in tasks if task.done()}
    for task in tasks:
        task.cancel()
    return list(_report(viewers, began, before, after, ended))


def _report(
    viewers: list[Viewer], began: dict[str, float], before: float, after: float, ended: set[str]
) -> Iterator[str]:
    waits = sorted(at - began[name] for viewer in viewers for name, at in viewer.seen.items())
    yield f"{len(viewers)} viewers, {PROBES} changes; {len(waits)} of {len(viewers) * PROBES} seen"
    yield from (f"a viewer broke off: {why}" for why in sorted(ended))
    if waits:
        late = waits[int(len(waits) * 0.95)]
        yield f"seen after: median {statistics.median(waits):.2f} s, 95 % {late:.2f} s, last {waits[-1]:.2f} s"
    yield f"answers a viewer: {statistics.mean(viewer.answers for viewer in viewers):.0f}"
    yield f"web process: {before:.0f} MB before, {after:.0f} MB after"


def _sign_in(running: Product) -> str:
    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    page = opener.open(f"{running.url}/sign-in/").read().decode()
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert token
    form = {"username": "admin", "password": PASSWORD, "csrfmiddlewaretoken": token[1], "next": "/help/"}
    opener.open(f"{running.url}/sign-in/", urllib.parse.urlencode(form).encode())
    return "; ".join(f"{one.name}={one.value}" for one in jar)


def _is_settled(cluster: Cluster, name: str) -> bool:
    found = cluster.get(PODCLIQUESETS, name, namespace="default")
    conditions = (found or {}).get("status", {}).get("conditions", [])
    return any(one["type"] == "Progressing" and one["reason"] == "Complete" for one in conditions)


def _web_megabytes(running: Product) -> float:
    """What the processes of the web server hold."""
    pids = [pid for pid, line in running.processes().items() if "uvicorn" in line or "grove_ui.asgi" in line]
    return sum(_resident(pid) for pid in pids)


def _resident(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1000 if found else 0.0


if __name__ == "__main__":
    main()
