"""The errors of the Kubernetes API, as classes of our own.

An API server reports a failure as a Status object; `parse_failure` turns it, or anything else that a server or a proxy
sends instead, into one of these classes. `connection` and `client` raise them; all other packages catch them and never
see an HTTP status or an exception of a library (the original is chained as the cause).

Two distinctions matter most to callers. `NotFound` means that an object is gone, and is raised only if the API says so
about a named object. A path that does not exist (a kind whose CRD is not installed, the error page of a proxy) is
`UnknownResource`, so that a misdirected request never looks like a deleted workload. `Conflict` means that the object
must be fetched again: it has changed (resourceVersion), another object has its name (uid), or another manager owns a
field (the causes say which). The API reports failed preconditions and stale writes alike, so one class stands for both.
"""

# The names are the API's own reasons, so `except NotFound` needs no suffix:
# ruff: noqa: N818

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class StatusCause:
    """One detail of an error: usually a field and what is wrong with it."""

    reason: str  # e.g. FieldValueInvalid, FieldManagerConflict, DisruptionBudget
    field: str  # path of the field; empty if the cause names none
    message: str


class ClusterError(Exception):
    """The cluster did not do what was requested. The message may be shown to users; it never holds a credential."""

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,  # the HTTP status; 0 if there was no answer
        reason: str = "",  # the API's CamelCase reason
        causes: tuple[StatusCause, ...] = (),
        retry_after: float | None = None,  # seconds that the server asks to wait
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.causes = causes
        self.retry_after = retry_after


class Misconfigured(ClusterError):
    """The configuration of a cluster is missing or wrong."""


class BadRequest(ClusterError):
    """The server could not understand the request (400)."""


class Unauthorized(ClusterError):
    """The server does not accept our credentials (401)."""


class Forbidden(ClusterError):
    """Our account has no permission for this (403)."""


class NotFound(ClusterError):
    """The named object does not exist (404)."""


class UnknownResource(ClusterError):
    """The server does not serve this kind of object (404 that names no object)."""


class Unsupported(ClusterError):
    """The server does not support this operation for this kind of object (405, 406, 415)."""


class Conflict(ClusterError):
    """The object is not as the request assumed (409): fetch it again."""


class AlreadyExists(Conflict):
    """An object of this name exists already (409)."""


class Expired(ClusterError):
    """The server does not have that resourceVersion or continue token: list again.

    It no longer has it (410), or does not have it yet (504): it was restored to an earlier state.
    """


class TooLarge(ClusterError):
    """The request body is more than the server accepts (413)."""


class Invalid(ClusterError):
    """The object violates its schema or an admission rule (422); the causes name the fields."""


class Throttled(ClusterError):
    """The server throttles requests (429), or a disruption budget does not allow an eviction."""


class Unavailable(ClusterError):
    """No usable answer: no connection, too slow, broken off, 5xx or not JSON. A write may or may not have happened."""


_CLASSES_BY_CODE: Mapping[int, type[ClusterError]] = {
    HTTPStatus.BAD_REQUEST: BadRequest,
    HTTPStatus.UNAUTHORIZED: Unauthorized,
    HTTPStatus.FORBIDDEN: Forbidden,
    HTTPStatus.METHOD_NOT_ALLOWED: Unsupported,
    HTTPStatus.NOT_ACCEPTABLE: Unsupported,
    HTTPStatus.REQUEST_TIMEOUT: Unavailable,
    HTTPStatus.GONE: Expired,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: TooLarge,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: Unsupported,
    HTTPStatus.UNPROCESSABLE_ENTITY: Invalid,
    HTTPStatus.TOO_MANY_REQUESTS: Throttled,
}


def parse_failure(call: str, code: int, body: bytes, retry_after: str | None = None) -> ClusterError:
    """Return the error that an unsuccessful answer reports; `call` names the request."""
    return from_status(call, _parse_status(body), code=code, retry_after=retry_after)


def from_status(call: str, status: Mapping[str, Any], *, code: int = 0, retry_after: str | None = None) -> ClusterError:
    """Return the error that a Status object reports; an empty one stands for an answer without a Status."""
    code = code or _as_int(status.get("code")) or HTTPStatus.INTERNAL_SERVER_ERROR
    reason = str(status.get("reason") or "")
    details = _as_mapping(status.get("details"))
    message = str(status.get("message") or "the server gave no reason")
    causes = _parse_causes(details)
    return _choose_class(code, reason, details, causes)(
        f"{call}: {message} ({code}{' ' if reason else ''}{reason})",
        code=code,
        reason=reason,
        causes=causes,
        retry_after=_parse_retry_after(details, retry_after),
    )


def _choose_class(
    code: int, reason: str, details: Mapping[str, Any], causes: tuple[StatusCause, ...]
) -> type[ClusterError]:
    if code == HTTPStatus.NOT_FOUND:
        return NotFound if details.get("name") else UnknownResource
    if code == HTTPStatus.CONFLICT:
        return AlreadyExists if reason == "AlreadyExists" else Conflict
    if code == HTTPStatus.UNPROCESSABLE_ENTITY and any(cause.field == "metadata.uid" for cause in causes):
        # The API answers like this if a patch with a uid meets another object of that name.
        return Conflict
    if code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Expired if any(cause.reason == "ResourceVersionTooLarge" for cause in causes) else Unavailable
    return _CLASSES_BY_CODE.get(code, ClusterError)


def _parse_status(body: bytes) -> Mapping[str, Any]:
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return status if isinstance(status, dict) and status.get("kind") == "Status" else {}


def _parse_causes(details: Mapping[str, Any]) -> tuple[StatusCause, ...]:
    causes = details.get("causes")
    return tuple(
        StatusCause(str(cause.get("reason") or ""), str(cause.get("field") or ""), str(cause.get("message") or ""))
        for cause in (causes if isinstance(causes, list) else [])
        if isinstance(cause, dict)
    )


def _parse_retry_after(details: Mapping[str, Any], header: str | None) -> float | None:
    # The header may also be a date; API servers send seconds, and without a number our own back-off applies.
    for value in (header, details.get("retryAfterSeconds")):
        seconds = _as_int(value)
        if seconds is not None and seconds >= 0:
            return float(seconds)
    return None


def _as_int(value: object) -> int | None:
    try:
        return int(value) if isinstance(value, int | str) else None
    except ValueError:
        return None


def _as_mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
