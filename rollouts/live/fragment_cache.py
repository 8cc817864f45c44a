"""The fragments of a process, each rendered once for all viewers who wait for it.

Before it: the views describe a part of a page as a `Fragment`. After it: `response` answers a request for the fragment
alone, and `render_since` brings it to `subscriptions`, which follow it for open pages. Two hundred viewers cost as much
as one: a caller gets a rendering that began after its question, and shares it with all who asked before it began.

Fragments with the same source form a queue. The cache opens the source once and renders all waiting fragments from
it, one after the other. It opens a source at most four times a second, and spends at most a third of the time on it.

The invariant: a rendering is never older than the question. A change that was published before a caller asked is in
the rendering that the caller gets.
"""

import asyncio
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar
from weakref import WeakValueDictionary

from django.db import connections
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotModified
from django.utils.http import parse_etags

from rollouts.accounts.errors import NotFound
from rollouts.live.fragments import Fragment, FragmentSource, Rendering

logger = logging.getLogger(__name__)

_MIN_INTERVAL_SECONDS: Final = 0.25
# Between two openings of a source lies three times what rendering from it took.
_REST_FACTOR: Final = 3
_MAX_REST_SECONDS: Final = 4.0
_MAX_RECENT_SLOTS: Final = 64
_MAX_OPEN_SOURCES: Final = 8  # some hold a thousand pods

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class _LeastRecentlyUsed(Generic[_K, _V]):
    """A map that keeps the entries used last, up to a number."""

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._entries: OrderedDict[_K, _V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: _K) -> _V | None:
        """Return an entry; this does not count as use."""
        return self._entries.get(key)

    def put(self, key: _K, value: _V) -> None:
        """Add or replace an entry as the one used last."""
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            while len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)


@dataclass(slots=True, weakref_slot=True, eq=False)
class _Slot:
    """A fragment in the cache: its newest rendering, and the task that renders it next."""

    queue: "_SourceQueue"
    lock: threading.Lock = field(default_factory=threading.Lock)
    newest: Rendering | None = None
    rendering: asyncio.Task[None] | None = None  # the task that pages wait for
    rendering_started_at: float = 0.0  # when that task was created, monotonic clock


class FragmentCache:
    """Renders fragments, and keeps those that were asked for last or that a caller waits for."""

    def __init__(self) -> None:
        self._slots: WeakValueDictionary[Hashable, _Slot] = WeakValueDictionary()
        self._queues: WeakValueDictionary[Hashable, _SourceQueue] = WeakValueDictionary()
        self._lock = threading.Lock()
        self._recent_slots: _LeastRecentlyUsed[Hashable, _Slot] = _LeastRecentlyUsed(_MAX_RECENT_SLOTS)
        self._open_sources: _OpenSources = _LeastRecentlyUsed(_MAX_OPEN_SOURCES)
        # Threads start with the first job, after the server has forked. Three: a slow fragment does not delay all
        # others. More threads would only share the same processor.
        self._pool = ThreadPoolExecutor(3, thread_name_prefix="fragments")
        # Clusters that do not answer delay only fragments of clusters.
        self._cluster_pool = ThreadPoolExecutor(4, thread_name_prefix="fragments-of-clusters")

    def response(self, request: HttpRequest, fragment: Fragment) -> HttpResponse:
        """Answer a request with the current rendering of a fragment, or with 304 if the client has it."""
        rendering = _render_if_older(self._slot_of(fragment), fragment, time.monotonic())
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

    async def render_since(self, fragment: Fragment, since: float) -> Rendering:
        """Return a rendering that began at `since` or later; all callers wait for one task, and block no thread."""
        slot = self._slot_of(fragment)
        while slot.newest is None or slot.newest.started_at < since:
            if not _is_rendering_in_this_loop(slot):
                slot.rendering = asyncio.create_task(self._render_in_pool(slot, fragment, since))
                slot.rendering_started_at = time.monotonic()
            started_at = slot.rendering_started_at
            try:
                await asyncio.shield(slot.rendering)  # type: ignore[arg-type]  # a caller that leaves does not stop it
            except Exception:
                if started_at >= since:  # an earlier task may have failed on data from before the question
                    raise
        return slot.newest

    def _slot_of(self, fragment: Fragment) -> _Slot:
        queue_key = fragment.key if fragment.source is None else fragment.source.key
        with self._lock:
            slot = self._slots.get(fragment.key)
            if slot is None:
                queue = self._queues.get(queue_key)
                if queue is None:
                    queue = self._queues[queue_key] = _SourceQueue(self._open_sources)
                slot = self._slots[fragment.key] = _Slot(queue)
        self._recent_slots.put(fragment.key, slot)
        return slot

    async def _render_in_pool(self, slot: _Slot, fragment: Fragment, since: float) -> None:
        """Render a fragment for all callers who wait for it."""
        await asyncio.sleep(slot.queue.seconds_to_rest(since))
        job = _RenderJob(slot, fragment, since)
        slot.queue.submit(job, self._cluster_pool if fragment.asks_cluster else self._pool)
        await asyncio.wrap_future(job.done)


