"""What the templates of many workloads ask for, in numbers: how many pods a replica of each is made of.

Lists count with it (`workload_rows`). The numbers of a generation never change, and to read a manifest takes a while: only
those that are new to this process are read, all in one query.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rollouts import models
from rollouts.controller.pod_counts import Makeup, make_up
from rollouts.engine.manifest.parsing import Unreadable, parse_workload
from rollouts.manifests.workload_version import version_of
from rollouts.selectors.workloads import WorkloadSummary


def makeups_of(workloads: Iterable[WorkloadSummary]) -> Mapping[str, Makeup | None]:
    """Return the makeup of each workload by its uid; None for one that cannot be read."""
    wanted = list(workloads)
    # Another thread may forget all of them at any moment, so each is asked for once.
    told = ((one.uid, KNOWN.get(one.version, _NEW)) for one in wanted)
    known = {uid: makeup for uid, makeup in told if makeup is not _NEW}
    return known | _read([one for one in wanted if one.uid not in known])


KNOWN: Final[dict[str, Makeup | None]] = {}
"""By version."""

_NEW: Final[Makeup] = {}  # stands for what is not known yet
_MOST_KNOWN: Final = 20_000


def _read(workloads: list[WorkloadSummary]) -> dict[str, Makeup | None]:
    """Read those that are new; of one that was changed meanwhile, what it is now."""
    if not workloads:
        return {}
    if len(KNOWN) > _MOST_KNOWN:
        KNOWN.clear()
    uids = {one.uid for one in workloads}
    rows = models.Workload.objects.filter(
        cluster__name__in={one.cluster for one in workloads},
        namespace__in={one.namespace for one in workloads},
        name__in={one.name for one in workloads},
    )
    found: dict[str, Makeup | None] = {}
    for uid, generation, manifest in rows.values_list("uid", "generation", "manifest"):
        if uid in uids:
            found[uid] = KNOWN[version_of(uid, generation)] = _make_up(manifest)
    return found


def _make_up(manifest: Any) -> Makeup | None:
    workload = parse_workload(manifest)
    return None if isinstance(workload, Unreadable) else make_up(workload)
