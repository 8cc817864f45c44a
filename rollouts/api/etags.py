"""What a command depends on: the state that its sender saw, told by the headers of HTTP.

`If-Match` holds the ETag of an answer that the sender has seen; services compare it with what is there
(`rollouts.manifests.workload_version`). `If-None-Match: *` asks for something that is not there yet.
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
    """Return what the sender saw, as If-Match tells it; None when they do not say."""
    header: str | None = request.headers.get("If-Match")
    if header is not None and len(header) > _MAX_CHARACTERS:
        raise BadParameter(
            RequestFinding("If-Match", "TooLong", f"If-Match may have at most {_MAX_CHARACTERS} characters.")
        )
    return header


def read_must_be_new(request: Request) -> bool:
    """Return whether the sender wants nothing to be there yet."""
    header = request.headers.get("If-None-Match")
    if header is None:
        return False
    if header.strip() != "*":
        raise BadParameter(
            RequestFinding("If-None-Match", "UnknownValue", "If-None-Match can only be * here: it must be new.")
        )
    return True
