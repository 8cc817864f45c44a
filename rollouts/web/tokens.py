"""/tokens/: the tokens by which one's own programs call the API: made, shown once, revoked.

Commands go to `services.accounts`. The text of a new token stands in the answer that made it and nowhere else: the page
is not to be stored, and loading it again does not show it.
"""

from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from rollouts import access
from rollouts.audit import Via, caller_of
from rollouts.commands import Command
from rollouts.models import ApiToken
from rollouts.refusals import CommandRefused
from rollouts.services.accounts import DAYS_TO_LIVE, NewToken, token_create, token_revoke

_MOST_SHOWN: Final = 200
# How long a token may be of use, by what the form sends; None: for good.
LIFETIMES: Final = {"7": 7, "30": 30, str(DAYS_TO_LIVE): DAYS_TO_LIVE, "365": 365, "never": None}


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def page(request: HttpRequest) -> HttpResponse:
    """Show one's tokens; make one when asked to."""
    if request.method != "POST":
        return _show(request)
    try:
        made = token_create(
            caller_of(request, Via.PAGE),
            request.POST.get("name", "").strip(),
            _end_of(request.POST.get("days", "")),
            read_only="read_only" in request.POST,
        )
    except CommandRefused as refusal:
        return _show(request, refusal=refusal)
    return _show(request, made=made)


@require_POST
def revoke(request: HttpRequest, number: int) -> HttpResponse:
    """End one of one's tokens."""
    try:
        token_revoke(caller_of(request, Via.PAGE), number)
    except CommandRefused as refusal:
        return _show(request, refusal=refusal)
    return HttpResponseRedirect(reverse("page-tokens"))


def _end_of(days: str) -> datetime | None:
    lifetime = LIFETIMES.get(days, DAYS_TO_LIVE)
    return None if lifetime is None else timezone.now() + timedelta(days=lifetime)


def _show(request: HttpRequest, *, made: NewToken | None = None, refusal: CommandRefused | None = None) -> HttpResponse:
    now = timezone.now()
    tokens = [(token, token.is_valid(now)) for token in ApiToken.objects.filter(user=request.user.pk)[:_MOST_SHOWN]]
    context = {
        "tokens": tokens,
        "made": made,
        "refusal": refusal,
        "barred": access.find_refusal(request.user, Command.CREATE_TOKEN),
        "lifetimes": LIFETIMES,
        "usual": str(DAYS_TO_LIVE),
    }
    status = HTTPStatus.BAD_REQUEST if refusal else HTTPStatus.OK
    return render(request, "tokens/page.html", context, status=status)
