"""The first page of the admin site: overrides in force with their ends, clusters, and the last commands.

It needs three queries.
"""

from typing import Any

from django.db.models import F
from django.http import HttpRequest
from django.utils import timezone

from rollouts.accounts import permissions
from rollouts.models import Cluster, StrategyOverride
from rollouts.selectors.audit import AuditFilters, audit_rows

_MAX_ROWS = 8


def dashboard_callback(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Return the context of the first page."""
    context = {**context, "title": "Overview"}
    if not permissions.may_view(request.user):
        return {**context, "refusal": permissions.NO_ROLE_SENTENCE}
    now = timezone.now()
    in_force = StrategyOverride.objects.in_force(now).select_related("author")
    soonest = in_force.order_by(F("expires_at").asc(nulls_last=True))
    return {
        **context,
        "overrides": list(soonest[: _MAX_ROWS + 1]),
        "clusters": list(Cluster.objects.order_by("name")),
        "entries": list(
            audit_rows(AuditFilters()).defer("before", "after", "begun__before", "begun__after")[:_MAX_ROWS]
        ),
        "shown": _MAX_ROWS,
    }
