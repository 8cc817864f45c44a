"""What every request is called and where it comes from, said once at the door for all that come after.

`request_id` stands in the answer, in the audit and in the log of an error, so that one leads to the others. A proxy of
TRUSTED_PROXIES may give it; from anybody else it could be the id of another request. `source_ip` is the address that
rates are counted by and the audit shows: that of whoever is connected to us, unless that is a proxy of TRUSTED_PROXIES,
whose word in X-Forwarded-For is then believed about the hop before it, and so on back.

An answer that says nothing about caches is kept by none: after signing out, the way back shows nothing any more.
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
# Long enough to be nobody else's, and nothing that could do harm in a log.
_REQUEST_ID_PATTERN: Final = re.compile(r"[A-Za-z0-9_.-]{8,64}")


def request_middleware(get_response: GetResponse) -> GetResponse:
    """Give each request its id and its source; tell the id in the answer, and who may keep that."""

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
    """Keep the id that a proxy gave if it is well-formed, else make one."""
    return given if _REQUEST_ID_PATTERN.fullmatch(given) else uuid.uuid4().hex


def find_source_ip(peer: str, forwarded: str, trusted: Sequence[Network]) -> str | None:
    """Return the address of the last hop that no trusted proxy stands behind; None: not by the internet protocol."""
    source = _parse_address(peer)
    for hop in reversed(forwarded.split(",")):
        if source is None or not any(source in network for network in trusted):
            break
        claimed = _parse_address(hop.strip())
        if claimed is None:
            break
        source = claimed
    return str(source) if source else None


def _is_trusted(peer: str, trusted: Sequence[Network]) -> bool:
    address = _parse_address(peer)
    return address is not None and any(address in network for network in trusted)


def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
