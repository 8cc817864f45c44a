"""JSON rendering of the values that selectors return.

orjson writes dataclasses, enumerations and timestamps directly, so a tree of a thousand pods is never copied into
dictionaries first. An object that can be edited has an ETag, and a conditional request gets 304 while it is unchanged.
"""

from collections.abc import Mapping
from hashlib import blake2b
from http import HTTPStatus
from typing import Any, Final

import orjson
from django.http import HttpResponse
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

CONTENT_TYPE: Final = "application/json"
# The client may store the answer but must revalidate it; proxies must not store it.
CACHE_HEADERS: Final = {"Cache-Control": "private, no-cache"}
NO_STORE_HEADERS: Final = {"Cache-Control": "no-store"}

_OPTIONS: Final = orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z | orjson.OPT_NAIVE_UTC


class OrjsonRenderer(BaseRenderer):
    """Renders the data of views."""

    media_type = CONTENT_TYPE
    format = "json"
    charset = None  # JSON has none of its own

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        """Return the answer as bytes; empty for None."""
        return b"" if data is None else render_json(data)


def render_json(value: Any) -> bytes:
    """Return a value as JSON."""
    return orjson.dumps(value, default=str, option=_OPTIONS)


def json_response(
    value: Any,
    *,
    status: HTTPStatus = HTTPStatus.OK,
    headers: Mapping[str, str] | None = None,
    cache: Mapping[str, str] = NO_STORE_HEADERS,
) -> HttpResponse:
    """Answer with a value; an answer to a command is not stored, unless `cache` says otherwise."""
    all_headers = {**cache, **(headers or {})}
    return HttpResponse(render_json(value), status=status, content_type=CONTENT_TYPE, headers=all_headers)


def cacheable_response(value: Any) -> HttpResponse:
    """Return an answer that the client may store and must revalidate."""
    return json_response(value, cache=CACHE_HEADERS)


def versioned_response(request: Request, value: Any, version: str) -> HttpResponse:
    """Return an answer with an ETag, or 304 if the client has the same."""
    body = render_json(value)
    etag = f'"{version}.{blake2b(body, digest_size=6).hexdigest()}"'
    headers = {**CACHE_HEADERS, "ETag": etag}
    if _etag_matches(request.headers.get("If-None-Match", ""), etag):
        return HttpResponse(status=304, headers=headers)
    return HttpResponse(body, content_type=CONTENT_TYPE, headers=headers)


def _etag_matches(header: str, etag: str) -> bool:
    tags = [tag.strip().removeprefix("W/") for tag in header.split(",")]
    return etag in tags or "*" in tags
