"""Every error of the API, as problem+json (RFC 9457) with the same sentences as the pages.

Views raise `rollouts.accounts.errors` (from services), exceptions of the REST framework (no login, an unreadable body,
...) and `BadParameter` for query parameters; `exception_handler` renders them. `problem_middleware` renders errors
outside of views (an unknown path, a wrong host). The invariant: below /api/ there is no other kind of error answer, and
none says more than its sentence; an unexpected exception goes to the log with the request id.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from math import ceil
from typing import Any, Final

import orjson
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import BadRequest, PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse, UnreadablePostError
from django.views.decorators.csrf import csrf_exempt
from rest_framework import exceptions

from rollouts.accounts import errors
from rollouts.engine.manifest.findings import Finding, FindingCode

logger = logging.getLogger(__name__)

CONTENT_TYPE: Final = "application/problem+json"
_SECONDS_UNTIL_A_CLUSTER_IS_BACK: Final = 5


@dataclass(frozen=True, slots=True)
class RequestFinding:
    """One invalid part of a request, with the attributes of the engine's findings."""

    field: str  # a parameter, or the path of a field in the body; empty: the whole body
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Problem:
    """The content of an error answer."""

    kind: str  # the last word of the type: urn:grove-ui:problem:<kind>
    status: int
    title: str  # the same for all problems of a kind
    detail: str  # what happened in this case, as a sentence
    findings: Sequence[Finding | RequestFinding] = ()
    changed: Sequence[str] | None = None  # paths of fields that changed, for a version conflict
    headers: Mapping[str, str] = field(default_factory=dict)


class BadParameter(Exception):  # noqa: N818 (it reads as what happened)
    """Invalid query parameters or headers: 400, with a finding for each."""

    def __init__(self, *flaws: RequestFinding) -> None:
        super().__init__(" ".join(flaw.message for flaw in flaws))
        self.findings = flaws


def exception_handler(error: Exception, context: Mapping[str, Any]) -> HttpResponse:
    """Render an exception of a view; the REST framework calls this."""
    request = context["request"]
    problem = _find_problem(error, request)
    if problem is None:
        logger.error("Request %s failed", getattr(request, "request_id", ""), exc_info=error)
        problem = _UNEXPECTED
    return problem_response(request, problem)


def problem_response(request: HttpRequest, problem: Problem) -> HttpResponse:
    """Render a problem as the answer to a request."""
    return HttpResponse(
        render_problem(problem, request.path, getattr(request, "request_id", "")),
        content_type=CONTENT_TYPE,
        status=problem.status,
        headers={"Cache-Control": "no-store", **problem.headers},
    )


def render_problem(problem: Problem, path: str, request_id: str) -> bytes:
    """Render a problem as JSON."""
    body: dict[str, Any] = {
        "type": f"urn:grove-ui:problem:{problem.kind}",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "instance": path,
        "request_id": request_id,
        "findings": [{"field": one.field, "code": one.code, "message": one.message} for one in problem.findings],
    }
    if problem.changed is not None:
        body["changed"] = list(problem.changed)
    return orjson.dumps(body)


# --- What services refuse ---------------------------------------------------------------------------------------------


def _find_problem(error: Exception, request: HttpRequest) -> Problem | None:
    if isinstance(error, errors.CommandRefused):
        return _command_problem(error, request)
    if isinstance(error, BadParameter):
        return Problem(
            "bad-parameter", HTTPStatus.BAD_REQUEST, "Invalid parameter", str(error), findings=error.findings
        )
    if isinstance(error, exceptions.APIException):
        return _drf_problem(error)
    status = next((status for kind, status in _STATUS_OF if isinstance(error, kind)), None)
    return _problem_of_status(status) if status else None


def _command_problem(error: errors.CommandRefused, request: HttpRequest) -> Problem:
    match error:
        case errors.PermissionDenied():
            return _make_problem(error, "not-allowed", HTTPStatus.FORBIDDEN, "Permission denied")
        case errors.NotFound():
            return _make_problem(error, "not-found", HTTPStatus.NOT_FOUND, "Not found")
        case errors.ValidationFailed():
            return _make_problem(error, "invalid", HTTPStatus.UNPROCESSABLE_ENTITY, "Validation failed")
        case errors.VersionConflict():
            has_asked = "If-Match" in request.headers or "If-None-Match" in request.headers
            status = HTTPStatus.PRECONDITION_FAILED if has_asked else HTTPStatus.CONFLICT
            return _make_problem(error, "race-lost", status, "Version conflict", changed=error.changed)
        case errors.ClusterUnavailable():
            seconds = ceil(error.retry_after or _SECONDS_UNTIL_A_CLUSTER_IS_BACK)
            headers = {"Retry-After": str(seconds)}
            return _make_problem(
                error, "cluster-away", HTTPStatus.SERVICE_UNAVAILABLE, "The cluster does not answer", headers=headers
            )
        case _:
            return _make_problem(error, "conflict", HTTPStatus.CONFLICT, "Conflict with the current state")


def _make_problem(error: errors.CommandRefused, kind: str, status: int, title: str, **more: Any) -> Problem:
    return Problem(kind, status, title, error.sentence, findings=error.findings, **more)


# --- What the REST framework refuses ----------------------------------------------------------------------------------

