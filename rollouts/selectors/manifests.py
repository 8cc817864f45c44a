"""The manifest of a workload from the mirror, with secrets masked."""

from dataclasses import dataclass
from typing import Any

from rollouts.accounts.commands import WorkloadRef
from rollouts.manifests.masking import Reader, mask_manifest
from rollouts.manifests.workload_version import version_of
from rollouts.selectors.workload_snapshot import find_workload


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest with its version."""

    manifest: dict[str, Any]
    version: str


def manifest_detail(place: WorkloadRef, reader: Reader) -> Manifest:
    """Return the manifest of a workload, masked for a reader; raises NotFound."""
    row = find_workload(place)
    masked = mask_manifest(row.manifest, reader)
    masked["metadata"]["resourceVersion"] = str(row.resource_version)
    return Manifest(masked, version_of(row.uid, row.generation))
