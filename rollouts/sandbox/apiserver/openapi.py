"""OpenAPI v3 documents, one a group version, made from the registered schemas.

Enough for what `kubectl` does with them: explain, validation and dry-run support, merge keys for apply. Documents are
made on first use, and their URLs carry a hash of their content, as in the real server.
"""

import hashlib
from functools import lru_cache
from typing import Any

import orjson

from rollouts.sandbox.apiserver import objectmeta
from rollouts.sandbox.apiserver.discovery import KUBERNETES_VERSION, group_versions
from rollouts.sandbox.apiserver.registry import Kind, Registry

Obj = dict[str, Any]

_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_WRITE_OPTIONS = ("dryRun", "fieldManager", "fieldValidation")


def document_paths(registry: Registry) -> dict[str, tuple[str, str]]:
    """Return the served documents: path below /openapi/v3 → group and version."""
    return {
        (f"apis/{group}/{version}" if group else f"api/{version}"): (group, version)
        for group, versions in group_versions(registry).items()
        for version in versions
    }


def index(registry: Registry) -> Obj:
    """Return the list of documents with their hashes."""
    paths = {}
    for path, (group, version) in document_paths(registry).items():
        digest = hashlib.sha256(document(registry, group, version)).hexdigest().upper()
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return {"paths": paths}


@lru_cache(maxsize=64)
def document(registry: Registry, group: str, version: str) -> bytes:
    """Return one group version's document, serialised."""
    kinds = [kind for kind in registry if kind.group == group and kind.version == version]
    schemas: Obj = {_META: objectmeta.SCHEMA}
    paths: Obj = {}
    for kind in kinds:
        schemas[_schema_name(kind)] = _schema(kind)
        paths |= _paths(kind)
    return orjson.dumps(
        {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": KUBERNETES_VERSION},
            "paths": paths,
            "components": {"schemas": schemas},
        }
    )


def _schema_name(kind: Kind) -> str:
    """Return a name such as io.grove.v1alpha1.PodCliqueSet: the group's parts in reverse."""
    group = ".".join(reversed(kind.group.split("."))) if kind.group else "io.k8s.api.core"
    return f"{group}.{kind.version}.{kind.kind}"


def _schema(kind: Kind) -> Obj:
    source: Obj = dict(kind.schema.source)
    reference = {"allOf": [{"$ref": f"#/components/schemas/{_META}"}]}
    source["properties"] = {**source["properties"], "metadata": reference}
    source["x-kubernetes-group-version-kind"] = [_group_version_kind(kind)]
    return source


def _group_version_kind(kind: Kind) -> Obj:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _paths(kind: Kind) -> Obj:
    base = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    place = f"{base}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{base}/{kind.plural}"
    named = {
        "get": _operation(kind, "get"),
        "put": _operation(kind, "put", _WRITE_OPTIONS, body=True),
        "patch": _operation(kind, "patch", (*_WRITE_OPTIONS, "force")),
        "delete": _operation(kind, "delete", ("dryRun",)),
    }
    collection = {
        "get": _operation(kind, "list"),
        "post": _operation(kind, "post", _WRITE_OPTIONS, body=True),
        "delete": _operation(kind, "deletecollection", ("dryRun",)),
    }
    paths: Obj = {place: collection, f"{place}/{{name}}": named}
    if kind.namespaced:
        paths[f"{base}/{kind.plural}"] = {"get": _operation(kind, "list")}
    return paths


def _operation(kind: Kind, action: str, options: tuple[str, ...] = (), *, body: bool = False) -> Obj:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{_schema_name(kind)}"}}}
    operation: Obj = {
        "operationId": f"{action}{kind.kind}",
        "parameters": [
            {"name": name, "in": "query", "schema": {"type": "boolean" if name == "force" else "string"}}
            for name in options
        ],
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _group_version_kind(kind),
    }
    if body:
        operation["requestBody"] = {"content": content, "required": True}
    return operation
