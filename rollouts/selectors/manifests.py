"""The manifest of a workload as the cluster has it, with what may be secret hidden."""

from dataclasses import dataclass
from typing import Any

from rollouts.commands import Place
from rollouts.masking import Reader, mask_manifest
from rollouts.selectors.places import find_workload
from rollouts.versions import version_of


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest, and the version that an edit of it refers to."""

    manifest: dict[str, Any]
    version: str


def manifest_detail(place: Place, reader: Reader) -> Manifest:
    """Return the manifest of a workload as a reader may see it; raises NotThere."""
    row = find_workload(place)
    masked = mask_manifest(row.manifest, reader)
    masked["metadata"]["resourceVersion"] = str(row.resource_version)
    return Manifest(masked, version_of(row.uid, row.generation))
