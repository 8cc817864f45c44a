"""A sandbox's API, served over HTTP from a thread of the test process, and a bare client for it.

No samples and no controllers: only the test writes. The client returns status codes, headers and bytes, so that tests
can check them.
"""

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvicorn

from rollouts.sandbox.apiserver.asgi import Application
from rollouts.sandbox.apiserver.registry import Registry
from rollouts.sandbox.apiserver.storage import Storage
from rollouts.sandbox.apiserver.verbs import Verbs
from tests.sandbox.apiserver.waiting import PATIENCE_SECONDS, wait_until

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Answer:
    """A response."""

    code: int
    headers: Mapping[str, str]  # names in lower case; several values joined by newlines
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Server:
    """A served sandbox."""

    port: int
    verbs: Verbs
    store: Storage
    registry: Registry

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        media: str = "application/json",
        *,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request; `raw` is sent unchanged."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        sent = raw if raw is not None else json.dumps(body).encode() if body is not None else None
        given = {"Content-Type": media} if sent is not None else {}
        with contextlib.closing(connection):
            connection.request(method, path, body=sent, headers={**given, "User-Agent": "tests/1", **(headers or {})})
            response = connection.getresponse()
            found: dict[str, str] = {}
            for name, value in response.getheaders():
                key = name.lower()
                found[key] = f"{found[key]}\n{value}" if key in found else value
            return Answer(response.status, found, response.read())


@contextlib.contextmanager
def served(path: Path | str, registry: Registry) -> Iterator[Server]:
    """Serve a store until the block ends."""
    store = Storage.open(path)
    verbs = Verbs(store, registry, lambda: datetime.now(UTC))
    app = Application(verbs, store, registry)
    listener = socket.create_server(("127.0.0.1", 0))
    # Idle connections stay open, so that a client never writes to one that is closing.
    config = uvicorn.Config(
        app, log_level="warning", lifespan="off", timeout_graceful_shutdown=2, timeout_keep_alive=600
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started, "the server did not start")
        yield Server(listener.getsockname()[1], verbs, store, registry)
    finally:
        server.should_exit = True
        app.close()
        thread.join(PATIENCE_SECONDS)
        store.close()
