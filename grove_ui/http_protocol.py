"""The HTTP protocol of the web process: uvicorn's, with limits to time, size and number of what clients may keep open.

Before it: sockets. After it: `request_limits`, which limits bodies, and Django. uvicorn itself closes a connection that
is idle after a response, but waits without limit for everything else. Here the headers of a request must be complete
within HEADER_TIMEOUT_SECONDS and MAX_HEADER_BYTES, and a client must read its response (docs/adr/0029).

With more than CONNECTION_LIMIT connections, the protocol closes the connection that has waited longest for its client,
for a request or for the client to read a response. If no connection waits for its client, new requests other than
probes are rejected with 503.

The memory of connections that wait for their clients is limited as well: all incomplete requests together to
MAX_UNFINISHED_BYTES, all unread responses to MAX_UNREAD_BYTES. Above the limit, the connection that has held memory
longest gives it up.

The invariant: no connection waits for its client without end, and the memory of all waiting connections is bounded.
"""

import asyncio
import socket
import weakref
from collections import deque
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from django.conf import settings
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from grove_ui.request_limits import (
    BOUNDED_EXTENSION,
    PROBES,
    Application,
    Message,
    Receive,
    Scope,
    Send,
    refuse_overload,
)

# From the connection, or from the first byte of a further request, to the end of the headers.
HEADER_TIMEOUT_SECONDS: Final = 10.0
# A client that reads nothing for so long counts as gone; the client of an event stream reconnects.
SEND_TIMEOUT_SECONDS: Final = 60.0
# The target and the headers of a request together. The target of a live page's stream names all parts of the page.
MAX_HEADER_BYTES: Final = 64 * 1024
MAX_HEADERS: Final = 100
# All incomplete requests: their headers, and the parts of their bodies that the application has not read yet.
MAX_UNFINISHED_BYTES: Final = 8 * 1024 * 1024
# All responses that clients do not read, with the headers of their requests.
MAX_UNREAD_BYTES: Final = 16 * 1024 * 1024
# Pipelined requests behind the one in progress, and their memory together with it.
MAX_PIPELINED: Final = 16
_MAX_PIPELINED_BYTES: Final = 2 * MAX_HEADER_BYTES
# Input of the parser at a time. The size of incomplete headers in the parser is known to this accuracy.
_CHUNK_BYTES: Final = 4096
# Memory of a header besides its characters.
_HEADER_OVERHEAD_BYTES: Final = 150
# Memory of a request besides its headers.
_REQUEST_BYTES: Final = 3 * 1024
# The part of a response that the kernel buffers without sending it: a page or a file. Its default grows to megabytes
# for each client that reads nothing.
_UNSENT_BYTES: Final = 512 * 1024
# Connections above the limit, so that probes are answered while all other connections have a request in progress.
_PROBE_RESERVE: Final = 32
# How long a rejected client has to read the response before the connection is closed.
_REFUSED_CLOSE_SECONDS: Final = 2.0


class _MemoryBudget:
    """The memory of all connections of a server, for one purpose."""

    def __init__(self) -> None:
        self._held_bytes = 0
        self._sizes: dict[BoundedProtocol, int] = {}  # the connection that has held memory longest comes first

    def track(self, connection: "BoundedProtocol", size: int, max_bytes: int) -> "list[BoundedProtocol]":
        """Record the memory of a connection, and return those that must give theirs up; the last one may keep it."""
        self._forget(connection) if not size else self._count(connection, size)
        dropped = []
        while self._held_bytes > max_bytes and len(self._sizes) > 1:
            dropped.append(next(iter(self._sizes)))
            self._forget(dropped[-1])
        return dropped

    def _count(self, connection: "BoundedProtocol", size: int) -> None:
        self._held_bytes += size - self._sizes.get(connection, 0)
        self._sizes[connection] = size

    def _forget(self, connection: "BoundedProtocol") -> None:
        self._held_bytes -= self._sizes.pop(connection, 0)


class _WaitingConnections:
    """The connections of a server that wait for their clients, and their memory."""

    def __init__(self) -> None:
        self.waiting: dict[BoundedProtocol, None] = {}  # longest first
        self.unfinished = _MemoryBudget()
        self.unread = _MemoryBudget()


_WAITING_CONNECTIONS: Final[weakref.WeakKeyDictionary[ServerState, _WaitingConnections]] = weakref.WeakKeyDictionary()


class _LimitExceeded(Exception):  # noqa: N818 (internal, it stops the parser)
    """The headers of a request are too large, or too many requests are pipelined."""


