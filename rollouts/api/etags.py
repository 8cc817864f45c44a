"""Preconditions of commands: `If-Match` and `If-None-Match`.

`If-Match` contains the ETag of an answer that the caller read; services compare it with the current version
(`rollouts.manifests.workload_version`). `If-None-Match: *` demands that the object does not exist yet.
"""

from typing import Final

from rest_framework.request import Request

from rollouts.api.problems import BadParameter, RequestFinding

_MAX_CHARACTERS: Final = 1000


def render_etag(version: str) -> str:
    """Return the ETag of a version.

    >>> render_etag("5f0c.7")
    '"5f0c.7"'
    """
    return f'"{version}"'


def read_expected(request: Request) -> str | None:
    """Return the value of If-Match; None without the header."""
    header: str | None = request.headers.get("If-Match")
    if header is not None and len(header) > _MAX_CHARACTERS:
        raise BadParameter(
            RequestFinding("If-Match", "TooLong", f"If-Match can have at most {_MAX_CHARACTERS} characters.")
        )
    return header


def read_must_be_new(request: Request) -> bool:
    """Return whether the object must not exist yet."""
    header = request.headers.get("If-None-Match")
    if header is None:
        return False
    if header.strip() != "*":
        raise BadParameter(RequestFinding("If-None-Match", "UnknownValue", "If-None-Match must be * here."))
    return True
