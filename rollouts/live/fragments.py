"""Parts of pages that are shown again and again while they change, each rendered once for all who see it.

Between the views, which say what a part is called and how to render it, and the two ways in which it reaches a page:
`live.subscriptions` follow it for those who have it open, `answer` gives it to whoever asks. A fragment is the same for every
viewer, so two hundred of them cost what one costs: everybody gets a rendering that began after they asked, shared with
all who asked before it began. Parts that are made of the same thing are a line: one look at it serves all of them, one
after the other. No line looks more than four times a second in a process, nor works for more than a third of the time.
What somebody already has is not sent again.

The invariant: what is given is never older than the question. A change that was told before a fragment was asked for is
in it.
"""

import asyncio
import gzip
import hashlib
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from weakref import WeakValueDictionary

from django.db import connections
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotModified
from django.utils.http import parse_etags

from rollouts.accounts.errors import NotThere
from rollouts.live.tiles import Tiled, take_apart

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN: Final = 0.25
_REST: Final = 3  # from one look to the next: so many times what it took, with all that was made of it
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
    rank: int = 0  # of parts that are made of the same, the lowest goes first


@dataclass(frozen=True, eq=False)
class Rendering:
    """What a fragment looked like."""

    began: float  # by the monotonic clock: nothing in it was read before
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


@dataclass(slots=True, weakref_slot=True, eq=False)
class _Slot:
    """A fragment: its newest rendering, and who renders it."""

    line: "_Line"
    lock: threading.Lock = field(default_factory=threading.Lock)
    newest: Rendering | None = None
    flight: asyncio.Task[None] | None = None  # a rendering that pages wait for
    set_out: float = 0.0  # when the flight was begun, by the monotonic clock


# The last ones asked for are kept, and those that somebody waits for.
_SLOTS: Final[WeakValueDictionary[Hashable, _Slot]] = WeakValueDictionary()
_LINES: Final[WeakValueDictionary[Hashable, "_Line"]] = WeakValueDictionary()
_KEPT: Final[OrderedDict[Hashable, _Slot]] = OrderedDict()
_SLOTS_LOCK: Final = threading.Lock()
# Three: what is slow does not hold up all others. More would only share the same processor.
_RENDERERS: Final = ThreadPoolExecutor(3, thread_name_prefix="fragments")
# Clusters that do not answer hold up nobody but each other.
_ASKERS: Final = ThreadPoolExecutor(4, thread_name_prefix="fragments-of-clusters")


def answer(request: HttpRequest, fragment: Fragment) -> HttpResponse:
    """Answer with a fragment as it is now, or that it is as it was."""
    rendering = _fresh(_slot(fragment), fragment, time.monotonic())
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
    slot = _slot(fragment)
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


def _slot(fragment: Fragment) -> _Slot:
    line_key = fragment.key if fragment.source is None else fragment.source.key
    with _SLOTS_LOCK:
        slot = _SLOTS.get(fragment.key)
        if slot is None:
            line = _LINES.get(line_key) or _LINES.setdefault(line_key, _Line())
            slot = _SLOTS.setdefault(fragment.key, _Slot(line))
        _KEPT[fragment.key] = slot
        _KEPT.move_to_end(fragment.key)
        while len(_KEPT) > _MOST_KEPT:
            _KEPT.popitem(last=False)
        return slot


def _fresh(slot: _Slot, fragment: Fragment, since: float) -> Rendering:
    with slot.lock:
        if slot.newest is None or slot.newest.began < since:
            # Whoever asks meanwhile waits for the lock and finds what is rendered now.
            time.sleep(slot.line.seconds_to_rest(since))
            slot.newest = _render(fragment, slot.line.open(fragment.source, since))
        return slot.newest


async def _fly(slot: _Slot, fragment: Fragment, since: float) -> None:
    """Render for all who wait."""
    await asyncio.sleep(slot.line.seconds_to_rest(since))
    turn = _Turn(slot, fragment, since)
    slot.line.append(turn, _ASKERS if fragment.asks_cluster else _RENDERERS)
    await asyncio.wrap_future(turn.done)


def _render(fragment: Fragment, look: "_Look") -> Rendering:
    began_at = time.thread_time()
    try:
        body = (fragment.render() if fragment.source is None else fragment.render(look.at)).encode()
    finally:
        look.pace.spent += time.thread_time() - began_at
    return Rendering(look.pace.began, body, f'"{hashlib.sha256(body).hexdigest()[:24]}"')


# ---- what is made of the same


@dataclass(slots=True)
class _Pace:
    """When a line last looked, and what that has cost."""

    began: float  # by the monotonic clock
    former_spent: float  # by the look before it
    # Seconds of processor for everything made of it: a machine that is busy with something else makes nothing slower.
    spent: float = 0.0

    @property
    def rests_until(self) -> float:
        """When the next look may be: where it costs more, it is less often.

        One that took long by chance is not paid for by a long rest; one that takes long again is.
        """
        return self.began + max(_SECONDS_BETWEEN, min(_LONGEST_REST, _REST * min(self.spent, self.former_spent)))


@dataclass(frozen=True, slots=True)
class _Look:
    """A source that was opened."""

    pace: _Pace
    at: Any


@dataclass(frozen=True, slots=True, eq=False)
class _Turn:
    """A part that is to be rendered."""

    slot: _Slot
    fragment: Fragment
    since: float
    done: Future[None] = field(default_factory=Future)

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


class _Line:
    """Parts that are made of the same, rendered one after the other: by one thread, so that others have one too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pace: _Pace | None = None
        self._turns: list[_Turn] = []
        self._is_served = False

    def seconds_to_rest(self, since: float) -> float:
        """How long it is to be left alone; a look from some time on that is at hand serves at once."""
        if self._pace is None or self._find_look(since):
            return 0.0
        return max(0.0, self._pace.rests_until - time.monotonic())

    def open(self, source: Source | None, since: float) -> _Look:
        """Return a look from some time on, shared with the other parts that it is wanted for."""
        with self._lock:
            look = self._find_look(since)
            if look is None:
                former_spent = math.inf if self._pace is None else self._pace.spent
                self._pace = _Pace(time.monotonic(), former_spent)
                look = _Look(self._pace, None if source is None else source.open())
            if source is not None:
                self._keep(look)
        return look

    def append(self, turn: _Turn, renderers: ThreadPoolExecutor) -> None:
        """Have a part rendered when it is its turn."""
        with self._lock:
            self._turns.append(turn)
            if self._is_served:
                return
            self._is_served = True
        renderers.submit(self._serve)

    def _find_look(self, since: float) -> _Look | None:
        look = _LOOKS.get(self)
        return look if look and look.pace.began >= since else None

    def _keep(self, look: _Look) -> None:
        with _LOOKS_LOCK:
            _LOOKS[self] = look
            _LOOKS.move_to_end(self)
            while len(_LOOKS) > _MOST_LOOKS:
                _LOOKS.popitem(last=False)

    def _serve(self) -> None:
        """Take the turns to the end of the line, by one connection to the database."""
        try:
            while turn := self._next_turn():
                turn.take()
        finally:
            connections.close_all()

    def _next_turn(self) -> _Turn | None:
        with self._lock:
            if self._turns:
                first = min(self._turns, key=lambda turn: turn.fragment.rank)
                self._turns.remove(first)
                return first
            self._is_served = False
            return None


_LOOKS: Final[OrderedDict[_Line, _Look]] = OrderedDict()
_LOOKS_LOCK: Final = threading.Lock()
