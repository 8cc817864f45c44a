"""The pages of the dashboard, as small function views: read by selectors, command by services."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from rollouts.selectors.overview import overview_detail


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """Show the cluster and the state of the installation."""
    return render(request, "home.html", {"overview": overview_detail()})
