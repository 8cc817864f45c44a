"""Limits the bodies of requests before Django sees them, for every path and every client.

Before it: the server (`http_protocol` under uvicorn). After it: Django, which gets a body only when it is complete.
Without these limits Django writes a body of any size to the disk, and authenticates the client only then.

The limit of a body depends on path and method, and the body must arrive within BODY_TIMEOUT_SECONDS. All bodies
together have a limit as well: above it the body that has been arriving longest is dropped, so that a slow client makes
room for fast ones.

The invariant: the memory of all bodies is bounded, whoever sends them and however many there are (docs/adr/0029).
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from django.conf import settings
from rest_framework.permissions import SAFE_METHODS

from rollouts.api.problems import CONTENT_TYPE, Problem, render_problem
from rollouts.manifests.strict_yaml import MAX_BODY_BYTES

logger = logging.getLogger(__name__)

Scope = dict[str, Any]
Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

HEALTHZ: Final = "/healthz"
READYZ: Final = "/readyz"
PROBES: Final = (HEALTHZ, READYZ)
# The ASGI extension by which a server declares that it limits headers, times and connections.
BOUNDED_EXTENSION: Final = "grove-ui.bounded"
# For requests that need no body.
_SMALL_BODY_BYTES: Final = 16 * 1024
# From the headers to the end of the body.
BODY_TIMEOUT_SECONDS: Final = 30.0
# Of all bodies that are arriving or being processed.
MAX_TOTAL_BODY_BYTES: Final = 24 * 1024 * 1024
# A rejected client reads the answer only after it has sent its body. So much of the body is read and discarded.
_MAX_DISCARDED_BYTES: Final = 4 * 1024 * 1024
# Pause between two discarded chunks, which slows the client down and lets other requests run.
_DISCARD_INTERVAL_SECONDS: Final = 0.02
_DISCARD_TIMEOUT_SECONDS: Final = 2.0
_MAX_CONTENT_LENGTH_DIGITS: Final = 20
_RETRY_AFTER_SECONDS: Final = 5


@dataclass(slots=True, eq=False)
class _Body:
    """A body in memory."""

    deadline: asyncio.Timeout
    chunks: list[bytes] = field(default_factory=list)
    size: int = 0
    is_dropped: bool = False


class _RequestRejected(Exception):  # noqa: N818 (it reads as what happened)
    """A request is rejected because of its body."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


class RequestBodies:
    """The bodies in memory; those that are still arriving, oldest first."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held_bytes = 0
        self._unfinished: dict[_Body, None] = {}

    @contextlib.asynccontextmanager
    async def counted(self, body: _Body) -> Any:
        """Count a body until the block ends."""
        self._unfinished[body] = None
        try:
            yield
        finally:
            self._unfinished.pop(body, None)
            self._held_bytes -= body.size

    def add_chunk(self, body: _Body, chunk: bytes) -> None:
        """Add a chunk, and drop older arriving bodies to make room; raises _RequestRejected if none is left to drop."""
        body.chunks.append(chunk)
        body.size += len(chunk)
        self._held_bytes += len(chunk)
        while self._held_bytes > self._max_bytes and self._unfinished:
            oldest = next(iter(self._unfinished))
            del self._unfinished[oldest]
            self._held_bytes -= oldest.size
            oldest.size, oldest.is_dropped = 0, True
            oldest.chunks.clear()
            oldest.deadline.reschedule(asyncio.get_running_loop().time())
        if self._held_bytes > self._max_bytes:
            raise _RequestRejected(_OVERLOADED)

    def finish(self, body: _Body) -> bytes:
        """Return a complete body; it counts until its request is answered."""
        self._unfinished.pop(body, None)
        content = b"".join(body.chunks)
        body.chunks.clear()
        return content


class RequestLimits:
    """ASGI middleware that passes a request on when its body is complete and within the limits."""

    def __init__(
        self, app: Application, *, seconds: float = BODY_TIMEOUT_SECONDS, max_total_bytes: int = MAX_TOTAL_BODY_BYTES
    ) -> None:
        self._app = app
        self._seconds = seconds
        self._bodies = RequestBodies(max_total_bytes)
        self._has_warned = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it."""
        if scope["type"] != "http":
            await _reject_websocket(scope, send)
            return
        self._warn_of_unbounded(scope)
        length, has_body = _parse_declared_length(scope)
        if not has_body:
            await self._app(scope, receive, send)
            return
        max_bytes = max_body_bytes(scope["method"], scope["path"])
        try:
            async with contextlib.AsyncExitStack() as stack:
                body = await self._read(stack, receive, length, max_bytes)
                if body is not None:
                    message = {"type": "http.request", "body": body, "more_body": False}
                    await self._app(scope, replay(message, receive), send)
        except _RequestRejected as refused:
            await _send_problem(scope, receive, send, refused.problem)

    async def _read(
        self, stack: contextlib.AsyncExitStack, receive: Receive, length: int, max_bytes: int
    ) -> bytes | None:
        """Return the body, which counts until the stack closes; None: the client disconnected."""
        if length > max_bytes:
            raise _RequestRejected(_too_large(max_bytes))
        try:
            async with asyncio.timeout(self._seconds) as deadline:
                body = _Body(deadline)
                await stack.enter_async_context(self._bodies.counted(body))
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    self._bodies.add_chunk(body, message.get("body", b""))
                    if body.is_dropped:
                        raise _RequestRejected(_TOO_SLOW)
                    if body.size > max_bytes:
                        raise _RequestRejected(_too_large(max_bytes))
                    if not message.get("more_body", False):
                        return self._bodies.finish(body)
        except TimeoutError:
            raise _RequestRejected(_TOO_SLOW) from None

    def _warn_of_unbounded(self, scope: Scope) -> None:
        if not self._has_warned and BOUNDED_EXTENSION not in (scope.get("extensions") or {}):
            self._has_warned = True
            logger.warning(
                "Headers and connections are not limited: start uvicorn with "
                "--http grove_ui.http_protocol:BoundedProtocol"
            )


