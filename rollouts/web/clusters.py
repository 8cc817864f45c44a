"""/clusters/: the state of each cluster, and the health of the components of the installation."""

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
    """Return the part of the page that changes."""

    def render_state() -> str:
        return render_to_string("clusters/_state.html", {"overview": overview_detail(), "clusters": cluster_list()})

    return Fragment("clusters-page", render_state)
