"""The first page of the admin site: what an administrator should know before doing anything.

Which overrides are in force and when they end, how the clusters are, and what was commanded last. Three queries.
"""

from typing import Any

from django.db.models import F, Q
from django.http import HttpRequest
from django.utils import timezone

from rollouts.models import AuditEntry, Cluster, StrategyOverride

_SHOWN = 8


def describe(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Return the context of the first page."""
    user = request.user
    now = timezone.now()
    in_force = StrategyOverride.objects.filter(Q(expires_at=None) | Q(expires_at__gt=now)).select_related("author")
    soonest = in_force.order_by(F("expires_at").asc(nulls_last=True))
    return {
        **context,
        "title": "Overview",
        "overrides": list(soonest[: _SHOWN + 1]) if user.has_perm("rollouts.view_strategyoverride") else None,
        "clusters": list(Cluster.objects.order_by("name")) if user.has_perm("rollouts.view_cluster") else None,
        "entries": list(AuditEntry.objects.defer("before", "after")[:_SHOWN])
        if user.has_perm("rollouts.view_auditentry")
        else None,
        "shown": _SHOWN,
    }
