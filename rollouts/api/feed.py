"""/feed/: what changes, as server-sent events, for whoever shows it live.

An event says what to look at again, never what it looks like now. Before it: `sse`, which keeps the answer open
and says what is new to whom; here it is put into words. Pages have a stream of their own (`live.stream`).
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
from rollouts.live.sse import (
    CONTENT_TYPE,
    RETRY_AFTER_SECONDS,
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
    """Says that events are to be had here; they are written by `_stream`."""

    media_type = CONTENT_TYPE
    format = "event-stream"
    charset = None

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        """Return nothing: no view answers with data here."""
        return b""


@dataclass(frozen=True, slots=True)
class FeedFilter:
    """What somebody wants to know of; what is empty wants everything."""

    clusters: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()  # keys: cluster/namespace/name

    def matches(self, change: Change) -> bool:
        """Whether a change is of interest; of a cluster's own trouble everybody is told who looks into it."""
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
    """What changes."""

    renderer_classes = (EventStreamRenderer,)

    @extend_schema(
        operation_id="feed",
        summary="What changes, as it changes",
        tags=["feed"],
        parameters=[
            query_parameter("cluster", "Only of these clusters.", many=True),
            query_parameter("namespace", "Only workloads in these namespaces.", many=True),
            query_parameter("workload", "Only these workloads, each as `cluster/namespace/name`.", many=True),
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
    def get(self, request: Request) -> HttpResponseBase:
        """Keep the answer open and send an event whenever something changes (server-sent events).

        `change` says what to look at again: `kind` (workload, cluster, node, override or audit), `key`, `cluster`,
        which parts (`what`; none named: all) and whether it is `deleted`. `reset`: something may have been missed,
        look at everything again. `stale`: nothing can be told for now; a `reset` follows. `heartbeat`: nothing has
        changed for some seconds. Bursts are merged to four writes a second. Connect again with the last id as
        `Last-Event-ID`, as browsers do by themselves. It ends when your token or session does. An account may have
        only so many feeds and live pages open at once: 429, with `Retry-After`.
        """
        query = QueryParams(request)
        interest = FeedFilter(query.texts("cluster"), query.texts("namespace"), query.texts("workload"))
        query.raise_if_invalid()
        after_id = request.headers.get("Last-Event-ID", "").strip()
        guest = _stream_viewer_of(request)
        try:
            return sse_response(_stream(interest, guest, after_id), guest)
        except TooManyStreams as refusal:
            return problem_response(request, _too_many(refusal))


urlpatterns = [path("feed/", FeedView.as_view(), name="api-feed")]


def _too_many(refusal: TooManyStreams) -> Problem:
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
    return Problem("throttled", HTTPStatus.TOO_MANY_REQUESTS, "Too many requests", refusal.sentence, headers=headers)


def _stream_viewer_of(request: Request) -> StreamViewer:
    if isinstance(request.auth, ApiToken):
        return StreamViewer(request.headers["Authorization"].partition(" ")[2].strip(), "", request.user.pk or 0)
    return StreamViewer("", request.session.session_key or "", request.user.pk or 0)


async def _stream(interest: FeedFilter, guest: StreamViewer, after_id: str) -> AsyncGenerator[bytes, None]:
    """Write events until the viewer leaves, is sent away, or may not see any more."""
    viewer = FeedSubscriber(interest.matches)
    async with subscribed_to_feed(viewer, after_id):
        yield _render_start(viewer.last_id)
        async for batch in iterate_messages(viewer, guest):
            yield _render_heartbeat(viewer.last_id) if batch is None else _render(batch)


def _render_start(last_id: str) -> bytes:
    lines = f"retry: {RETRY_MS}\n"
    return f"{lines}id: {last_id}\n\n".encode() if last_id else f"{lines}\n".encode()


def _render_heartbeat(last_id: str) -> bytes:
    """Render a sign of life that scripts hear too, and where to go on from."""
    where = f"id: {last_id}\n" if last_id else ""
    return f"{where}event: heartbeat\ndata: {{}}\n\n".encode()


def _render(batch: FeedBatch) -> bytes:
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
            "what": change.parts,
            "deleted": change.deleted,
        }
    )
