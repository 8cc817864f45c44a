"""Django processes a limited number of requests at a time; the others wait in the order of their arrival."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from grove_ui.concurrency_limit import ConcurrencyLimit
from tests.project.running import ROOT


class Django:
    """An application whose responses start and end when the test says so."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.answered: list[str] = []
        self.is_wanted: dict[str, asyncio.Event] = {}
        self.may_end = asyncio.Event()
        self.received: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        self.begun.append(path)
        self.received.append(await receive())
        await self.is_wanted.setdefault(path, asyncio.Event()).wait()
        if path == "/fault":
            raise LookupError
        await send({"type": "http.response.start", "status": 200, "headers": []})
        self.answered.append(path)
        await self.may_end.wait()

    async def begin_answer(self, path: str) -> None:
        """Start the response to a request."""
        self.is_wanted[path].set()
        await settle()


async def settle() -> None:
    """Let all tasks run until they wait."""
    for _ in range(10):
        await asyncio.sleep(0)


BODY: Final = {"type": "http.request", "body": b"abc", "more_body": False}


class Client:
    """Sends a request, and may disconnect."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._messages = [BODY]
        self._has_left = asyncio.Event()

    async def ask(self, limit: ConcurrencyLimit) -> None:
        """Send the request."""
        await limit({"type": "http", "path": self._path}, self._receive, self._send)

    async def leave(self) -> None:
        """Disconnect."""
        self._has_left.set()
        await settle()

    async def _receive(self) -> Any:
        if self._messages:
            return self._messages.pop()
        await self._has_left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, _: Any) -> None:
        return


async def ask(limit: ConcurrencyLimit, *paths: str) -> list[asyncio.Task[None]]:
    """Send requests, one after the other."""
    return await ask_as(limit, *(Client(path) for path in paths))


async def ask_as(limit: ConcurrencyLimit, *clients: Client) -> list[asyncio.Task[None]]:
    """Have clients send their requests, one after the other."""
    asked = [asyncio.create_task(client.ask(limit)) for client in clients]
    await settle()
    return asked


def test_those_beyond_the_limit_wait_until_an_answer_begins() -> None:
    async def run() -> None:
        django = Django()
        asked = await ask(ConcurrencyLimit(django, 2), "/1", "/2", "/3", "/4")
        assert django.begun == ["/1", "/2"]
        await django.begin_answer("/2")
        assert django.answered == ["/2"]
        assert django.begun == ["/1", "/2", "/3"]
        assert not any(task.done() for task in asked)
        django.may_end.set()
        await settle()
        assert asked[1].done()
        assert django.begun == ["/1", "/2", "/3"]  # it had released its slot before
        await django.begin_answer("/1")
        assert django.begun == ["/1", "/2", "/3", "/4"]
        await cancel(asked)

    asyncio.run(run())


def test_a_request_that_fails_or_is_given_up_ends_its_turn() -> None:
    async def run() -> None:
        django = Django()
        asked = await ask(ConcurrencyLimit(django, 1), "/fault", "/given-up", "/1", "/2")
        await django.begin_answer("/fault")
        assert django.begun == ["/fault", "/given-up"]
        asked[2].cancel()  # while it waits
        asked[1].cancel()
        await settle()
        assert django.begun == ["/fault", "/given-up", "/2"]
        await cancel(asked)

    asyncio.run(run())


def test_whose_client_leaves_meanwhile_waits_no_longer() -> None:
    async def run() -> None:
        django, leaving = Django(), Client("/left")
        asked = await ask_as(ConcurrencyLimit(django, 1), Client("/1"), leaving, Client("/2"))
        await leaving.leave()
        assert asked[1].done()
        assert asked[1].exception() is None
        await django.begin_answer("/1")
        assert django.begun == ["/1", "/2"]
        await cancel(asked)

    asyncio.run(run())


def test_who_has_waited_is_handed_on_with_its_body_and_heard_when_it_leaves() -> None:
    async def run() -> None:
        django, second = Django(), Client("/2")
        asked = await ask_as(ConcurrencyLimit(django, 1), Client("/1"), second)
        await django.begin_answer("/1")
        assert django.received == [BODY, BODY]
        await cancel(asked)

    asyncio.run(run())


async def cancel(asked: list[asyncio.Task[None]]) -> None:
    """End them all."""
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)


def test_the_product_limits_bodies_answers_probes_and_static_files_and_takes_turns_in_this_order(
    tmp_path: Path,
) -> None:
    names = (
        "from grove_ui.asgi import application as app\n"
        "while app: print(type(app).__name__); app = vars(app).get('_app')\n"
    )
    command = [sys.executable, "-c", names]
    environment = {**os.environ, "DATA_DIR": str(tmp_path)}
    said = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, check=True).stdout
    assert said.split() == ["RequestLimits", "Probes", "StaticResponses", "ConcurrencyLimit", "ASGIHandler"]
