"""The kinds the sandbox serves, read from CustomResourceDefinition manifests.

Built-in kinds (`builtin/*.yaml`) and custom ones (`deploy/crds/*.yaml`) come in the same form through the same loader,
so there is no second list of resources: paths, discovery, OpenAPI, columns and schemas all derive from the `Kind`
values made here. The other modules read kinds and never change them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from rollouts.sandbox.apiserver import objectmeta
from rollouts.sandbox.apiserver.errors import QualifiedResource, StatusCause
from rollouts.sandbox.apiserver.schema import Schema, parse_schema

BUILTIN = Path(__file__).parent / "builtin"

AdmissionValidator = Callable[[dict[str, Any], dict[str, Any] | None], list[StatusCause]]
"""What is wrong with an object, given how it was before (None: it is created)."""

AdmissionWarner = Callable[[dict[str, Any], dict[str, Any] | None], list[str]]
"""What is odd about an object that was accepted, given how it was before."""

# Built-in kinds that count generations; custom kinds all do.
_BUILTINS_WITH_GENERATION = frozenset(("pods", "poddisruptionbudgets", "priorityclasses"))


@dataclass(frozen=True, slots=True)
class AdditionalPrinterColumn:
    """One column of `kubectl get`."""

    name: str
    type: str  # string, integer, number, boolean, date
    path: str  # JSONPath into the object
    priority: int  # 0 always, 1 only with -o wide
    description: str
    format: str


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where the scale subresource finds its numbers, as member names."""

    replicas: tuple[str, ...]
    status_replicas: tuple[str, ...]
    selector: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One resource as served. Compared by identity: a registry makes each kind once."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    list_kind: str
    short_names: tuple[str, ...]
    categories: tuple[str, ...]
    namespaced: bool
    builtin: bool
    schema: Schema  # of the whole object, metadata included
    has_status: bool
    scale: ScalePaths | None
    columns: tuple[AdditionalPrinterColumn, ...]
    manifest: dict[str, Any] = field(repr=False)  # the CustomResourceDefinition as read
    admission_validator: AdmissionValidator | None = None  # admission beyond schema and CEL, as a webhook would do it
    admission_warner: AdmissionWarner | None = None  # the warnings of that webhook

    @property
    def key(self) -> str:
        """The kind's identity in the store, as in `podcliquesets.grove.io`."""
        return f"{self.plural}.{self.group}"

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def has_generation(self) -> bool:
        return not self.builtin or self.plural in _BUILTINS_WITH_GENERATION

    def qualified_resource(self, name: str = "") -> QualifiedResource:
        """Return the resource by its plural, as most errors name it."""
        return QualifiedResource(self.group, self.plural, name)

    def qualified_kind(self, name: str) -> QualifiedResource:
        """Return the resource by its kind, as validation errors name it."""
        return QualifiedResource(self.group, self.kind, name)


class Registry:
    """All kinds, by plural and group."""

    def __init__(self, kinds: Iterable[Kind] = ()) -> None:
        self._kinds: dict[tuple[str, str], Kind] = {}
        for kind in kinds:
            self._kinds[kind.group, kind.plural] = kind

    @classmethod
    def load(
        cls,
        *directories: Path,
        validators: Mapping[str, AdmissionValidator] = MappingProxyType({}),
        warners: Mapping[str, AdmissionWarner] = MappingProxyType({}),
    ) -> "Registry":
        """Read the built-in kinds and every manifest of the directories; validators and warners go by `Kind.key`."""
        kinds = [parse_kind(manifest, builtin=True) for manifest in read_manifests(BUILTIN)]
        for directory in directories:
            kinds += [parse_kind(manifest, builtin=False) for manifest in read_manifests(directory)]
        return cls(
            replace(kind, admission_validator=validators.get(kind.key), admission_warner=warners.get(kind.key))
            for kind in kinds
        )

    def kind(self, plural: str, group: str = "") -> Kind:
        """Return the kind of that plural; raise KeyError when it is not registered."""
        return self._kinds[group, plural]

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind served at a path, None when there is none."""
        kind = self._kinds.get((group, plural))
        return kind if kind is not None and kind.version == version else None

    def by_kind(self, group: str, name: str) -> Kind | None:
        """Return the kind by its own name, as in an owner reference."""
        return next((kind for kind in self if kind.kind == name and kind.group == group), None)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds.values())


def read_manifests(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the CustomResourceDefinitions of a directory's YAML files, in the order of their names."""
    for path in sorted(directory.glob("*.yaml")):
        for document in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader):
            if document and document.get("kind") == "CustomResourceDefinition":
                yield document


def parse_kind(manifest: dict[str, Any], *, builtin: bool = False) -> Kind:
    """Make a kind of a CustomResourceDefinition's storage version."""
    spec = manifest["spec"]
    names = spec["names"]
    version = next(one for one in spec["versions"] if one.get("storage"))
    subresources = version.get("subresources") or {}
    source = (version.get("schema") or {}).get("openAPIV3Schema", {"type": "object"})
    return Kind(
        group=spec["group"] or "",
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names.get("singular") or names["kind"].lower(),
        list_kind=names.get("listKind") or f"{names['kind']}List",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        namespaced=spec["scope"] == "Namespaced",
        builtin=builtin,
        schema=parse_schema(_with_object_members(source)),
        has_status="status" in subresources,
        scale=_parse_scale(subresources.get("scale")),
        columns=tuple(_parse_column(one) for one in version.get("additionalPrinterColumns") or ()),
        manifest=manifest,
    )


def _with_object_members(source: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with the parts every object has: apiVersion, kind and the standard metadata."""
    properties = dict(source.get("properties") or {})
    properties["apiVersion"] = {"type": "string"}
    properties["kind"] = {"type": "string"}
    properties["metadata"] = objectmeta.SCHEMA
    return {**source, "properties": properties}


def _parse_scale(source: dict[str, str] | None) -> ScalePaths | None:
    if source is None:
        return None
    selector = source.get("labelSelectorPath")
    return ScalePaths(
        replicas=_members(source["specReplicasPath"]),
        status_replicas=_members(source["statusReplicasPath"]),
        selector=_members(selector) if selector else None,
    )


def _members(path: str) -> tuple[str, ...]:
    return tuple(path.strip(".").split("."))


def _parse_column(source: dict[str, Any]) -> AdditionalPrinterColumn:
    return AdditionalPrinterColumn(
        name=source["name"],
        type=source["type"],
        path=source["jsonPath"],
        priority=source.get("priority", 0),
        description=source.get("description", ""),
        format=source.get("format", ""),
    )
