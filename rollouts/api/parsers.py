"""Bodies of commands: JSON, and YAML where a manifest is sent, within a size.

Between Django REST framework and `rollouts.manifests.strict_yaml`, which reads them: what cannot be read becomes the
framework's own refusal here.
"""

from collections.abc import Callable, Mapping
from typing import IO, Any

from rest_framework import exceptions
from rest_framework.parsers import BaseParser

from rollouts.manifests.strict_yaml import MAX_BODY_BYTES, UnreadableDocument, parse_json, parse_yaml


class TooLarge(exceptions.APIException):
    """More than we read."""

    status_code = 413
    default_detail = f"The body is larger than {MAX_BODY_BYTES // 1024} KiB."
    default_code = "too_large"


class StrictJSONParser(BaseParser):
    """JSON, as RFC 8259 has it, each name once."""

    media_type = "application/json"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """Return what the body says."""
        return _read(stream, parse_json)


class YAMLParser(BaseParser):
    """One YAML document, which a JSON document is as well."""

    media_type = "application/yaml"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """Return what the body says."""
        return _read(stream, parse_yaml)


class ApplyYAMLParser(YAMLParser):
    """The same by the name that Kubernetes has for what is applied."""

    media_type = "application/apply-patch+yaml"


class FormerYAMLParser(YAMLParser):
    """The same by its name before it had one."""

    media_type = "application/x-yaml"


class TextYAMLParser(YAMLParser):
    """The same by the name that some clients have for it."""

    media_type = "text/yaml"


def _read(stream: IO[bytes], parse: Callable[[bytes], Any]) -> Any:
    """Read a body that is not too large."""
    body = stream.read(MAX_BODY_BYTES + 1)
    if len(body) > MAX_BODY_BYTES:
        raise TooLarge
    try:
        return parse(body)
    except UnreadableDocument as error:
        raise _refuse(error) from error


def _refuse(error: UnreadableDocument) -> exceptions.APIException:
    if not error.is_value:
        return exceptions.ParseError(f"The body cannot be read: {error.reason}.")
    detail = [exceptions.ErrorDetail(error.reason, code="invalid")]
    return exceptions.ValidationError({error.field: detail} if error.field else detail)