class BoundedProtocol(HttpToolsProtocol):
    """A connection with limits to time and memory."""

    header_timeout_seconds = HEADER_TIMEOUT_SECONDS
    send_timeout_seconds = SEND_TIMEOUT_SECONDS
    max_unfinished_bytes = MAX_UNFINISHED_BYTES
    max_unread_bytes = MAX_UNREAD_BYTES

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._own_app = self.app
        self._clients = _WAITING_CONNECTIONS.setdefault(self.server_state, _WaitingConnections())
        self._waiting = self._clients.waiting
        self._limit: int = settings.ENVIRONMENT.connection_limit
        self._awaits_head = True
        self._awaits_request = True
        self._is_unfinished = False
        self._is_refused = False
        self._exceeds_limits = False
        self._head_bytes = 0  # of the target and of the complete headers
        self._bytes_without_progress = 0
        self._cycles: deque[RequestResponseCycle] = deque()  # unanswered requests, in order
        self._request_bytes: deque[int] = deque()  # memory of each of these requests
        self._head_deadline: asyncio.TimerHandle | None = None
        self._send_deadline: asyncio.TimerHandle | None = None

    # ---- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request; close another connection if there are too many."""
        super().connection_made(transport)
        _bound_unsent(transport)
        self._start_header_deadline()
        self._update_waiting()
        self._make_room()
        if len(self.connections) > self._limit + _PROBE_RESERVE:
            self.close_now()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release all memory of the connection."""
        self._disconnect()
        super().connection_lost(exc)
        self._break_reference_cycles()
        self._update_waiting()
        self._update_unfinished()
        self._cancel_head_deadline()
        self._cancel_send_deadline()

    def _break_reference_cycles(self) -> None:
        """Remove all references of its members to this connection, so that its memory is freed at once."""
        self.app = self._own_app
        for cycle in self._cycles:
            cycle.on_response = _do_nothing
        self._cycles.clear()
        self.pipeline.clear()

    def _disconnect(self) -> None:
        """Report the disconnect to all requests; uvicorn reports it only to the last one."""
        for cycle in self._cycles:
            cycle.disconnected = True
            cycle.message_event.set()

    def _make_room(self) -> None:
        """While there are too many connections, close the one that has waited longest for its client."""
        while len(self.connections) > self._limit:
            oldest = next((other for other in self._waiting if other is not self), None)
            if oldest is None:
                return
            oldest.close_now()

    def _update_waiting(self) -> None:
        """Record whether this connection waits for its client, in order of the start of the wait."""
        is_paused = self in self.connections and self.flow.write_paused
        if is_paused or (self in self.connections and self._awaits_request):
            self._waiting.setdefault(self, None)
        else:
            self._waiting.pop(self, None)
        unread = self.transport.get_write_buffer_size() + sum(self._request_bytes) if is_paused else 0
        for other in self._clients.unread.track(self, unread, self.max_unread_bytes):
            other.close_now()

    def _update_unfinished(self) -> None:
        """Record the memory of an incomplete request, and drop others if the limit is exceeded."""
        is_counted = self._is_unfinished and self in self.connections and not self._is_refused
        for other in self._clients.unfinished.track(
            self, self._compute_unfinished_bytes() if is_counted else 0, self.max_unfinished_bytes
        ):
            other.drop()

    def _compute_unfinished_bytes(self) -> int:
        """Return the memory of the incomplete request."""
        if not self._awaits_head:
            return sum(self._request_bytes) + len(self.cycle.body)
        return self._bytes_without_progress + _CHUNK_BYTES + _HEADER_OVERHEAD_BYTES * len(self.headers)

    def drop(self) -> None:
        """Drop the incomplete request, to make room for others."""
        if self._awaits_head and self._is_idle:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "The server has too many requests. Send the request again.")
        else:
            self.close_now()

    @property
    def _is_idle(self) -> bool:
        """Whether no request is unanswered."""
        return self.cycle is None or self.cycle.response_complete

    def close_now(self) -> None:
        """Close the connection and discard unsent data."""
        self.connections.discard(self)  # frees its slot at once; uvicorn calls connection_lost a moment later
        self._update_waiting()
        self._update_unfinished()
        self._disconnect()
        self.transport.abort()

    def _start_header_deadline(self) -> None:
        self._cancel_head_deadline()
        self._head_deadline = self.loop.call_later(self.header_timeout_seconds, self._on_header_timeout)

    def _on_header_timeout(self) -> None:
        if not self._is_idle:
            self._start_header_deadline()  # a response is in progress, and more bytes have arrived behind its request
        elif self._is_unfinished:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The headers did not arrive in time.")
        else:
            self.close_now()

    # ---- requests

    def data_received(self, data: bytes) -> None:
        """Parse the data chunk by chunk, and check the limits after each."""
        for start in range(0, len(data), _CHUNK_BYTES):
            if self._is_refused or self.transport.is_closing():
                return
            self._parse_chunk(data[start : start + _CHUNK_BYTES])

    def _parse_chunk(self, chunk: bytes) -> None:
        if self._awaits_head and self._head_deadline is None:
            self._start_header_deadline()
        self._bytes_without_progress += len(chunk)
        super().data_received(chunk)
        if self._bytes_without_progress > MAX_HEADER_BYTES:
            self._refuse_head()
        self._update_unfinished()

    def on_message_begin(self) -> None:
        """Start a request."""
        super().on_message_begin()
        self._is_unfinished = True
        self._head_bytes = 0
        self.scope["extensions"] = {BOUNDED_EXTENSION: {}}

    def on_url(self, url: bytes) -> None:
        """Add a part of the request target."""
        super().on_url(url)
        self._count_header_bytes(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header, or a trailer of a chunked body."""
        super().on_header(name, value)
        self._count_header_bytes(len(name) + len(value))

    def _count_header_bytes(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEADER_BYTES or len(self.headers or ()) > MAX_HEADERS:
            self._exceeds_limits = True
            raise _LimitExceeded

    def on_headers_complete(self) -> None:
        """Pass the request to the application, or reject it if there are too many connections."""
        self._awaits_head, self._bytes_without_progress = False, 0
        self._cancel_head_deadline()
        self._request_bytes.append(_REQUEST_BYTES + self._head_bytes + _HEADER_OVERHEAD_BYTES * len(self.headers))
        self._make_room()
        is_probe = self.url.partition(b"?")[0].decode("latin-1") in PROBES
        is_overload = len(self.connections) > self._limit and not is_probe
        self.app = partial(self._answer, refuse_overload if is_overload else self._own_app)
        super().on_headers_complete()
        self._cycles.append(self.cycle)
        self._check_pipeline()

    async def _answer(self, app: Application, scope: Scope, receive: Receive, send: Send) -> None:
        async def receiving() -> Message:
            message = await receive()
            self._update_unfinished()  # the application has taken this part of the body
            return message

        await app(scope, receiving, send)

    def _check_pipeline(self) -> None:
        """Stop parsing if more requests are pipelined than any real client sends."""
        if self.pipeline and (len(self.pipeline) > MAX_PIPELINED or sum(self._request_bytes) > _MAX_PIPELINED_BYTES):
            self._exceeds_limits = True
            raise _LimitExceeded

    def on_body(self, body: bytes) -> None:
        """Add a part of a body."""
        self._bytes_without_progress = 0
        super().on_body(body)
        if self.pipeline:
            self._request_bytes[-1] += len(body)
            self._check_pipeline()

    def on_message_complete(self) -> None:
        """Finish the request; the next one may follow."""
        self._bytes_without_progress = 0
        self._awaits_head, self._awaits_request, self._is_unfinished = True, False, False
        self._update_waiting()
        super().on_message_complete()

    # ---- responses

    def on_response_complete(self) -> None:
        """Wait for the next request, with the keep-alive timeout of uvicorn."""
        super().on_response_complete()
        self._request_bytes.popleft()
        self._cycles.popleft()
        if self.cycle.response_complete:
            self._awaits_request = True
            self._update_waiting()
        if self.transport.is_closing():
            self._start_send_deadline()

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection: no further request arrived in time."""
        super().timeout_keep_alive_handler()
        self._start_send_deadline()

    def pause_writing(self) -> None:
        """Start the deadline for the client to read the response."""
        super().pause_writing()
        self._update_waiting()
        self._start_send_deadline()

    def resume_writing(self) -> None:
        """Stop the deadline: the client has read most of the response."""
        super().resume_writing()
        self._update_waiting()
        if not self.transport.is_closing():
            self._cancel_send_deadline()

    def _start_send_deadline(self) -> None:
        """Close the connection after the deadline, unless the client reads; a closing one ends once all is sent."""
        self._cancel_send_deadline()
        if self not in self.connections:
            return
        self._send_deadline = self.loop.call_later(self.send_timeout_seconds, self.close_now)

    def send_400_response(self, msg: str) -> None:
        """Reject malformed HTTP, and requests that exceed a limit."""
        if self._exceeds_limits:
            self._refuse_head()
        else:
            super().send_400_response(msg)

    def _refuse_head(self) -> None:
        sentence = f"The headers are larger than {MAX_HEADER_BYTES // 1024} KiB, or there are more than {MAX_HEADERS}."
        self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, sentence)

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        """Answer with a sentence, and close the connection when the client had time to read it."""
        if self._is_refused or self.transport.is_closing():
            return
        self._is_refused = True
        self._cancel_head_deadline()
        self._update_unfinished()
        if self._is_idle:
            self.parser = None  # type: ignore[assignment]  # parse nothing more, and free its buffers
            self.scope, self.headers, self.url = {}, [], b""  # type: ignore[typeddict-item]
            body = f"{sentence}\n".encode()
            head = b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
            self.transport.write(STATUS_LINE[status] + head % len(body) + body)
        self.loop.call_later(_REFUSED_CLOSE_SECONDS, self.transport.abort)

    def _cancel_head_deadline(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None

    def _cancel_send_deadline(self) -> None:
        if self._send_deadline is not None:
            self._send_deadline.cancel()
            self._send_deadline = None


def _bound_unsent(transport: asyncio.Transport) -> None:
    """Limit the unsent data in the kernel, however fast the connection is."""
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)


def _do_nothing() -> None:
    """Ignore the end of a response after the connection was lost."""
