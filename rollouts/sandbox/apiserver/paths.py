"""URL path → the resource it addresses. The first step of `asgi`, before it reads a body."""

from dataclasses import dataclass

from rollouts.sandbox.apiserver.errors import resource_not_served
from rollouts.sandbox.apiserver.registry import Kind, Registry

_GROUP_VERSION = 3  # the parts of /apis/<group>/<version>


class NotServedError(Exception):
    """Nothing is served at a path; a real server answers with plain text, not with a Status."""


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """The resource a request is about."""

    kind: Kind
    namespace: str | None  # None: cluster-scoped, or all namespaces
    name: str | None  # None: the collection
    subresource: str | None


def parse_path(registry: Registry, path: str) -> RequestInfo:
    """Find the resource at a path below /api or /apis."""
    parts = path.strip("/").split("/")
    if not all(parts):
        raise NotServedError
    if parts[0] == "api":
        group, version, rest = "", parts[1] if len(parts) > 1 else "", parts[2:]
    elif parts[0] == "apis":
        group, version, *rest = (*parts[1:], "", "") if len(parts) < _GROUP_VERSION else parts[1:]
    else:
        raise NotServedError
    return _parse_resource(registry, group, version, rest)


def _parse_resource(registry: Registry, group: str, version: str, rest: list[str]) -> RequestInfo:
    namespace: str | None = None
    match rest:
        case ["namespaces", place, plural, *_] if registry.find(group, version, plural) is not None:
            namespace, rest = place, rest[2:]
    kind = registry.find(group, version, rest[0]) if rest else None
    if kind is None:
        raise _make_not_served_error(registry, group, version)
    name, subresource, beyond = (*rest[1:], *(None,) * 3)[:3]
    scoped = namespace is not None
    misplaced = (scoped and not kind.namespaced) or (kind.namespaced and not scoped and name is not None)
    if misplaced or beyond is not None:
        raise _make_not_served_error(registry, group, version)
    return RequestInfo(kind, namespace, name, subresource)


def _make_not_served_error(registry: Registry, group: str, version: str) -> Exception:
    """Return a Status error below a built-in group, plain text elsewhere, as the real server answers."""
    builtin = any(kind.builtin and kind.group == group and kind.version == version for kind in registry)
    return resource_not_served() if builtin else NotServedError()
