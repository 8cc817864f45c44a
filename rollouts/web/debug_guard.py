"""Refuses clients on other machines while DEBUG is on.

A debug page shows source code and variables. The environment refuses DEBUG with a HOST that is not this machine, but a
server that somebody starts in another way listens wherever its own options say. So the address of each connection
decides. A proxy on this machine forwards requests of other machines; a request that names them counts as theirs.

The first middleware, so that no other one can fail before it with a debug page.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from rollouts.web.request_id import parse_address

GetResponse = Callable[[HttpRequest], HttpResponse]

_FORWARDING_HEADERS: Final = ("X-Forwarded-For", "Forwarded")
_SENTENCE: Final = "DEBUG is 1, so Grove UI answers only clients on this machine. Set DEBUG to 0 to answer others.\n"


def debug_middleware(get_response: GetResponse) -> GetResponse:
    """Pass on requests, with DEBUG only those of clients on this machine."""

    def middleware(request: HttpRequest) -> HttpResponse:
        if settings.DEBUG and not _is_local(request):
            return HttpResponse(_SENTENCE, status=HTTPStatus.FORBIDDEN, content_type="text/plain; charset=utf-8")
        return get_response(request)

    return middleware


def _is_local(request: HttpRequest) -> bool:
    peer = parse_address(request.META.get("REMOTE_ADDR", ""))
    is_forwarded = any(name in request.headers for name in _FORWARDING_HEADERS)
    return peer is not None and peer.is_loopback and not is_forwarded
