"""Parts of pages that are shown again and again while they change, each rendered once for all who see it.

Between the views, which say what a part is called and how to render it, and the two ways in which it reaches a page:
`live.subscriptions` follow it for those who have it open, `fragment_response` gives it to whoever asks. A fragment is
the same for every viewer, so two hundred of them cost what one costs: everybody gets a rendering that began after they
asked, shared with all who asked before it began. Parts that are made of the same thing are a line: one look at it
serves all of them, one after the other. No line looks more than four times a second in a process, nor works for more
than a third of the time. What somebody already has is not sent again.

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

from rollouts.accounts.errors import NotFound
from rollouts.live.tiles import TiledHtml, split_tiles

logger = logging.getLogger(__name__)

_MIN_INTERVAL_SECONDS: Final = 0.25
_REST_FACTOR: Final = 3  # from one look to the next: so many times what it took, with all that was made of it
_MAX_REST_SECONDS: Final = 4.0  # seconds
_MAX_RECENT_SLOTS: Final = 64
_MAX_OPEN_SOURCES: Final = 8  # kept: some are of a thousand pods
_MIN_COMPRESSED_BYTES: Final = 200  # bytes, as Django's own middleware has it


@dataclass(frozen=True, slots=True)
class FragmentSource:
    """What several parts are made of."""

    key: Hashable  # names it, whichever part asks
    open: Callable[[], Any]  # returns what reads when it is asked for something, and not before


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a page, the same for every viewer."""

    key: Hashable  # names it, whoever asks
    render: Callable[..., str]  # given what its source opened, if it has one
    source: FragmentSource | None = None
    headers: Mapping[str, str] = field(default_factory=dict)  # for whoever asks for it by itself
    asks_cluster: bool = False  # rendering waits for a cluster, which may take as long as it likes
    priority: int = 0  # of parts that are made of the same, the lowest goes first


@dataclass(frozen=True, eq=False)
class Rendering:
    """What a fragment looked like."""

    started_at: float  # by the monotonic clock: nothing in it was read before
    body: bytes
    etag: str

    @cached_property
    def compressed(self) -> bytes:
        """The body as gzip; empty where it is not worth it."""
        return gzip.compress(self.body, compresslevel=5, mtime=0) if len(self.body) >= _MIN_COMPRESSED_BYTES else b""

    @cached_property
    def tiled(self) -> TiledHtml:
        """The body as a frame and tiles."""
        return split_tiles(self.body.decode())


@dataclass(slots=True, weakref_slot=True, eq=False)
class _Slot:
    """A fragment: its newest rendering, and who renders it."""

    queue: "_SourceQueue"
    lock: threading.Lock = field(default_factory=threading.Lock)
    newest: Rendering | None = None
    rendering: asyncio.Task[None] | None = None  # a rendering that pages wait for
    rendering_started_at: float = 0.0  # when the flight was begun, by the monotonic clock


# The last ones asked for are kept, and those that somebody waits for.
_SLOTS: Final[WeakValueDictionary[Hashable, _Slot]] = WeakValueDictionary()
_SOURCE_QUEUES: Final[WeakValueDictionary[Hashable, "_SourceQueue"]] = WeakValueDictionary()
_RECENT_SLOTS: Final[OrderedDict[Hashable, _Slot]] = OrderedDict()
_SLOTS_LOCK: Final = threading.Lock()
# Three: what is slow does not hold up all others. More would only share the same processor.
_RENDER_POOL: Final = ThreadPoolExecutor(3, thread_name_prefix="fragments")
# Clusters that do not answer hold up nobody but each other.
_CLUSTER_RENDER_POOL: Final = ThreadPoolExecutor(4, thread_name_prefix="fragments-of-clusters")


def fragment_response(request: HttpRequest, fragment: Fragment) -> HttpResponse:
    """Answer with a fragment as it is now, or that it is as it was."""
    rendering = _render_if_older(_get_slot(fragment), fragment, time.monotonic())
    if rendering.etag in _parse_known_etags(request):
        response: HttpResponse = HttpResponseNotModified()
    elif rendering.compressed and "gzip" in request.headers.get("Accept-Encoding", ""):
        response = HttpResponse(rendering.compressed, headers={"Content-Encoding": "gzip"})
    else:
        response = HttpResponse(rendering.body)
    fixed = {"ETag": rendering.etag, "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding"}
    for name, value in {**fixed, **fragment.headers}.items():
        response[name] = value
    return response


async def render_since(fragment: Fragment, since: float) -> Rendering:
    """Return a rendering that began at some time or later; waits without a thread, together with all who ask for it."""
    slot = _get_slot(fragment)
    while slot.newest is None or slot.newest.started_at < since:
        if (
            slot.rendering is None
            or slot.rendering.done()
            or slot.rendering.get_loop() is not asyncio.get_running_loop()
        ):
            slot.rendering, slot.rendering_started_at = (
                asyncio.create_task(_render_in_background(slot, fragment, since)),
                time.monotonic(),
            )
        set_out = slot.rendering_started_at
        try:
            await asyncio.shield(slot.rendering)  # whoever leaves does not take it from the others
        except Exception:
            if set_out >= since:  # else it may have failed by what was so before the question
                raise
    return slot.newest


def _parse_known_etags(request: HttpRequest) -> set[str]:
    """Return what somebody has; proxies that compress answers weaken the tags."""
    return {etag.removeprefix("W/") for etag in parse_etags(request.headers.get("If-None-Match", ""))}


