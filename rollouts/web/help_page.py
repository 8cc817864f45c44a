"""/help/: keyboard shortcuts, the meaning of colours, states and reasons, and links."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from rollouts.engine.plan.wait_codes import WaitCode
from rollouts.web.page_layout import viewer_required
from rollouts.web.text import reason


@require_safe
@viewer_required
def page(request: HttpRequest) -> HttpResponse:
    """Explain the dashboard."""
    return render(request, "help/page.html", {"reasons": [(str(code), reason(code)) for code in WaitCode]})
