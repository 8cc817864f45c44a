"""Parts of pages that are shown again and again while they change, each rendered once for all who see it.

Between the views, which say what a part is called and how to render it, and the two ways in which it reaches a page:
`web.stream` brings it when the change feed says that it may have changed, `answer` gives it to whoever asks. A fragment
is the same for every viewer, so two hundred of them cost what one costs: everybody gets a rendering that began after
they asked, shared with all who asked before it began. No part is rendered more than four times a second in a process,
nor for more than a quarter of the time. Parts that are made of the same thing look at it once, together. What somebody
already has is not sent again.

The invariant: what is given is never older than the question. A change that was told before a fragment was asked for is
in it.
"""

import asyncio
import gzip
import hashlib
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from weakref import WeakValueDictionary

from django.db import connections
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotModified
from django.utils.http import parse_etags

from rollouts.refusals import NotThere
from rollouts.web.tiles import Tiled, take_apart

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN: Final = 0.25
_REST: Final = 4  # from one rendering to the next: so many times what it took
_LONGEST_REST: Final = 4.0  # seconds
_MOST_KEPT: Final = 64
_MOST_LOOKS: Final = 8  # kept: some are of a thousand pods
_WORTH_COMPRESSING: Final = 200  # bytes, as Django's own middleware has it


@dataclass(frozen=True, slots=True)
class Source:
    """What several parts are made of."""

    key: Hashable  # names it, whichever part asks
    open: Callable[[], Any]  # returns what reads when it is asked for something, and not before


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a page, the same for every viewer."""

    key: Hashable  # names it, whoever asks
    render: Callable[..., str]  # given what its source opened, if it has one
    source: Source | None = None
    headers: Mapping[str, str] = field(default_factory=dict)  # for whoever asks for it by itself
    asks_cluster: bool = False  # rendering waits for a cluster, which may take as long as it likes


@dataclass(frozen=True, eq=False)
class Rendering:
    """What a fragment looked like."""

    began: float  # by the monotonic clock: nothing in it was read before
    spent: float  # seconds of processor: a machine that is busy with something else makes nothing slower to render
    usual: float  # the same, or what the one before it took, if that was less
    body: bytes
    etag: str

    @cached_property
    def compressed(self) -> bytes:
        """The body as gzip; empty where it is not worth it."""
        return gzip.compress(self.body, compresslevel=5, mtime=0) if len(self.body) >= _WORTH_COMPRESSING else b""

    @cached_property
    def tiled(self) -> Tiled:
        """The body as a frame and tiles."""
        return take_apart(self.body.decode())

    @property
    def rests_until(self) -> float:
        """When it may be rendered again: what is slow to render is rendered less often."""
        return self.began + max(_SECONDS_BETWEEN, min(_LONGEST_REST, _REST * self.usual))


@dataclass(slots=True, weakref_slot=True, eq=False)
class _Slot:
    """A fragment: its newest rendering, and who renders it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    newest: Rendering | None = None
    flight: asyncio.Task[None] | None = None  # a rendering that pages wait for
    set_out: float = 0.0  # when the flight was begun, by the monotonic clock

    def seconds_to_rest(self) -> float:
        """How long it is to be left alone."""
        return 0.0 if self.newest is None else max(0.0, self.newest.rests_until - time.monotonic())


# The last ones asked for are kept, and those that somebody waits for.
_SLOTS: Final[WeakValueDictionary[Hashable, _Slot]] = WeakValueDictionary()
_KEPT: Final[OrderedDict[Hashable, _Slot]] = OrderedDict()
_SLOTS_LOCK: Final = threading.Lock()
# Three: what is slow does not hold up all others. More would only share the same processor.
_RENDERERS: Final = ThreadPoolExecutor(3, thread_name_prefix="fragments")
# Clusters that do not answer hold up nobody but each other.
_ASKERS: Final = ThreadPoolExecutor(4, thread_name_prefix="fragments-of-clusters")


def answer(request: HttpRequest, fragment: Fragment) -> HttpResponse:
    """Answer with a fragment as it is now, or that it is as it was."""
    rendering = _fresh(_slot(fragment.key), fragment, time.monotonic())
    if rendering.etag in _known_to(request):
        response: HttpResponse = HttpResponseNotModified()
    elif rendering.compressed and "gzip" in request.headers.get("Accept-Encoding", ""):
        response = HttpResponse(rendering.compressed, headers={"Content-Encoding": "gzip"})
    else:
        response = HttpResponse(rendering.body)
    fixed = {"ETag": rendering.etag, "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding"}
    for name, value in {**fixed, **fragment.headers}.items():
        response[name] = value
    return response


