"""The description of the API as OpenAPI: what views say of themselves, and what holds for all of them.

Views bring their parameters and answers; drf-spectacular collects them; `complete_schema` adds to every operation the
errors that it can answer with, so that none is forgotten, and examples of names that exist in the sandbox.
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

# ---- what views describe themselves with


def query_parameter(
    name: str,
    words: str,
    *,
    many: bool = False,
    among: Iterable[str] | None = None,
    number: int | None = None,
    pattern: str = "^[^\\u0000]*$",
) -> OpenApiParameter:
    """Describe a parameter of the address: a text, one of a few words, or a number from 1 up to one."""
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
    query_parameter("page", "Which page; the first is 1. One after the last is empty.", number=1_000_000),
    query_parameter("page_size", f"How many on a page; {PAGE_SIZE} when left out.", number=MAX_PAGE_SIZE),
]
CONDITIONAL: Final = [
    OpenApiParameter(
        "If-None-Match",
        OpenApiTypes.STR,
        OpenApiParameter.HEADER,
        description="The ETag of an earlier answer: if nothing has changed, this one is 304 and empty.",
    )
]
NOT_MODIFIED: Final = {304: OpenApiResponse(description="Nothing has changed.")}


class _TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How tokens are sent."""

    target_class = "rollouts.api.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        """Describe it."""
        return {"type": "http", "scheme": "bearer", "description": "A token of yours, made at /api/v1/tokens/."}


class _SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How browsers are known."""

    target_class = "rollouts.api.authentication.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        """Describe it."""
        words = "The session of a browser that is signed in; what changes something also sends X-CSRFToken."
        return {"type": "apiKey", "in": "cookie", "name": "sessionid", "description": words}


# ---- what holds for all of them

_FINDING: Final = {
    "type": "object",
    "description": "One thing that is wrong with a request.",
    "required": ["field", "code", "message"],
    "properties": {
        "field": {"type": "string", "description": "A parameter, or the path of a field; empty: the whole."},
        "code": {"type": "string", "description": "Which rule, in one word that stays."},
        "message": {"type": "string"},
    },
}
_PROBLEM: Final = {
    "type": "object",
    "description": "Why a request was not answered as it was meant (RFC 9457).",
    "required": ["type", "title", "status", "detail", "instance", "request_id", "findings"],
    "properties": {
        "type": {"type": "string", "description": "What kind of problem: urn:grove-ui:problem:…; it stays."},
        "title": {"type": "string", "description": "The same for all problems of a kind."},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What happened this time, as a sentence."},
        "instance": {"type": "string", "description": "The path that was asked for."},
        "request_id": {"type": "string", "description": "By which logs and audit know it."},
        "findings": {"type": "array", "items": {"$ref": "#/components/schemas/ProblemFinding"}},
        "changed": {
            "type": "array",
            "items": {"type": "string"},
            "description": "When a race was lost: the fields that somebody else has changed.",
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
    "400": "The request cannot be read, or a parameter cannot be used.",
    "401": "Nobody is signed in, or the token is of no use.",
    "403": "You may not do that; the sentence says what is missing.",
    "406": "Not to be had in that form.",
    "429": "Too many requests; Retry-After says when to come again.",
}
_PATH_PROBLEMS: Final = {"404": "There is no such thing."}
_WRITE_PROBLEMS: Final = {
    "409": "It does not fit what is there, or somebody was quicker.",
    "412": "It is no longer what If-Match says.",
    "413": "The body is too large.",
    "415": "Bodies of that kind are not read here.",
    "422": "A rule is broken; the findings name the fields.",
    "503": "The cluster does not answer; the sentence says whether the command may have been carried out.",
}
# Names that exist in the sandbox of `make run`, so that whoever tries the page meets something.
_EXAMPLES: Final[dict[str, Any]] = {
    "cluster": "sandbox",
    "namespace": "default",
    "name": "chat-single",
    "revision": 1,
    "rollout": 1,
}


def complete_schema(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add to every operation the problems it can answer with, and examples to what paths name."""
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


# ---- where it can be had


@cache
def make_schema() -> dict[str, Any]:
    """Describe the whole API; made once, as it is the same for everybody."""
    schema: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return schema


class SchemaView(APIView):
    """The description itself."""

    permission_classes = (IsSignedIn,)
    renderer_classes = (OpenApiJsonRenderer, OpenApiJsonRenderer2, OpenApiYamlRenderer, OpenApiYamlRenderer2)

    @extend_schema(exclude=True)
    def get(self, request: Request) -> Response:
        """Return the description, as JSON or YAML."""
        return Response(make_schema())


class DocsView(APIView):
    """The page to read and try it."""

    permission_classes = (IsSignedIn,)
    renderer_classes = (TemplateHTMLRenderer,)

    @extend_schema(exclude=True)
    def get(self, request: Request) -> Response:
        """Return the page; it fetches the description."""
        return Response(template_name="api/docs.html")


urlpatterns = [
    path("schema/", SchemaView.as_view(), name="api-schema"),
    path("docs/", DocsView.as_view(), name="api-docs"),
]
