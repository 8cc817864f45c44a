"""Kubernetes Events on the page of a workload, and all of them on a page of their own.

Events come from the cluster and not from the mirror, and a page must not wait for a cluster. So the card is empty at
first and filled by a later request; without scripts it links to the page of Events.
"""

from typing import Final

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.template.loader import render_to_string
from django.views.decorators.http import require_safe

from rollouts.accounts.commands import WorkloadRef
from rollouts.live.fragments import Fragment
from rollouts.selectors.events import event_list
from rollouts.web.page_layout import fragment_view, viewer_required

_EVENTS_ON_CARD: Final = 8


@require_safe
@viewer_required
def page(request: HttpRequest, cluster: str, namespace: str, name: str) -> HttpResponse:
    """Show the newest Events about a workload and its objects."""
    place = WorkloadRef(cluster, namespace, name)
    events = event_list(place)
    return render(request, "workload/events.html", {"place": place, "events": events, "lines": events.items})


@fragment_view
def card_fragment(_: QueryDict, cluster: str, namespace: str, name: str) -> Fragment:
    """Return the newest few Events."""
    place = WorkloadRef(cluster, namespace, name)

    def render_card() -> str:
        events = event_list(place, _EVENTS_ON_CARD)
        return render_to_string("workload/_events.html", {"place": place, "events": events, "lines": events.items})

    return Fragment(("events", place), render_card, asks_cluster=True)
