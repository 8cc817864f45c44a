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

from rollouts.mirror.change_events import changes_of
from rollouts.mirror.cluster_snapshot import Surroundings, read_surroundings, store_foreign_requests
from rollouts.mirror.reading import Seen, read
from rollouts.mirror.rows import MIRRORED
from rollouts.mirror.writing import (
    Changes,
    News,
    end_all_but,
    ensure_cluster,
    forget,
    purge,
    replace,
    store,
    store_all,
    workload_keys,
)

__all__ = [
    "MIRRORED",
    "Changes",
    "News",
    "Seen",
    "Surroundings",
    "changes_of",
    "end_all_but",
    "ensure_cluster",
    "forget",
    "purge",
    "read",
    "read_surroundings",
    "replace",
    "store",
    "store_all",
    "store_foreign_requests",
    "workload_keys",
]
