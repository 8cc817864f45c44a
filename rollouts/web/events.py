"""Kubernetes Events on the page of a workload, and all of them on a page of their own.

They come from the cluster and not from the mirror, so they are kept out of the workload's page and of its stream, which
must not wait for a cluster: the card is fetched by itself after the page is there (`static/live.js` is told to), and
without scripts it leads to the page.
"""

from typing import Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.views.decorators.http import require_safe

from rollouts.commands import Place
from rollouts.selectors.events import event_list
from rollouts.web.fragments import answer_fragment
from rollouts.web.shell import for_readers

_ON_THE_CARD: Final = 8


@require_safe
@for_readers
def page(request: HttpRequest, cluster: str, namespace: str, name: str) -> HttpResponse:
    """Show the newest Events about a workload and its objects."""
    place = Place(cluster, namespace, name)
    events = event_list(place)
    return render(request, "workload/events.html", {"place": place, "events": events, "lines": events.items})


@require_safe
@for_readers
def card(request: HttpRequest, cluster: str, namespace: str, name: str) -> HttpResponse:
    """Answer with the last few of them."""
    place = Place(cluster, namespace, name)

    def render_card() -> str:
        events = event_list(place)
        lines = events.items[:_ON_THE_CARD]
        return render_to_string("workload/_events.html", {"place": place, "events": events, "lines": lines})

    return answer_fragment(request, ("events", place), render_card)
