"""How many pods a replica of each workload has by its template, for many workloads at once.

`workload_rows` counts with it. The numbers of a generation never change, and parsing a manifest is slow, so a process
parses each generation once, and reads all new ones in one query.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rollouts import models
from rollouts.controller.pod_counts import PodsPerReplica, compute_pods_per_replica
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.manifests.workload_version import version_of
from rollouts.selectors.workloads import WorkloadSummary


def list_pods_per_replica(workloads: Iterable[WorkloadSummary]) -> Mapping[str, PodsPerReplica | None]:
    """Return the pods per replica of each workload by its uid; None for a manifest that cannot be parsed."""
    wanted = list(workloads)
    # Another thread may clear the cache at any time, so each key is read once.
    cached = ((one.uid, CACHE.get(one.version, _NOT_CACHED)) for one in wanted)
    known = {uid: pods_per_replica for uid, pods_per_replica in cached if pods_per_replica is not _NOT_CACHED}
    return known | _read([one for one in wanted if one.uid not in known])


CACHE: Final[dict[str, PodsPerReplica | None]] = {}
"""By version."""

_NOT_CACHED: Final[PodsPerReplica] = {}  # stands for a missing entry
_MAX_CACHED: Final = 20_000


def _read(workloads: list[WorkloadSummary]) -> dict[str, PodsPerReplica | None]:
    """Parse the new ones; one that has changed since is parsed as it is now."""
    if not workloads:
        return {}
    if len(CACHE) > _MAX_CACHED:
        CACHE.clear()
    uids = {one.uid for one in workloads}
    rows = models.Workload.objects.filter(
        cluster__name__in={one.cluster for one in workloads},
        namespace__in={one.namespace for one in workloads},
        name__in={one.name for one in workloads},
    )
    found: dict[str, PodsPerReplica | None] = {}
    for uid, generation, manifest in rows.values_list("uid", "generation", "manifest"):
        if uid in uids:
            found[uid] = CACHE[version_of(uid, generation)] = _parse_pods_per_replica(manifest)
    return found


def _parse_pods_per_replica(manifest: Any) -> PodsPerReplica | None:
    workload = parse_workload(manifest)
    return None if isinstance(workload, ParseFailure) else compute_pods_per_replica(workload)
