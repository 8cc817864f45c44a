"""Static files are served before Django, without threads, and with one copy in memory for all responses."""

import asyncio
import gzip
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.test import override_settings

from grove_ui.static_responses import StaticResponses

TEXT = b"a { color: red }\n" * 20_000
PATH = "/static/page.css"


@pytest.fixture
def collected(tmp_path: Path) -> Iterator[None]:
    """An installation with one static file."""
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "page.css").write_bytes(TEXT)
    data = {"STATIC_ROOT": tmp_path / "static", "STATICFILES_DIRS": [sources], "STATIC_URL": "/static/"}
    only_ours = ["django.contrib.staticfiles.finders.FileSystemFinder"]
    as_in_product = {"SERVESTATIC_AUTOREFRESH": False, "SERVESTATIC_USE_MANIFEST": True, "STORAGES": settings.STORAGES}
    with override_settings(**data, **as_in_product, STATICFILES_FINDERS=only_ours):
        call_command("collectstatic", verbosity=0, interactive=False)
        yield


class Client:
    """Reads a response, or does not."""

    def __init__(self, *, takes: bool = True) -> None:
        self.messages: list[Any] = []
        self._takes = takes

    async def send(self, message: Any) -> None:
        """Receive a message of the response."""
        self.messages.append(message)
        if not self._takes and message.get("body"):
            await asyncio.Event().wait()

    @property
    def status(self) -> int:
        """Of the answer."""
        return int(self.messages[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        """Of the answer."""
        return {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}

    @property
    def body(self) -> bytes:
        """Of the answer."""
        return b"".join(bytes(message["body"]) for message in self.messages[1:])


async def django(scope: Any, receive: Any, send: Any) -> None:
    """Respond to requests that are passed on."""
    await send({"type": "http.response.start", "status": 299, "headers": []})


def scope_of(method: str = "GET", path: str = PATH, **headers: str) -> Any:
    """Return a request."""
    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "method": method, "path": path, "headers": given}


def ask(method: str = "GET", path: str = PATH, **headers: str) -> Client:
    """Send a request and read the response."""
    client = Client()
    asyncio.run(StaticResponses(django)(scope_of(method, path, **headers), receive, client.send))
    return client


async def receive() -> Any:
    """Fail: nothing may be received."""
    raise AssertionError


@pytest.mark.usefixtures("collected")
def test_a_file_is_answered_as_it_is_or_compressed() -> None:
    plain, compressed = ask(), ask(accept_encoding="gzip")
    assert (plain.status, plain.body) == (200, TEXT)
    assert gzip.decompress(compressed.body) == TEXT
    assert compressed.headers["content-encoding"] == "gzip"
    assert plain.headers["content-length"] == str(len(TEXT))
    assert plain.headers["x-content-type-options"] == "nosniff"
    assert plain.messages[-1] == {"type": "http.response.body", "body": b""}


@pytest.mark.usefixtures("collected")
def test_who_has_it_is_not_sent_it_again_and_who_asks_for_its_headers_gets_those() -> None:
    seen = ask().headers["etag"]
    assert (ask(if_none_match=seen).status, ask(if_none_match=seen).body) == (304, b"")
    assert ask(if_none_match='"another"').body == TEXT
    assert (ask("HEAD").status, ask("HEAD").body) == (200, b"")
    assert ask(range="bytes=5-9").body == TEXT


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize(("method", "path"), [("GET", "/"), ("GET", "/static/none.css"), ("POST", PATH)])
def test_everything_else_is_handed_on(method: str, path: str) -> None:
    assert ask(method, path).status == 299


@pytest.mark.usefixtures("collected")
def test_where_https_is_demanded_a_request_without_it_is_handed_on() -> None:
    with override_settings(SECURE_SSL_REDIRECT=True, SECURE_HSTS_SECONDS=60, SECURE_HSTS_PRELOAD=True):
        assert ask().status == 299
        secure = ask(x_forwarded_proto="https")
        assert (secure.status, secure.headers["strict-transport-security"]) == (200, "max-age=60; preload")


@pytest.mark.usefixtures("collected")
def test_where_files_change_django_answers() -> None:
    with override_settings(DEBUG=True, SERVESTATIC_USE_MANIFEST=False):
        assert ask().status == 299


@pytest.mark.usefixtures("collected")
def test_many_who_take_nothing_of_a_file_hold_it_once_and_no_thread() -> None:
    async def run() -> None:
        answers, clients = StaticResponses(django), [Client(takes=False) for _ in range(50)]
        threads = threading.active_count()
        asked = [asyncio.create_task(answers(scope_of(), receive, client.send)) for client in clients]
        await asyncio.sleep(0)
        pieces = [client.messages[1]["body"] for client in clients]
        assert len({id(piece.obj) for piece in pieces}) == 1
        assert threading.active_count() == threads
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)

    asyncio.run(run())
