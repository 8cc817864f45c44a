"""Serves static files before Django: every client may request them, without signing in and as often as it likes.

Before it: `request_limits` and `probes`. After it: Django handles everything else. It also serves static files while
DEBUG is on, as they may change then, and redirects plain requests to HTTPS. In Django each response occupies two
threads, its own and one that reads the file, for as long as the client reads nothing.

Here a response occupies no thread, and all responses with the same file share its bytes. The `Range` header is ignored:
the client gets the whole file, which HTTP allows.

The invariant: all responses together hold each file at most once, and free it with the last of them (docs/adr/0029).
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

# Sent at a time: the transport blocks the next chunk while the client reads nothing.
_CHUNK_BYTES: Final = 64 * 1024
# Request headers under their WSGI names, as servestatic expects them.
_WSGI_NAMES: Final = {
    b"accept-encoding": "HTTP_ACCEPT_ENCODING",
    b"if-none-match": "HTTP_IF_NONE_MATCH",
    b"if-modified-since": "HTTP_IF_MODIFIED_SINCE",
}


class _Content(bytearray):
    """The bytes of a file, kept alive by its views. Not `bytes`, which cannot be weakly referenced."""

    def chunks(self) -> Iterator[memoryview]:
        """Return views of consecutive chunks."""
        view = memoryview(self)
        return (view[start : start + _CHUNK_BYTES] for start in range(0, len(view), _CHUNK_BYTES))


class StaticResponses:
    """ASGI middleware that serves static files, and passes all other requests on."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._files: dict[str, Any] = {} if settings.DEBUG else ServeStaticMiddleware(_unreachable).files
        self._contents: WeakValueDictionary[str, _Content] = WeakValueDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond with a file, or pass the request on."""
        file = self._files.get(scope["path"]) if scope["method"] in ("GET", "HEAD") else None
        headers = [(name, value) for name, value in scope["headers"] if name in _WSGI_NAMES]
        conditions = {_WSGI_NAMES[name]: value.decode("latin-1") for name, value in headers}
        if file is None or not _is_secure_enough(scope):
            await self._app(scope, receive, send)
        elif file.is_not_modified(conditions):
            headers = _encode(file.not_modified_response.headers)
            await send({"type": "http.response.start", "status": 304, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
        else:
            path, headers = file.get_path_and_headers(conditions)
            content = self._read(path) if scope["method"] == "GET" else None
            await _send(content, _encode(headers), send)

    def _read(self, path: str) -> _Content:
        """Return the bytes of a file; read directly, as the page cache of the kernel is faster than a thread."""
        content = self._contents.get(path)
        if content is None:
            content = self._contents[path] = _Content(Path(path).read_bytes())
        return content


async def _send(content: _Content | None, headers: Headers, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for chunk in content.chunks() if content else ():
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await asyncio.sleep(0)  # lets other tasks run, and the server notice a disconnect
    await send({"type": "http.response.body", "body": b""})


def _is_secure_enough(scope: Scope) -> bool:
    """Whether a request came by HTTPS, by the header of the proxy, or need not."""
    if not settings.SECURE_SSL_REDIRECT:
        return True
    return dict(scope["headers"]).get(b"x-forwarded-proto") == b"https"


def _encode(headers: list[tuple[str, str | None]]) -> Headers:
    """Return the headers of a file, with those that Django adds to every response."""
    sent = [(name, value) for name, value in headers if value is not None]
    sent += [("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", settings.SECURE_REFERRER_POLICY)]
    if settings.SECURE_HSTS_SECONDS:
        sent.append(("Strict-Transport-Security", _strict_transport()))
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in sent]


def _strict_transport() -> str:
    subdomains = "; includeSubDomains" if settings.SECURE_HSTS_INCLUDE_SUBDOMAINS else ""
    preload = "; preload" if settings.SECURE_HSTS_PRELOAD else ""
    return f"max-age={settings.SECURE_HSTS_SECONDS}{subdomains}{preload}"


async def _unreachable(*_: Any) -> Any:
    """Stand in for the next middleware of servestatic, which is only asked for its list of files."""
    raise NotImplementedError
