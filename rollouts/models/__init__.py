"""The tables.

The mirror (`mirror`) is a copy of the clusters' objects: it may be dropped at any moment, and the watcher fills it
again. The rest exists only here: rollouts (`history`), overrides of strategies (`overrides`), levels of Pod Security
(`pod_security`), accounts (`accounts`), the audit log (`audit`) and answers of the API (`calls`). None of these refers
to a row of the mirror, so they outlive it.
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
