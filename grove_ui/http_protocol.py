"""How the web process speaks HTTP: uvicorn's protocol, with an end to everything that a client can draw out.

Before it: sockets. After it: `request_limits`, which bounds bodies, and Django. uvicorn itself closes a connection that
is idle after a response, and waits for everything else for as long as the client likes. Here the headers of a request
must be complete within HEAD_SECONDS and HEAD_BYTES, and a client must read what it asked for (docs/adr/0029).

With more than CONNECTION_LIMIT connections, the one that has waited longest for its client is closed, whether it waits
for a request or for the client to take an answer. Where every connection waits for us, new requests are refused with
503, but for the probes.

The invariant: no connection waits for its client without an end, and what one holds meanwhile is bounded.
"""

import asyncio
import weakref
from http import HTTPStatus
from typing import Any, Final

from django.conf import settings
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from grove_ui.request_limits import EXTENSION, PROBES, refuse_overload

# From the connection, or from the first byte of a further request, to the end of the headers.
HEAD_SECONDS: Final = 10.0
# A client that takes nothing for so long has gone; a stream of events is then joined again.
SEND_SECONDS: Final = 60.0
# Of the address and the headers of a request together. The address of a page's stream names all that the page shows.
HEAD_BYTES: Final = 64 * 1024
HEADERS: Final = 100
# Connections beyond the limit, so that probes are answered while every other one has a request under way.
_RESERVE: Final = 32
# How long a client that is refused may go on sending before it must have read why.
_SECONDS_TO_LEAVE: Final = 2.0

_Waiting = dict["BoundedProtocol", None]
# Of each server: connections that wait for their clients, the longest first.
_WAITING: Final[weakref.WeakKeyDictionary[ServerState, _Waiting]] = weakref.WeakKeyDictionary()


class _TooLarge(Exception):  # noqa: N818 (it ends the parsing and is seen by nobody)
    """The headers of a request are larger than we take."""


class BoundedProtocol(HttpToolsProtocol):
    """A connection that ends."""

    head_seconds = HEAD_SECONDS
    send_seconds = SEND_SECONDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._own_app = self.app
        self._waiting = _WAITING.setdefault(self.server_state, {})
        self._limit: int = settings.ENVIRONMENT.connection_limit
        self._awaits_head = True
        self._awaits_request = True
        self._is_refused = False
        self._has_too_much = False
        self._head_bytes = 0  # of the address and of the headers that are complete
        self._bytes_without_progress = 0
        self._head_deadline: asyncio.TimerHandle | None = None
        self._send_deadline: asyncio.TimerHandle | None = None

    # ---- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, and make room for this connection."""
        super().connection_made(transport)
        self._await_head()
        self._note_waiting()
        self._make_room()
        if len(self.connections) > self._limit + _RESERVE:
            self.close_now()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._waiting.pop(self, None)
        self._cancel_head_deadline()
        self._cancel_send_deadline()
        super().connection_lost(exc)

    def _make_room(self) -> None:
        """Close those that have waited longest for their clients, as long as there are too many connections."""
        while len(self.connections) > self._limit:
            oldest = next((other for other in self._waiting if other is not self), None)
            if oldest is None:
                return
            oldest.close_now()

    def _note_waiting(self) -> None:
        """Be among those that may be closed while the client is waited for, from the moment that it was first."""
        if self in self.connections and (self._awaits_request or self.flow.write_paused):
            self._waiting.setdefault(self, None)
        else:
            self._waiting.pop(self, None)

    def close_now(self) -> None:
        """Close it, whatever is still to be sent."""
        self._waiting.pop(self, None)
        self.connections.discard(self)  # its room is free at once, though uvicorn hears of the end a moment later
        self.transport.abort()

    def _await_head(self) -> None:
        self._cancel_head_deadline()
        self._head_deadline = self.loop.call_later(self.head_seconds, self._end_waiting)

    def _end_waiting(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._await_head()  # an answer is on its way, behind which some bytes have come
        elif self._bytes_without_progress:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The headers did not arrive in time.")
        else:
            self.close_now()

    # ---- what the client sends

    def data_received(self, data: bytes) -> None:
        """Take what came, unless the client draws it out."""
        if self._is_refused:
            return
        if self._awaits_head and self._head_deadline is None:
            self._await_head()
        self._bytes_without_progress += len(data)
        super().data_received(data)
        if self._bytes_without_progress > HEAD_BYTES:
            self._refuse_head()

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._head_bytes = 0
        self.scope["extensions"] = {EXTENSION: {}}

    def on_url(self, url: bytes) -> None:
        """Take a piece of the address."""
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or one that comes after a body in chunks."""
        super().on_header(name, value)
        self._count(len(name) + len(value))

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES or len(self.headers or ()) > HEADERS:
            self._has_too_much = True
            raise _TooLarge

    def on_headers_complete(self) -> None:
        """Let the request be answered."""
        self._awaits_head, self._bytes_without_progress = False, 0
        self._cancel_head_deadline()
        self._make_room()
        is_probe = self.url.partition(b"?")[0].decode("latin-1") in PROBES
        is_beyond = len(self.connections) > self._limit and not is_probe
        self.app = refuse_overload if is_beyond else self._own_app
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._bytes_without_progress = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Have a whole request; the next one may follow."""
        self._bytes_without_progress = 0
        self._awaits_head, self._awaits_request = True, False
        self._note_waiting()
        super().on_message_complete()

    # ---- what the client is sent

    def on_response_complete(self) -> None:
        """Wait for the next request; uvicorn says how long."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self._awaits_request = True
            self._note_waiting()
        if self.transport.is_closing():
            self._await_taking()

    def timeout_keep_alive_handler(self) -> None:
        """Close it, as no other request came."""
        super().timeout_keep_alive_handler()
        self._await_taking()

    def pause_writing(self) -> None:
        """Give the client time to take what it asked for."""
        super().pause_writing()
        self._note_waiting()
        self._await_taking()

    def resume_writing(self) -> None:
        """Go on: the client has taken most of it."""
        super().resume_writing()
        self._note_waiting()
        if not self.transport.is_closing():
            self._cancel_send_deadline()

    def _await_taking(self) -> None:
        """Close it unless the client takes what there is for it; one that is to close does so once nothing is left."""
        self._cancel_send_deadline()
        if self not in self.connections:
            return
        self._send_deadline = self.loop.call_later(self.send_seconds, self.close_now)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, or too much of it."""
        if self._has_too_much:
            self._refuse_head()
        else:
            super().send_400_response(msg)

    def _refuse_head(self) -> None:
        sentence = f"The headers are larger than {HEAD_BYTES // 1024} KiB, or more than {HEADERS}."
        self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, sentence)

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        """Answer with a sentence and leave, once the client had time to read it."""
        if self._is_refused or self.transport.is_closing():
            return
        self._is_refused = True
        self._cancel_head_deadline()
        if self.cycle is None or self.cycle.response_complete:
            body = f"{sentence}\n".encode()
            head = b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
            self.transport.write(STATUS_LINE[status] + head % len(body) + body)
        self.loop.call_later(_SECONDS_TO_LEAVE, self.transport.abort)

    def _cancel_head_deadline(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None

    def _cancel_send_deadline(self) -> None:
        if self._send_deadline is not None:
            self._send_deadline.cancel()
            self._send_deadline = None
