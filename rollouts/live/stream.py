"""/live/stream/: what a page shows, brought to it as it changes, by one answer that stays open.

A page says what it shows: of each part which rendering it has, where the part is to be had, and what it depends on.

    show="3f2a…" /workloads/sandbox/default/chat/parts/now/ workload:sandbox%2Fdefault%2Fchat#pods,set every:30

It is told by server-sent events: `fragment` brings a part as it looks now, `gone` says that there is none any more,
`look` that it is to be fetched from its address, `current` that everything shown is as new as the server knows,
`stale` that the server itself hears of nothing for now, `heartbeat` that all is well and quiet. Of a part with tiles
those are left out that the page has: `base` is the rendering that it has them from, empty where nothing is left out.

Before it: `subscriptions`, each of which follows a part for everybody and says when it looks different; `sse`, which
asks again and again whether somebody may see. So a change costs a rendering, and a write for each viewer: an event is
put together and compressed once, as a piece that fits into anybody's stream (docs/adr/0019).

A part that takes long, as one that asks a cluster may, is brought when it is there and holds up no other.

The invariant: a page that has heard `current` has every part as it was then or later, and is brought all changes since.
Whoever connects again is brought what is not as they have it, whatever they were sent before, and nothing that is older
than their connection.
"""

import asyncio
import contextlib
import time
import zlib
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import orjson
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.urls import Resolver404, resolve

from rollouts.accounts.errors import NotFound
from rollouts.live.change_feed import Change
from rollouts.live.fragments import Fragment, Rendering
from rollouts.live.hub import BaseSubscriber, get_hub, wait_for_event
from rollouts.live.sse import (
    RETRY_AFTER_SECONDS,
    RETRY_MS,
    StreamViewer,
    TooManyStreams,
    iterate_messages,
    sse_response,
)
from rollouts.live.subscriptions import Channel, Dependency, LivePart, Unavailable, subscribed_to_parts

# Parts of one page: the one with most has ten.
_MAX_PARTS: Final = 16
# So long a part that is ready waits for others, to be sent with them.
_BATCH_SECONDS: Final = 0.02
# The header of a gzip stream: deflate, no name, no time.
_GZIP_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_POLL_PREFIX: Final = "every"
_MAX_POLL_DIGITS: Final = 5  # digits
# Seconds between looks for which there is no other reason: at least so many, more where a cluster is asked.
_MIN_POLL_SECONDS: Final = 5
_MIN_CLUSTER_POLL_SECONDS: Final = 20


def stream(request: HttpRequest) -> HttpResponseBase:
    """Bring a page what it shows, until it is left."""
    shown = dict(found for text in request.GET.getlist("show") if (found := parse_shown_part(text)))
    if len(shown) > _MAX_PARTS:
        sentence = f"A page shows at most {_MAX_PARTS} live parts, and this names {len(shown)}; leave some out."
        return HttpResponse(sentence, status=HTTPStatus.BAD_REQUEST)
    is_gzip = "gzip" in request.headers.get("Accept-Encoding", "")
    viewer = StreamViewer("", request.session.session_key or "", request.user.pk or 0)
    try:
        response = sse_response(_write_events(PageSubscriber(shown), viewer, is_gzip=is_gzip), viewer, shown)
    except TooManyStreams as refusal:
        headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
        return HttpResponse(refusal.sentence, status=HTTPStatus.TOO_MANY_REQUESTS, headers=headers)
    if is_gzip:
        response["Content-Encoding"] = "gzip"
    return response


# ---- what is sent


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """Something to tell, for those who can unpack it and for those who cannot."""

    plain: bytes
    deflated: bytes


def _make_event(name: str, data: Any) -> StreamEvent:
    plain = b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(data))
    return StreamEvent(plain, deflate_piece(plain))


def deflate_piece(plain: bytes) -> bytes:
    """Compress to a piece that refers to nothing before it and ends on a whole byte: it fits into any stream."""
    packer = zlib.compressobj(5, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(plain) + packer.flush(zlib.Z_FULL_FLUSH)


_RETRY: Final = b"retry: %d\n\n" % RETRY_MS
_START: Final = StreamEvent(_RETRY, _GZIP_HEADER + deflate_piece(_RETRY))
_CURRENT: Final = _make_event("current", {})
_STALE: Final = _make_event("stale", {})
_HEARTBEAT: Final = _make_event("heartbeat", {})


@lru_cache(maxsize=32)
def _fragment_event(src: str, former: Rendering | None, rendering: Rendering) -> StreamEvent:
    """Put a part as it looks now into an event, once for everybody who has it as it looked before."""
    whole = rendering.tiled
    tiles = whole.list_changed(former.tiled if former else None)
    base = former.etag if former and len(tiles) < len(whole.tiles) else ""
    return _make_event(
        "fragment", {"src": src, "etag": rendering.etag, "base": base, "html": whole.frame, "tiles": tiles}
    )


@lru_cache(maxsize=32)
def _unavailable_event(src: str, lack: Unavailable) -> StreamEvent:
    """Say that a part is gone, or is to be fetched."""
    return _make_event(lack.value, {"src": src})


# ---- what is shown


def parse_shown_part(text: str) -> tuple[LivePart, str] | None:
    """Read what a page says of a part it shows, and which rendering it has; None where that means nothing."""
    etag, _, rest = text.partition(" ")
    src, *words = rest.split()[: _MAX_PARTS + 1] or [""]
    if not src.startswith("/") or src.startswith("//"):
        return None  # nothing of ours
    fragment = _find_fragment(src)
    every = next((word.partition(":")[2] for word in words if word.startswith(f"{_POLL_PREFIX}:")), "")
    return LivePart(src, tuple(map(parse_dependency, words)), _parse_poll_seconds(every, fragment), fragment), etag


def _parse_poll_seconds(text: str, fragment: Fragment | None) -> float:
    """Return the seconds between two looks; 0: none is asked for. Clusters and processors are asked with restraint."""
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_POLL_DIGITS):
        return 0.0
    return float(max(int(text), _MIN_CLUSTER_POLL_SECONDS if fragment and fragment.asks_cluster else _MIN_POLL_SECONDS))


