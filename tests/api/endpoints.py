"""The endpoints of the API, read from the URL configuration and not from a list by hand.

A route reads as in the OpenAPI description, relative to /api/v1/: `workloads/{cluster}/{namespace}/{name}/`.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from django.urls import URLPattern, URLResolver, get_resolver

PREFIX: Final = "api/v1/"
_PARAMETER: Final = re.compile(r"<(?:\w+:)?(\w+)>")
_ABOUT_REQUESTS: Final = {"head", "options"}  # what Django and DRF answer by themselves wherever there is a GET


def endpoints() -> set[tuple[str, str]]:
    """Return every method and route of the API."""
    return {
        (method, route.removeprefix(PREFIX))
        for route, view in _walk(get_resolver().url_patterns, "")
        if route.startswith(PREFIX) and "{" + "path}" not in route
        for method in _methods(view)
    }


def described(schema: dict[str, Any]) -> set[tuple[str, str]]:
    """Return every method and route that an OpenAPI description has."""
    return {
        (method.upper(), path.removeprefix(f"/{PREFIX}"))
        for path, item in schema["paths"].items()
        for method in item
        if method in {"get", "post", "put", "patch", "delete"}
    }


def _walk(patterns: Iterable[URLPattern | URLResolver], before: str) -> Iterator[tuple[str, Any]]:
    for pattern in patterns:
        route = before + _PARAMETER.sub(r"{\1}", str(pattern.pattern))
        if isinstance(pattern, URLResolver):
            yield from _walk(pattern.url_patterns, route)
        else:
            yield route, pattern.callback


def _methods(view: Any) -> set[str]:
    if actions := getattr(view, "actions", None):  # of a view set
        return {method.upper() for method in actions if method not in _ABOUT_REQUESTS}
    handlers = getattr(view, "cls", None) or getattr(view, "view_class", None)
    if handlers is None:  # a function says nothing about itself; ours only read
        return {"GET"}
    offered = {method for method in handlers.http_method_names if hasattr(handlers, method)}
    return {method.upper() for method in offered - _ABOUT_REQUESTS}
