"""The cluster a new sandbox starts with: nodes, and the sample workloads.

They are created once, when the data directory is new: what a user deletes afterwards stays deleted over a restart. A
marker in the cluster (the ConfigMap `kube-system/sandbox-world`) is written last; a sandbox that was killed before that
creates the rest at its next start. Nodes that an option asks for are the exception: missing ones are always added.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from rollouts.sandbox.apiserver.errors import ApiError
from rollouts.sandbox.apiserver.registry import Kind
from rollouts.sandbox.apiserver.verbs import Verbs
from rollouts.sandbox.cluster.node_info import GPU_INSTANCE_TYPE, INSTANCE_TYPE_LABEL

Obj = dict[str, Any]
log: Final = logging.getLogger(__name__)

FIELD_MANAGER: Final = "sandbox-world"
SAMPLES_NAMESPACE: Final = "default"
ZONES: Final = ("zone-a", "zone-b")
_SEEDED_MARKER: Final = ("kube-system", "sandbox-world")
_CONFLICT: Final = 409


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """How many nodes of each kind there are."""

    cpu: int = 3
    gpu: int = 8


def parse_node_counts(text: str) -> NodeCounts:
    """Read `cpu=3,gpu=8`; a kind that is left out keeps its default number."""
    counts = {"cpu": NodeCounts().cpu, "gpu": NodeCounts().gpu}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        kind, _, number = entry.partition("=")
        if kind not in counts or not number.isdigit():
            raise ValueError(f'expected something like "cpu=3,gpu=8", got {text!r}')
        counts[kind] = int(number)
    return NodeCounts(**counts)


def ensure_seeded(verbs: Verbs, nodes: NodeCounts | None, samples: Path | None) -> None:
    """Create what a new cluster starts with; explicit `nodes` are added to an existing one too."""
    is_seeded = verbs.store.get(verbs.registry.kind("configmaps"), *_SEEDED_MARKER) is not None
    if nodes is not None or not is_seeded:
        _ensure_nodes(verbs, nodes or NodeCounts())
    if is_seeded:
        return
    if samples is not None:
        _apply_samples(verbs, samples)
    marker = {"metadata": {"name": _SEEDED_MARKER[1]}, "data": {"made": "true"}}
    verbs.create(verbs.registry.kind("configmaps"), _SEEDED_MARKER[0], marker, manager=FIELD_MANAGER)


def _ensure_nodes(verbs: Verbs, counts: NodeCounts) -> None:
    kind = verbs.registry.kind("nodes")
    for body in _render_nodes(counts):
        if verbs.store.get(kind, None, body["metadata"]["name"]) is None:
            verbs.create(kind, None, body, manager=FIELD_MANAGER)


def _render_nodes(counts: NodeCounts) -> Iterator[Obj]:
    """Render the nodes with name and labels; their simulated machines report the rest."""
    for prefix, instance, count in (
        ("cpu-node", "cpu-node", counts.cpu),
        (GPU_INSTANCE_TYPE, GPU_INSTANCE_TYPE, counts.gpu),
    ):
        for number in range(count):
            name = f"{prefix}-{number}"
            labels = {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                INSTANCE_TYPE_LABEL: instance,
                "topology.kubernetes.io/region": "sandbox",
                "topology.kubernetes.io/zone": ZONES[number % len(ZONES)],
            }
            yield {"metadata": {"name": name, "labels": labels}}


def _apply_samples(verbs: Verbs, directory: Path) -> None:
    """Create the objects in the directory's files, not in its folders; skip a file that is rejected."""
    for path in sorted(directory.glob("*.yaml")):
        try:
            made = [_create(verbs, manifest) for manifest in _read_manifests(path)]
        except (ApiError, LookupError, yaml.YAMLError, OSError) as error:
            log.warning("sample %s was not applied: %s", path.name, error)
        else:
            log.info("sample %s applied: %s", path.name, ", ".join(made))


def _read_manifests(path: Path) -> Iterator[Obj]:
    for document in yaml.safe_load_all(path.read_text()):
        if document:
            yield document


def _create(verbs: Verbs, manifest: Obj) -> str:
    kind = _find_kind(verbs, manifest)
    namespace = manifest["metadata"].get("namespace", SAMPLES_NAMESPACE) if kind.namespaced else None
    try:
        verbs.create(kind, namespace, manifest, manager=FIELD_MANAGER)
    except ApiError as error:
        if error.code != _CONFLICT:  # a conflict: an earlier start created it
            raise
    return f"{kind.singular} {manifest['metadata']['name']}"


def _find_kind(verbs: Verbs, manifest: Obj) -> Kind:
    group = manifest["apiVersion"].rpartition("/")[0]
    kind = verbs.registry.by_kind(group, manifest["kind"])
    if kind is None:
        raise LookupError(f"the sandbox serves no {manifest['kind']} in {manifest['apiVersion']}")
    return kind
