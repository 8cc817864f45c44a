"""URL path → what it addresses. The first step of `http`, before any body is read."""

from dataclasses import dataclass

from rollouts.sandbox.registry import Kind, Registry
from rollouts.sandbox.status import no_such_resource


@dataclass(frozen=True, slots=True)
class Target:
    """The resource a request is about."""

    kind: Kind
    namespace: str | None  # None: cluster-scoped, or all namespaces
    name: str | None  # None: the collection
    subresource: str | None
    legacy_watch: bool = False  # /api/v1/watch/...


def parse_path(registry: Registry, path: str) -> Target:
    """Find the resource at a path below /api or /apis; a 404 Status when nothing is served there."""
    parts = [part for part in path.split("/") if part]
    if parts[0] == "api":
        group, rest = "", parts[1:]
    else:
        group, rest = parts[1] if len(parts) > 1 else "", parts[2:]
    if not rest:
        raise no_such_resource()
    version, rest = rest[0], rest[1:]
    watching = rest[:1] == ["watch"]
    if watching:
        rest = rest[1:]
    return _target(registry, group, version, rest, watching=watching)


def _target(registry: Registry, group: str, version: str, rest: list[str], *, watching: bool) -> Target:
    namespace: str | None = None
    if len(rest) >= 3 and rest[0] == "namespaces" and registry.find(group, version, rest[2]) is not None:  # noqa: PLR2004
        namespace, rest = rest[1], rest[2:]
    kind = registry.find(group, version, rest[0]) if rest else None
    if kind is None or len(rest) > 3:  # noqa: PLR2004 resource, name, subresource
        raise no_such_resource()
    name = rest[1] if len(rest) > 1 else None
    subresource = rest[2] if len(rest) > 2 else None  # noqa: PLR2004
    if (namespace is not None) != kind.namespaced and (namespace is not None or name is not None):
        raise no_such_resource()
    return Target(kind, namespace, name, subresource, watching)
