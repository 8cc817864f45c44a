"""/live/stream/: what a page shows, brought to it as it changes, by one answer that stays open.

A page says what it shows: of each part which rendering it has, where the part is to be had, and what it depends on.

    show="3f2a…" /workloads/sandbox/default/chat/parts/now/ workload:sandbox%2Fdefault%2Fchat#pods,set every:30

It is told by server-sent events: `fragment` brings a part as it looks now, `gone` says that there is none any more,
`look` that it is to be fetched from its address, `current` that everything shown is as new as the server knows,
`stale` that the server itself hears of nothing for now, `heartbeat` that all is well and quiet. Of a part with tiles
those are left out that the page has: `base` is the rendering that it has them from, empty where nothing is left out.

Before it: `watching`, which says what changed and asks again and again whether somebody may see; `fragments`, which
renders each part once for everybody. So a change costs a rendering, and a write for each viewer: an event is put
together and compressed once, as a piece that fits into anybody's stream (docs/adr/0019).

A part that takes long, as one that asks a cluster may, is brought when it is there and holds up no other.

The invariant: a page that has heard `current` has every part as it was then or later, and is brought all changes since.
Whoever connects again is brought what is not as they have it, whatever they were sent before.
"""

import asyncio
import contextlib
import time
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import orjson
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.urls import Resolver404, resolve
from django.views.decorators.http import require_safe

from rollouts.feed import Change
from rollouts.hub import Batch, Viewer
from rollouts.refusals import NotThere
from rollouts.watching import RETRY_MS, Guest, batches, joined, keep_open
from rollouts.web.fragments import Fragment, Rendering, newest
from rollouts.web.shell import for_readers

_MOST_SHOWN: Final = 32
# So long a part that is ready waits for others, to be sent with them; so long they are waited for in all.
_SECONDS_TOGETHER: Final = 0.1
_SECONDS_IN_ALL: Final = 1.0
# The header of a gzip stream: deflate, no name, no time.
_GZIP: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_EVERY: Final = "every"
_LONGEST_EVERY: Final = 5  # digits
# Seconds between looks for which there is no other reason: at least so many, more where a cluster is asked.
_LEAST_EVERY: Final = 5
_CLUSTER_EVERY: Final = 20
# Of one session in a process: more tabs than anybody watches, and an end to what one account can keep busy.
_MOST_STREAMS: Final = 50
_open_streams: Final[Counter[str]] = Counter()


@require_safe
@for_readers
def stream(request: HttpRequest) -> HttpResponseBase:
    """Bring a page what it shows, until it is left."""
    session = request.session.session_key or ""
    if _open_streams[session] >= _MOST_STREAMS:
        return HttpResponse("Too many pages of yours are open; close some.", status=HTTPStatus.TOO_MANY_REQUESTS)
    parts = [part for text in request.GET.getlist("show")[:_MOST_SHOWN] if (part := parse_part(text))]
    is_packed = "gzip" in request.headers.get("Accept-Encoding", "")
    response = keep_open(_write(parts, Guest("", session), is_packed=is_packed))
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


# ---- what is shown


@dataclass(frozen=True, slots=True)
class Word:
    """Something that a part depends on: a kind of things, or one of them, or parts of it."""

    kind: str
    key: str  # empty: any
    what: frozenset[str]  # empty: all of it

    def covers(self, change: Change) -> bool:
        """Whether a change is one of it."""
        if self.kind != change.kind or (self.key and self.key != change.key):
            return False
        return not self.what or not change.what or not self.what.isdisjoint(change.what)


@dataclass(slots=True, eq=False)
class Part:
    """A part of a page that somebody has open."""

    src: str  # where it is to be had, as the page wrote it
    words: tuple[Word, ...]
    every: float  # seconds after which it is looked at though nothing was told; 0: never
    etag: str  # of the rendering that the page has
    fragment: Fragment | None  # None: nothing that could be brought
    shown: Rendering | None = None  # the rendering itself, once it is known
    looked_at: float = 0.0  # by the monotonic clock
    known_from: float = 0.0  # the page has been brought how it looked then, or later
    owed: float | None = None  # a rendering from this moment on was not ready in time
    # And one from this moment on is wanted after it. Not instead of it: else a part that is slow and changes again and
    # again would never be brought.
    wanted: float | None = None

    def is_older_than(self, moment: float) -> bool:
        """Whether the page may have it from before a moment; what a cluster must be asked for, nobody here knows."""
        return self.known_from < moment and not (self.fragment and self.fragment.asks_cluster)

    def depends_on(self, change: Change) -> bool:
        """Whether it may look different after a change."""
        return any(word.covers(change) for word in self.words)

    def choose_since(self, batch: Batch | None, now: float) -> float | None:
        """Return from when on a rendering is to be brought; None: it need not be looked at."""
        since = self._due_since(batch, now)
        if self.owed is None:
            return since
        self.wanted = self.wanted if since is None else since
        return self.owed

    def settle(self, since: float, *, is_done: bool) -> None:
        """Note whether what was to be brought is there."""
        if is_done:
            self.known_from = max(self.known_from, since)
            self.owed, self.wanted = self.wanted, None
        else:
            self.owed = since

    def _due_since(self, batch: Batch | None, now: float) -> float | None:
        if batch and (batch.is_reset or any(self.depends_on(change) for change in batch.changes)):
            return batch.told_at
        if self.every and now >= self.looked_at + self.every:
            return now - self.every / 2  # one for all whose turn comes within that time
        return None

    async def look(self, since: float) -> Event | None:
        """Return how it looks; None: as it did."""
        self.looked_at = time.monotonic()
        if self.fragment is None:
            return _event("look", {"src": self.src})
        try:
            rendering = await newest(self.fragment, since)
        except (NotThere, Http404):
            self.etag, self.shown = "", None  # should it come back, the page needs it, however it looked before
            return _event("gone", {"src": self.src})
        except Exception:  # it is in the log; whoever fetches it sees what is wrong
            return _event("look", {"src": self.src})
        is_known, former = rendering.etag == self.etag, self.shown
        self.etag, self.shown = rendering.etag, rendering
        return None if is_known else _fragment_event(self.src, former, rendering)


