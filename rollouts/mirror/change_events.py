"""What pages are told of news: rows that changed, as entries of the change feed.

Before it: `writing`, which says what was news. After it: `change_feed`, told by whoever wrote the rows: the watcher, and the
reconciler for its own write-throughs, since the watcher's echo of them is no news.
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
from rollouts.live.change_feed import Change, Kind
from rollouts.mirror.writing import News

# What pages call the parts of a workload.
_PARTS: Final = {
    PODCLIQUESETS: "set",
    PODCLIQUESCALINGGROUPS: "groups",
    PODCLIQUES: "cliques",
    PODGANGS: "gangs",
    SERVICES: "services",
    PODS: "pods",
}


def changes_of(cluster: str, news: Iterable[News]) -> list[Change]:
    """Return what pages are told: one change a workload or node, naming the parts of it."""
    parts: dict[tuple[Kind, str], set[str]] = {}
    gone: set[tuple[Kind, str]] = set()
    about: tuple[Kind, str]
    for part in news:
        if part.resource == NODES:
            about = ("node", f"{cluster}/{part.name}")
        elif part.workload:
            about = ("workload", f"{cluster}/{part.namespace}/{part.workload}")
        else:
            continue
        parts.setdefault(about, set()).add(_PARTS.get(part.resource, "node"))
        if part.is_gone and part.resource in (NODES, PODCLIQUESETS):
            gone.add(about)
    return [Change(cluster, kind, key, tuple(sorted(parts[kind, key])), (kind, key) in gone) for kind, key in parts]
