"""The ASGI application of the sandbox, which serves the Kubernetes API.

It receives requests and limits their size, hands them to `handlers` (or answers discovery and health itself), streams
watches, and writes every `ApiError` as a Status. It serves loopback only, and rejects what a web page in the operator's
browser could send: a foreign Host, any Origin, a request from another site, a body with a form's media type or none.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

import orjson

from rollouts.sandbox.apiserver import discovery, openapi
from rollouts.sandbox.apiserver.errors import ApiError, method_not_allowed, request_entity_too_large
from rollouts.sandbox.apiserver.handlers import JSON, ResourceHandlers, Response
from rollouts.sandbox.apiserver.paths import NotServedError, RequestInfo, parse_path
from rollouts.sandbox.apiserver.registry import Registry
from rollouts.sandbox.apiserver.requests import Request
from rollouts.sandbox.apiserver.storage import Storage
from rollouts.sandbox.apiserver.verbs import Verbs
from rollouts.sandbox.apiserver.watch import WatchStreams

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 3 * 1024 * 1024
_TEXT = "text/plain; charset=utf-8"
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_LOOPBACK_HOSTS = frozenset(("127.0.0.1", "localhost", "[::1]"))
_HEALTH_PATHS = ("/healthz", "/livez", "/readyz")


class Application:
    """The ASGI application over one sandbox."""

    def __init__(self, verbs: Verbs, store: Storage, registry: Registry) -> None:
        self._registry = registry
        self._handlers = ResourceHandlers(verbs, store, lambda: datetime.now(UTC))
        self._watches = WatchStreams(store)

    def close(self) -> None:
        """End all watches, so that a server can stop without waiting for them."""
        self._watches.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                self.close()
                return

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = _parse_request(scope)
        try:
            _reject_cross_origin(request)
            response = await self._response(request, receive, send)
        except ApiError as error:
            response = _error_response(error)
        except NotServedError:
            response = Response(404, b"404 page not found\n", _TEXT)
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            response = _error_response(ApiError(500, "InternalError", "Internal error occurred: see the sandbox's log"))
        if response is not None:
            await _send_response(send, response)

    async def _response(self, request: Request, receive: Receive, send: Send) -> Response | None:
        """Return the response, or None when it was streamed."""
        plain = self._answer_without_resource(request)
        if plain is not None:
            return plain
        target = parse_path(self._registry, request.path)
        if request.method == "GET" and request.flag("watch") and target.subresource is None:
            await self._watch(target, request, receive, send)
            return None
        body = await _read_body(receive, request)
        complete = Request(request.method, request.path, request.query, request.headers, body)
        return self._handlers.handle(target, complete)

    # --- what is not about a resource ------------------------------------------------------------------------------

    def _answer_without_resource(self, request: Request) -> Response | None:
        path = request.path.rstrip("/") or "/"
        if path.startswith(_HEALTH_PATHS):
            return Response(200, b"ok", _TEXT)
        if path == "/version":
            return _json_response(discovery.VERSION)
        found = self._openapi(path) if path.startswith("/openapi/") else self._discovery(path, request)
        if found is not None and request.method not in {"GET", "HEAD"}:
            raise method_not_allowed()
        return found

    def _discovery(self, path: str, request: Request) -> Response | None:
        parts = path.strip("/").split("/")
        if parts[0] not in {"api", "apis"} or len(parts) > (2 if parts[0] == "api" else 3):
            return None
        if len(parts) == 1 and "as=APIGroupDiscoveryList" in request.headers.get("accept", ""):
            body = orjson.dumps(discovery.aggregated_discovery(self._registry, core=parts == ["api"]))
            return Response(200, body, _AGGREGATED)
        found = self._find_discovery_document(parts)
        if found is None:
            raise NotServedError
        return _json_response(found)

    def _find_discovery_document(self, parts: list[str]) -> Any:
        match parts:
            case ["api"]:
                return discovery.api_versions()
            case ["apis"]:
                return discovery.api_group_list(self._registry)
            case ["api", version]:
                return discovery.api_resource_list(self._registry, "", version)
            case ["apis", group]:
                return discovery.api_group(self._registry, group)
            case [_, group, version]:
                return discovery.api_resource_list(self._registry, group, version)

    def _openapi(self, path: str) -> Response:
        if path == "/openapi/v3":
            return _json_response(openapi.index(self._registry))
        named = openapi.document_paths(self._registry).get(path.removeprefix("/openapi/v3/"))
        if named is None:
            raise NotServedError
        return Response(200, openapi.document(self._registry, *named))

    # --- watches ---------------------------------------------------------------------------------------------------

    async def _watch(self, target: RequestInfo, request: Request, receive: Receive, send: Send) -> None:
        presenter = self._handlers.make_encoder(target, request)
        wanted = self._handlers.parse_watch_request(target, request)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", JSON.encode())]})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        gone = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            async for chunk in self._watches.stream(wanted, gone, presenter.encode_event):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()


def _parse_request(scope: Scope) -> Request:
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    return Request(scope["method"], scope["path"], query, headers)


def _reject_cross_origin(request: Request) -> None:
    """Reject requests that a web page may have made the browser send."""
    host = request.headers.get("host", "")
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    if name not in _LOOPBACK_HOSTS:
        raise ApiError(403, "Forbidden", f"the sandbox serves this machine only, not the host {host!r}")
    if "origin" in request.headers:
        raise ApiError(403, "Forbidden", "the sandbox does not answer web pages: the request has an Origin")
    if request.headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
        raise ApiError(403, "Forbidden", "the sandbox does not answer web pages: another site sent the request")


async def _read_body(receive: Receive, request: Request) -> bytes:
    """Return the whole body; stop reading and reject it once it is too long."""
    declared = request.headers.get("content-length", "0")
    parts: list[bytes] = []
    size = 0
    while size <= MAX_BODY_BYTES and not (declared.isdigit() and int(declared) > MAX_BODY_BYTES):
        message = await receive()
        part: bytes = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if not message.get("more_body") or message["type"] == "http.disconnect":
            if size <= MAX_BODY_BYTES:
                return b"".join(parts)
            break
    raise request_entity_too_large(f"Request entity too large: limit is {MAX_BODY_BYTES}")


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_response(send: Send, response: Response) -> None:
    headers = [
        (b"content-type", response.media_type.encode()),
        (b"content-length", str(len(response.body)).encode()),
        (b"cache-control", b"no-cache, private"),
    ]
    headers += [(name.encode(), value.encode()) for name, value in response.headers.items()]
    for warning in response.warnings:
        text = warning.replace("\\", "\\\\").replace('"', '\\"')
        headers.append((b"warning", f'299 - "{text}"'.encode()))
    await send({"type": "http.response.start", "status": response.code, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


def _error_response(error: ApiError) -> Response:
    headers = {"retry-after": str(error.retry_after)} if error.retry_after is not None else {}
    return Response(error.code, orjson.dumps(error.status()), headers=headers)


def _json_response(value: Any) -> Response:
    return Response(200, orjson.dumps(value))
