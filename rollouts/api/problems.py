"""Every error of the API, as problem+json (RFC 9457) with the sentences that are shown everywhere.

Views raise: what services refuse (`rollouts.accounts.errors`), what the REST framework refuses (no login, a body that cannot
be read, ...), and `BadQuery` for parameters of the address. `handle` makes the answer. What fails outside of views (a
path that is not there, a host that is not ours) comes by `problem_middleware`. The invariant: below /api/ there is no
other kind of error answer, and none tells more than its sentence: what we did not expect is logged with the request id.
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
from rollouts.engine.manifest.findings import Code, Finding

logger = logging.getLogger(__name__)

CONTENT_TYPE: Final = "application/problem+json"
_SECONDS_UNTIL_A_CLUSTER_IS_BACK: Final = 5


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing that is wrong with a request, in the shape of the engine's findings."""

    field: str  # a parameter, or the path of a field in the body; empty: the whole body
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Problem:
    """What an error answer says."""

    kind: str  # the last word of the type: urn:grove-ui:problem:<kind>
    status: int
    title: str  # the same for all problems of a kind
    detail: str  # what happened this time, as a sentence
    findings: Sequence[Finding | Flaw] = ()
    changed: Sequence[str] | None = None  # paths of fields, when a race was lost
    headers: Mapping[str, str] = field(default_factory=dict)


class BadQuery(Exception):  # noqa: N818 (it reads as what happened)
    """Parameters of the address that cannot be used: 400, each with a finding."""

    def __init__(self, *flaws: Flaw) -> None:
        super().__init__(" ".join(flaw.message for flaw in flaws))
        self.flaws = flaws


def handle(error: Exception, context: Mapping[str, Any]) -> HttpResponse:
    """Answer what a view raised; the REST framework calls it."""
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
        return _refused(error, request)
    if isinstance(error, BadQuery):
        return Problem(
            "bad-parameter", HTTPStatus.BAD_REQUEST, "A parameter cannot be used", str(error), findings=error.flaws
        )
    if isinstance(error, exceptions.APIException):
        return _framework_problem(error)
    status = next((status for kind, status in _STATUS_OF if isinstance(error, kind)), None)
    return _worded(status) if status else None


def _refused(error: errors.CommandRefused, request: HttpRequest) -> Problem:
    match error:
        case errors.NotAllowed():
            return _of(error, "not-allowed", HTTPStatus.FORBIDDEN, "Not allowed")
        case errors.NotThere():
            return _of(error, "not-found", HTTPStatus.NOT_FOUND, "Not found")
        case errors.Invalid():
            return _of(error, "invalid", HTTPStatus.UNPROCESSABLE_ENTITY, "A rule is broken")
        case errors.RaceLost():
            has_asked = "If-Match" in request.headers or "If-None-Match" in request.headers
            status = HTTPStatus.PRECONDITION_FAILED if has_asked else HTTPStatus.CONFLICT
            return _of(error, "race-lost", status, "Somebody else changed it", changed=error.changed)
        case errors.ClusterAway():
            seconds = ceil(error.retry_after or _SECONDS_UNTIL_A_CLUSTER_IS_BACK)
            headers = {"Retry-After": str(seconds)}
            return _of(
                error, "cluster-away", HTTPStatus.SERVICE_UNAVAILABLE, "The cluster does not answer", headers=headers
            )
        case _:
            return _of(error, "conflict", HTTPStatus.CONFLICT, "It does not fit what is there")


def _of(error: errors.CommandRefused, kind: str, status: int, title: str, **more: Any) -> Problem:
    return Problem(kind, status, title, error.sentence, findings=error.findings, **more)


# --- What the REST framework refuses ----------------------------------------------------------------------------------

