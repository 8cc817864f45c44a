"""What unauthenticated clients and one account can do to others: `python -m tests.bench.abuse [words of an attack]`.

Asserts nothing.

The product runs as with `make run`, on loopback. First a client requests a page of the API repeatedly without load;
then again while bodies of 200 MB are sent, while 1,000 connections are silent or send unfinished headers and bodies of
a few bytes, while as many send headers of the maximum size, while as many request much and read nothing, while as many
probes arrive at once, while one account opens 300 streams, and while six accounts open 300 streams together. Each
attack ends after SECONDS and happens twice: Python keeps the memory of the first time, so growth in the second one
would be a leak.

The output is the table of docs/operating.md. Its rows have both times of an attack: the memory of the web process in
MB before, at most and after; the median latency of others, also as a ratio to the quiet one just before; the processor
time of the web process in seconds a second; its most threads; what the attacker got, and the load at the end.
"""

import asyncio
import contextlib
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.bench.viewers import send_request, sign_in, weigh_process
from tests.browser.conftest import PASSWORD
from tests.data_folders import ROOT
from tests.project.running import Product, product

SECONDS: Final = 20.0
BODIES: Final = 8  # at once; each starts again when it is rejected
BODY: Final = 200_000_000
CONNECTIONS: Final = 1_000
STREAMS: Final = 300
ACCOUNTS: Final = 6  # that together may have as many
TOKEN: Final = "grove_only-for-the-bench-0123456789"
_TOKENS: Final = tuple(f"grove_only-for-the-bench-{number}-0123456789" for number in range(ACCOUNTS))
_MAKE_ACCOUNTS: Final = f"""
from django.contrib.auth.models import Group
from rollouts.accounts.tokens import digest_of
from rollouts.models import ApiToken, User
for token in {_TOKENS!r}:
    user = User.objects.create_user(token[-12:])
    user.groups.add(Group.objects.get(name="viewer"))
    ApiToken.objects.create(user=user, name="bench", digest=digest_of(token))
"""
_PIECE: Final = b"x" * 65536
_ASKED: Final = "/api/v1/workloads/"
_SECONDS_BETWEEN: Final = 0.05
_SECONDS_AFTER: Final = 3.0  # until held resources are released
_FILE: Final = "/static/admin/js/vendor/jquery/jquery.js"  # the maximum
_ANSWERS: Final = 16  # asked for at once
_SECONDS_UNREAD: Final = 5.0
_COLUMNS: Final = (
    *("attack", "memory, first time", "second time"),
    *("quiet median of others", "median, first time", "second time"),
    *("processor: quiet, first, second time", "threads", "answers and ends of connections", "load"),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """The latency of other clients, and the memory and processor time of the web process."""

    latencies: tuple[float, ...]
    before: float  # megabytes
    megabytes: float  # the maximum
    after: float
    processor: float  # seconds that the web process spent in a second
    threads: int  # the maximum
    counts: Counter[str]

    @property
    def median(self) -> float:
        """In milliseconds."""
        return statistics.median(self.latencies) * 1000

    @property
    def memory(self) -> str:
        """Before, at most and after."""
        return f"{self.before:.0f} / {self.megabytes:.0f} / {self.after:.0f}"


Attack = Callable[[int, Counter[str]], Coroutine[Any, Any, None]]


def main() -> None:
    """Start the product, attack it, and print."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "grove_ui.settings")  # for the tables
    variables = {"GROVE_ADMIN_PASSWORD": PASSWORD, "GROVE_ADMIN_TOKEN": TOKEN, "API_RATE": "off", "WORKERS": ""}
    with tempfile.TemporaryDirectory() as folder, product(Path(folder), **variables) as running:
        running.wait_until_it_answers()
        _, cookie = sign_in(running)
        _make_accounts(_web_process(running))
        asyncio.run(_measure_all(running, cookie))
        running.interrupt()


def _web_process(running: Product) -> int:
    return next(pid for pid, line in running.processes().items() if "grove_ui.asgi" in line)


def _make_accounts(pid: int) -> None:
    """Make viewers with a token each, in the environment of a process of the product."""
    environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    variables = dict(one.decode().partition("=")[::2] for one in environ if one)
    command = [sys.executable, "manage.py", "shell", "--verbosity", "0", "--command", _MAKE_ACCOUNTS]
    subprocess.run(command, cwd=ROOT, env=variables, check=True)


async def _measure_all(running: Product, cookie: str) -> None:
    pid = _web_process(running)
    await _measure(running.port, pid, cookie, None)  # the first requests are slower
    attacks: Sequence[tuple[str, Attack]] = (
        (f"{BODIES} bodies of {BODY // 1_000_000} MB at a time", _send_bodies),
        (f"{CONNECTIONS:,} slow connections, few bytes", _hold_connections),
        (f"{CONNECTIONS:,} with full headers", _hold_full_headers),
        (f"{CONNECTIONS:,} slow readers, {_ANSWERS} files each", _leave_answers),
        (f"{CONNECTIONS:,} probes at once, every second", _send_probes),
        (f"{STREAMS} streams of one account", _open_streams_of_one),
        (f"{STREAMS} streams of {ACCOUNTS} accounts", _open_streams_of_many),
    )
    chosen = [(what, attack) for what, attack in attacks if all(word in what for word in sys.argv[1:])]
    _write_row(*_COLUMNS)
    _write_row(*("---" for _ in _COLUMNS))
    for what, attack in chosen:
        quiet = await _measure(running.port, pid, cookie, None)
        first, second = [await _measure(running.port, pid, cookie, attack) for _ in range(2)]
        _report(what, quiet, first, second)
    _report("none, at the end", *[await _measure(running.port, pid, cookie, None) for _ in range(3)])


def _report(what: str, quiet: Measured, first: Measured, second: Measured) -> None:
    both = (first, second)
    _write_row(
        what,
        *(one.memory for one in both),
        f"{quiet.median:.0f} ms",
        *(f"{one.median:.0f} ms, {one.median / quiet.median:.1f} x" for one in both),
        ", ".join(f"{one.processor:.2f}" for one in (quiet, *both)),
        ", ".join(str(one.threads) for one in (quiet, *both)),
        ", ".join(f"{count} {name}" for name, count in (first.counts + second.counts).most_common(4)),
        f"{os.getloadavg()[0]:.1f}",
    )


def _write_row(*cells: str) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


async def _measure(port: int, pid: int, cookie: str, attack: Attack | None) -> Measured:
    """Send normal requests during an attack, or without one."""
    counts: Counter[str] = Counter()
    before = weigh_process(pid)
    processes = multiprocessing.get_context("spawn")
    told = processes.SimpleQueue()
    attacker = processes.Process(target=_attack, args=(attack, port, told)) if attack else None
    if attacker:
        attacker.start()
        await asyncio.to_thread(told.get)  # the attack begins
    begins, spent = time.monotonic(), _processor_seconds(pid)
    ends = begins + SECONDS
    latencies, heaviest, threads = [], before, 0
    while time.monotonic() < ends:
        began = time.monotonic()
        try:
            reader, writer = await send_request(port, cookie, _ASKED, Connection="close")
            await reader.read()
            writer.close()
        except (AssertionError, EOFError, OSError) as error:
            counts[f"others cut off ({type(error).__name__})"] += 1
        latencies.append(time.monotonic() - began)
        heaviest, threads = max(heaviest, weigh_process(pid)), max(threads, _count_threads(pid))
        await asyncio.sleep(_SECONDS_BETWEEN)
    processor = (_processor_seconds(pid) - spent) / (time.monotonic() - begins)
    if attacker:
        counts += await asyncio.to_thread(told.get)
        attacker.join()
        await asyncio.sleep(_SECONDS_AFTER)
    return Measured(tuple(latencies), before, heaviest, weigh_process(pid), processor, threads, counts)


def _count_threads(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())


def _processor_seconds(pid: int) -> float:
    """Return the processor time that a process has spent, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:13]) / os.sysconf("SC_CLK_TCK")


