"""What the templates of many workloads ask for, in numbers: how many pods a replica of each is made of.

Lists count with it (`workload_rows`). The numbers of a generation never change, and to read a manifest takes a while:
only those that are new to this process are read, all in one query.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rollouts import models
from rollouts.controller.pod_counts import PodsPerReplica, compute_pods_per_replica
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.manifests.workload_version import version_of
from rollouts.selectors.workloads import WorkloadSummary


def list_pods_per_replica(workloads: Iterable[WorkloadSummary]) -> Mapping[str, PodsPerReplica | None]:
    """Return the makeup of each workload by its uid; None for one that cannot be read."""
    wanted = list(workloads)
    # Another thread may forget all of them at any moment, so each is asked for once.
    told = ((one.uid, CACHE.get(one.version, _NOT_CACHED)) for one in wanted)
    known = {uid: pods_per_replica for uid, pods_per_replica in told if pods_per_replica is not _NOT_CACHED}
    return known | _read([one for one in wanted if one.uid not in known])


CACHE: Final[dict[str, PodsPerReplica | None]] = {}
"""By version."""

_NOT_CACHED: Final[PodsPerReplica] = {}  # stands for what is not known yet
_MAX_CACHED: Final = 20_000


def _read(workloads: list[WorkloadSummary]) -> dict[str, PodsPerReplica | None]:
    """Read those that are new; of one that was changed meanwhile, what it is now."""
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