def _get_slot(fragment: Fragment) -> _Slot:
    line_key = fragment.key if fragment.source is None else fragment.source.key
    with _SLOTS_LOCK:
        slot = _SLOTS.get(fragment.key)
        if slot is None:
            line = _SOURCE_QUEUES.get(line_key) or _SOURCE_QUEUES.setdefault(line_key, _SourceQueue())
            slot = _SLOTS.setdefault(fragment.key, _Slot(line))
        _RECENT_SLOTS[fragment.key] = slot
        _RECENT_SLOTS.move_to_end(fragment.key)
        while len(_RECENT_SLOTS) > _MAX_RECENT_SLOTS:
            _RECENT_SLOTS.popitem(last=False)
        return slot


def _render_if_older(slot: _Slot, fragment: Fragment, since: float) -> Rendering:
    with slot.lock:
        if slot.newest is None or slot.newest.started_at < since:
            # Whoever asks meanwhile waits for the lock and finds what is rendered now.
            time.sleep(slot.queue.seconds_to_rest(since))
            slot.newest = _render(fragment, slot.queue.open(fragment.source, since))
        return slot.newest


async def _render_in_background(slot: _Slot, fragment: Fragment, since: float) -> None:
    """Render for all who wait."""
    await asyncio.sleep(slot.queue.seconds_to_rest(since))
    turn = _RenderJob(slot, fragment, since)
    slot.queue.submit(turn, _CLUSTER_RENDER_POOL if fragment.asks_cluster else _RENDER_POOL)
    await asyncio.wrap_future(turn.done)


def _render(fragment: Fragment, look: "_OpenSource") -> Rendering:
    began_at = time.thread_time()
    try:
        body = (fragment.render() if fragment.source is None else fragment.render(look.value)).encode()
    finally:
        look.cost.cpu_seconds += time.thread_time() - began_at
    return Rendering(look.cost.opened_at, body, f'"{hashlib.sha256(body).hexdigest()[:24]}"')


# ---- what is made of the same


@dataclass(slots=True)
class _SourceCost:
    """When a line last looked, and what that has cost."""

    opened_at: float  # by the monotonic clock
    former_cpu_seconds: float  # by the look before it
    # Seconds of processor for everything made of it: a machine that is busy with something else makes nothing slower.
    cpu_seconds: float = 0.0

    @property
    def rests_until(self) -> float:
        """When the next look may be: where it costs more, it is less often.

        One that took long by chance is not paid for by a long rest; one that takes long again is.
        """
        return self.opened_at + max(
            _MIN_INTERVAL_SECONDS, min(_MAX_REST_SECONDS, _REST_FACTOR * min(self.cpu_seconds, self.former_cpu_seconds))
        )


@dataclass(frozen=True, slots=True)
class _OpenSource:
    """A source that was opened."""

    cost: _SourceCost
    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class _RenderJob:
    """A part that is to be rendered."""

    slot: _Slot
    fragment: Fragment
    since: float
    done: Future[None] = field(default_factory=Future)

    def run(self) -> None:
        """Render it; whoever waits is told, also when it cannot be."""
        if not self.done.set_running_or_notify_cancel():
            return
        try:
            _render_if_older(self.slot, self.fragment, self.since)
        except Exception as error:
            if not isinstance(error, (NotFound, Http404)):
                logger.exception("A part of a page cannot be rendered")
            self.done.set_exception(error)
        else:
            self.done.set_result(None)


class _SourceQueue:
    """Parts that are made of the same, rendered one after the other: by one thread, so that others have one too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cost: _SourceCost | None = None
        self._jobs: list[_RenderJob] = []
        self._is_running = False

    def seconds_to_rest(self, since: float) -> float:
        """How long it is to be left alone; a look from some time on that is at hand serves at once."""
        if self._cost is None or self._find_open_source(since):
            return 0.0
        return max(0.0, self._cost.rests_until - time.monotonic())

    def open(self, source: FragmentSource | None, since: float) -> _OpenSource:
        """Return a look from some time on, shared with the other parts that it is wanted for."""
        with self._lock:
            look = self._find_open_source(since)
            if look is None:
                former_spent = math.inf if self._cost is None else self._cost.cpu_seconds
                self._cost = _SourceCost(time.monotonic(), former_spent)
                look = _OpenSource(self._cost, None if source is None else source.open())
            if source is not None:
                self._keep(look)
        return look

    def submit(self, turn: _RenderJob, renderers: ThreadPoolExecutor) -> None:
        """Have a part rendered when it is its turn."""
        with self._lock:
            self._jobs.append(turn)
            if self._is_running:
                return
            self._is_running = True
        renderers.submit(self._run_jobs)

    def _find_open_source(self, since: float) -> _OpenSource | None:
        look = _OPEN_SOURCES.get(self)
        return look if look and look.cost.opened_at >= since else None

    def _keep(self, look: _OpenSource) -> None:
        with _OPEN_SOURCES_LOCK:
            _OPEN_SOURCES[self] = look
            _OPEN_SOURCES.move_to_end(self)
            while len(_OPEN_SOURCES) > _MAX_OPEN_SOURCES:
                _OPEN_SOURCES.popitem(last=False)

    def _run_jobs(self) -> None:
        """Take the turns to the end of the line, by one connection to the database."""
        try:
            while turn := self._next_job():
                turn.run()
        finally:
            connections.close_all()

    def _next_job(self) -> _RenderJob | None:
        with self._lock:
            if self._jobs:
                first = min(self._jobs, key=lambda turn: turn.fragment.priority)
                self._jobs.remove(first)
                return first
            self._is_running = False
            return None


_OPEN_SOURCES: Final[OrderedDict[_SourceQueue, _OpenSource]] = OrderedDict()
_OPEN_SOURCES_LOCK: Final = threading.Lock()
