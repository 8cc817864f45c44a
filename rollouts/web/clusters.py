"""/clusters/: how we stand with each cluster, and whether every part of the installation does its work."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.views.decorators.http import require_safe

from rollouts.selectors.clusters import cluster_list
from rollouts.selectors.overview import overview_detail
from rollouts.web.fragments import answer_fragment
from rollouts.web.shell import for_readers


@require_safe
@for_readers
def page(request: HttpRequest) -> HttpResponse:
    """Show the clusters and the state of the installation."""
    return render(request, "clusters/page.html", {"overview": overview_detail(), "clusters": cluster_list()})


@require_safe
@for_readers
def live(request: HttpRequest) -> HttpResponse:
    """Answer with what changes on the page."""

    def render_state() -> str:
        return render_to_string("clusters/_state.html", {"overview": overview_detail(), "clusters": cluster_list()})

    return answer_fragment(request, "clusters-page", render_state)
