"""A proxy in front of an API server that breaks some requests, as a bad network does.

A seeded random source chooses what happens to a request, so a run can be repeated as far as the order of requests can.
The worst fault is also the most common in practice: the server carries the request out, and the client does not know.

    refused    409, 429 or 500 instead of a response; the server never gets the request
    unheard    the server carries the request out; its response is dropped, or replaced by 500
    cut        the connection is closed before the request is forwarded
    expired    410 to a watch, at its beginning or later
    broken     a watch ends in the middle of a line
"""

import contextlib
import http.client
import random
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from tests.apiserver import ApiServer
from tests.cluster.faults import write_kubeconfig

CHUNK = 1 << 16
_REASONS = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}
_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "host", "accept-encoding", "authorization"}


class Badness:
    """How often each fault happens, and how often it has happened."""

    def __init__(self, seed: int, share: float) -> None:
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self.share = share  # share of requests with a fault
        self.done: Counter[str] = Counter()

    def choose(self, method: str, *, is_watch: bool) -> str:
        """Choose the fault of a request; none for most of them."""
        with self._lock:
            if self._chance.random() >= self.share:
                return ""
            if is_watch:
                chosen = self._chance.choice(["expired at once", "expired within", "broken", "cut"])
            elif method == "GET":
                chosen = self._chance.choice(["cut", "429", "500"])
            else:
                chosen = self._chance.choice(["cut", "409", "429", "500", "unheard", "unheard", "unheard with 500"])
            self.done[chosen] += 1
            return chosen

    def lines_before(self) -> int:
        """Choose after how many lines a watch ends."""
        with self._lock:
            return self._chance.randrange(1, 40)


class Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = CHUNK
    server: "Proxy"
    _upstream: http.client.HTTPSConnection | None = None

    def handle(self) -> None:
        """Serve the connection until either side closes it."""
        self.server.clients.add(self.connection)
        try:
            with contextlib.suppress(OSError, http.client.HTTPException):
                super().handle()
        finally:
            self.server.clients.discard(self.connection)
            if self._upstream is not None:
                self._upstream.close()

    def pass_on(self) -> None:
        """Forward a request with the fault chosen for it."""
        self.server.requests += 1
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        is_watch = "watch=true" in urlsplit(self.path).query
        chosen = self.server.badness.choose(self.command, is_watch=is_watch)
        if chosen == "cut":
            self._drop()
        elif chosen.isdigit() or chosen == "expired at once":
            self._refuse(int(chosen) if chosen.isdigit() else 410)
        elif is_watch:
            self._relay_watch(chosen)
        else:
            self._relay(body, chosen)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = pass_on  # noqa: N815 (the base class looks for these names)

    def log_message(self, *_: object) -> None:
        """Log nothing: faults are counted."""

    def _relay(self, body: bytes, chosen: str) -> None:
        answer = self._ask(body)
        content = answer.read()
        if chosen == "unheard":
            self._drop()
        elif chosen == "unheard with 500":
            self._refuse(500)
        else:
            self._answer(answer.status, content, answer.headers.get("Content-Type") or "application/json")

    def _relay_watch(self, chosen: str) -> None:
        answer = self._ask(b"")
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers.get("Content-Type") or "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        left = self.server.badness.lines_before() if chosen else None
        while line := answer.readline():
            if left is not None:
                left -= 1
                if left < 0:
                    self._end_badly(line, chosen)
                    return
            self._send_chunk(line)
        self._send_chunk(b"")

    def _end_badly(self, line: bytes, chosen: str) -> None:
        if chosen == "expired within":
            self._send_chunk(orjson.dumps({"type": "ERROR", "object": _status(410)}) + b"\n")
            self._send_chunk(b"")
        else:
            self._send_chunk(line[: len(line) // 2])
            self._drop()
        assert self._upstream is not None
        self._upstream.close()
        self._upstream = None

    def _ask(self, body: bytes) -> http.client.HTTPResponse:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        headers["Authorization"] = f"Bearer {self.server.target.admin_token}"
        for is_last in (False, True):
            if self._upstream is None:
                self._upstream = self.server.connect()
            try:
                self._upstream.request(self.command, self.path, body or None, headers)
                return self._upstream.getresponse()
            except (http.client.RemoteDisconnected, BrokenPipeError):
                # The server has closed an idle connection; it has not read the request.
                self._upstream.close()
                self._upstream = None
                if is_last:
                    raise
        raise AssertionError("not reached")

    def _refuse(self, code: int) -> None:
        self._answer(code, orjson.dumps(_status(code)), "application/json")

    def _answer(self, code: int, content: bytes, media: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def _send_chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _drop(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


class Proxy(ThreadingHTTPServer):
    """Stands between a client and an API server."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, target: ApiServer, badness: Badness) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.target = target
        self.badness = badness
        self.clients: set[socket.socket] = set()
        self.requests = 0
        self._address = urlsplit(target.url)
        self._context = ssl.create_default_context(cafile=str(target.ca_file))

    def connect(self) -> http.client.HTTPSConnection:
        """Open a connection to the server."""
        host, port = self._address.hostname, self._address.port
        assert host is not None
        connection = http.client.HTTPSConnection(host, port, context=self._context, timeout=330)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def cut_all(self) -> None:
        """Close every open connection."""
        for client in list(self.clients):
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: object) -> None:
        """Log nothing about closed connections."""


@contextlib.contextmanager
def running_proxy(target: ApiServer, badness: Badness, folder: Path) -> Iterator[tuple[Proxy, Path]]:
    """Serve until the block ends; yield the proxy and a kubeconfig with its address."""
    proxy = Proxy(target, badness)
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy, write_kubeconfig(folder / "proxy.kubeconfig", f"http://127.0.0.1:{proxy.server_port}")
    finally:
        proxy.shutdown()
        proxy.cut_all()
        proxy.server_close()
        thread.join()


def _status(code: int) -> dict[str, Any]:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": _REASONS[code]}
    if code == 429:
        status["details"] = {"retryAfterSeconds": 1}
    return status | {"message": "the network is having a bad day"}