def parse_dependency(text: str) -> Dependency:
    """Read one thing that a part depends on: kind[:key][#part,part].

    >>> parse_dependency("workload:east%2Fdefault%2Fchat#pods").key
    'east/default/chat'
    """
    about, _, what = text.partition("#")
    kind, _, key = about.partition(":")
    return Dependency(kind, unquote(key), frozenset(filter(None, what.split(","))))


def _find_fragment(src: str) -> Fragment | None:
    """Return what is to be had at an address, if it is a part of a page that is the same for everybody."""
    path, _, query = src.partition("?")
    try:
        match = resolve(unquote(path))
        find: Callable[..., Fragment] | None = getattr(match.func, "find_fragment", None)
        return None if find is None else find(QueryDict(query), *match.args, **match.kwargs)
    except (Resolver404, Http404, NotFound):
        return None


# ---- how it is brought


class PageSubscriber(BaseSubscriber):
    """A page that somebody has open: what it has been brought, and what it is still to be told."""

    def __init__(self, shown: Mapping[LivePart, str]) -> None:
        super().__init__()
        self._etags = dict(shown)  # of the rendering that the page has, by part
        self._renderings: dict[LivePart, Rendering] = {}  # the same as they are, once they are known
        self._updated: dict[Channel, None] = {}  # parts to look at, in the order in which they came out
        self._channels: Sequence[Channel] = ()
        self._unrendered: set[Channel] = set()  # those that have not told it anything yet
        self._joined_at = 0.0
        # When every part is known from this moment on, the page is told that it is current. Not as it is by then: what
        # is slow and changes all the time would never be.
        self._current_from: float | None = None

    @contextlib.contextmanager
    def subscribed(self) -> Iterator[None]:
        """Be told of what changes for as long as this lasts."""
        self._joined_at = self._current_from = time.monotonic()
        hub = get_hub()
        hub.subscribe(self)
        try:
            with subscribed_to_parts(self._etags, self, self._joined_at) as self._channels:
                self._unrendered.update(self._channels)
                if not self._is_behind(self._joined_at):
                    self._wakeup.set()  # it need not wait for anything
                yield
        finally:
            hub.unsubscribe(self)

    async def wait(self, seconds: float) -> Sequence[StreamEvent] | None:
        """Return what to send as soon as there may be something; None after so many seconds without."""
        if not await wait_for_event(self._wakeup, seconds):
            return None
        await asyncio.sleep(_BATCH_SECONDS)
        self._wakeup.clear()
        return self._collect_events()

    # What the channels tell.

    def wants_unchanged(self, channel: Channel) -> bool:
        """Whether it is to be told of a part also when that looks as it did."""
        return self._current_from is not None or channel in self._unrendered

    def on_content(self, channel: Channel) -> None:
        """Look at how a part came out."""
        if channel.fresh_since >= self._joined_at:
            self._unrendered.discard(channel)
            self._updated[channel] = None
            self._wakeup.set()

    # What the hub tells.

    def on_changes(self, changes: Sequence[Change], last_id: str, at: float) -> None:
        """Leave it to the channels."""

    def on_gap(self, at: float) -> None:
        """Be current again once everything is known from then on."""
        self._current_from = at
        self._is_stale = False
        self._wakeup.set()

    def _collect_events(self) -> list[StreamEvent]:
        """Return what there is to tell."""
        fresh, self._updated = self._updated, {}
        events = [event for channel in fresh if (event := self._make_part_event(channel))]
        if self._current_from is not None and not self._is_behind(self._current_from):
            self._current_from = None
            events.append(_CURRENT)
        if self._is_stale and self._current_from is None:  # as current as it can be
            self._is_stale = False
            events.append(_STALE)
        return events

    def _is_behind(self, moment: float) -> bool:
        """Whether a part may be from before a moment; what only a cluster knows, nobody here can tell."""
        return any(channel.fresh_since < moment and not channel.part.asks_cluster for channel in self._channels)

    def _make_part_event(self, channel: Channel) -> StreamEvent | None:
        """Put how a part came out into words; None: the page has it."""
        part, outcome = channel.part, channel.content
        if not isinstance(outcome, Rendering):
            if outcome is Unavailable.GONE:  # should it come back, the page needs it, however it looked before
                self._etags[part] = ""
                self._renderings.pop(part, None)
            return _unavailable_event(part.src, outcome or Unavailable.FETCH)
        is_known, former = outcome.etag == self._etags[part], self._renderings.get(part)
        self._etags[part], self._renderings[part] = outcome.etag, outcome
        return None if is_known else _fragment_event(part.src, former, outcome)


async def _write_events(page: PageSubscriber, viewer: StreamViewer, *, is_gzip: bool) -> AsyncGenerator[bytes, None]:
    """Write events until the page is left, or whoever looks at it may not see any more."""
    with page.subscribed():
        yield _join([_START], is_gzip)
        async for events_or_none in iterate_messages(page, viewer):
            if events := [_HEARTBEAT] if events_or_none is None else events_or_none:
                yield _join(events, is_gzip)


def _join(events: Iterable[StreamEvent], is_gzip: bool) -> bytes:
    return b"".join(event.deflated if is_gzip else event.plain for event in events)
