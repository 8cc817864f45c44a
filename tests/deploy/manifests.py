"""The manifests for the tests of the definitions, and small edits to them.

A case is an accepted manifest and one edit, so that a rejected manifest differs from an accepted one in exactly one
thing. Edits are written as dotted paths, list items by their index: `spec.template.cliques.0.name`.
"""

import copy
import json
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

Obj = dict[str, Any]
Edits = dict[str, Any]

ROOT: Final = Path(__file__).parents[2]
DEFINITIONS: Final = sorted((ROOT / "deploy" / "crds").glob("*.yaml"))
SAMPLES: Final = sorted((ROOT / "deploy" / "samples").rglob("*.yaml"))
GROVE: Final = sorted((Path(__file__).parent / "grove").glob("*.yaml"))
COMPLETE: Final = Path(__file__).parent / "complete.yaml"


class _Removed(Enum):
    """A value that says its name: it is part of the names of tests, which must be the same in each process."""

    REMOVED = "removed"


REMOVED: Final = _Removed.REMOVED  # as the value of an edit: the field is removed


def load(path: Path) -> Obj:
    """Return the one object of a file, for the caller to change."""
    parsed: Obj = json.loads(_read(path))
    return parsed


@cache
def _read(path: Path) -> str:
    # As JSON: it copies what YAML aliases share, so that an edit changes one place only.
    return json.dumps(yaml.safe_load(path.read_text()))


def complete(edits: Edits | None = None) -> Obj:
    """Return the set that uses every field, with these edits."""
    return edited(load(COMPLETE), edits or {})


def edited(manifest: Obj, edits: Edits) -> Obj:
    """Return a copy of the manifest with each path set to its value, or removed."""
    changed = copy.deepcopy(manifest)
    for path, value in edits.items():
        *parents, last = (int(part) if part.isdigit() else part for part in path.split("."))
        node: Any = changed
        for part in parents:
            node = node.setdefault(part, {}) if isinstance(node, dict) else node[part]
        if value is REMOVED:
            del node[last]
        elif isinstance(node, list) and last == len(node):
            node.append(copy.deepcopy(value))
        else:
            node[last] = copy.deepcopy(value)
    return changed


def definition_schema(definition: Obj) -> Obj:
    """Return the schema of a definition's only version."""
    (version,) = definition["spec"]["versions"]
    schema: Obj = version["schema"]["openAPIV3Schema"]
    return schema


def schema_nodes(schema: Obj, path: str = "") -> list[tuple[str, Obj]]:
    """Return every node of a structural schema with its path."""
    found = [(path, schema)]
    for name, child in schema.get("properties", {}).items():
        found += schema_nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            found += schema_nodes(schema[key], f"{path}[]")
    return found


def rules_of_sets() -> list[Obj]:
    """Return every CEL rule of the PodCliqueSet's definition; one that YAML repeats by an alias counts each time."""
    (path,) = (path for path in DEFINITIONS if path.name == "grove.io_podcliquesets.yaml")
    nodes = schema_nodes(definition_schema(load(path)))
    return [rule for _, node in nodes for rule in node.get("x-kubernetes-validations", [])]
