"""Cluster objects to rows, and rows to engine values: the mirror that decisions and pages look at.

Before it: the watcher, which hears what the cluster says, and the reconciler, which writes through what the API
answered to its own writes. After it: the engine, which is handed one workload as values, and the pages.

    rows       what of an object is kept, as the columns of its table
    writing    how rows move: forward only, whoever writes and in whatever order
    telling    what pages are told of it
    reading    one workload as the engine wants it, and whose object is whose
    surroundings   what surrounds a workload: nodes, other pods, how its own have behaved

The invariant: a row ends as what the cluster said last about that name, however often, late or interleaved the news
arrives. Two watchers and any number of workers may therefore write at the same time.
"""

from rollouts.mirror.change_events import compute_changes
from rollouts.mirror.cluster_snapshot import ClusterSnapshot, fetch_cluster_snapshot, store_foreign_requests
from rollouts.mirror.reading import MirroredWorkload, fetch_workload
from rollouts.mirror.rows import MIRRORED
from rollouts.mirror.writing import (
    ObjectChanges,
    RowChange,
    delete_objects,
    delete_tombstones,
    ensure_cluster,
    mark_missing_gone,
    replace,
    store,
    store_all,
    workload_keys,
)

__all__ = [
    "MIRRORED",
    "ClusterSnapshot",
    "MirroredWorkload",
    "ObjectChanges",
    "RowChange",
    "compute_changes",
    "delete_objects",
    "delete_tombstones",
    "ensure_cluster",
    "fetch_cluster_snapshot",
    "fetch_workload",
    "mark_missing_gone",
    "replace",
    "store",
    "store_all",
    "store_foreign_requests",
    "workload_keys",
]
