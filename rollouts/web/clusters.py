"""/clusters/: how we stand with each cluster, and whether every part of the installation does its work."""

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.template.loader import render_to_string
from django.views.decorators.http import require_safe

from rollouts.live.fragments import Fragment
from rollouts.selectors.clusters import cluster_list
from rollouts.selectors.overview import overview_detail
from rollouts.web.page_layout import fragment_view, viewer_required


@require_safe
@viewer_required
def page(request: HttpRequest) -> HttpResponse:
    """Show the clusters and the state of the installation."""
    return render(request, "clusters/page.html", {"overview": overview_detail(), "clusters": cluster_list()})


@fragment_view
def state_fragment(_: QueryDict) -> Fragment:
    """Return what changes on the page."""

    def render_state() -> str:
        return render_to_string("clusters/_state.html", {"overview": overview_detail(), "clusters": cluster_list()})

    return Fragment("clusters-page", render_state)
