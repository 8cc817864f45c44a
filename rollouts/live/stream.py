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
from django.views.decorators.http import require_safe

from rollouts.accounts.errors import NotThere
from rollouts.live.change_feed import Change
from rollouts.live.fragments import Fragment, Rendering
from rollouts.live.hub import Waiter, happens, hub_of_loop
from rollouts.live.sse import RETRY_MS, SECONDS_TO_RETRY, Guest, TooManyStreams, keep_open, news_for
from rollouts.live.subscriptions import Channel, Lack, Part, Word, followed
from rollouts.web.page_layout import for_readers

# Parts of one page: the one with most has ten.
_MOST_SHOWN: Final = 16
# So long a part that is ready waits for others, to be sent with them.
_SECONDS_TOGETHER: Final = 0.02
# The header of a gzip stream: deflate, no name, no time.
_GZIP: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_EVERY: Final = "every"
_LONGEST_EVERY: Final = 5  # digits
# Seconds between looks for which there is no other reason: at least so many, more where a cluster is asked.
_LEAST_EVERY: Final = 5
_CLUSTER_EVERY: Final = 20


@require_safe
@for_readers
def stream(request: HttpRequest) -> HttpResponseBase:
    """Bring a page what it shows, until it is left."""
    shown = dict(found for text in request.GET.getlist("show") if (found := parse_shown(text)))
    if len(shown) > _MOST_SHOWN:
        sentence = f"A page shows at most {_MOST_SHOWN} live parts, and this names {len(shown)}; leave some out."
        return HttpResponse(sentence, status=HTTPStatus.BAD_REQUEST)
    is_packed = "gzip" in request.headers.get("Accept-Encoding", "")
    guest = Guest("", request.session.session_key or "", request.user.pk or 0)
    try:
        response = keep_open(_write(Page(shown), guest, is_packed=is_packed), guest, shown)
    except TooManyStreams as refusal:
        headers = {"Retry-After": str(SECONDS_TO_RETRY)}
        return HttpResponse(refusal.sentence, status=HTTPStatus.TOO_MANY_REQUESTS, headers=headers)
    if is_packed:
        response["Content-Encoding"] = "gzip"
    return response


# ---- what is sent


@dataclass(frozen=True, slots=True)
class Event:
    """Something to tell, for those who can unpack it and for those who cannot."""

    plain: bytes
    packed: bytes


def _event(name: str, data: Any) -> Event:
    plain = b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(data))
    return Event(plain, pack(plain))


def pack(plain: bytes) -> bytes:
    """Compress to a piece that refers to nothing before it and ends on a whole byte: it fits into any stream."""
    packer = zlib.compressobj(5, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(plain) + packer.flush(zlib.Z_FULL_FLUSH)


_RETRY: Final = b"retry: %d\n\n" % RETRY_MS
_START: Final = Event(_RETRY, _GZIP + pack(_RETRY))
_CURRENT: Final = _event("current", {})
_STALE: Final = _event("stale", {})
_HEARTBEAT: Final = _event("heartbeat", {})


@lru_cache(maxsize=32)
def _fragment_event(src: str, former: Rendering | None, rendering: Rendering) -> Event:
    """Put a part as it looks now into an event, once for everybody who has it as it looked before."""
    whole = rendering.tiled
    tiles = whole.list_new(former.tiled if former else None)
    base = former.etag if former and len(tiles) < len(whole.tiles) else ""
    return _event("fragment", {"src": src, "etag": rendering.etag, "base": base, "html": whole.frame, "tiles": tiles})


@lru_cache(maxsize=32)
def _lack_event(src: str, lack: Lack) -> Event:
    """Say that a part is gone, or is to be fetched."""
    return _event(lack.value, {"src": src})


# ---- what is shown


def parse_shown(text: str) -> tuple[Part, str] | None:
    """Read what a page says of a part it shows, and which rendering it has; None where that means nothing."""
    etag, _, rest = text.partition(" ")
    src, *words = rest.split()[: _MOST_SHOWN + 1] or [""]
    if not src.startswith("/") or src.startswith("//"):
        return None  # nothing of ours
    fragment = _find_fragment(src)
    every = next((word.partition(":")[2] for word in words if word.startswith(f"{_EVERY}:")), "")
    return Part(src, tuple(map(parse_word, words)), _read_every(every, fragment), fragment), etag


def _read_every(text: str, fragment: Fragment | None) -> float:
    """Return the seconds between two looks; 0: none is asked for. Clusters and processors are asked with restraint."""
    if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST_EVERY):
        return 0.0
    return float(max(int(text), _CLUSTER_EVERY if fragment and fragment.asks_cluster else _LEAST_EVERY))


