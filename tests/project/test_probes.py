"""/healthz and /readyz are answered before Django, and many who ask at once cost no more than one."""

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from grove_ui.concurrency_limit import ConcurrencyLimit
from grove_ui.probes import Probes
from rollouts.runtime.readiness import ReadinessCheck

MANY = 1_000
CLUSTER = ReadinessCheck("cluster east", ok=False, detail="Cluster east: connection refused", is_one_of_several=True)
OTHER = ReadinessCheck("cluster west", ok=True, detail="Cluster west: last data 1 s ago.", is_one_of_several=True)
SECONDS = 30.0  # generous, a limit for broken code only

Check = Callable[[], list[ReadinessCheck]]


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to a probe."""

    status: int
    headers: Mapping[bytes, bytes]
    body: bytes

    @property
    def parts(self) -> dict[str, bool]:
        """Which parts work."""
        return {part["name"]: part["ok"] for part in json.loads(self.body)["parts"]}

    def detail(self, name: str) -> str:
        """The sentence about a part."""
        return next(str(part["detail"]) for part in json.loads(self.body)["parts"] if part["name"] == name)


class HangingCheck:
    """A check that hangs until it is released, and counts its calls."""

    def __init__(self, name: str) -> None:
        self._part = ReadinessCheck(name, ok=True, detail="It answers.")
        self.calls = 0
        self.released = threading.Event()

    def __call__(self) -> list[ReadinessCheck]:
        self.calls += 1
        assert self.released.wait(SECONDS)
        return [self._part]


async def probe(app: Probes, path: str, method: str = "GET", **headers: str) -> Answer:
    """Send a probe."""
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "path": path, "method": method, "headers": raw}
    await app(scope, _receive, send)
    start, body = messages
    return Answer(start["status"], dict(start["headers"]), body["body"])


async def _receive() -> Any:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _django(_scope: Any, _receive: Any, _send: Any) -> None:
    raise AssertionError("the probe reached Django")


def probes(*parts: ReadinessCheck, **checks: Check) -> Probes:
    """Probes with one check of these parts, and further checks by name."""
    return Probes(_django, {"parts": lambda: list(parts), **checks})


@pytest.fixture
def token(settings: Settings) -> str:
    """METRICS_TOKEN as a header."""
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, metrics_token="only-for-this-test")
    return "Bearer only-for-this-test"


def test_healthz_answers_and_asks_nothing() -> None:
    check = HangingCheck("database")
    answer = asyncio.run(probe(probes(database=check), "/healthz", host="10.1.2.3:8000"))
    assert (answer.status, answer.body, check.calls) == (200, b"ok\n", 0)


def test_readyz_answers_200_or_503_and_is_not_stored_by_a_proxy() -> None:
    ready = asyncio.run(probe(probes(OTHER), "/readyz"))
    unready = asyncio.run(probe(probes(CLUSTER), "/readyz"))
    assert (ready.status, unready.status) == (200, 503)
    assert (ready.headers[b"cache-control"], ready.headers[b"content-type"]) == (b"no-store", b"application/json")


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_a_probe_is_refused_when_it_wants_to_write(path: str) -> None:
    answer = asyncio.run(probe(probes(OTHER), path, "POST"))
    assert (answer.status, answer.headers[b"allow"]) == (405, b"GET, HEAD")


def test_names_of_clusters_are_for_those_who_show_the_token(token: str) -> None:
    app = probes(CLUSTER, OTHER)
    told = asyncio.run(probe(app, "/readyz"))
    assert (told.status, told.parts) == (200, {"cluster": False})
    assert b"refused" not in told.body
    assert b"east" not in told.body
    named = asyncio.run(probe(app, "/readyz", authorization=token))
    assert named.parts == {"cluster east": False, "cluster west": True}
    assert "connection refused" in named.detail("cluster east")


def test_probes_wait_for_no_request() -> None:
    async def run() -> None:
        limit = ConcurrencyLimit(_never, 1)
        app = Probes(limit, {"parts": lambda: [OTHER]})
        waiting = asyncio.create_task(probe(app, "/slow"))
        assert {(await probe(app, path)).status for path in ("/healthz", "/readyz")} == {200}
        assert not waiting.done()
        waiting.cancel()

    asyncio.run(run())


async def _never(_scope: Any, _receive: Any, _send: Any) -> None:
    await asyncio.Event().wait()


def test_a_thousand_probes_share_one_check_and_hold_one_thread() -> None:
    async def run() -> None:
        check, threads = HangingCheck("database"), threading.active_count()
        app = probes(database=check)
        asked = [asyncio.create_task(probe(app, "/readyz")) for _ in range(MANY)]
        assert {(await probe(app, "/healthz")).status for _ in range(MANY)} == {200}
        assert threading.active_count() <= threads + 2  # one for each of the two checks
        check.released.set()
        assert {(await one).status for one in asked} == {200}
        assert check.calls == 1

    asyncio.run(run())


def test_a_check_that_hangs_fails_by_name_and_neither_hides_the_others_nor_is_started_again() -> None:
    async def run() -> None:
        check = HangingCheck("database")
        app = Probes(_django, {"database": check, "parts": lambda: [OTHER]}, seconds=0.05)
        for _ in range(3):
            answer = await probe(app, "/readyz")
            assert (answer.status, answer.parts["database"]) == (503, False)
            assert "it hangs" in answer.detail("database")
        assert check.calls == 1
        check.released.set()
        while (await probe(app, "/readyz")).status != 200:
            await asyncio.sleep(0)

    asyncio.run(run())


def test_a_result_is_computed_once_in_the_time_of_the_cache(settings: Settings) -> None:
    async def run() -> None:
        check = HangingCheck("database")
        check.released.set()
        app = probes(database=check)
        await probe(app, "/readyz")
        settings.READINESS_CACHE_SECONDS = 60.0
        assert {(await probe(app, "/readyz")).status for _ in range(20)} == {200}
        assert check.calls == 1
        settings.READINESS_CACHE_SECONDS = 0.0
        await probe(app, "/readyz")
        assert check.calls == 2

    asyncio.run(run())


def test_a_check_with_an_error_fails_and_the_log_has_the_error(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> list[ReadinessCheck]:
        raise LookupError("a defect of ours")

    answer = asyncio.run(probe(probes(OTHER, database=fail), "/readyz"))
    assert (answer.status, answer.parts["database"]) == (503, False)
    assert "a defect of ours" not in answer.body.decode()
    assert "a defect of ours" in caplog.text