_UNEXPECTED: Final = Problem(
    "unexpected",
    HTTPStatus.INTERNAL_SERVER_ERROR,
    "Internal error",
    "Grove UI failed unexpectedly. The log of the web process has the error under the request id.",
)
# Kind and title by status, for errors without a sentence of their own.
_BY_STATUS: Final[Mapping[int, tuple[str, str]]] = {
    400: ("bad-request", "The request is unreadable"),
    401: ("not-signed-in", "Not signed in"),
    403: ("not-allowed", "Permission denied"),
    404: ("not-found", "Not found"),
    405: ("method-not-allowed", "Method not allowed"),
    406: ("not-acceptable", "Format not available"),
    413: ("too-large", "The request is too large"),
    415: ("unsupported-media-type", "Unsupported media type"),
    429: ("throttled", "Too many requests"),
}
# Exceptions of Django. Their messages go to the log only: some quote the request.
_STATUS_OF: Final[Sequence[tuple[type[Exception], int]]] = (
    (Http404, 404),
    (PermissionDenied, 403),
    (RequestDataTooBig, 413),
    (SuspiciousOperation, 400),
    (BadRequest, 400),
    (UnreadablePostError, 400),
)
_CODES: Final[Mapping[str, FindingCode]] = {
    "required": FindingCode.FIELD_MISSING,
    "null": FindingCode.FIELD_MISSING,
    "blank": FindingCode.FIELD_MISSING,
    "empty": FindingCode.TOO_FEW,
    "invalid": FindingCode.WRONG_TYPE,
    "not_a_list": FindingCode.WRONG_TYPE,
    "not_a_dict": FindingCode.WRONG_TYPE,
    "invalid_choice": FindingCode.UNKNOWN_VALUE,
    "does_not_exist": FindingCode.UNKNOWN_VALUE,
    "max_length": FindingCode.TOO_LONG,
    "max_string_length": FindingCode.TOO_LONG,
    "min_length": FindingCode.TOO_FEW,
    "max_value": FindingCode.OUT_OF_RANGE,
    "min_value": FindingCode.OUT_OF_RANGE,
}


def _drf_problem(error: exceptions.APIException) -> Problem:
    if isinstance(error, exceptions.ValidationError):
        flaws = tuple(_flatten_errors(error.detail, ""))
        detail = " ".join(flaw.message for flaw in flaws[:3])
        return Problem("invalid", HTTPStatus.UNPROCESSABLE_ENTITY, "Validation failed", detail, findings=flaws)
    status = error.status_code
    detail = str(error.detail)
    if isinstance(error, exceptions.Throttled):
        detail = f"You sent too many requests; try again in {_seconds_to_wait(error)} s."
    kind, title = _BY_STATUS.get(status, ("refused", "Refused"))
    return Problem(kind, status, title, detail, headers=_headers_of(error))


def _headers_of(error: exceptions.APIException) -> dict[str, str]:
    headers = {}
    if challenge := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = challenge
    if isinstance(error, exceptions.Throttled):
        headers["Retry-After"] = str(_seconds_to_wait(error))
    return headers


def _seconds_to_wait(error: exceptions.Throttled) -> int:
    seconds: float | None = getattr(error, "wait", None)
    return max(1, ceil(seconds or 0))


def _flatten_errors(detail: Any, path: str) -> Iterator[RequestFinding]:
    """Flatten the errors of serializers: {"pods": {1: {"name": ["…"]}}} is about pods[1].name."""
    if isinstance(detail, Mapping):
        for name, part in detail.items():
            yield from _flatten_errors(part, _join_path(path, name))
    elif isinstance(detail, (list, tuple)):
        for index, part in enumerate(detail):
            yield from _flatten_errors(
                part, path if isinstance(part, exceptions.ErrorDetail) else _join_path(path, index)
            )
    else:
        code = str(getattr(detail, "code", "invalid"))
        yield RequestFinding(path, _CODES.get(code, _camel(code)), str(detail))


def _join_path(path: str, name: str | int) -> str:
    if isinstance(name, int):
        return f"{path}[{name}]"
    return path if name == "non_field_errors" else f"{path}.{name}".removeprefix(".")


def _camel(code: str) -> str:
    return "".join(word.capitalize() for word in re.split(r"[_\W]+", code))


# --- What fails outside of views --------------------------------------------------------------------------------------


@csrf_exempt
@login_not_required
def unknown_path(request: HttpRequest) -> HttpResponse:
    """Answer for every unknown path below /api/."""
    detail = "This path does not exist."
    if not request.path.endswith("/"):
        detail += " Paths of this API end in a slash."
    return problem_response(request, Problem("not-found", HTTPStatus.NOT_FOUND, "Not found", detail))


def problem_middleware(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Replace Django's error pages by problem+json, below /api/ only."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if response.status_code < HTTPStatus.BAD_REQUEST or not request.path_info.startswith("/api/"):
            return response
        return response if response["Content-Type"] == CONTENT_TYPE else _as_problem_response(request, response)

    return middleware


def _as_problem_response(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    status = response.status_code
    problem = _UNEXPECTED if status >= HTTPStatus.INTERNAL_SERVER_ERROR else _problem_of_status(status)
    reworded = problem_response(request, problem)
    for name, value in response.headers.items():
        if not name.lower().startswith("content-") or name.lower() == "content-security-policy":
            reworded.headers.setdefault(name, value)
    return reworded


def _problem_of_status(status: int) -> Problem:
    """Return the problem for a status without a sentence of its own."""
    kind, title = _BY_STATUS.get(status, ("refused", "Refused"))
    return Problem(kind, status, title, f"{title}.")