def parse_word(text: str) -> Word:
    """Read one thing that a part depends on: kind[:key][#part,part].

    >>> parse_word("workload:east%2Fdefault%2Fchat#pods").key
    'east/default/chat'
    """
    about, _, what = text.partition("#")
    kind, _, key = about.partition(":")
    return Word(kind, unquote(key), frozenset(filter(None, what.split(","))))


def _find_fragment(src: str) -> Fragment | None:
    """Return what is to be had at an address, if it is a part of a page that is the same for everybody."""
    path, _, query = src.partition("?")
    try:
        match = resolve(unquote(path))
        find: Callable[..., Fragment] | None = getattr(match.func, "find_fragment", None)
        return None if find is None else find(QueryDict(query), *match.args, **match.kwargs)
    except (Resolver404, Http404, NotThere):
        return None


# ---- how it is brought


class Page(Waiter):
    """A page that somebody has open: what it has been brought, and what it is still to be told."""

    def __init__(self, shown: Mapping[Part, str]) -> None:
        super().__init__()
        self._etags = dict(shown)  # of the rendering that the page has, by part
        self._renderings: dict[Part, Rendering] = {}  # the same as they are, once they are known
        self._fresh: dict[Channel, None] = {}  # parts to look at, in the order in which they came out
        self._channels: Sequence[Channel] = ()
        self._lacking: set[Channel] = set()  # those that have not told it anything yet
        self._joined_at = 0.0
        # When every part is known from this moment on, the page is told that it is current. Not as it is by then: what
        # is slow and changes all the time would never be.
        self._awaited: float | None = None

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Be told of what changes for as long as this lasts."""
        self._joined_at = self._awaited = time.monotonic()
        hub = hub_of_loop()
        hub.join(self)
        try:
            with followed(self._etags, self, self._joined_at) as self._channels:
                self._lacking.update(self._channels)
                if not self._is_behind(self._joined_at):
                    self._news.set()  # it need not wait for anything
                yield
        finally:
            hub.leave(self)

    async def wait(self, seconds: float) -> Sequence[Event] | None:
        """Return what to send as soon as there may be something; None after so many seconds without."""
        if not await happens(self._news, seconds):
            return None
        await asyncio.sleep(_SECONDS_TOGETHER)
        self._news.clear()
        return self._collect()

    # What the channels tell.

    def awaits(self, channel: Channel) -> bool:
        """Whether it is to be told of a part also when that looks as it did."""
        return self._awaited is not None or channel in self._lacking

    def hear(self, channel: Channel) -> None:
        """Look at how a part came out."""
        if channel.known_from >= self._joined_at:
            self._lacking.discard(channel)
            self._fresh[channel] = None
            self._news.set()

    # What the hub tells.

    def take(self, changes: Sequence[Change], last_id: str, at: float) -> None:
        """Leave it to the channels."""

    def reset(self, at: float) -> None:
        """Be current again once everything is known from then on."""
        self._awaited = at
        self._is_stale = False
        self._news.set()

    def _collect(self) -> list[Event]:
        """Return what there is to tell."""
        fresh, self._fresh = self._fresh, {}
        events = [event for channel in fresh if (event := self._put(channel))]
        if self._awaited is not None and not self._is_behind(self._awaited):
            self._awaited = None
            events.append(_CURRENT)
        if self._is_stale and self._awaited is None:  # as current as it can be
            self._is_stale = False
            events.append(_STALE)
        return events

    def _is_behind(self, moment: float) -> bool:
        """Whether a part may be from before a moment; what only a cluster knows, nobody here can tell."""
        return any(channel.known_from < moment and not channel.part.asks_cluster for channel in self._channels)

    def _put(self, channel: Channel) -> Event | None:
        """Put how a part came out into words; None: the page has it."""
        part, outcome = channel.part, channel.outcome
        if not isinstance(outcome, Rendering):
            if outcome is Lack.GONE:  # should it come back, the page needs it, however it looked before
                self._etags[part] = ""
                self._renderings.pop(part, None)
            return _lack_event(part.src, outcome or Lack.LOOK)
        is_known, former = outcome.etag == self._etags[part], self._renderings.get(part)
        self._etags[part], self._renderings[part] = outcome.etag, outcome
        return None if is_known else _fragment_event(part.src, former, outcome)


async def _write(page: Page, guest: Guest, *, is_packed: bool) -> AsyncGenerator[bytes, None]:
    """Write events until the page is left, or whoever looks at it may not see any more."""
    with page.followed():
        yield _join([_START], is_packed)
        async for news in news_for(page, guest):
            if events := [_HEARTBEAT] if news is None else news:
                yield _join(events, is_packed)


def _join(events: Iterable[Event], is_packed: bool) -> bytes:
    return b"".join(event.packed if is_packed else event.plain for event in events)
