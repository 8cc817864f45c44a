"""The OpenAPI description of the API: helpers for the views, and what is common to all operations.

Views declare their parameters and answers, and drf-spectacular collects them. `complete_schema` adds the possible
errors to every operation, so that none is forgotten, and example names that exist in the sandbox.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

from django.urls import path
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.renderers import (
    OpenApiJsonRenderer,
    OpenApiJsonRenderer2,
    OpenApiYamlRenderer,
    OpenApiYamlRenderer2,
)
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.renderers import TemplateHTMLRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from rollouts.api.permissions import IsSignedIn
from rollouts.api.problems import CONTENT_TYPE
from rollouts.selectors.paging import MAX_PAGE_SIZE, PAGE_SIZE

# ---- helpers for views


def query_parameter(
    name: str,
    words: str,
    *,
    many: bool = False,
    among: Iterable[str] | None = None,
    number: int | None = None,
    pattern: str = "^[^\\u0000]*$",
) -> OpenApiParameter:
    """Describe a query parameter: a string, one of a few words, or a number from 1 to a maximum."""
    if number is not None:
        kind: Any = {"type": "integer", "minimum": 1, "maximum": number}
    elif among is not None:
        kind = {"type": "string", "enum": [str(one) for one in among]}
    else:
        kind = {"type": "string", "maxLength": 500, "pattern": pattern}
    if many:
        kind = {"type": "array", "items": kind, "maxItems": 50}
    return OpenApiParameter(name, kind, OpenApiParameter.QUERY, description=words, explode=True if many else None)


PAGING: Final = [
    query_parameter("page", "The page, from 1. A page after the last one is empty.", number=1_000_000),
    query_parameter("page_size", f"Items of a page. Default: {PAGE_SIZE}.", number=MAX_PAGE_SIZE),
]
CONDITIONAL: Final = [
    OpenApiParameter(
        "If-None-Match",
        OpenApiTypes.STR,
        OpenApiParameter.HEADER,
        description="The ETag of an earlier answer. If nothing has changed since, the answer is 304 without a body.",
    )
]
NOT_MODIFIED: Final = {304: OpenApiResponse(description="Nothing has changed.")}


class _TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """The scheme of API tokens."""

    target_class = "rollouts.api.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        """Return the security scheme."""
        return {"type": "http", "scheme": "bearer", "description": "An API token, created at /api/v1/tokens/."}


class _SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """The scheme of browser sessions."""

    target_class = "rollouts.api.authentication.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        """Return the security scheme."""
        words = "The session of a signed-in browser; requests that change something also send X-CSRFToken."
        return {"type": "apiKey", "in": "cookie", "name": "sessionid", "description": words}


# ---- common to all operations

_FINDING: Final = {
    "type": "object",
    "description": "One invalid part of a request.",
    "required": ["field", "code", "message"],
    "properties": {
        "field": {"type": "string", "description": "A parameter, or the path of a field. Empty: the whole request."},
        "code": {"type": "string", "description": "A stable code of the rule."},
        "message": {"type": "string"},
    },
}
_PROBLEM: Final = {
    "type": "object",
    "description": "Why a request failed (RFC 9457).",
    "required": ["type", "title", "status", "detail", "instance", "request_id", "findings"],
    "properties": {
        "type": {"type": "string", "description": "The kind of problem, stable: urn:grove-ui:problem:…"},
        "title": {"type": "string", "description": "The same for all problems of a kind."},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What happened in this case, as a sentence."},
        "instance": {"type": "string", "description": "The requested path."},
        "request_id": {"type": "string", "description": "Identifies the request in the log and the audit."},
        "findings": {"type": "array", "items": {"$ref": "#/components/schemas/ProblemFinding"}},
        "changed": {
            "type": "array",
            "items": {"type": "string"},
            "description": "For a version conflict: the fields that changed since.",
        },
    },
    "example": {
        "type": "urn:grove-ui:problem:not-found",
        "title": "Not found",
        "status": 404,
        "detail": "There is no workload chat in the namespace default of sandbox.",
        "instance": "/api/v1/workloads/sandbox/default/chat/",
        "request_id": "5b1c0c8e0d8a4f0f9d5b6a3d1f2e4c6a",
        "findings": [],
    },
}
_READ_PROBLEMS: Final = {
    "400": "The request is unreadable, or a parameter is invalid.",
    "401": "The request has no token or session, or an invalid one.",
    "403": "Permission denied; the detail says which permission or grant is missing.",
    "406": "The requested format is not available.",
    "429": "Too many requests; Retry-After says how long to wait.",
}
_PATH_PROBLEMS: Final = {"404": "The object does not exist."}
_WRITE_PROBLEMS: Final = {
    "409": "The command conflicts with the current state, or with a concurrent change.",
    "412": "The object has changed since the version in If-Match.",
    "413": "The body is too large.",
    "415": "The media type of the body is not supported.",
    "422": "Validation failed; the findings name the fields.",
    "503": "The cluster does not answer; the detail says whether the command may have been executed.",
}
# Names that exist in the sandbox of `make run`, so that a first try on the docs page succeeds.
_EXAMPLES: Final[dict[str, Any]] = {
    "cluster": "sandbox",
    "namespace": "default",
    "name": "chat-single",
    "revision": 1,
    "rollout": 1,
}


def complete_schema(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add the possible problems to every operation, and examples to path parameters."""
    schemas = result.setdefault("components", {}).setdefault("schemas", {})
    schemas |= {"Problem": _PROBLEM, "ProblemFinding": _FINDING}
    for method, operation in _operations(result):
        problems = {
            **_READ_PROBLEMS,
            **(_WRITE_PROBLEMS if method != "get" else {}),
            **(_PATH_PROBLEMS if _has_path_parameters(operation) else {}),
        }
        for status, words in problems.items():
            operation["responses"].setdefault(status, _problem_response(words))
        operation["responses"] = dict(sorted(operation["responses"].items()))
        for one in operation.get("parameters", ()):
            if one["in"] == "path" and one["name"] in _EXAMPLES:
                one.setdefault("example", _EXAMPLES[one["name"]])
    return result


def _operations(result: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for item in result["paths"].values():
        for method, operation in item.items():
            if isinstance(operation, dict) and "responses" in operation:
                yield method, operation


def _has_path_parameters(operation: dict[str, Any]) -> bool:
    return any(one["in"] == "path" for one in operation.get("parameters", ()))


def _problem_response(words: str) -> dict[str, Any]:
    return {"description": words, "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}


# ---- views


@cache
def make_schema() -> dict[str, Any]:
    """Return the description of the whole API; made once, since it is the same for every account."""
    schema: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return schema


class SchemaView(APIView):
    """The OpenAPI description."""

    permission_classes = (IsSignedIn,)
    renderer_classes = (OpenApiJsonRenderer, OpenApiJsonRenderer2, OpenApiYamlRenderer, OpenApiYamlRenderer2)

    @extend_schema(exclude=True)
    def get(self, request: Request) -> Response:
        """Return the description as JSON or YAML."""
        return Response(make_schema())


class DocsView(APIView):
    """The page to read and try the API."""

    permission_classes = (IsSignedIn,)
    renderer_classes = (TemplateHTMLRenderer,)

    @extend_schema(exclude=True)
    def get(self, request: Request) -> Response:
        """Return the page; its script fetches the description."""
        return Response(template_name="api/docs.html")


urlpatterns = [
    path("schema/", SchemaView.as_view(), name="api-schema"),
    path("docs/", DocsView.as_view(), name="api-docs"),
]
