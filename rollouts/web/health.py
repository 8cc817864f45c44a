"""Probes: is this process alive, and can the product do its work.

A middleware before all others, so that a probe needs no login, no session, no HTTPS and no allowed host name: those
who probe call by the address of a pod. It says nothing that is not public.
"""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse

from rollouts.readiness import is_ready, readiness_detail

GetResponse = Callable[[HttpRequest], HttpResponse]


def health_middleware(get_response: GetResponse) -> GetResponse:
    """Answer /healthz and /readyz; leave everything else to the site."""
    probes = {"/healthz": _healthz, "/readyz": _readyz}

    def middleware(request: HttpRequest) -> HttpResponse:
        probe = probes.get(request.path_info)
        if probe is None:
            return get_response(request)
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        response = probe()
        response["Cache-Control"] = "no-store"
        return response

    return middleware


def _healthz() -> HttpResponse:
    """Answer while the process lives; ask nothing of anything else."""
    return HttpResponse("ok\n", content_type="text/plain")


def _readyz() -> HttpResponse:
    """Say part by part whether work can be done: 200 when it can, else 503."""
    parts = readiness_detail()
    ready = is_ready(parts)
    body = {
        "ready": ready,
        "parts": [{"name": part.name, "ok": part.ok, "detail": part.detail} for part in parts],
    }
    return JsonResponse(body, status=200 if ready else 503)
