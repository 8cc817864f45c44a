"""/tokens/: create and revoke the API tokens of one's own account.

Commands go to `services.tokens`. Only the response that creates a token contains its text: caches must not store the
page, and loading it again does not show the text.
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
from rollouts.accounts.token_scopes import SCOPE_COMMANDS, RequestedScope, describe_scope, parse_namespaces, scope_of
from rollouts.accounts.tokens import TokenState, expiry_of, max_lifetime, state_of, tokens_with_owners
from rollouts.models import ApiToken
from rollouts.services.audit import Source, caller_of
from rollouts.services.tokens import DEFAULT_TOKEN_DAYS, NewToken, default_expiry, token_create, token_revoke

_MAX_TOKENS: Final = 200
_MAX_TEXT_LENGTH: Final = 10_000
# The lifetime of a token in days, by the value that the form sends; None: no end.
_LIFETIME_DAYS: Final = {"7": 7, "30": 30, str(DEFAULT_TOKEN_DAYS): DEFAULT_TOKEN_DAYS, "365": 365, "never": None}


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A row of the list."""

    token: ApiToken
    state: TokenState
    end: datetime | None
    limits: list[str]  # as text; none: the same permissions as its owner


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def page(request: HttpRequest) -> HttpResponse:
    """Show the tokens of the user; on POST create one."""
    if request.method != "POST":
        return _render_page(request)
    try:
        made = token_create(
            caller_of(request, Source.PAGE),
            request.POST.get("name", "").strip(),
            _parse_expiry(request.POST.get("days", "")),
            requested=_parse_scope(request.POST),
        )
    except CommandRefused as refusal:
        return _render_page(request, refusal=refusal)
    return _render_page(request, made=made)


@require_POST
def revoke(request: HttpRequest, number: int) -> HttpResponse:
    """Revoke a token of the user."""
    try:
        token_revoke(caller_of(request, Source.PAGE), number)
    except CommandRefused as refusal:
        return _render_page(request, refusal=refusal)
    return HttpResponseRedirect(reverse("page-tokens"))


def _parse_expiry(days: str) -> datetime | None:
    if days not in _LIFETIME_DAYS:
        return default_expiry()
    lifetime = _LIFETIME_DAYS[days]
    return None if lifetime is None else timezone.now() + timedelta(days=lifetime)


def _allowed_lifetimes() -> dict[str, int | None]:
    """Return the allowed lifetimes in days, by the value that the form sends; None: no end."""
    longest = max_lifetime()
    if longest is None:
        return _LIFETIME_DAYS
    return {name: days for name, days in _LIFETIME_DAYS.items() if days is not None and days <= longest.days}


def _parse_scope(given: QueryDict) -> RequestedScope:
    return RequestedScope(
        "read_only" in given,
        parse_namespaces(given.get("namespaces", "")[:_MAX_TEXT_LENGTH]),
        given.getlist("commands") or None,
    )


def _render_page(
    request: HttpRequest, *, made: NewToken | None = None, refusal: CommandRefused | None = None
) -> HttpResponse:
    now = timezone.now()
    rows = tokens_with_owners().filter(user=request.user.pk)[:_MAX_TOKENS]
    context = {
        "tokens": [TokenRow(row, state_of(row, now), expiry_of(row), describe_scope(scope_of(row))) for row in rows],
        "made": made,
        "refusal": refusal,
        "blocked": permissions.find_refusal(request.user, Command.CREATE_TOKEN),
        "lifetimes": _allowed_lifetimes(),
        "usual": str(DEFAULT_TOKEN_DAYS),
        "commands": SCOPE_COMMANDS,
        "wished": request.POST if refusal else {},
        "wished_commands": request.POST.getlist("commands") if refusal else [],
        "sleep_days": settings.ENVIRONMENT.oidc_token_days,
    }
    status = HTTPStatus.BAD_REQUEST if refusal else HTTPStatus.OK
    return render(request, "tokens/page.html", context, status=status)