def parse_part(text: str) -> Part | None:
    """Read what a page says of a part it shows; None where that means nothing."""
    etag, _, rest = text.partition(" ")
    src, *words = rest.split()[: _MOST_SHOWN + 1] or [""]
    if not src.startswith("/") or src.startswith("//"):
        return None  # nothing of ours
    fragment = _find_fragment(src)
    every = next((word.partition(":")[2] for word in words if word.startswith(f"{_EVERY}:")), "")
    return Part(src, tuple(map(parse_word, words)), _read_every(every, fragment), etag, fragment)


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


async def _write(parts: Sequence[Part], guest: Guest, *, is_packed: bool) -> AsyncIterator[bytes]:
    """Write events until the page is left, or whoever looks at it may not see any more."""
    viewer = Viewer(lambda change: any(part.depends_on(change) for part in parts))
    rounds = _Rounds(parts)
    async with _counted(guest), joined(viewer):
        everything = Batch((), is_reset=True, is_stale=False, last_id="", told_at=time.monotonic())
        yield _join([_START], is_packed)
        async for events in rounds.tell(everything):
            yield _join(events, is_packed)
        async for batch in batches(viewer, guest, rounds.seconds_to_next):
            async for events in rounds.tell(batch):
                yield _join(events, is_packed)


@contextlib.asynccontextmanager
async def _counted(guest: Guest) -> AsyncIterator[None]:
    """Count a stream among those of its session for as long as it is open."""
    _open_streams[guest.session] += 1
    try:
        yield
    finally:
        _open_streams[guest.session] -= 1
        if not _open_streams[guest.session]:
            del _open_streams[guest.session]


@dataclass(slots=True)
class _Rounds:
    """Looks at the parts of a page again and again, and says what there is to tell of them."""

    parts: Sequence[Part]
    # When everything shown has been brought as it was at this moment, or later, the page is told that it is current.
    # Not as it is by then: what is slow and changes all the time would never be.
    awaited: float | None = None

    def seconds_to_next(self) -> float:
        """How long to wait for news."""
        usual = min([settings.FEED_HEARTBEAT_SECONDS, *(part.every for part in self.parts if part.every)])
        return min(usual, _SECONDS_IN_ALL) if any(part.owed is not None for part in self.parts) else usual

    async def tell(self, batch: Batch | None) -> AsyncIterator[list[Event]]:
        """Yield what to send after news, or after silence."""
        now = time.monotonic()
        due = [(part, since) for part in self.parts if (since := part.choose_since(batch, now)) is not None]
        async with contextlib.aclosing(_look_at(due)) as looks:
            async for events in looks:
                yield events
        if sign := self._choose_sign(batch):
            yield [sign]

    def _choose_sign(self, batch: Batch | None) -> Event | None:
        """Return what to say after the parts themselves."""
        if batch and batch.is_reset:
            self.awaited = batch.told_at
        elif batch and batch.is_stale:
            self.awaited = None
            return _STALE
        if self.awaited is not None and not any(part.is_older_than(self.awaited) for part in self.parts):
            self.awaited = None
            return _CURRENT
        return _HEARTBEAT if batch is None else None


async def _look_at(due: Iterable[tuple[Part, float]]) -> AsyncGenerator[list[Event], None]:
    """Look at parts, and yield those that are ready; what is not after some time is owed."""
    looks = {asyncio.create_task(part.look(since)): (part, since) for part, since in due}
    pending, deadline = set(looks), time.monotonic() + _SECONDS_IN_ALL
    try:
        while pending:
            # Also when time is up: what became ready while a slow page took the rest counts as brought.
            seconds = max(0.0, deadline - time.monotonic())
            done, pending = await asyncio.wait(pending, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            if pending:
                more, pending = await asyncio.wait(pending, timeout=_SECONDS_TOGETHER)
                done |= more
            if events := [event for look in looks if look in done and (event := look.result())]:
                yield events
    finally:
        for look, (part, since) in looks.items():
            part.settle(since, is_done=look.done())
            look.cancel()  # what is rendered goes on, for the next round


def _join(events: Iterable[Event], is_packed: bool) -> bytes:
    return b"".join(event.packed if is_packed else event.plain for event in events)
