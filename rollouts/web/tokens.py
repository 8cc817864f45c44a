"""/tokens/: the tokens by which one's own programs call the API: made, shown once, revoked.

Commands go to `services.accounts`. The text of a new token stands in the answer that made it and nowhere else: the page
is not to be stored, and loading it again does not show it.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from rollouts.accounts import permissions
from rollouts.accounts.commands import Command
from rollouts.accounts.errors import CommandRefused
from rollouts.accounts.token_scopes import SCOPE_COMMANDS, ScopeWish, describe_scope, parse_namespaces, scope_of
from rollouts.accounts.tokens import State, end_of, longest_life, state_of, tokens_with_owners
from rollouts.models import ApiToken
from rollouts.services.accounts import DAYS_TO_LIVE, NewToken, token_create, token_revoke, usual_end
from rollouts.services.audit import Via, caller_of

_MOST_SHOWN: Final = 200
_LONGEST_TEXT: Final = 10_000
# How long a token may be of use, by what the form sends; None: for good.
_LIFETIMES: Final = {"7": 7, "30": 30, str(DAYS_TO_LIVE): DAYS_TO_LIVE, "365": 365, "never": None}


@dataclass(frozen=True, slots=True)
class Line:
    """A token in the list."""

    token: ApiToken
    state: State
    end: datetime | None
    limits: list[str]  # in words; none: all that its owner may


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
            wish=_read_wish(request.POST),
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
    if days not in _LIFETIMES:
        return usual_end()
    lifetime = _LIFETIMES[days]
    return None if lifetime is None else timezone.now() + timedelta(days=lifetime)


def _list_lifetimes() -> dict[str, int | None]:
    """Return how long a token may be of use, by what the form sends; None: for good."""
    longest = longest_life()
    if longest is None:
        return _LIFETIMES
    return {name: days for name, days in _LIFETIMES.items() if days is not None and days <= longest.days}


def _read_wish(form: QueryDict) -> ScopeWish:
    return ScopeWish(
        "read_only" in form,
        parse_namespaces(form.get("namespaces", "")[:_LONGEST_TEXT]),
        form.getlist("commands") or None,
    )


def _show(request: HttpRequest, *, made: NewToken | None = None, refusal: CommandRefused | None = None) -> HttpResponse:
    now = timezone.now()
    rows = tokens_with_owners().filter(user=request.user.pk)[:_MOST_SHOWN]
    context = {
        "tokens": [Line(row, state_of(row, now), end_of(row), describe_scope(scope_of(row))) for row in rows],
        "made": made,
        "refusal": refusal,
        "barred": permissions.find_refusal(request.user, Command.CREATE_TOKEN),
        "lifetimes": _list_lifetimes(),
        "usual": str(DAYS_TO_LIVE),
        "commands": SCOPE_COMMANDS,
        "wished": request.POST if refusal else {},
        "wished_commands": request.POST.getlist("commands") if refusal else [],
        "sleep_days": settings.ENVIRONMENT.oidc_token_days,
    }
    status = HTTPStatus.BAD_REQUEST if refusal else HTTPStatus.OK
    return render(request, "tokens/page.html", context, status=status)
