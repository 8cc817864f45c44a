"""The only package that talks to the Kubernetes API.

Before it: the settings, which name the cluster (`config`). After it: the mirror, the controller and the services, which
know objects as plain JSON and failures as the classes of `errors`. Nothing outside this package imports the
`kubernetes` client or opens a connection to a cluster.

The invariants: every call ends within a bounded time; reads are repeated while that may help, writes never; an answer
that does not have the form the API promises is an error, never a value.
"""

from rollouts.cluster.client import ClusterClient, Fence, Listing, Obj, Page, allow_every_write
from rollouts.cluster.config import in_cluster, kubeconfig
from rollouts.cluster.errors import (
    AlreadyExists,
    BadRequest,
    ClusterError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    Misconfigured,
    NotFound,
    StatusCause,
    Throttled,
    TooLarge,
    Unauthorized,
    Unavailable,
    UnknownResource,
    Unsupported,
)
from rollouts.cluster.resources import Resource
from rollouts.cluster.retry_policy import RetryPolicy
from rollouts.cluster.watch import (
    Bookmark,
    Changed,
    ConnectionLost,
    ConnectionRestored,
    Deleted,
    ObjectKey,
    Synced,
    Watch,
    WatchEvent,
)

__all__ = [
    "AlreadyExists",
    "BadRequest",
    "Bookmark",
    "Changed",
    "ClusterClient",
    "ClusterError",
    "Conflict",
    "ConnectionLost",
    "ConnectionRestored",
    "Deleted",
    "Expired",
    "Fence",
    "Forbidden",
    "Invalid",
    "Listing",
    "Misconfigured",
    "NotFound",
    "Obj",
    "ObjectKey",
    "Page",
    "Resource",
    "RetryPolicy",
    "StatusCause",
    "Synced",
    "Throttled",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "UnknownResource",
    "Unsupported",
    "Watch",
    "WatchEvent",
    "allow_every_write",
    "in_cluster",
    "kubeconfig",
]
