"""What is served, in the two forms clients ask for: one document a group version, and everything at once.

Everything derives from the registry except the verbs and the subresources with a type of their own, listed here.
"""

from collections.abc import Iterator
from typing import Any, Final

from rollouts.sandbox.apiserver.registry import Kind, Registry

Obj = dict[str, Any]

_ALL_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_READ_VERBS = ["get", "list", "watch"]
_SUBRESOURCE_VERBS = ["get", "patch", "update"]

KUBERNETES_VERSION: Final = "v1.36.3"
"""The release whose API and nodes the sandbox simulates."""

VERSION: Obj = {
    "major": "1",
    "minor": "36",
    "gitVersion": f"{KUBERNETES_VERSION}+sandbox",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}


def verbs_of(kind: Kind) -> list[str]:
    if kind.plural == "customresourcedefinitions":
        return _READ_VERBS
    if kind.plural == "namespaces" and kind.builtin:
        return [verb for verb in _ALL_VERBS if verb != "deletecollection"]
    return _ALL_VERBS


def subresources_of(kind: Kind) -> Iterator[tuple[str, tuple[str, str, str], list[str]]]:
    """Yield a kind's subresources: name; group, version and kind of their bodies; verbs."""
    own = (kind.group, kind.version, kind.kind)
    if kind.has_status and kind.plural != "customresourcedefinitions":
        yield "status", own, _SUBRESOURCE_VERBS
    if kind.scale is not None:
        yield "scale", ("autoscaling", "v1", "Scale"), _SUBRESOURCE_VERBS
    if kind.builtin and kind.plural == "pods":
        yield "binding", ("", "v1", "Binding"), ["create"]
        yield "eviction", ("policy", "v1", "Eviction"), ["create"]
    if kind.builtin and kind.plural == "namespaces":
        yield "finalize", own, ["update"]


# --- one group version at a time -----------------------------------------------------------------------------------


def api_versions() -> Obj:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def api_group_list(registry: Registry) -> Obj:
    groups = [_group(group, versions) for group, versions in group_versions(registry).items() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def api_group(registry: Registry, group: str) -> Obj | None:
    versions = group_versions(registry).get(group)
    if versions is None or not group:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions)}


def group_versions(registry: Registry) -> dict[str, list[str]]:
    """Return every group with its versions, in the order of registration."""
    groups: dict[str, list[str]] = {}
    for kind in registry:
        versions = groups.setdefault(kind.group, [])
        if kind.version not in versions:
            versions.append(kind.version)
    return groups


def _group(group: str, versions: list[str]) -> Obj:
    entries = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": entries, "preferredVersion": entries[0]}


def api_resource_list(registry: Registry, group: str, version: str) -> Obj | None:
    kinds = [kind for kind in registry if kind.group == group and kind.version == version]
    if not kinds:
        return None
    resources = [entry for kind in kinds for entry in _resources(kind)]
    name = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": resources}


def _resources(kind: Kind) -> Iterator[Obj]:
    entry: Obj = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": verbs_of(kind),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    yield entry
    for name, (group, version, spoken), verbs in subresources_of(kind):
        below: Obj = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced}
        if (group, version) != (kind.group, kind.version):
            below |= {"group": group, "version": version}
        yield {**below, "kind": spoken, "verbs": verbs}


# --- everything at once --------------------------------------------------------------------------------------------


def aggregated_discovery(registry: Registry, *, core: bool) -> Obj:
    """Return the groups below /api (core) or /apis with all their resources."""
    items = [
        {
            "metadata": {"name": group} if group else {},
            "versions": [_aggregated_version(registry, group, version) for version in versions],
        }
        for group, versions in group_versions(registry).items()
        if core != bool(group)
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _aggregated_version(registry: Registry, group: str, version: str) -> Obj:
    kinds = [kind for kind in registry if kind.group == group and kind.version == version]
    return {"version": version, "resources": [_aggregated_resource(k) for k in kinds], "freshness": "Current"}


def _aggregated_resource(kind: Kind) -> Obj:
    entry: Obj = {
        "resource": kind.plural,
        "responseKind": _group_version_kind(kind.group, kind.version, kind.kind),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": verbs_of(kind),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    below = [
        {"subresource": name, "responseKind": _group_version_kind(*spoken), "verbs": verbs}
        for name, spoken, verbs in subresources_of(kind)
    ]
    if below:
        entry["subresources"] = below
    return entry


def _group_version_kind(group: str, version: str, kind: str) -> Obj:
    return {"group": group, "version": version, "kind": kind}