def max_body_bytes(method: str, path: str) -> int:
    """Return the limit of a body."""
    if method in SAFE_METHODS or path in PROBES:
        return _SMALL_BODY_BYTES
    return MAX_BODY_BYTES if path.startswith("/api/") else settings.DATA_UPLOAD_MAX_MEMORY_SIZE


def _parse_declared_length(scope: Scope) -> tuple[int, bool]:
    """Return the length that the headers declare, and whether there is a body; a chunked body declares none."""
    headers = dict(scope["headers"])
    text = headers.get(b"content-length", b"0").strip()
    length = int(text[:_MAX_CONTENT_LENGTH_DIGITS]) if text.isdigit() else 0
    return length, length > 0 or b"transfer-encoding" in headers


def replay(message: Message, receive: Receive) -> Receive:
    """Return a receive function that yields a message again, then those that follow it."""
    waiting = [message]

    async def receiving() -> Message:
        return waiting.pop() if waiting else await receive()

    return receiving


# ---- rejections


def _too_large(max_bytes: int) -> Problem:
    sentence = f"The body is larger than {max_bytes // 1024} KiB."
    return Problem("too-large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The request is too large", sentence)


_TOO_SLOW: Final = Problem(
    "too-slow",
    HTTPStatus.REQUEST_TIMEOUT,
    "The request took too long",
    "The body did not arrive in time. Send the request again.",
)
_OVERLOADED: Final = Problem(
    "overloaded",
    HTTPStatus.SERVICE_UNAVAILABLE,
    "Too many requests",
    "The server is processing too many requests. Send the request again in a few seconds.",
    headers={"Retry-After": str(_RETRY_AFTER_SECONDS)},
)


async def refuse_overload(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer 503: the server is overloaded."""
    await _send_problem(scope, receive, send, _OVERLOADED)


async def _send_problem(scope: Scope, receive: Receive, send: Send, problem: Problem) -> None:
    """Answer with a problem, and close the connection when the client has read the answer or had time to."""
    request_id = uuid.uuid4().hex
    is_api = scope["path"].startswith("/api/")
    body = render_problem(problem, scope["path"], request_id) if is_api else f"{problem.detail}\n".encode()
    headers = {
        "Content-Type": CONTENT_TYPE if is_api else "text/plain; charset=utf-8",
        "Content-Length": str(len(body)),
        "Cache-Control": "no-store",
        "Connection": "close",
        "X-Content-Type-Options": "nosniff",
        "X-Request-Id": request_id,
        **problem.headers,
    }
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": int(problem.status), "headers": raw})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    await _discard(receive)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _discard(receive: Receive) -> None:
    """Read and discard the rest of the body: a client whose connection is reset may not read the answer."""
    discarded = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DISCARD_TIMEOUT_SECONDS):
            while discarded < _MAX_DISCARDED_BYTES:
                message = await receive()
                discarded += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return
                await asyncio.sleep(_DISCARD_INTERVAL_SECONDS)


async def _reject_websocket(scope: Scope, send: Send) -> None:
    """Close a WebSocket: the product has none."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close"})
