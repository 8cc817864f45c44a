"""The id and the source address of each request, set once by a middleware.

`request_id` is in the response, in the audit and in error logs, which links the three. A proxy of TRUSTED_PROXIES may
set it; from other clients it could be the id of another request. `source_ip` is the address that rate limits and the
audit use: that of the connection, unless it belongs to a proxy of TRUSTED_PROXIES. Then X-Forwarded-For names the hop
before it, and so on back.

A response without Cache-Control gets no-store, so that the back button shows nothing after signing out.
"""

import re
import uuid
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from grove_ui.environment import Network

GetResponse = Callable[[HttpRequest], HttpResponse]

REQUEST_ID_HEADER: Final = "X-Request-Id"
_NO_STORE: Final = "private, no-store"
# Long enough to be unique, and only characters that are harmless in a log.
_REQUEST_ID_PATTERN: Final = re.compile(r"[A-Za-z0-9_.-]{8,64}")


def request_middleware(get_response: GetResponse) -> GetResponse:
    """Set the id and the source address of a request, and the headers of its response."""

    def middleware(request: HttpRequest) -> HttpResponse:
        peer, trusted = request.META.get("REMOTE_ADDR", ""), settings.ENVIRONMENT.trusted_proxies
        given = request.headers.get(REQUEST_ID_HEADER, "") if _is_trusted(peer, trusted) else ""
        request.request_id = choose_request_id(given)  # type: ignore[attr-defined]
        request.source_ip = find_source_ip(peer, request.headers.get("X-Forwarded-For", ""), trusted)  # type: ignore[attr-defined]
        response = get_response(request)
        response[REQUEST_ID_HEADER] = request.request_id  # type: ignore[attr-defined]
        response.headers.setdefault("Cache-Control", _NO_STORE)
        return response

    return middleware


def choose_request_id(given: str) -> str:
    """Return the id from a trusted proxy if it is well-formed, else a new one."""
    return given if _REQUEST_ID_PATTERN.fullmatch(given) else uuid.uuid4().hex


def find_source_ip(peer: str, forwarded: str, trusted: Sequence[Network]) -> str | None:
    """Return the address of the last hop before the trusted proxies; None without an IP connection."""
    source = parse_address(peer)
    for hop in reversed(forwarded.split(",")):
        if source is None or not any(source in network for network in trusted):
            break
        claimed = parse_address(hop.strip())
        if claimed is None:
            break
        source = claimed
    return str(source) if source else None


def _is_trusted(peer: str, trusted: Sequence[Network]) -> bool:
    address = parse_address(peer)
    return address is not None and any(address in network for network in trusted)


def parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """Return an address, of IPv4 also if it is written as one of IPv6; None: it is none."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