_UNEXPECTED: Final = Problem(
    "unexpected",
    HTTPStatus.INTERNAL_SERVER_ERROR,
    "Something broke here",
    "This is a fault of ours. The log has what happened, under the request id.",
)
# Kind and title by status, for whatever has no words of its own.
_BY_STATUS: Final[Mapping[int, tuple[str, str]]] = {
    400: ("bad-request", "The request cannot be read"),
    401: ("not-signed-in", "Not signed in"),
    403: ("not-allowed", "Not allowed"),
    404: ("not-found", "Not found"),
    405: ("method-not-allowed", "This cannot be done here"),
    406: ("not-acceptable", "Not to be had in that form"),
    413: ("too-large", "The request is too large"),
    415: ("unsupported-media-type", "Bodies of that kind are not read here"),
    429: ("throttled", "Too many requests"),
}
# What Django raises. Its words are for the log: some name what was sent.
_STATUS_OF: Final[Sequence[tuple[type[Exception], int]]] = (
    (Http404, 404),
    (PermissionDenied, 403),
    (RequestDataTooBig, 413),
    (SuspiciousOperation, 400),
    (BadRequest, 400),
    (UnreadablePostError, 400),
)
_CODES: Final[Mapping[str, Code]] = {
    "required": Code.FIELD_MISSING,
    "null": Code.FIELD_MISSING,
    "blank": Code.FIELD_MISSING,
    "empty": Code.TOO_FEW,
    "invalid": Code.WRONG_TYPE,
    "not_a_list": Code.WRONG_TYPE,
    "not_a_dict": Code.WRONG_TYPE,
    "invalid_choice": Code.UNKNOWN_VALUE,
    "does_not_exist": Code.UNKNOWN_VALUE,
    "max_length": Code.TOO_LONG,
    "max_string_length": Code.TOO_LONG,
    "min_length": Code.TOO_FEW,
    "max_value": Code.OUT_OF_RANGE,
    "min_value": Code.OUT_OF_RANGE,
}


def _framework_problem(error: exceptions.APIException) -> Problem:
    if isinstance(error, exceptions.ValidationError):
        flaws = tuple(_flaws(error.detail, ""))
        detail = " ".join(flaw.message for flaw in flaws[:3])
        return Problem("invalid", HTTPStatus.UNPROCESSABLE_ENTITY, "A rule is broken", detail, findings=flaws)
    status = error.status_code
    detail = str(error.detail)
    if isinstance(error, exceptions.Throttled):
        detail = f"That was too often; try again in {_seconds_to_wait(error)} s."
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


def _flaws(detail: Any, path: str) -> Iterator[Flaw]:
    """Flatten what serializers found: {"pods": {1: {"name": ["…"]}}} is about pods[1].name."""
    if isinstance(detail, Mapping):
        for name, part in detail.items():
            yield from _flaws(part, _path(path, name))
    elif isinstance(detail, (list, tuple)):
        for index, part in enumerate(detail):
            yield from _flaws(part, path if isinstance(part, exceptions.ErrorDetail) else _path(path, index))
    else:
        code = str(getattr(detail, "code", "invalid"))
        yield Flaw(path, _CODES.get(code, _camel(code)), str(detail))


def _path(path: str, name: str | int) -> str:
    if isinstance(name, int):
        return f"{path}[{name}]"
    return path if name == "non_field_errors" else f"{path}.{name}".removeprefix(".")


def _camel(code: str) -> str:
    return "".join(word.capitalize() for word in re.split(r"[_\W]+", code))


# --- What fails outside of views --------------------------------------------------------------------------------------


@csrf_exempt
@login_not_required
def unknown_path(request: HttpRequest) -> HttpResponse:
    """Answer for every path below /api/ that leads nowhere."""
    detail = "There is nothing at this path."
    if not request.path.endswith("/"):
        detail += " Paths of this API end in a slash."
    return problem_response(request, Problem("not-found", HTTPStatus.NOT_FOUND, "Not found", detail))


def problem_middleware(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Put Django's own error pages into the words of the API, below /api/ only."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if response.status_code < HTTPStatus.BAD_REQUEST or not request.path_info.startswith("/api/"):
            return response
        return response if response["Content-Type"] == CONTENT_TYPE else _reworded(request, response)

    return middleware


def _reworded(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    status = response.status_code
    problem = _UNEXPECTED if status >= HTTPStatus.INTERNAL_SERVER_ERROR else _worded(status)
    reworded = problem_response(request, problem)
    for name, value in response.headers.items():
        if not name.lower().startswith("content-") or name.lower() == "content-security-policy":
            reworded.headers.setdefault(name, value)
    return reworded


def _worded(status: int) -> Problem:
    """Say what a status says, where nobody had a sentence of their own."""
    kind, title = _BY_STATUS.get(status, ("refused", "Refused"))
    return Problem(kind, status, title, f"{title}.")
