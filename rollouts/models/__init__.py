"""What the database holds.

Two halves. The *mirror* (`mirror`) repeats what the cluster says and can be dropped at any moment: the watcher brings
it back. The rest only we know: what happened (`history`), what people decided (`overrides`), who they are
(`accounts`), what they did (`audit`) and what we answered (`calls`); none of it refers to rows of the mirror, so that
it outlives them.
"""

from rollouts.models.accounts import ApiToken, NamespaceGrant, OidcIdentity, User
from rollouts.models.audit import AuditEntry
from rollouts.models.calls import Call
from rollouts.models.history import Revision, Rollout, Sample, Step
from rollouts.models.mirror import (
    Clique,
    Cluster,
    Gang,
    Mirrored,
    Node,
    Pod,
    ScalingGroup,
    Service,
    Trouble,
    Workload,
)
from rollouts.models.overrides import StrategyOverride
from rollouts.models.pod_security import NamespacePodSecurity

__all__ = [
    "ApiToken",
    "AuditEntry",
    "Call",
    "Clique",
    "Cluster",
    "Gang",
    "Mirrored",
    "NamespaceGrant",
    "NamespacePodSecurity",
    "Node",
    "OidcIdentity",
    "Pod",
    "Revision",
    "Rollout",
    "Sample",
    "ScalingGroup",
    "Service",
    "Step",
    "StrategyOverride",
    "Trouble",
    "User",
    "Workload",
]
