"""The CustomResourceDefinitions of what is served, as objects that clients can read like any other.

The definitions come from files (`registry`); at every start this module updates the stored copies.
"""

import uuid
from typing import Any

from rollouts.sandbox.apiserver.registry import Kind, Registry
from rollouts.sandbox.apiserver.storage import Storage

Obj = dict[str, Any]


def publish_definitions(store: Storage, registry: Registry, now: str) -> None:
    """Store the definition of every custom kind, and remove those of kinds no longer registered."""
    definitions = registry.kind("customresourcedefinitions", "apiextensions.k8s.io")
    wanted = {kind.manifest["metadata"]["name"]: kind for kind in registry if not kind.builtin}
    for stored in list(store.list(definitions)):
        if stored.obj["metadata"]["name"] not in wanted:
            store.remove(definitions, stored.obj)
    for name, kind in wanted.items():
        found = store.get(definitions, None, name)
        if found is None:
            store.put(definitions, _render_definition(kind, now))
        elif found.obj["spec"] != kind.manifest["spec"] or _lacks_annotations(found.obj, kind):
            annotations = _annotations(found.obj) | _annotations(kind.manifest)
            generation = found.obj["metadata"]["generation"] + 1
            metadata = {**found.obj["metadata"], "generation": generation, "annotations": annotations}
            store.put(definitions, {**_render_definition(kind, now), "metadata": metadata})


def _annotations(definition: Obj) -> Obj:
    annotations: Obj = definition["metadata"].get("annotations") or {}
    return annotations


def _lacks_annotations(stored: Obj, kind: Kind) -> bool:
    return not _annotations(kind.manifest).items() <= _annotations(stored).items()


def _render_definition(kind: Kind, now: str) -> Obj:
    """Return a definition in the form of an API server that has accepted it."""
    manifest = kind.manifest
    metadata = manifest["metadata"] | {"uid": str(uuid.uuid4()), "creationTimestamp": now, "generation": 1}
    accepted = [
        {"type": kind_of, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
        for kind_of, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    status = {
        "conditions": accepted,
        "acceptedNames": manifest["spec"]["names"],
        "storedVersions": [kind.version],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": manifest["spec"],
        "status": status,
    }
