"""/live/stream/: sends an open page its parts whenever they change, in one response of server-sent events.

The page describes each part that it shows: the ETag of the rendering that it has, the URL, and the dependencies.

    show="3f2a…" /workloads/sandbox/default/chat/parts/now/ workload:sandbox%2Fdefault%2Fchat#pods,set every:30

The events: `fragment` holds the new HTML of a part; `gone` says that the object of a part does not exist any more;
`fetch` asks the page to fetch a part from its URL; `current` says that all parts are up to date; `stale` says that
Redis is down, so the server learns of no changes; `heartbeat` says that the connection works and nothing changed. A
`fragment` leaves out the tiles that the page already shows: `base` is the ETag of the rendering that holds them, and
empty if the event is complete.

Before it: `subscriptions`, which follows each part for all pages, and `sse`, which checks the permission again and
again. So a change costs one rendering, and one write for each page: an event is rendered and compressed once, as a
piece of deflate that fits into every gzip stream (docs/adr/0019).

A slow part, for example of a cluster that answers slowly, is sent when it is ready and delays no other part.

The invariant: a page that received `current` has every part as of that moment or later, and receives all later
changes. A page that reconnects receives the parts whose ETag differs from its own, and nothing older than its
connection.
"""

import asyncio
import contextlib
import time
import zlib
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import unquote

import orjson
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.urls import Resolver404, resolve

from rollouts.accounts.errors import NotFound
from rollouts.live.change_feed import Change
from rollouts.live.fragments import Fragment, FragmentView, Rendering
from rollouts.live.hub import BaseSubscriber, wait_for_event
from rollouts.live.registry import LIVE, LoopState
from rollouts.live.sse import RETRY_MS, StreamViewer, TooManyStreams, iterate_messages, sse_response
from rollouts.live.subscriptions import Channel, Dependency, LivePart, Unavailable

# The page with most parts has ten.
_MAX_PARTS: Final = 16
# How long a part that is ready waits for others, to be sent with them.
_BATCH_SECONDS: Final = 0.02
# The header of a gzip stream: deflate, no name, no time.
_GZIP_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_POLL_PREFIX: Final = "every"
_MAX_POLL_DIGITS: Final = 5
# The shortest intervals at which a page may have a part rendered without a change.
_MIN_POLL_SECONDS: Final = 5
_MIN_CLUSTER_POLL_SECONDS: Final = 20


def stream(request: HttpRequest) -> HttpResponseBase:
    """Send a page its parts whenever they change, until the client leaves."""
    shown = dict(found for text in request.GET.getlist("show") if (found := parse_shown_part(text)))
    if len(shown) > _MAX_PARTS:
        sentence = f"A page shows at most {_MAX_PARTS} live parts, but the request names {len(shown)}."
        return HttpResponse(sentence, status=HTTPStatus.BAD_REQUEST)
    is_gzip = "gzip" in request.headers.get("Accept-Encoding", "")
    viewer = StreamViewer.by_session(request)
    try:
        slot = LIVE.streams.open(viewer.account, shown)
    except TooManyStreams as refusal:
        return HttpResponse(refusal.sentence, status=HTTPStatus.TOO_MANY_REQUESTS, headers=refusal.headers)
    response = sse_response(_write_events(shown, viewer, is_gzip=is_gzip), slot)
    if is_gzip:
        response["Content-Encoding"] = "gzip"
    return response


# ---- events


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """An event, for clients with and without gzip."""

    plain: bytes
    deflated: bytes


def _make_event(name: str, data: Any) -> StreamEvent:
    plain = b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(data))
    return StreamEvent(plain, deflate_piece(plain))


def deflate_piece(plain: bytes) -> bytes:
    """Compress to a piece that fits into any deflate stream: it refers to nothing before it, and ends on a byte."""
    packer = zlib.compressobj(5, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(plain) + packer.flush(zlib.Z_FULL_FLUSH)


_RETRY: Final = b"retry: %d\n\n" % RETRY_MS
_START: Final = StreamEvent(_RETRY, _GZIP_HEADER + deflate_piece(_RETRY))
_CURRENT: Final = _make_event("current", {})
_STALE: Final = _make_event("stale", {})
_HEARTBEAT: Final = _make_event("heartbeat", {})


@lru_cache(maxsize=32)
def _fragment_event(src: str, former: Rendering | None, rendering: Rendering) -> StreamEvent:
    """Return the event with a new rendering, once for all pages that have the same former one."""
    tiled = rendering.tiled
    tiles = tiled.list_changed(former.tiled if former else None)
    base = former.etag if former and len(tiles) < len(tiled.tiles) else ""
    return _make_event(
        "fragment", {"src": src, "etag": rendering.etag, "base": base, "html": tiled.frame, "tiles": tiles}
    )


@lru_cache(maxsize=32)
def _unavailable_event(src: str, reason: Unavailable) -> StreamEvent:
    """Return the event that says why a part has no rendering."""
    return _make_event(reason.value, {"src": src})


# ---- the parts of a page


def parse_shown_part(text: str) -> tuple[LivePart, str] | None:
    """Parse the description of a part and the ETag that the page has; None if it is invalid."""
    etag, _, rest = text.partition(" ")
    src, *words = rest.split()[: _MAX_PARTS + 1] or [""]
    if not src.startswith("/") or src.startswith("//"):
        return None  # not a path of this site
    fragment = _find_fragment(src)
    every = next((word.partition(":")[2] for word in words if word.startswith(f"{_POLL_PREFIX}:")), "")
    return LivePart(src, tuple(map(parse_dependency, words)), _parse_poll_seconds(every, fragment), fragment), etag


def _parse_poll_seconds(text: str, fragment: Fragment | None) -> float:
    """Return the poll interval that a page asks for, or the shortest allowed one if that is longer; 0: none."""
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_POLL_DIGITS):
        return 0.0
    return float(max(int(text), _MIN_CLUSTER_POLL_SECONDS if fragment and fragment.asks_cluster else _MIN_POLL_SECONDS))


