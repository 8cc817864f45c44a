"""How the web process speaks HTTP: uvicorn's protocol, with an end to everything that a client can draw out.

Before it: sockets. After it: `request_limits`, which bounds bodies, and Django. uvicorn itself closes a connection that
is idle after a response, and waits for everything else for as long as the client likes. Here the headers of a request
must be complete within HEAD_SECONDS and HEAD_BYTES, and a client must read what it asked for (docs/adr/0029).

With more than CONNECTION_LIMIT connections, the one that has waited longest for its client is closed, whether it waits
for a request or for the client to take an answer. Where every connection waits for us, new requests are refused with
503, but for the probes.

What connections hold while they wait for their clients is bounded together as well: requests that are not complete by
MOST_UNFINISHED, answers that are not taken by MOST_UNREAD. Beyond, the one that has held something longest gives it up.

The invariant: no connection waits for its client without an end, and what all of them hold meanwhile is bounded.
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
# A client that takes nothing for so long has gone; a stream of events is then joined again.
SEND_TIMEOUT_SECONDS: Final = 60.0
# Of the address and the headers of a request together. The address of a page's stream names all that the page shows.
MAX_HEADER_BYTES: Final = 64 * 1024
MAX_HEADERS: Final = 100
# Of all requests that are not complete: their headers, and what nobody has taken yet of their bodies.
MAX_UNFINISHED_BYTES: Final = 8 * 1024 * 1024
# Of all answers that their clients do not take, with the headers of what they asked for.
MAX_UNREAD_BYTES: Final = 16 * 1024 * 1024
# Requests that may wait behind one that is being answered, and what they hold together with it.
MAX_PIPELINED: Final = 16
_MAX_PIPELINED_BYTES: Final = 2 * MAX_HEADER_BYTES
# The parser is given so much at a time, which is how exactly we know what it keeps of headers that are not complete.
_PIECE_BYTES: Final = 4096
# What a header takes beside its letters.
_HEADER_OVERHEAD_BYTES: Final = 150
# What a request takes beside its headers.
_REQUEST_BYTES: Final = 3 * 1024
# Of an answer, what the kernel takes that it cannot send yet: a page or a file. By its default that grows to megabytes
# for each client that reads nothing, all of which are made for nothing.
_UNSENT_BYTES: Final = 512 * 1024
# Connections beyond the limit, so that probes are answered while every other one has a request under way.
_PROBE_RESERVE: Final = 32
# How long a client that is refused may go on sending before it must have read why.
_REFUSED_CLOSE_SECONDS: Final = 2.0


class _MemoryBudget:
    """What connections hold together."""

    def __init__(self) -> None:
        self._held_bytes = 0
        self._sizes: dict[BoundedProtocol, int] = {}  # the one that has held something longest first

    def track(self, connection: "BoundedProtocol", size: int, most: int) -> "list[BoundedProtocol]":
        """Note what a connection holds, and return those that must give up what they hold; the last may keep it."""
        self._forget(connection) if not size else self._count(connection, size)
        given_up = []
        while self._held_bytes > most and len(self._sizes) > 1:
            given_up.append(next(iter(self._sizes)))
            self._forget(given_up[-1])
        return given_up

    def _count(self, connection: "BoundedProtocol", size: int) -> None:
        self._held_bytes += size - self._sizes.get(connection, 0)
        self._sizes[connection] = size

    def _forget(self, connection: "BoundedProtocol") -> None:
        self._held_bytes -= self._sizes.pop(connection, 0)


class _WaitingConnections:
    """The connections of a server that wait for their clients."""

    def __init__(self) -> None:
        self.waiting: dict[BoundedProtocol, None] = {}  # the longest first
        self.unfinished = _MemoryBudget()
        self.unread = _MemoryBudget()


_WAITING_CONNECTIONS: Final[weakref.WeakKeyDictionary[ServerState, _WaitingConnections]] = weakref.WeakKeyDictionary()


class _LimitExceeded(Exception):  # noqa: N818 (it ends the parsing and is seen by nobody)
    """The headers of a request are larger than we take, or there are too many requests."""


class BoundedProtocol(HttpToolsProtocol):
    """A connection that ends."""

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
        self._head_bytes = 0  # of the address and of the headers that are complete
        self._bytes_without_progress = 0
        self._cycles: deque[RequestResponseCycle] = deque()  # the requests that are to be answered, the first first
        self._request_bytes: deque[int] = deque()  # of each of them
        self._head_deadline: asyncio.TimerHandle | None = None
        self._send_deadline: asyncio.TimerHandle | None = None

    # ---- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, and make room for this connection."""
        super().connection_made(transport)
        _bound_unsent(transport)
        self._start_header_deadline()
        self._update_waiting()
        self._make_room()
        if len(self.connections) > self._limit + _PROBE_RESERVE:
            self.close_now()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._disconnect()
        super().connection_lost(exc)
        self._cut_ways_back()
        self._update_waiting()
        self._update_unfinished()
        self._cancel_head_deadline()
        self._cancel_send_deadline()

    def _cut_ways_back(self) -> None:
        """Let nothing that this connection has lead back to it, so that its memory is free at once."""
        self.app = self._own_app
        for cycle in self._cycles:
            cycle.on_response = _do_nothing
        self._cycles.clear()
        self.pipeline.clear()

    def _disconnect(self) -> None:
        """Have what is still sent go nowhere; uvicorn tells only the last request that its client has gone."""
        for cycle in self._cycles:
            cycle.disconnected = True
            cycle.message_event.set()

    def _make_room(self) -> None:
        """Close those that have waited longest for their clients, as long as there are too many connections."""
        while len(self.connections) > self._limit:
            oldest = next((other for other in self._waiting if other is not self), None)
            if oldest is None:
                return
            oldest.close_now()

    def _update_waiting(self) -> None:
        """Be among those that may be closed while the client is waited for, from the moment that it was first."""
        is_paused = self in self.connections and self.flow.write_paused
        if is_paused or (self in self.connections and self._awaits_request):
            self._waiting.setdefault(self, None)
        else:
            self._waiting.pop(self, None)
        unread = self.transport.get_write_buffer_size() + sum(self._request_bytes) if is_paused else 0
        for other in self._clients.unread.track(self, unread, self.max_unread_bytes):
            other.close_now()

    def _update_unfinished(self) -> None:
        """Count what there is of a request that is not complete; others give up theirs for it."""
        is_counted = self._is_unfinished and self in self.connections and not self._is_refused
        for other in self._clients.unfinished.track(
            self, self._compute_unfinished_bytes() if is_counted else 0, self.max_unfinished_bytes
        ):
            other.drop()

    def _compute_unfinished_bytes(self) -> int:
        """Return how much is held of a request that is not complete."""
        if not self._awaits_head:
            return sum(self._request_bytes) + len(self.cycle.body)
        return self._bytes_without_progress + _PIECE_BYTES + _HEADER_OVERHEAD_BYTES * len(self.headers)

    def drop(self) -> None:
        """Make room for other requests that are not complete."""
        if self._awaits_head and self._is_idle:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "Too many requests are under way; send it again.")
        else:
            self.close_now()

    @property
    def _is_idle(self) -> bool:
        """Whether there is nothing to be answered."""
        return self.cycle is None or self.cycle.response_complete

    def close_now(self) -> None:
        """Close it, whatever is still to be sent."""
        self.connections.discard(self)  # its room is free at once, though uvicorn hears of the end a moment later
        self._update_waiting()
        self._update_unfinished()
        self._disconnect()
        self.transport.abort()

    def _start_header_deadline(self) -> None:
        self._cancel_head_deadline()
        self._head_deadline = self.loop.call_later(self.header_timeout_seconds, self._on_header_timeout)

    def _on_header_timeout(self) -> None:
        if not self._is_idle:
            self._start_header_deadline()  # an answer is on its way, behind which some bytes have come
        elif self._is_unfinished:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The headers did not arrive in time.")
        else:
            self.close_now()

    # ---- what the client sends

    def data_received(self, data: bytes) -> None:
        """Take what came, unless the client draws it out."""
        for start in range(0, len(data), _PIECE_BYTES):
            if self._is_refused or self.transport.is_closing():
                return
            self._parse_piece(data[start : start + _PIECE_BYTES])

    def _parse_piece(self, piece: bytes) -> None:
        if self._awaits_head and self._head_deadline is None:
            self._start_header_deadline()
        self._bytes_without_progress += len(piece)
        super().data_received(piece)
        if self._bytes_without_progress > MAX_HEADER_BYTES:
            self._refuse_head()
        self._update_unfinished()

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._is_unfinished = True
        self._head_bytes = 0
        self.scope["extensions"] = {BOUNDED_EXTENSION: {}}

    def on_url(self, url: bytes) -> None:
        """Take a piece of the address."""
        super().on_url(url)
        self._count_header_bytes(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or one that comes after a body in chunks."""
        super().on_header(name, value)
        self._count_header_bytes(len(name) + len(value))

    def _count_header_bytes(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEADER_BYTES or len(self.headers or ()) > MAX_HEADERS:
            self._exceeds_limits = True
            raise _LimitExceeded

    def on_headers_complete(self) -> None:
        """Let the request be answered."""
        self._awaits_head, self._bytes_without_progress = False, 0
        self._cancel_head_deadline()
        self._request_bytes.append(_REQUEST_BYTES + self._head_bytes + _HEADER_OVERHEAD_BYTES * len(self.headers))
        self._make_room()
        is_probe = self.url.partition(b"?")[0].decode("latin-1") in PROBES
        is_beyond = len(self.connections) > self._limit and not is_probe
        self.app = partial(self._answer, refuse_overload if is_beyond else self._own_app)
        super().on_headers_complete()
        self._cycles.append(self.cycle)
        self._check_pipeline()

    async def _answer(self, app: Application, scope: Scope, receive: Receive, send: Send) -> None:
        async def receiving() -> Message:
            message = await receive()
            self._update_unfinished()  # what is taken is no longer here
            return message

        await app(scope, receiving, send)

    def _check_pipeline(self) -> None:
        """Leave where more waits behind an answer than any client sends."""
        if self.pipeline and (len(self.pipeline) > MAX_PIPELINED or sum(self._request_bytes) > _MAX_PIPELINED_BYTES):
            self._exceeds_limits = True
            raise _LimitExceeded

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._bytes_without_progress = 0
        super().on_body(body)
        if self.pipeline:
            self._request_bytes[-1] += len(body)
            self._check_pipeline()

    def on_message_complete(self) -> None:
        """Have a whole request; the next one may follow."""
        self._bytes_without_progress = 0
        self._awaits_head, self._awaits_request, self._is_unfinished = True, False, False
        self._update_waiting()
        super().on_message_complete()

    # ---- what the client is sent

    def on_response_complete(self) -> None:
        """Wait for the next request; uvicorn says how long."""
        super().on_response_complete()
        self._request_bytes.popleft()
        self._cycles.popleft()
        if self.cycle.response_complete:
            self._awaits_request = True
            self._update_waiting()
        if self.transport.is_closing():
            self._start_send_deadline()

    def timeout_keep_alive_handler(self) -> None:
        """Close it, as no other request came."""
        super().timeout_keep_alive_handler()
        self._start_send_deadline()

    def pause_writing(self) -> None:
        """Give the client time to take what it asked for."""
        super().pause_writing()
        self._update_waiting()
        self._start_send_deadline()

    def resume_writing(self) -> None:
        """Go on: the client has taken most of it."""
        super().resume_writing()
        self._update_waiting()
        if not self.transport.is_closing():
            self._cancel_send_deadline()

    def _start_send_deadline(self) -> None:
        """Close it unless the client takes what there is for it; one that is to close does so once nothing is left."""
        self._cancel_send_deadline()
        if self not in self.connections:
            return
        self._send_deadline = self.loop.call_later(self.send_timeout_seconds, self.close_now)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, or too much of it."""
        if self._exceeds_limits:
            self._refuse_head()
        else:
            super().send_400_response(msg)

    def _refuse_head(self) -> None:
        sentence = f"The headers are larger than {MAX_HEADER_BYTES // 1024} KiB, or more than {MAX_HEADERS}."
        self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, sentence)

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        """Answer with a sentence and leave, once the client had time to read it."""
        if self._is_refused or self.transport.is_closing():
            return
        self._is_refused = True
        self._cancel_head_deadline()
        self._update_unfinished()
        if self._is_idle:
            self.parser = None  # type: ignore[assignment]  # nothing more is parsed, and it keeps what has come
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
    """Have the kernel take little that it cannot send yet, however fast it sends."""
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)


def _do_nothing() -> None:
    """Be told of an answer that nobody waits for."""