def _is_rendering_in_this_loop(slot: _Slot) -> bool:
    task = slot.rendering
    return task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop()


def _parse_known_etags(request: HttpRequest) -> set[str]:
    """Return the ETags of If-None-Match; a proxy that compresses responses makes them weak."""
    return {etag.removeprefix("W/") for etag in parse_etags(request.headers.get("If-None-Match", ""))}


def _render_if_older(slot: _Slot, fragment: Fragment, since: float) -> Rendering:
    with slot.lock:
        if slot.newest is None or slot.newest.started_at < since:
            # Other threads that ask meanwhile wait for the lock, and then find this rendering.
            time.sleep(slot.queue.seconds_to_rest(since))
            slot.newest = _render(fragment, slot.queue.open(fragment.source, since))
        return slot.newest


def _render(fragment: Fragment, opened: "_OpenSource") -> Rendering:
    began_at = time.thread_time()
    try:
        body = (fragment.render() if fragment.source is None else fragment.render(opened.value)).encode()
    finally:
        opened.cost.cpu_seconds += time.thread_time() - began_at
    return Rendering.of(opened.cost.opened_at, body)


# ---- fragments with the same source


@dataclass(slots=True)
class _SourceCost:
    """The processor time that one opening of a source has cost."""

    opened_at: float  # monotonic clock
    former_cpu_seconds: float  # of the opening before this one
    # For all fragments rendered from it. Processor time, so that other work on the machine slows nothing down.
    cpu_seconds: float = 0.0

    @property
    def rests_until(self) -> float:
        """When the source may be opened again: the more it costs, the later.

        Of the last two costs the lower counts, so one slow rendering by chance does not cause a long rest.
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
    """A fragment that waits in the queue of its source."""

    slot: _Slot
    fragment: Fragment
    since: float
    done: Future[None] = field(default_factory=Future)

    def run(self) -> None:
        """Render the fragment, and hand the result or the error to those who wait."""
        if not self.done.set_running_or_notify_cancel():
            return
        try:
            _render_if_older(self.slot, self.fragment, self.since)
        except Exception as error:
            if not isinstance(error, (NotFound, Http404)):
                logger.exception("Cannot render a part of a page")
            self.done.set_exception(error)
        else:
            self.done.set_result(None)


class _SourceQueue:
    """Fragments with the same source: one thread renders them one after the other, and leaves threads for others."""

    def __init__(self, open_sources: "_OpenSources") -> None:
        self._open_sources = open_sources
        self._lock = threading.Lock()
        self._cost: _SourceCost | None = None
        self._jobs: list[_RenderJob] = []
        self._is_running = False

    def seconds_to_rest(self, since: float) -> float:
        """How long to wait before the source may be opened; 0 if it was opened at `since` or later."""
        if self._cost is None or self._find_open_source(since):
            return 0.0
        return max(0.0, self._cost.rests_until - time.monotonic())

    def open(self, source: FragmentSource | None, since: float) -> _OpenSource:
        """Return a source opened at `since` or later, shared with the other fragments that wait for it."""
        with self._lock:
            opened = self._find_open_source(since)
            if opened is None:
                former_cpu_seconds = math.inf if self._cost is None else self._cost.cpu_seconds
                self._cost = _SourceCost(time.monotonic(), former_cpu_seconds)
                opened = _OpenSource(self._cost, None if source is None else source.open())
            if source is not None:
                self._open_sources.put(self, opened)
        return opened

    def submit(self, job: _RenderJob, pool: ThreadPoolExecutor) -> None:
        """Put a fragment into the queue, and start a thread for the queue if none works on it."""
        with self._lock:
            self._jobs.append(job)
            if self._is_running:
                return
            self._is_running = True
        pool.submit(self._run_jobs)

    def _find_open_source(self, since: float) -> _OpenSource | None:
        opened = self._open_sources.get(self)
        return opened if opened and opened.cost.opened_at >= since else None

    def _run_jobs(self) -> None:
        """Render until the queue is empty, with one connection to the database."""
        try:
            while job := self._next_job():
                job.run()
        finally:
            connections.close_all()

    def _next_job(self) -> _RenderJob | None:
        with self._lock:
            if self._jobs:
                first = min(self._jobs, key=lambda job: job.fragment.priority)
                self._jobs.remove(first)
                return first
            self._is_running = False
            return None


_OpenSources = _LeastRecentlyUsed[_SourceQueue, _OpenSource]
