"""What can go wrong at the door, as our own classes.

An API server reports a failure as a Status object; `parse_failure` turns it, or whatever else a server or a
proxy sent in its place, into one of these classes. `connection` and `client` raise them; everybody else
catches them and never sees an HTTP code or an exception of a library (the original is chained as the cause).

Two distinctions matter most to callers. `NotFound` means that an object is gone, and is raised only when the
API says so about a named object; a path that leads nowhere (a kind whose CRD is not installed, a proxy's
error page) is `UnknownResource`, so that a misdirected request can never look like a deleted workload.
`Conflict` means look again: the object has moved on (resourceVersion), is another one (uid), or a field
belongs to another manager (the causes say which). The API words failed preconditions and stale writes alike,
so there is one class for both.
"""

# The names are the API's own reasons, and `except NotFound` says enough:
# ruff: noqa: N818

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class StatusCause:
    """One detail of a refusal: usually a field and what is wrong with it."""

    reason: str  # e.g. FieldValueInvalid, FieldManagerConflict, DisruptionBudget
    field: str  # path of the field; empty when the cause is not about one
    message: str


class ClusterError(Exception):
    """The cluster did not do what was asked. The text is fit to be shown; it never holds a credential."""

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,  # the HTTP status; 0 when there was no answer
        reason: str = "",  # the API's CamelCase reason
        causes: tuple[StatusCause, ...] = (),
        retry_after: float | None = None,  # seconds the server asked us to wait
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.causes = causes
        self.retry_after = retry_after


class Misconfigured(ClusterError):
    """The configuration does not say, or does not say correctly, how to reach a cluster."""


class BadRequest(ClusterError):
    """The server could not understand the request (400)."""


class Unauthorized(ClusterError):
    """The server does not know who we are (401)."""


class Forbidden(ClusterError):
    """We may not do that (403)."""


class NotFound(ClusterError):
    """The named object does not exist (404)."""


class UnknownResource(ClusterError):
    """The server does not serve this kind of object (404 that names no object)."""


class Unsupported(ClusterError):
    """The server does not do this to this kind of object (405, 406, 415)."""


class Conflict(ClusterError):
    """The object is not as the request assumed (409): look again."""


class AlreadyExists(Conflict):
    """An object of this name is there already (409)."""


class Expired(ClusterError):
    """The server does not know that resourceVersion or continue token: list again.

    It no longer remembers it (410), or has not come so far (504): it was set back to an earlier state.
    """


class TooLarge(ClusterError):
    """The request body is more than the server accepts (413)."""


class Invalid(ClusterError):
    """The object breaks a rule of its schema or of admission (422); the causes name the fields."""


class Throttled(ClusterError):
    """The server asks us to come back later (429), also when a disruption budget refuses an eviction."""


class Unavailable(ClusterError):
    """No usable answer: away, slow, cut off, failing (5xx) or not JSON. A write may or may not have happened."""


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
    """Turn an answer that is not a success into the error it reports; `call` says what was asked."""
    return from_status(call, _parse_status(body), code=code, retry_after=retry_after)


def from_status(call: str, status: Mapping[str, Any], *, code: int = 0, retry_after: str | None = None) -> ClusterError:
    """Turn a Status object into the error it reports. An empty one stands for an answer that held none."""
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
        # How the API says that a patch with a uid met another object of that name.
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
    # The header may also be a date; API servers send seconds, and without a number our own back-off decides.
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
