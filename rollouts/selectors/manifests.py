"""The manifest of a workload as the cluster has it, with what may be secret hidden."""

from dataclasses import dataclass
from typing import Any

from rollouts.accounts.commands import WorkloadRef
from rollouts.manifests.masking import Reader, mask_manifest
from rollouts.manifests.workload_version import version_of
from rollouts.selectors.workload_snapshot import find_workload


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest, and the version that an edit of it refers to."""

    manifest: dict[str, Any]
    version: str


def manifest_detail(place: WorkloadRef, reader: Reader) -> Manifest:
    """Return the manifest of a workload as a reader may see it; raises NotThere."""
    row = find_workload(place)
    masked = mask_manifest(row.manifest, reader)
    masked["metadata"]["resourceVersion"] = str(row.resource_version)
    return Manifest(masked, version_of(row.uid, row.generation))
