"""/feed/: what changes, as server-sent events, for whoever shows it live.

An event says what to look at again, never what it looks like now. `hub` reads the feed once for everybody; here each
answer is kept open and written. The view ends at once: what it returns is written by the event loop, so that somebody
who watches holds neither a thread that works nor a connection to the database.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.db import connections
from django.http import HttpRequest, StreamingHttpResponse
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from rollouts import access
from rollouts.api.hub import Batch, Viewer, hub_of_loop
from rollouts.api.queries import Query
from rollouts.api.rendering import render_json
from rollouts.api.schema import parameter
from rollouts.feed import Change
from rollouts.models import ApiToken
from rollouts.tokens import find_token

CONTENT_TYPE: Final = "text/event-stream"
# Bursts are merged to so many writes a second.
_WRITES_A_SECOND: Final = 4
_RETRY_MS: Final = 2_000


class EventStreamRenderer(BaseRenderer):
    """Says that events are to be had here; they are written by `_stream`."""

    media_type = CONTENT_TYPE
    format = "event-stream"
    charset = None

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        """Return nothing: no view answers with data here."""
        return b""


@dataclass(frozen=True, slots=True)
class Interest:
    """What somebody wants to know of; what is empty wants everything."""

    clusters: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()  # keys: cluster/namespace/name

    def covers(self, change: Change) -> bool:
        """Whether a change is of interest; of a cluster's own trouble everybody is told who looks into it."""
        if self.clusters and change.cluster not in ("", *self.clusters):
            return False
        if not self.namespaces and not self.workloads:
            return True
        if change.kind == "cluster":
            return not self.workloads or any(key.startswith(f"{change.key}/") for key in self.workloads)
        if change.kind != "workload" or (self.workloads and change.key not in self.workloads):
            return False
        return not self.namespaces or change.key.split("/")[1] in self.namespaces


@dataclass(frozen=True, slots=True)
class _Guest:
    """Who watches, as far as it takes to ask again whether they may."""

    token: str  # empty: by session
    session: str

    def is_welcome(self) -> bool:
        """Whether they may still see; asks the database."""
        user = self._find_user()
        return user is not None and bool(user.is_authenticated) and access.may_see(user)

    def _find_user(self) -> Any:
        if self.token:
            token = find_token(self.token)
            return None if token is None else token.user
        request = HttpRequest()
        request.session = import_module(settings.SESSION_ENGINE).SessionStore(self.session)
        return get_user(request)


class FeedView(APIView):
    """What changes."""

    renderer_classes = (EventStreamRenderer,)

    @extend_schema(
        operation_id="feed",
        summary="What changes, as it changes",
        tags=["feed"],
        parameters=[
            parameter("cluster", "Only of these clusters.", many=True),
            parameter("namespace", "Only workloads in these namespaces.", many=True),
            parameter("workload", "Only these workloads, each as `cluster/namespace/name`.", many=True),
            OpenApiParameter(
                "Last-Event-ID",
                OpenApiTypes.STR,
                OpenApiParameter.HEADER,
                description="The id of the last event that you have: what came after it is sent first.",
            ),
        ],
        responses={
            (200, CONTENT_TYPE): OpenApiResponse(
                OpenApiTypes.STR,
                description="Events, until you leave.",
                examples=[
                    OpenApiExample(
                        "A change",
                        'id: 1763262732000-0\nevent: change\ndata: {"kind":"workload","cluster":"sandbox",'
                        '"key":"sandbox/default/chat","what":["pods"],"deleted":false}\n\n',
                    )
                ],
            )
        },
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        """Keep the answer open and send an event whenever something changes (server-sent events).

        `change` says what to look at again: `kind` (workload, cluster, node or override), `key`, `cluster`, which parts
        (`what`; none named: all) and whether it is `deleted`. `reset`: something may have been missed, look at
        everything again. `stale`: nothing can be told for now; a `reset` follows. `heartbeat`: nothing has changed for
        some seconds. Bursts are merged to four writes a second. Connect again with the last id as `Last-Event-ID`, as
        browsers do by themselves. It ends when your token or session does.
        """
        query = Query(request)
        interest = Interest(query.texts("cluster"), query.texts("namespace"), query.texts("workload"))
        query.done()
        stream = _stream(interest, _guest_of(request), request.headers.get("Last-Event-ID", "").strip())
        # Proxies that gather an answer before they pass it on are asked not to.
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingHttpResponse(stream, content_type=CONTENT_TYPE, headers=headers)


urlpatterns = [path("feed/", FeedView.as_view(), name="api-feed")]


def _guest_of(request: Request) -> _Guest:
    if isinstance(request.auth, ApiToken):
        return _Guest(request.headers["Authorization"].partition(" ")[2].strip(), "")
    return _Guest("", request.session.session_key or "")


async def _stream(interest: Interest, guest: _Guest, after_id: str) -> AsyncIterator[bytes]:
    """Write events until the viewer leaves, is sent away, or may not see any more."""
    await _ask(connections.close_all)  # those of the view: the answer may stay open for days
    hub, viewer = hub_of_loop(), Viewer(interest.covers)
    hub.join(viewer)
    try:
        await hub.catch_up(viewer, after_id)
        yield _render_start(viewer.last_id)
        asked_at = time.monotonic()
        while not viewer.is_ended:
            batch = await viewer.wait(settings.FEED_HEARTBEAT_SECONDS)
            if time.monotonic() - asked_at >= settings.FEED_RECHECK_SECONDS:
                if not await _ask(guest.is_welcome):
                    return
                asked_at = time.monotonic()
            yield _render_heartbeat(viewer.last_id) if batch is None else _render(batch)
            await asyncio.sleep(1 / _WRITES_A_SECOND)
    finally:
        hub.leave(viewer)


async def _ask(question: Callable[[], Any]) -> Any:
    """Ask the database in the thread of this request, and let go of the connection."""

    def ask() -> Any:
        try:
            return question()
        finally:
            connections.close_all()

    return await sync_to_async(ask)()


def _render_start(last_id: str) -> bytes:
    lines = f"retry: {_RETRY_MS}\n"
    return f"{lines}id: {last_id}\n\n".encode() if last_id else f"{lines}\n".encode()


def _render_heartbeat(last_id: str) -> bytes:
    """Render a sign of life that scripts hear too, and where to go on from."""
    where = f"id: {last_id}\n" if last_id else ""
    return f"{where}event: heartbeat\ndata: {{}}\n\n".encode()


def _render(batch: Batch) -> bytes:
    """Render what is to be sent; the id comes with the last event, so whoever breaks off before it gets all again."""
    events: list[tuple[bytes, bytes]] = []
    if batch.is_stale:
        events.append((b"stale", b"{}"))
    if batch.is_reset:
        events.append((b"reset", b"{}"))
    events += [(b"change", _render_change(change)) for change in batch.changes]
    blocks = [b"event: %b\ndata: %b\n\n" % event for event in events]
    if blocks and batch.last_id:
        blocks[-1] = b"id: %b\n%b" % (batch.last_id.encode(), blocks[-1])
    return b"".join(blocks)


def _render_change(change: Change) -> bytes:
    return render_json(
        {
            "kind": change.kind,
            "cluster": change.cluster,
            "key": change.key,
            "what": change.what,
            "deleted": change.deleted,
        }
    )
