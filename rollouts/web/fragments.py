"""Parts of pages that are fetched again and again while they are shown, each rendered once for all who ask.

Between the views, which say what a part is called and how to render it, and `static/live.js`, which fetches it whenever
the change feed says that it may have changed. A fragment is the same for every viewer, so two hundred of them cost what
one costs: whoever asks gets a rendering that began after they asked, shared with everybody who asked before it began,
and no part is rendered more than four times a second in a process. What somebody already has is not sent again.

The invariant: an answer is never older than the question. A change that was told before a fragment was asked for is in
it.
"""

import gzip
import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.utils.http import parse_etags

_SECONDS_BETWEEN: Final = 0.25
_MOST_KEPT: Final = 64
_WORTH_COMPRESSING: Final = 200  # bytes, as Django's own middleware has it


@dataclass(frozen=True, slots=True)
class _Rendering:
    """What a fragment looked like."""

    began: float  # by the monotonic clock
    body: bytes
    compressed: bytes  # empty: not worth it
    etag: str


@dataclass(slots=True)
class _Slot:
    """A fragment: its newest rendering, and the lock that whoever renders it holds."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    newest: _Rendering | None = None


_SLOTS: Final[OrderedDict[Hashable, _Slot]] = OrderedDict()
_SLOTS_LOCK: Final = threading.Lock()


def answer_fragment(request: HttpRequest, key: Hashable, render: Callable[[], str]) -> HttpResponse:
    """Answer with a fragment as it is now, or that it is as it was; `key` names it whoever asks."""
    rendering = _fresh(_slot(key), render, time.monotonic())
    if rendering.etag in _known_to(request):
        response: HttpResponse = HttpResponseNotModified()
    elif rendering.compressed and "gzip" in request.headers.get("Accept-Encoding", ""):
        response = HttpResponse(rendering.compressed, headers={"Content-Encoding": "gzip"})
    else:
        response = HttpResponse(rendering.body)
    response["ETag"] = rendering.etag
    response["Cache-Control"] = "private, no-cache"
    response["Vary"] = "Accept-Encoding"
    return response


def _known_to(request: HttpRequest) -> set[str]:
    """Return what somebody has; proxies that compress answers weaken the tags."""
    return {etag.removeprefix("W/") for etag in parse_etags(request.headers.get("If-None-Match", ""))}


def _slot(key: Hashable) -> _Slot:
    with _SLOTS_LOCK:
        slot = _SLOTS.setdefault(key, _Slot())
        _SLOTS.move_to_end(key)
        while len(_SLOTS) > _MOST_KEPT:
            _SLOTS.popitem(last=False)
        return slot


def _fresh(slot: _Slot, render: Callable[[], str], asked: float) -> _Rendering:
    with slot.lock:
        if slot.newest is None or slot.newest.began < asked:
            if slot.newest is not None:
                # Whoever asks meanwhile waits for the lock and finds what is rendered now.
                time.sleep(max(0.0, slot.newest.began + _SECONDS_BETWEEN - time.monotonic()))
            slot.newest = _render(render)
        return slot.newest


def _render(render: Callable[[], str]) -> _Rendering:
    began = time.monotonic()
    body = render().encode()
    compressed = gzip.compress(body, compresslevel=5, mtime=0) if len(body) >= _WORTH_COMPRESSING else b""
    return _Rendering(began, body, compressed, f'"{hashlib.sha256(body).hexdigest()[:24]}"')