def parse_dependency(text: str) -> Dependency:
    """Parse a dependency of a part: kind[:key][#part,part].

    >>> parse_dependency("workload:east%2Fdefault%2Fchat#pods").key
    'east/default/chat'
    """
    subject, _, parts = text.partition("#")
    kind, _, key = subject.partition(":")
    return Dependency(kind, unquote(key), frozenset(filter(None, parts.split(","))))


def _find_fragment(src: str) -> Fragment | None:
    """Return the fragment behind a URL; None if its view is no FragmentView."""
    path, _, query = src.partition("?")
    try:
        match = resolve(unquote(path))
        if not hasattr(match.func, "find_fragment"):
            return None
        return cast("FragmentView", match.func).find_fragment(QueryDict(query), *match.args, **match.kwargs)
    except (Resolver404, Http404, NotFound):
        return None


# ---- pages


class PageSubscriber(BaseSubscriber):
    """An open page: the renderings that it has, and the events that it still needs."""

    def __init__(self, shown: Mapping[LivePart, str], state: LoopState) -> None:
        super().__init__()
        self._state = state
        self._etags = dict(shown)  # of the rendering that the page has, by part
        self._renderings: dict[LivePart, Rendering] = {}  # the renderings of these ETags, where known
        self._updated: dict[Channel, None] = {}  # channels with content to send, oldest first
        self._channels: Sequence[Channel] = ()
        self._unrendered: set[Channel] = set()  # channels without content so far
        self._joined_at = 0.0
        # The page is sent `current` when all content is fresh since this moment. Not since the time of sending: a slow
        # part that changes all the time would never be that fresh. None: `current` was sent.
        self._current_from: float | None = None

    @contextlib.contextmanager
    def subscribed(self) -> Iterator[None]:
        """Receive the changes of all parts until the block ends."""
        self._joined_at = self._current_from = time.monotonic()
        self._state.hub.subscribe(self)
        try:
            with self._state.subscriptions.subscribed(self._etags, self, self._joined_at) as self._channels:
                self._unrendered.update(self._channels)
                if not self._is_behind(self._joined_at):
                    self._wakeup.set()  # all parts are fresh already: send `current` at once
                yield
        finally:
            self._state.hub.unsubscribe(self)

    async def wait(self, seconds: float) -> Sequence[StreamEvent] | None:
        """Wait for events to send; None if nothing came within `seconds`."""
        if not await wait_for_event(self._wakeup, seconds):
            return None
        await asyncio.sleep(_BATCH_SECONDS)
        self._wakeup.clear()
        return self._collect_events()

    # ChannelSubscriber

    def wants_unchanged(self, channel: Channel) -> bool:
        """Whether the page waits for `current`, or for the first content of this channel."""
        return self._current_from is not None or channel in self._unrendered

    def on_content(self, channel: Channel) -> None:
        """Send the content of a channel, unless it is older than the connection."""
        if channel.fresh_since >= self._joined_at:
            self._unrendered.discard(channel)
            self._updated[channel] = None
            self._wakeup.set()

    # HubListener

    def on_changes(self, changes: Sequence[Change], last_id: str, at: float) -> None:
        """Do nothing: the channels handle changes."""

    def on_gap(self, at: float) -> None:
        """Send `current` again when all content is fresh since the gap."""
        self._current_from = at
        self._is_stale = False
        self._wakeup.set()

    def _collect_events(self) -> list[StreamEvent]:
        """Return the events that the page needs now."""
        updated, self._updated = self._updated, {}
        events = [event for channel in updated if (event := self._make_part_event(channel))]
        if self._current_from is not None and not self._is_behind(self._current_from):
            self._current_from = None
            events.append(_CURRENT)
        if self._is_stale and self._current_from is None:  # no fresher content comes
            self._is_stale = False
            events.append(_STALE)
        return events

    def _is_behind(self, moment: float) -> bool:
        """Whether content may be older than a moment; parts that ask a cluster do not count, they may be slow."""
        return any(channel.fresh_since < moment and not channel.part.asks_cluster for channel in self._channels)

    def _make_part_event(self, channel: Channel) -> StreamEvent | None:
        """Return the event with the content of a channel; None if the page has it."""
        part, content = channel.part, channel.content
        if not isinstance(content, Rendering):
            if content is Unavailable.GONE:  # if it comes back, the page needs it, even with the same ETag
                self._etags[part] = ""
                self._renderings.pop(part, None)
            return _unavailable_event(part.src, content or Unavailable.FETCH)
        is_known, former = content.etag == self._etags[part], self._renderings.get(part)
        self._etags[part], self._renderings[part] = content.etag, content
        return None if is_known else _fragment_event(part.src, former, content)


async def _write_events(
    shown: Mapping[LivePart, str], viewer: StreamViewer, *, is_gzip: bool
) -> AsyncGenerator[bytes, None]:
    """Write events until the client leaves or the viewer may not see any more."""
    page = PageSubscriber(shown, LIVE.for_running_loop())
    with page.subscribed():
        yield _join([_START], is_gzip)
        async for events_or_none in iterate_messages(page, viewer):
            if events := [_HEARTBEAT] if events_or_none is None else events_or_none:
                yield _join(events, is_gzip)


def _join(events: Iterable[StreamEvent], is_gzip: bool) -> bytes:
    return b"".join(event.deflated if is_gzip else event.plain for event in events)
