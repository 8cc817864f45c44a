"""Parsers of command bodies: JSON, and YAML for manifests, both with a size limit.

They connect the REST framework with `rollouts.manifests.strict_yaml`, whose errors become exceptions of the framework
here.
"""

from collections.abc import Callable, Mapping
from typing import IO, Any

from rest_framework import exceptions
from rest_framework.parsers import BaseParser

from rollouts.manifests.strict_yaml import MAX_BODY_BYTES, UnreadableDocument, parse_json, parse_yaml


class TooLarge(exceptions.APIException):
    """The body exceeds the size limit."""

    status_code = 413
    default_detail = f"The body is larger than {MAX_BODY_BYTES // 1024} KiB."
    default_code = "too_large"


class StrictJSONParser(BaseParser):
    """JSON by RFC 8259, without duplicate names."""

    media_type = "application/json"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the parsed body."""
        return _read(stream, parse_json)


class YAMLParser(BaseParser):
    """One YAML document; JSON is valid YAML."""

    media_type = "application/yaml"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the parsed body."""
        return _read(stream, parse_yaml)


class ApplyYAMLParser(YAMLParser):
    """YAML under Kubernetes' media type for server-side apply."""

    media_type = "application/apply-patch+yaml"


class FormerYAMLParser(YAMLParser):
    """YAML under its unregistered media type."""

    media_type = "application/x-yaml"


class TextYAMLParser(YAMLParser):
    """YAML under a media type that some clients send."""

    media_type = "text/yaml"


def _read(stream: IO[bytes], parse: Callable[[bytes], Any]) -> Any:
    """Read a body within the size limit, and parse it."""
    body = stream.read(MAX_BODY_BYTES + 1)
    if len(body) > MAX_BODY_BYTES:
        raise TooLarge
    try:
        return parse(body)
    except UnreadableDocument as error:
        raise _refuse(error) from error


def _refuse(error: UnreadableDocument) -> exceptions.APIException:
    if not error.is_value:
        return exceptions.ParseError(f"The body is unreadable: {error.reason}.")
    detail = [exceptions.ErrorDetail(error.reason, code="invalid")]
    return exceptions.ValidationError({error.field: detail} if error.field else detail)