def _attack(attack: Attack, port: int, told: Any) -> None:
    """Attack from a process of its own, with low priority."""
    os.nice(10)
    counts: Counter[str] = Counter()

    async def run() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                await attack(port, counts)

    told.put(None)
    asyncio.run(run())
    told.put(counts)


async def _send_bodies(port: int, counts: Counter[str]) -> None:
    """Send large bodies, as fast as the server reads them."""

    async def send_on(number: int) -> None:
        while True:
            counts[await _send_body(port, is_chunked=number % 2 == 1)] += 1

    await asyncio.gather(*(send_on(number) for number in range(BODIES)))


async def _send_body(port: int, *, is_chunked: bool) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    length = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {BODY}"
    writer.write(f"POST /sign-in/ HTTP/1.1\r\nHost: localhost:{port}\r\n{length}\r\n\r\n".encode())
    piece = b"%x\r\n%b\r\n" % (len(_PIECE), _PIECE) if is_chunked else _PIECE
    try:
        for _ in range(BODY // len(_PIECE)):
            writer.write(piece)
            await writer.drain()
        return (await reader.readline()).decode().strip() or "cut off"
    except ConnectionError:
        return "cut off"
    finally:
        writer.close()


async def _hold_connections(port: int, counts: Counter[str]) -> None:
    """Hold connections that are silent, or send unfinished headers or bodies; reopen closed ones."""
    beginnings = (
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Unfinished: ",
        b"POST /sign-in/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + _PIECE[:100],
    )
    await _hold_all(port, counts, beginnings)


async def _hold_full_headers(port: int, counts: Counter[str]) -> None:
    """Do the same with the maximum size: one header, many, or many and part of a body."""
    many = b"".join(b"X-%d: %b\r\n" % (number, _PIECE[:600]) for number in range(90))
    beginnings = (
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Unfinished: " + _PIECE[:60_000],
        b"GET / HTTP/1.1\r\nHost: x\r\n" + many,
        b"POST /sign-in/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n" + many + b"\r\n" + _PIECE,
    )
    await _hold_all(port, counts, beginnings)


async def _hold_all(port: int, counts: Counter[str], beginnings: Sequence[bytes]) -> None:
    async def hold(beginning: bytes) -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    writer.write(beginning)
                    counts["opened"] += 1
                    await reader.read()
                    counts["closed by the server"] += 1
                finally:
                    writer.close()
            await asyncio.sleep(1)

    await asyncio.gather(*(hold(beginnings[number % len(beginnings)]) for number in range(CONNECTIONS)))


async def _leave_answers(port: int, counts: Counter[str]) -> None:
    """Request more than socket buffers hold, read almost nothing of it, and start again after a while."""
    asked = f"GET {_FILE} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode() * _ANSWERS

    async def leave() -> None:
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
                writer.write(asked)
                counts["opened"] += 1
                await asyncio.sleep(_SECONDS_UNREAD)
                writer.transport.abort()

    await asyncio.gather(*(leave() for _ in range(CONNECTIONS)))


async def _send_probes(port: int, counts: Counter[str]) -> None:
    """Send many probes at once, wait for all answers, and repeat after a second."""

    async def probe(number: int) -> None:
        path = "/healthz" if number % 2 else "/readyz"
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            counts[(await reader.readline()).decode().strip() or "cut off"] += 1
            await reader.read()
            writer.close()
        except OSError:
            counts["cut off"] += 1

    while True:
        await asyncio.gather(*(probe(number) for number in range(CONNECTIONS)))
        await asyncio.sleep(1)


async def _open_streams_of_one(port: int, counts: Counter[str]) -> None:
    """Open as many feeds as the server allows one account."""
    await _open_streams(port, counts, [TOKEN])


async def _open_streams_of_many(port: int, counts: Counter[str]) -> None:
    """Open as many feeds as the server allows several accounts."""
    await _open_streams(port, counts, _TOKENS)


async def _open_streams(port: int, counts: Counter[str], tokens: Sequence[str]) -> None:
    async def watch(token: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            request = f"GET /api/v1/feed/ HTTP/1.1\r\nHost: localhost:{port}\r\nAuthorization: Bearer {token}\r\n\r\n"
            writer.write(request.encode())
            counts[(await reader.readline()).decode().strip()] += 1
            await reader.read()
        finally:
            writer.close()

    streams = (watch(tokens[number % len(tokens)]) for number in range(STREAMS))
    await asyncio.gather(*streams, return_exceptions=True)


if __name__ == "__main__":
    main()
