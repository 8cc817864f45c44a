"""Liveness and readiness probes.

A middleware before all others, so that a probe needs no login, session, HTTPS or allowed host name: a kubelet calls the
address of a pod. Anonymous callers get an answer too. So it is computed at most once in READINESS_CACHE_SECONDS, and
only callers with METRICS_TOKEN see the names of clusters and their errors.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse

from rollouts.runtime.readiness import ReadinessCheck, is_ready, readiness_detail
from rollouts.web.metrics import has_metrics_token

GetResponse = Callable[[HttpRequest], HttpResponse]


_CLUSTERS_NOT_READY: Final = (
    "A cluster is not usable. The page Clusters shows which and why. To see it here, send METRICS_TOKEN."
)


def health_middleware(get_response: GetResponse) -> GetResponse:
    """Answer /healthz and /readyz, and pass on all other requests."""
    probes = {"/healthz": _healthz, "/readyz": _readyz}

    def middleware(request: HttpRequest) -> HttpResponse:
        probe = probes.get(request.path_info)
        if probe is None:
            return get_response(request)
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        response = probe(request)
        response["Cache-Control"] = "no-store"
        return response

    return middleware


def _healthz(_: HttpRequest) -> HttpResponse:
    """Answer 200 without asking another service."""
    return HttpResponse("ok\n", content_type="text/plain")


def _readyz(request: HttpRequest) -> HttpResponse:
    """Return the state of each component: 200 if the product can work, else 503."""
    parts = _readiness.read()
    ready = is_ready(parts)
    shown = parts if has_metrics_token(request) else _summarize_clusters(parts)
    body = {
        "ready": ready,
        "parts": [{"name": part.name, "ok": part.ok, "detail": part.detail} for part in shown],
    }
    return JsonResponse(body, status=200 if ready else 503)


def _summarize_clusters(parts: Sequence[ReadinessCheck]) -> list[ReadinessCheck]:
    """Leave out the names and errors of clusters."""
    clusters = [part for part in parts if part.name.partition(" ")[0] == "cluster"]
    own = [part for part in parts if part not in clusters]
    if not clusters:
        return own
    ok = all(part.ok for part in clusters)
    return [*own, ReadinessCheck("cluster", ok=ok, detail="Every cluster answers." if ok else _CLUSTERS_NOT_READY)]


@dataclass(slots=True)
class _ReadinessCache:
    """Caches the last answer; of several simultaneous callers one computes it."""

    _parts: list[ReadinessCheck] = field(default_factory=list)
    _fetched_at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self) -> list[ReadinessCheck]:
        """Return the state of the components."""
        with self._lock:
            if not self._parts or time.monotonic() - self._fetched_at >= settings.READINESS_CACHE_SECONDS:
                self._parts = readiness_detail()
                self._fetched_at = time.monotonic()
            return self._parts


_readiness: Final = _ReadinessCache()
