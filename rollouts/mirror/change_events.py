"""What pages are told of news: rows that changed, as entries of the change feed.

Before it: `writing`, which says what was news. After it: `change_feed`, told by whoever wrote the rows: the watcher,
and the reconciler for its own write-throughs, since the watcher's echo of them is no news.
"""

from collections.abc import Iterable
from typing import Final

from rollouts.cluster.resources import (
    NODES,
    PODCLIQUES,
    PODCLIQUESCALINGGROUPS,
    PODCLIQUESETS,
    PODGANGS,
    PODS,
    SERVICES,
)
from rollouts.live.change_feed import Change, ChangeKind
from rollouts.manifests.workload_ref import workload_key
from rollouts.mirror.writing import RowChange

# What pages call the parts of a workload.
_PART_NAMES: Final = {
    PODCLIQUESETS: "set",
    PODCLIQUESCALINGGROUPS: "groups",
    PODCLIQUES: "cliques",
    PODGANGS: "gangs",
    SERVICES: "services",
    PODS: "pods",
}


def compute_changes(cluster: str, row_changes: Iterable[RowChange]) -> list[Change]:
    """Return what pages are told: one change a workload or node, naming the parts of it."""
    parts: dict[tuple[ChangeKind, str], set[str]] = {}
    gone: set[tuple[ChangeKind, str]] = set()
    subject: tuple[ChangeKind, str]
    for row_change in row_changes:
        if row_change.resource == NODES:
            subject = ("node", f"{cluster}/{row_change.name}")
        elif row_change.workload:
            subject = ("workload", workload_key(cluster, row_change.namespace, row_change.workload))
        else:
            continue
        parts.setdefault(subject, set()).add(_PART_NAMES.get(row_change.resource, "node"))
        if row_change.is_gone and row_change.resource in (NODES, PODCLIQUESETS):
            gone.add(subject)
    return [Change(cluster, kind, key, tuple(sorted(parts[kind, key])), (kind, key) in gone) for kind, key in parts]
