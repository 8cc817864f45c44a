"""The entries of the change feed for rows that changed.

Before it: `writing`, which returns the rows that changed. After it: `change_feed`. The writer of the rows publishes the
entries: the watcher, or the reconciler for its own writes, which the watcher later reports again without any change.
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

# The names of the parts of a workload in the change feed.
_PART_NAMES: Final = {
    PODCLIQUESETS: "set",
    PODCLIQUESCALINGGROUPS: "groups",
    PODCLIQUES: "cliques",
    PODGANGS: "gangs",
    SERVICES: "services",
    PODS: "pods",
}


def compute_changes(cluster: str, row_changes: Iterable[RowChange]) -> list[Change]:
    """Return one change for each workload or node, with the names of the parts that changed."""
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