async def newest(fragment: Fragment, since: float) -> Rendering:
    """Return a rendering that began at some time or later; waits without a thread, together with all who ask for it."""
    slot = _slot(fragment.key)
    while slot.newest is None or slot.newest.began < since:
        if slot.flight is None or slot.flight.done() or slot.flight.get_loop() is not asyncio.get_running_loop():
            slot.flight, slot.set_out = asyncio.create_task(_fly(slot, fragment, since)), time.monotonic()
        set_out = slot.set_out
        try:
            await asyncio.shield(slot.flight)  # whoever leaves does not take it from the others
        except Exception:
            if set_out >= since:  # else it may have failed by what was so before the question
                raise
    return slot.newest


def _known_to(request: HttpRequest) -> set[str]:
    """Return what somebody has; proxies that compress answers weaken the tags."""
    return {etag.removeprefix("W/") for etag in parse_etags(request.headers.get("If-None-Match", ""))}


def _slot(key: Hashable) -> _Slot:
    with _SLOTS_LOCK:
        slot = _SLOTS.get(key) or _SLOTS.setdefault(key, _Slot())
        _KEPT[key] = slot
        _KEPT.move_to_end(key)
        while len(_KEPT) > _MOST_KEPT:
            _KEPT.popitem(last=False)
        return slot


def _fresh(slot: _Slot, fragment: Fragment, since: float) -> Rendering:
    with slot.lock:
        if slot.newest is None or slot.newest.began < since:
            # Whoever asks meanwhile waits for the lock and finds what is rendered now.
            time.sleep(slot.seconds_to_rest())
            slot.newest = _render(fragment, since, slot.newest)
        return slot.newest


async def _fly(slot: _Slot, fragment: Fragment, since: float) -> None:
    """Render for all who wait."""
    await asyncio.sleep(slot.seconds_to_rest())
    done: Future[None] = Future()
    _line_up(fragment, _Turn(slot, fragment, since, done))
    await asyncio.wrap_future(done)


# ---- whose turn it is


@dataclass(frozen=True, slots=True)
class _Turn:
    """A part that is to be rendered."""

    slot: _Slot
    fragment: Fragment
    since: float
    done: Future[None]

    def take(self) -> None:
        """Render it; whoever waits is told, also when it cannot be."""
        if not self.done.set_running_or_notify_cancel():
            return
        try:
            _fresh(self.slot, self.fragment, self.since)
        except Exception as error:
            if not isinstance(error, (NotThere, Http404)):
                logger.exception("A part of a page cannot be rendered")
            self.done.set_exception(error)
        else:
            self.done.set_result(None)


_LINES: Final[dict[Hashable, deque[_Turn]]] = {}
_LINES_LOCK: Final = threading.Lock()


def _line_up(fragment: Fragment, turn: _Turn) -> None:
    """Have a part rendered after those that are made of the same: by one thread, so that others have one too."""
    key = fragment.key if fragment.source is None else fragment.source.key
    with _LINES_LOCK:
        if key in _LINES:
            _LINES[key].append(turn)
            return
        _LINES[key] = deque([turn])
    (_ASKERS if fragment.asks_cluster else _RENDERERS).submit(_serve, key)


def _serve(key: Hashable) -> None:
    """Take the turns of a line to its end, by one connection to the database."""
    try:
        while turn := _next_turn(key):
            turn.take()
    finally:
        connections.close_all()


def _next_turn(key: Hashable) -> _Turn | None:
    with _LINES_LOCK:
        if _LINES[key]:
            return _LINES[key].popleft()
        del _LINES[key]
        return None


def _render(fragment: Fragment, since: float, former: Rendering | None) -> Rendering:
    began_at = time.thread_time()
    if fragment.source is None:
        began, body = time.monotonic(), fragment.render().encode()
    else:
        look = _look(fragment.source, since)
        began, body = look.began, fragment.render(look.at).encode()
    # One that took long by chance is not paid for by a long rest; one that takes long again is.
    spent = time.thread_time() - began_at
    usual = spent if former is None else min(spent, former.spent)
    return Rendering(began, spent, usual, body, f'"{hashlib.sha256(body).hexdigest()[:24]}"')


@dataclass(frozen=True, slots=True)
class _Look:
    """A source that was opened."""

    began: float  # by the monotonic clock
    at: Any


_LOOKS: Final[OrderedDict[Hashable, _Look]] = OrderedDict()
_LOOKS_LOCK: Final = threading.Lock()


def _look(source: Source, since: float) -> _Look:
    """Return a source opened at some time or later, shared with the other parts that it is wanted for."""
    with _LOOKS_LOCK:
        look = _LOOKS.get(source.key)
        if look is None or look.began < since:
            look = _LOOKS[source.key] = _Look(time.monotonic(), source.open())
        _LOOKS.move_to_end(source.key)
        while len(_LOOKS) > _MOST_LOOKS:
            _LOOKS.popitem(last=False)
        return look
