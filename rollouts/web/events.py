"""Kubernetes Events on the page of a workload, and all of them on a page of their own.

They come from the cluster and not from the mirror, and a page must not wait for a cluster: the card is empty at first
and brought when it is there, and without scripts it leads to the page.
"""

from typing import Final

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.template.loader import render_to_string
from django.views.decorators.http import require_safe

from rollouts.accounts.commands import Place
from rollouts.live.fragments import Fragment
from rollouts.selectors.events import event_list
from rollouts.web.page_layout import for_fragment, for_readers

_ON_THE_CARD: Final = 8


@require_safe
@for_readers
def page(request: HttpRequest, cluster: str, namespace: str, name: str) -> HttpResponse:
    """Show the newest Events about a workload and its objects."""
    place = Place(cluster, namespace, name)
    events = event_list(place)
    return render(request, "workload/events.html", {"place": place, "events": events, "lines": events.items})


@for_fragment
def card(_: QueryDict, cluster: str, namespace: str, name: str) -> Fragment:
    """Return the last few of them."""
    place = Place(cluster, namespace, name)

    def render_card() -> str:
        events = event_list(place, _ON_THE_CARD)
        return render_to_string("workload/_events.html", {"place": place, "events": events, "lines": events.items})

    return Fragment(("events", place), render_card, asks_cluster=True)
