"""/feed/: changes as server-sent events, for programs.

An event names what changed, never its new content. `live.sse` keeps the answer open and delivers the changes; this
module renders them. Pages have a stream of their own (`live.stream`).
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from django.http.response import HttpResponseBase
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from rollouts.api.problems import Problem, problem_response
from rollouts.api.query_params import QueryParams
from rollouts.api.rendering import render_json
from rollouts.api.schema import query_parameter
from rollouts.live.change_feed import Change
from rollouts.live.hub import FeedBatch, FeedSubscriber
from rollouts.live.registry import LIVE
from rollouts.live.sse import (
    CONTENT_TYPE,
    RETRY_MS,
    StreamViewer,
    TooManyStreams,
    iterate_messages,
    sse_response,
    subscribed_to_feed,
)
from rollouts.manifests.workload_ref import namespace_of
from rollouts.models import ApiToken


class EventStreamRenderer(BaseRenderer):
    """Declares the media type; `_stream` writes the events."""

    media_type = CONTENT_TYPE
    format = "event-stream"
    charset = None

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        """Return nothing: the view answers with a stream."""
        return b""


@dataclass(frozen=True, slots=True)
class FeedFilter:
    """Which changes a subscriber receives; an empty tuple stands for all."""

    clusters: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()  # keys: cluster/namespace/name

    def matches(self, change: Change) -> bool:
        """Return whether a change matches; a change of a cluster itself matches every filter inside that cluster."""
        if self.clusters and change.cluster not in ("", *self.clusters):
            return False
        if not self.namespaces and not self.workloads:
            return True
        if change.kind == "cluster":
            return not self.workloads or any(key.startswith(f"{change.key}/") for key in self.workloads)
        if change.kind != "workload" or (self.workloads and change.key not in self.workloads):
            return False
        return not self.namespaces or namespace_of(change.key) in self.namespaces


class FeedView(APIView):
    """The change feed."""

    renderer_classes = (EventStreamRenderer,)

    @extend_schema(
        operation_id="feed",
        summary="Stream changes",
        tags=["feed"],
        parameters=[
            query_parameter("cluster", "Only changes in these clusters.", many=True),
            query_parameter("namespace", "Only changes of workloads in these namespaces.", many=True),
            query_parameter("workload", "Only changes of these workloads, as `cluster/namespace/name`.", many=True),
            OpenApiParameter(
                "Last-Event-ID",
                OpenApiTypes.STR,
                OpenApiParameter.HEADER,
                description="The id of the last event that you received; the feed continues after it.",
            ),
        ],
        responses={
            (200, CONTENT_TYPE): OpenApiResponse(
                OpenApiTypes.STR,
                description="Events, until you disconnect.",
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
    def get(self, request: Request) -> HttpResponseBase:
        """Stream an event for each change (server-sent events).

        `change` names what to read again: `kind` (workload, cluster, node, override or audit), `key`, `cluster`, the
        changed parts (`what`; empty: all) and whether it is `deleted`. `reset`: events may be missing, so read
        everything again. `stale`: Redis is unavailable and changes are not reported; a `reset` follows. `heartbeat`:
        nothing has changed for some seconds. Bursts are merged to four writes a second. After a disconnect, send the
        last id as `Last-Event-ID`, as browsers do. The feed ends with your token or session. The number of feeds and
        live pages of an account is limited: 429 with `Retry-After`.
        """
        query = QueryParams(request)
        interest = FeedFilter(query.texts("cluster"), query.texts("namespace"), query.texts("workload"))
        query.raise_if_invalid()
        after_id = request.headers.get("Last-Event-ID", "").strip()
        guest = _stream_viewer_of(request)
        try:
            slot = LIVE.streams.open(guest.account)
        except TooManyStreams as refusal:
            return problem_response(request, _too_many(refusal))
        return sse_response(_stream(interest, guest, after_id), slot)


urlpatterns = [path("feed/", FeedView.as_view(), name="api-feed")]


def _too_many(refusal: TooManyStreams) -> Problem:
    status = HTTPStatus.TOO_MANY_REQUESTS
    return Problem("throttled", status, "Too many requests", refusal.sentence, headers=refusal.headers)


def _stream_viewer_of(request: Request) -> StreamViewer:
    if isinstance(request.auth, ApiToken):
        return StreamViewer(request.headers["Authorization"].partition(" ")[2].strip(), "", request.user.pk or 0)
    return StreamViewer.by_session(request)


async def _stream(interest: FeedFilter, guest: StreamViewer, after_id: str) -> AsyncGenerator[bytes, None]:
    """Write events until the client disconnects, is disconnected, or loses its permission."""
    viewer = FeedSubscriber(interest.matches)
    async with subscribed_to_feed(LIVE.for_running_loop().hub, viewer, after_id):
        yield _render_start(viewer.last_id)
        async for batch in iterate_messages(viewer, guest):
            yield _render_heartbeat(viewer.last_id) if batch is None else _render(batch)


def _render_start(last_id: str) -> bytes:
    lines = f"retry: {RETRY_MS}\n"
    return f"{lines}id: {last_id}\n\n".encode() if last_id else f"{lines}\n".encode()


def _render_heartbeat(last_id: str) -> bytes:
    """Render a heartbeat event with the last id."""
    where = f"id: {last_id}\n" if last_id else ""
    return f"{where}event: heartbeat\ndata: {{}}\n\n".encode()


def _render(batch: FeedBatch) -> bytes:
    """Render a batch; only its last event has an id, so a client that disconnects before it receives all again."""
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
            "what": change.parts,
            "deleted": change.deleted,
        }
    )
