"""The sandbox's front door: an ASGI application that speaks the Kubernetes API.

Requests are read and bounded here, handed to `verbs` as values, and answered as JSON. The application serves loopback
only and refuses what a web page in the operator's browser could send (foreign Host, an Origin, form content types).
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

import orjson

from rollouts.sandbox.paths import Target, parse_path
from rollouts.sandbox.patch import PatchType
from rollouts.sandbox.registry import Registry
from rollouts.sandbox.selectors import parse_selectors
from rollouts.sandbox.status import ApiError, bad_request, method_not_allowed, unsupported_media_type
from rollouts.sandbox.store import Store
from rollouts.sandbox.verbs import Verbs
from rollouts.sandbox.watch import Watcher, WatchRequest

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

JSON = "application/json"


class Application:
    def __init__(self, verbs: Verbs, store: Store, registry: Registry) -> None:
        self.verbs, self.store, self.registry = verbs, store, registry
        self.watcher = Watcher(store)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        try:
            await self._serve(scope, receive, send)
        except ApiError as error:
            await respond(send, error.code, orjson.dumps(error.status()))

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        query = {k: v[0] for k, v in parse_qs(scope["query_string"].decode()).items()}
        if path in {"/healthz", "/livez", "/readyz"}:
            await respond(send, 200, b"ok", "text/plain; charset=utf-8")
            return
        target = parse_path(self.registry, path)
        if method == "GET" and target.name is None:
            if query.get("watch") in {"true", "1"}:
                await self._watch(target, query, receive, send)
            else:
                await respond(send, 200, self._list(target, query))
            return
        body = await _read(receive)
        code, obj = self._write(scope, method, target, query, body)
        await respond(send, code, orjson.dumps(obj))

    def _list(self, target: Target, query: dict[str, str]) -> bytes:
        kind = target.kind
        matches = parse_selectors(kind, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        bodies = [s.body for s in self.store.list(kind, target.namespace) if matches(s.obj)]
        head = orjson.dumps(
            {
                "kind": kind.list_kind,
                "apiVersion": kind.api_version,
                "metadata": {"resourceVersion": str(self.store.revision)},
            }
        )
        return head[:-1] + b',"items":[' + b",".join(bodies) + b"]}"

    async def _watch(self, target: Target, query: dict[str, str], receive: Receive, send: Send) -> None:
        matches = parse_selectors(target.kind, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        request = WatchRequest(
            kind=target.kind,
            namespace=target.namespace,
            matches=matches,
            since=query.get("resourceVersion", ""),
            timeout=float(query.get("timeoutSeconds", 0)) or 1800.0,
            bookmarks=query.get("allowWatchBookmarks") == "true",
            initial_events=query.get("sendInitialEvents") == "true",
        )
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        ended = asyncio.ensure_future(_disconnected(receive))
        try:
            async for chunk in self.watcher.stream(request, ended):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            ended.cancel()

    def _write(self, scope: Scope, method: str, target: Target, query: dict[str, str], raw: bytes) -> tuple[int, Any]:
        headers = {k.decode(): v.decode() for k, v in scope["headers"]}
        kind, namespace, name, sub = target.kind, target.namespace, target.name, target.subresource
        manager = query.get("fieldManager") or headers.get("user-agent", "unknown").split("/")[0]
        dry_run = query.get("dryRun") == "All"
        try:
            body = orjson.loads(raw) if raw else None
        except orjson.JSONDecodeError as error:
            raise bad_request(str(error)) from error
        if method == "GET" and name:
            return 200, self.verbs.get(kind, namespace, name)
        if method == "POST" and name is None:
            return 201, self.verbs.create(kind, namespace, body, manager=manager, dry_run=dry_run)
        if method == "POST" and sub == "binding" and name:
            self.verbs.bind(namespace or "", name, body["target"]["name"])
            return 201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        if method == "POST" and sub == "eviction" and name:
            self.verbs.evict(namespace or "", name)
            return 201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        if method == "PUT" and name:
            return 200, self.verbs.update(
                kind, namespace, name, body, subresource=sub, manager=manager, dry_run=dry_run
            )
        if method == "PATCH" and name:
            media = headers.get("content-type", "").split(";")[0]
            try:
                patch_type = PatchType(media)
            except ValueError:
                raise unsupported_media_type(media) from None
            return 200, self.verbs.patch(
                kind, namespace, name, patch_type, body, subresource=sub, manager=manager, dry_run=dry_run
            )
        if method == "DELETE" and name:
            options = body or {}
            conditions = options.get("preconditions") or {}
            return 200, self.verbs.delete(
                kind,
                namespace,
                name,
                uid=conditions.get("uid"),
                resource_version=conditions.get("resourceVersion"),
                grace_seconds=options.get("gracePeriodSeconds"),
                propagation=options.get("propagationPolicy"),
                dry_run=dry_run,
            )
        raise method_not_allowed()


def create_app(verbs: Verbs, store: Store, registry: Registry) -> Application:
    """The ASGI application over one sandbox."""
    return Application(verbs, store, registry)


async def respond(send: Send, code: int, body: bytes, media: str = JSON) -> None:
    headers = [(b"content-type", media.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _read(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
