"""The one door to Kubernetes: everything we need of an API server, and nothing else.

Before it stand the settings, which say which cluster we talk to (`config`); after it come the mirror, the
reconciler and the services, which know objects as plain JSON and failures as the classes of `errors`. Nothing
outside this package imports the `kubernetes` client or opens a connection to a cluster.

The invariants: every call ends within a bounded time; reading is repeated while it may help, writing never
is; an answer that is not what the API promises is an error, never a value.
"""

from rollouts.cluster.client import Cluster, Fence, Listing, Obj, Page, open_fence
from rollouts.cluster.config import in_cluster, kubeconfig
from rollouts.cluster.errors import (
    AlreadyExists,
    BadRequest,
    Cause,
    ClusterError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    Misconfigured,
    NotFound,
    Throttled,
    TooLarge,
    Unauthorized,
    Unavailable,
    UnknownResource,
    Unsupported,
)
from rollouts.cluster.resources import Resource
from rollouts.cluster.retry_policy import Patience
from rollouts.cluster.watch import Bookmark, Changed, Deleted, Key, Lost, Note, Regained, Synced, Watch

__all__ = [
    "AlreadyExists",
    "BadRequest",
    "Bookmark",
    "Cause",
    "Changed",
    "Cluster",
    "ClusterError",
    "Conflict",
    "Deleted",
    "Expired",
    "Fence",
    "Forbidden",
    "Invalid",
    "Key",
    "Listing",
    "Lost",
    "Misconfigured",
    "NotFound",
    "Note",
    "Obj",
    "Page",
    "Patience",
    "Regained",
    "Resource",
    "Synced",
    "Throttled",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "UnknownResource",
    "Unsupported",
    "Watch",
    "in_cluster",
    "kubeconfig",
    "open_fence",
]
