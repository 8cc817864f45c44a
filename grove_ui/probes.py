"""Answers the probes /healthz and /readyz before Django, however many clients ask and whatever hangs.

Before it: `request_limits`. After it: everything else. Probes need no login, session, HTTPS or allowed host name, since
a kubelet calls the address of a pod. So every client may send them, and they must not cost a thread each.

/healthz asks nothing. /readyz runs each check of `runtime.readiness` in one thread: all requests that arrive meanwhile
wait for that result, and later ones get it for READINESS_CACHE_SECONDS. A check that has not answered in time fails
with the name of its part, while the others are still answered. Only requests with METRICS_TOKEN see names of clusters.

The invariant: the probes hold at most one thread for each check (docs/adr/0029).
"""

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from django.conf import settings
from django.db import connections

from grove_ui.request_limits import HEALTHZ, PROBES, Application, Receive, Scope, Send
from rollouts.runtime.readiness import CHECKS, ReadinessCheck, is_ready
from rollouts.web.metrics import is_metrics_token

logger = logging.getLogger(__name__)

Check = Callable[[], list[ReadinessCheck]]

# Longer than the 5 s that the connection pools wait for PostgreSQL and Redis, so that the check names the reason.
CHECK_TIMEOUT_SECONDS: Final = 6.0
_CLUSTERS_NOT_READY: Final = (
    "A cluster is not usable. The page Clusters shows which and why. To see it here, send METRICS_TOKEN."
)


class Probes:
    """ASGI middleware that answers the probes, and passes on all other requests."""

    def __init__(
        self, app: Application, checks: Mapping[str, Check] = CHECKS, *, seconds: float = CHECK_TIMEOUT_SECONDS
    ) -> None:
        self._app = app
        self._checks = [_SharedCheck(name, check, seconds) for name, check in checks.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a probe, or pass the request on."""
        if scope["path"] not in PROBES:
            await self._app(scope, receive, send)
        elif scope["method"] not in ("GET", "HEAD"):
            await _send(send, HTTPStatus.METHOD_NOT_ALLOWED, b"", "text/plain", (b"allow", b"GET, HEAD"))
        elif scope["path"] == HEALTHZ:
            await _send(send, HTTPStatus.OK, b"ok\n", "text/plain")
        else:
            status, body = await self._readyz(scope)
            await _send(send, status, body, "application/json")

    async def _readyz(self, scope: Scope) -> tuple[HTTPStatus, bytes]:
        """Return the state of each part: 200 if the product can work, else 503."""
        results = await asyncio.gather(*(check.read() for check in self._checks))
        parts = [part for result in results for part in result]
        ready = is_ready(parts)
        authorization = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
        shown = parts if is_metrics_token(authorization) else _summarize_clusters(parts)
        body = {
            "ready": ready,
            "parts": [{"name": part.name, "ok": part.ok, "detail": part.detail} for part in shown],
        }
        return HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE, json.dumps(body).encode()


class _SharedCheck:
    """A check whose result all requests share, in a thread of its own while it runs."""

    def __init__(self, name: str, check: Check, seconds: float) -> None:
        self._name = name
        self._check = check
        self._seconds = seconds
        self._result: asyncio.Future[list[ReadinessCheck]] | None = None
        self._started_at = 0.0
        self._ended_at = 0.0

    async def read(self) -> list[ReadinessCheck]:
        """Return the result of a check that ended a moment ago or runs already; start one if there is neither."""
        result = self._result
        if result is None or (result.done() and _age(self._ended_at) >= settings.READINESS_CACHE_SECONDS):
            result = self._result = self._start()
        await asyncio.wait((result,), timeout=max(0.0, self._seconds - _age(self._started_at)))
        if result.done():
            return result.result()
        detail = f"No answer for {_age(self._started_at):.0f} s: it hangs, or this machine is overloaded."
        return [ReadinessCheck(self._name, ok=False, detail=detail)]

    def _start(self) -> "asyncio.Future[list[ReadinessCheck]]":
        """Run the check in a thread. A daemon, so that a check that hangs does not delay the end of the process."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[list[ReadinessCheck]] = loop.create_future()

        def run() -> None:
            parts = self._run()
            self._ended_at = time.monotonic()
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(result.set_result, parts)

        self._started_at = time.monotonic()
        threading.Thread(target=run, name=f"readyz {self._name}", daemon=True).start()
        return result

    def _run(self) -> list[ReadinessCheck]:
        try:
            return self._check()
        except Exception:
            logger.exception("The check of %s for /readyz failed", self._name)
            return [ReadinessCheck(self._name, ok=False, detail="The check failed with an error; see the log.")]
        finally:
            connections.close_all()  # those of this thread


def _age(moment: float) -> float:
    return time.monotonic() - moment


def _summarize_clusters(parts: Sequence[ReadinessCheck]) -> list[ReadinessCheck]:
    """Leave out the names and errors of clusters."""
    clusters = [part for part in parts if part.name.partition(" ")[0] == "cluster"]
    own = [part for part in parts if part not in clusters]
    if not clusters:
        return own
    ok = all(part.ok for part in clusters)
    return [*own, ReadinessCheck("cluster", ok=ok, detail="Every cluster answers." if ok else _CLUSTERS_NOT_READY)]


async def _send(send: Send, status: HTTPStatus, body: bytes, content_type: str, *headers: tuple[bytes, bytes]) -> None:
    own = [
        (b"content-type", content_type.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": int(status), "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": body})
