"""Errors as the API server answers them: an exception that carries a metav1.Status.

The module that rejects a request raises an `ApiError`; `asgi` only writes it out. The
wording, reason, code and details are those of a real kube-apiserver, because clients (kubectl, client libraries, our
own adapter) branch on them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StatusCause:
    """One field that was rejected, and why."""

    reason: str  # FieldValueInvalid, FieldValueRequired, FieldManagerConflict, ...
    message: str
    field: str  # as in spec.template.cliques[0].name


@dataclass(frozen=True, slots=True)
class QualifiedResource:
    """What an error is about; `kind` is the plural in most answers, the kind's own name in validation answers."""

    group: str
    kind: str
    name: str = ""


@dataclass(eq=False, slots=True)
class ApiError(Exception):
    """A rejected request, with the content of its Status object."""

    code: int
    reason: str
    message: str
    resource: QualifiedResource | None = None
    causes: tuple[StatusCause, ...] = ()
    retry_after: int | None = None

    def __str__(self) -> str:
        return self.message

    def status(self) -> dict[str, Any]:
        """Render the Status object; members that are empty are left out as the real server leaves them out."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        details = self._details()
        if details is not None:
            body["details"] = details
        body["code"] = self.code
        return body

    def _details(self) -> dict[str, Any] | None:
        if self.resource is None and not self.causes and self.retry_after is None:
            return None
        details: dict[str, Any] = {}
        if self.resource is not None:
            parts = {"name": self.resource.name, "group": self.resource.group, "kind": self.resource.kind}
            details |= {key: value for key, value in parts.items() if value}
        if self.causes:
            details["causes"] = [_render_cause(cause) for cause in self.causes]
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        return details


def _render_cause(cause: StatusCause) -> dict[str, str]:
    parts = {"reason": cause.reason, "message": cause.message, "field": cause.field}
    return {key: value for key, value in parts.items() if value}


def not_found(resource: QualifiedResource) -> ApiError:
    return ApiError(404, "NotFound", f'{_qualified(resource)} "{resource.name}" not found', resource)


def already_exists(resource: QualifiedResource, *, terminating: bool = False) -> ApiError:
    sentence = f'{_qualified(resource)} "{resource.name}" already exists'
    return ApiError(409, "AlreadyExists", f"object is being deleted: {sentence}" if terminating else sentence, resource)


def conflict(resource: QualifiedResource, why: str) -> ApiError:
    sentence = f'Operation cannot be fulfilled on {_qualified(resource)} "{resource.name}": {why}'
    return ApiError(409, "Conflict", sentence, resource)


def object_modified(resource: QualifiedResource) -> ApiError:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, why)


def forbidden(resource: QualifiedResource, why: str, causes: tuple[StatusCause, ...] = ()) -> ApiError:
    sentence = f'{_qualified(resource)} "{resource.name}" is forbidden: {why}'
    return ApiError(403, "Forbidden", sentence, resource, causes)


def invalid(resource: QualifiedResource, causes: Iterable[StatusCause]) -> ApiError:
    """Reject an object with invalid fields; `resource.kind` is the kind's own name here."""
    found = tuple(dict.fromkeys(causes))
    parts = [f"{cause.field}: {cause.message}" for cause in found]
    listed = parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]"
    sentence = f'{_qualified(resource)} "{resource.name}" is invalid: {listed}'
    return ApiError(422, "Invalid", sentence, resource, found)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def resource_expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def method_not_allowed() -> ApiError:
    sentence = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", sentence, QualifiedResource("", ""))


def resource_not_served() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", QualifiedResource("", ""))


def unsupported_media_type(message: str) -> ApiError:
    return ApiError(415, "UnsupportedMediaType", message)


def not_acceptable(message: str) -> ApiError:
    return ApiError(406, "NotAcceptable", message)


def request_entity_too_large(message: str) -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", message)


def too_large_resource_version(asked: int, current: int) -> ApiError:
    sentence = f"Timeout: Too large resource version: {asked}, current: {current}"
    cause = StatusCause("ResourceVersionTooLarge", "Too large resource version", "")
    return ApiError(504, "Timeout", sentence, causes=(cause,), retry_after=1)


def too_many_requests(message: str, causes: tuple[StatusCause, ...], retry_after: int | None) -> ApiError:
    return ApiError(429, "TooManyRequests", message, None, causes, retry_after)


def _qualified(resource: QualifiedResource) -> str:
    return f"{resource.kind}.{resource.group}" if resource.group else resource.kind
