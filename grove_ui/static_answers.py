"""Static files, answered before Django: anybody may ask for them, and as often as they like.

Before it: `request_limits`. After it: Django, for everything else; and for static files where DEBUG is on, since they
change then, and where a request has to be led to HTTPS first. Under Django each answer takes two threads, one of its
own and one that reads the file, for as long as its client takes nothing of it.

Here an answer holds no thread, and clients who are sent the same file are sent the same bytes. Part of a file is never
answered (`Range`): whoever asks for it is sent the whole, which HTTP allows.

The invariant: what answers hold together is each file once, and it goes with the last of them (docs/adr/0029).
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

from django.conf import settings
from servestatic.middleware import ServeStaticMiddleware

from grove_ui.request_limits import Application, Receive, Scope, Send

Headers = list[tuple[bytes, bytes]]

# At a time: the transport asks for no more while it has as much that its client has not taken.
_PIECE: Final = 64 * 1024
# How a request says it to servestatic.
_ASKED: Final = {
    b"accept-encoding": "HTTP_ACCEPT_ENCODING",
    b"if-none-match": "HTTP_IF_NONE_MATCH",
    b"if-modified-since": "HTTP_IF_MODIFIED_SINCE",
}


class _Content(bytearray):
    """The bytes of a file. A view of them keeps them, unlike bytes they can be referred to weakly."""

    def pieces(self) -> Iterator[memoryview]:
        """Return views of them."""
        view = memoryview(self)
        return (view[start : start + _PIECE] for start in range(0, len(view), _PIECE))


class StaticAnswers:
    """An ASGI application that answers with static files, and hands on what asks for none."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._files: dict[str, Any] = {} if settings.DEBUG else ServeStaticMiddleware(_nobody).files
        self._contents: WeakValueDictionary[str, _Content] = WeakValueDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a file, or hand the request on."""
        file = self._files.get(scope["path"]) if scope["method"] in ("GET", "HEAD") else None
        asked = {_ASKED[name]: value.decode("latin-1") for name, value in scope["headers"] if name in _ASKED}
        if file is None or not _is_secure_enough(scope):
            await self._app(scope, receive, send)
        elif file.is_not_modified(asked):
            headers = _encode(file.not_modified_response.headers)
            await send({"type": "http.response.start", "status": 304, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
        else:
            path, headers = file.get_path_and_headers(asked)
            content = self._read(path) if scope["method"] == "GET" else None
            await _send(content, _encode(headers), send)

    def _read(self, path: str) -> _Content:
        """Return the bytes of a file, which the system has in memory: to wait for a thread would take longer."""
        content = self._contents.get(path)
        if content is None:
            content = self._contents[path] = _Content(Path(path).read_bytes())
        return content


async def _send(content: _Content | None, headers: Headers, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for piece in content.pieces() if content else ():
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        await asyncio.sleep(0)  # others have their turn, and we hear of it if the client has gone
    await send({"type": "http.response.body", "body": b""})


def _is_secure_enough(scope: Scope) -> bool:
    """Whether a request came by HTTPS, where that is demanded; the proxy says so."""
    if not settings.SECURE_SSL_REDIRECT:
        return True
    return dict(scope["headers"]).get(b"x-forwarded-proto") == b"https"


def _encode(headers: list[tuple[str, str | None]]) -> Headers:
    """Return the headers of a file, and those that Django sends with everything."""
    said = [(name, value) for name, value in headers if value is not None]
    said += [("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", settings.SECURE_REFERRER_POLICY)]
    if settings.SECURE_HSTS_SECONDS:
        said.append(("Strict-Transport-Security", _strict_transport()))
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in said]


def _strict_transport() -> str:
    subdomains = "; includeSubDomains" if settings.SECURE_HSTS_INCLUDE_SUBDOMAINS else ""
    preload = "; preload" if settings.SECURE_HSTS_PRELOAD else ""
    return f"max-age={settings.SECURE_HSTS_SECONDS}{subdomains}{preload}"


async def _nobody(*_: Any) -> Any:
    """Stand where servestatic wants to hand on what it does not answer itself; it is asked for its files alone."""
    raise NotImplementedError
