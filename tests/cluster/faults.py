"""A server that misbehaves on command: it answers each request as the test says, and remembers all requests.

An answer is a function that writes anything to the connection: nothing, half of an answer, something else. When the
answers run out the last one is repeated.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
import yaml

NEVER = 3600.0
SECONDS_TO_COME = 60.0


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request that reached the server."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes


class Handler(BaseHTTPRequestHandler):
    """One connection; keeps it open between requests as an API server does."""

    protocol_version = "HTTP/1.1"
    server: "FaultServer"

    def handle(self) -> None:
        """Serve the connection; a client that gives up is no error."""
        self.server.count_connection()
        with contextlib.suppress(ConnectionError, TimeoutError):
            super().handle()

    def respond(self) -> None:
        """Answer as the test has said."""
        length = int(self.headers.get("Content-Length") or 0)
        parts = urlsplit(self.path)
        request = ReceivedRequest(
            self.command, parts.path, parse_qs(parts.query), dict(self.headers.items()), self.rfile.read(length)
        )
        self.server.next_answer(request)(self)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = respond  # noqa: N815 (the base class looks for these names)

    def log_message(self, *_: object) -> None:
        """Log nothing: the requests are remembered."""

    def send(
        self, code: int, body: bytes, media: str = "application/json", *, length: int | None = None, wait: str = ""
    ) -> None:
        """Send an answer, with a Content-Length that may be wrong."""
        self.send_response(code)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.send_header("Content-Type", media)
        if wait:
            self.send_header("Retry-After", wait)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def begin_stream(self) -> None:
        """Send the headers of an answer without an end."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def send_chunk(self, data: bytes) -> None:
        """Send a part of a stream."""
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def end_stream(self) -> None:
        """End a stream properly."""
        self.send_chunk(b"")

    def drop(self) -> None:
        """Close the connection at once."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def hang(self) -> None:
        """Send nothing until the test ends."""
        self.server.over.wait(NEVER)
        self.close_connection = True


Answer = Callable[[Handler], None]


@dataclass
class Script:
    """The answers to come and the requests so far."""

    answers: list[Answer] = field(default_factory=list)
    requests: list[ReceivedRequest] = field(default_factory=list)


class FaultServer(ThreadingHTTPServer):
    """Listens on a free loopback port."""

    daemon_threads = True
    block_on_close = False
    # Of connections that wait to be accepted: one too many would be tried again only a second later.
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.over = threading.Event()
        self.connections = 0
        self._lock = threading.Condition()
        self._script = Script()

    @property
    def url(self) -> str:
        """The address on which it listens."""
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def requests(self) -> list[ReceivedRequest]:
        """The requests so far."""
        with self._lock:
            return list(self._script.requests)

    def wait_for_request(self) -> None:
        """Wait for a request that its client may have given up before the server reads it."""
        with self._lock:
            assert self._lock.wait_for(lambda: self._script.requests, SECONDS_TO_COME), "no request came"

    def answers(self, *answers: Answer) -> None:
        """Set the answers to the next requests; the last one also answers all that follow."""
        with self._lock:
            self._script = Script(list(answers))

    def next_answer(self, request: ReceivedRequest) -> Answer:
        """Record a request and return its answer."""
        with self._lock:
            self._script.requests.append(request)
            self._lock.notify_all()
            answers = self._script.answers
            return answers.pop(0) if len(answers) > 1 else answers[0]

    def count_connection(self) -> None:
        """Record a new connection."""
        with self._lock:
            self.connections += 1

    def handle_error(self, *_: object) -> None:
        """Log nothing about clients that have gone."""


@contextlib.contextmanager
def running_fault_server() -> Iterator[FaultServer]:
    """Serve until the block ends."""
    server = FaultServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def write_kubeconfig(path: Path, url: str, user: dict[str, Any] | None = None) -> Path:
    """Write a kubeconfig with one context."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(config))
    return path


def json(code: int, body: Any, *, wait: str = "") -> Answer:
    """Answer with JSON, and optionally with a Retry-After header."""
    return lambda handler: handler.send(code, orjson.dumps(body), wait=wait)


def text(code: int, body: bytes) -> Answer:
    """Answer with something that is not JSON."""
    return lambda handler: handler.send(code, body, "text/html")


def failure(code: int, reason: str, message: str = "no", **more: Any) -> Answer:
    """Answer with a Status that reports a failure."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return json(code, status | {"message": message} | more)


def cut(handler: Handler) -> None:
    """Close the connection without an answer."""
    handler.drop()


def hang(handler: Handler) -> None:
    """Accept the request and send nothing."""
    handler.hang()


def truncated(handler: Handler) -> None:
    """Send the first half of an answer, then close."""
    handler.send(200, b'{"kind": "Pod", "meta', length=4000)
    handler.drop()


def truncated_chunks(handler: Handler) -> None:
    """Send the first chunk of an answer, then close."""
    handler.begin_stream()
    handler.send_chunk(b'{"kind": "Pod"}')
    handler.drop()


def dripping(handler: Handler) -> None:
    """Send an answer without an end byte by byte, each byte soon enough."""
    handler.send(200, b"[", length=1 << 20)
    while not handler.server.over.wait(0.02):
        handler.wfile.write(b" ")
        handler.wfile.flush()
