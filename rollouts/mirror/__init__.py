"""The mirror: a copy of cluster objects in the database, which decisions and pages read.

Before it: the watcher, which stores what the cluster reports, and the reconciler and the commands, which store what the
API answers to their own writes. After it: the engine, which gets one workload as values, and the pages.

    rows              which parts of an object are kept, as the columns of its table
    writing           when a row may replace another one: only forward, in whatever order writers come
    change_events     the entries of the change feed for rows that changed
    reading           one workload as values of the engine, and which objects belong to it
    overlay           a workload as it was read, with the answers of the API since
    cluster_snapshot  the surroundings of a workload: nodes, other pods, how its own pods have behaved
    other_operator    whether Grove's own operator manages the workloads

The invariant: a row ends as the last state that the cluster has reported for that name, however often, late or
interleaved the reports arrive. So two watchers and any number of workers may write at the same time.
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
