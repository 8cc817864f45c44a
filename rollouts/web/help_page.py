"""/help/: the keyboard, what colours and words mean, and where to read on."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from rollouts.engine.plan.diagnosis import Code
from rollouts.web.page_layout import for_readers
from rollouts.web.text import reason


@require_safe
@for_readers
def page(request: HttpRequest) -> HttpResponse:
    """Explain the dashboard."""
    return render(request, "help/page.html", {"reasons": [(str(code), reason(code)) for code in Code]})
