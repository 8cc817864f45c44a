"""A web server with the HTTP protocol of the web process, and clients that speak to it over sockets."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any, cast

import uvicorn
import uvloop

from grove_ui.http_protocol import BoundedProtocol
from grove_ui.request_limits import RequestLimits

SECONDS = 30.0  # generous, a limit for broken code only
KIB = 1024
MIB = 1024 * KIB
# More than the buffers of two sockets hold.
LARGE = 64 * MIB
PIECE = 16 * KIB


class QuickProtocol(BoundedProtocol):
    """The protocol with deadlines that a test can wait for."""

    header_timeout_seconds = 0.4
    send_timeout_seconds = 0.4


class PatientProtocol(BoundedProtocol):
    """A protocol that may hold many unread responses."""

    max_unread_bytes = 8 * LARGE


class NarrowProtocol(BoundedProtocol):
    """A protocol with little memory for connections that wait for their clients."""

    max_unfinished_bytes = MIB
    max_unread_bytes = LARGE + MIB


class GenerousProtocol(QuickProtocol):
    """A protocol that never pauses writing: a response is written at once."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Raise the limit of the write buffer."""
        transport.set_write_buffer_limits(high=2 * LARGE)
        super().connection_made(transport)


class Application:
    """Answers with the size of the body.

    The response to a path that starts with /open stays open; that to a path that ends with /large is large. A request
    with ?later gets a large response after `release`. The response of /pieces is as large, in chunks, which are
    counted.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.pieces = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_released = asyncio.Event()

    def release(self) -> None:
        """Answer the requests with ?later."""
        assert self._loop
        self._loop.call_soon_threadsafe(self._is_released.set)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append(scope["path"])
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message.get("body", b"")), message.get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if is_later := scope["query_string"] == b"later":
            self._loop = asyncio.get_running_loop()
            await self._is_released.wait()
        if is_later or scope["path"].endswith("/large"):
            await send({"type": "http.response.body", "body": b"x" * LARGE, "more_body": True})
        while scope["path"] == "/pieces" and self.pieces < LARGE // PIECE:
            await send({"type": "http.response.body", "body": b"x" * PIECE, "more_body": True})
            self.pieces += 1
        if scope["path"].startswith("/open"):
            await send({"type": "http.response.body", "body": b"open", "more_body": True})
            await receive()
        await send({"type": "http.response.body", "body": str(size).encode(), "more_body": False})


class Server:
    """A web server in a thread, on a port of its own."""

    def __init__(self, protocol: type[BoundedProtocol] = BoundedProtocol, **limits: Any) -> None:
        self.app = Application()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        config = uvicorn.Config(
            RequestLimits(self.app, **limits), http=protocol, ws="none", lifespan="off", log_config=None
        )
        self._server = uvicorn.Server(config)
        # uvloop, as in the product: its transports raise where those of asyncio do nothing.
        self._thread = threading.Thread(target=lambda: uvloop.run(self._server.serve([self._listener])))
        self._thread.start()

    @property
    def connections(self) -> int:
        """The number of connections."""
        return len(self._server.server_state.connections)

    def only_connection(self) -> BoundedProtocol:
        """Return the only connection."""
        (connection,) = cast("set[BoundedProtocol]", self._server.server_state.connections)
        return connection

    @property
    def unread(self) -> list[int]:
        """The number of pipelined requests of each connection whose client does not read."""
        connections = cast("set[BoundedProtocol]", self._server.server_state.connections)
        return [len(connection.pipeline) for connection in tuple(connections) if connection.flow.write_paused]

    @property
    def bytes_of_bodies(self) -> int:
        """The size of bodies that the application has not read yet."""
        connections = cast("set[BoundedProtocol]", self._server.server_state.connections)
        sizes: list[int] = [len(connection.cycle.body) for connection in tuple(connections) if connection.cycle]
        return sum(sizes)

    def stop(self) -> None:
        """Stop the server."""
        self._server.force_exit = self._server.should_exit = True
        self._thread.join(SECONDS)

    def connect(self) -> socket.socket:
        """Open a connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)

    def send(self, *pieces: bytes) -> bytes:
        """Send data on a new connection, and return the answer until it is closed."""
        with self.connect() as connection:
            with contextlib.suppress(ConnectionError):
                for piece in pieces:
                    connection.sendall(piece)
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    """Read until the other side closes."""
    pieces = []
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            pieces.append(piece)
    return b"".join(pieces)


def read_until(connection: socket.socket, end: bytes) -> None:
    """Read up to a terminator."""
    read = b""
    while not read.endswith(end):
        piece = connection.recv(MIB)
        assert piece
        read = read[-len(end) :] + piece


def get(path: str = "/", *, close: bool = True) -> bytes:
    """Return a request."""
    return b"GET %b HTTP/1.1\r\nHost: x\r\n%b\r\n" % (path.encode(), b"Connection: close\r\n" if close else b"")


def post(path: str, *headers: bytes) -> bytes:
    """Return the head of a request with a body."""
    lines = [b"POST %b HTTP/1.1" % path.encode(), b"Host: x", b"Connection: close", *headers]
    return b"\r\n".join([*lines, b"", b""])


def status_of(answer: bytes) -> int:
    """Return the status of a response; 0: no response."""
    return int(answer.split(b" ")[1]) if answer else 0


@contextlib.contextmanager
def serving(*args: Any, **kwargs: Any) -> Iterator[Server]:
    """Serve until the block ends."""
    server = Server(*args, **kwargs)
    try:
        yield server
    finally:
        server.stop()


def wait_for(true: Any) -> None:
    """Wait until a condition holds."""
    from tests.project.running import wait_until

    wait_until(true, SECONDS)
