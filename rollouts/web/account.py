"""/account/: the permissions of one's own account, its password, and a way to end all its sessions and tokens.

Commands go to `services.passwords`. Wrong old passwords are counted and audited like failed sign-ins, so that nobody
can guess the password in a session that was left open.
"""

from http import HTTPStatus
from math import ceil
from typing import Any, Final

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout, update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render, resolve_url
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from rollouts.accounts import permissions
from rollouts.accounts.token_scopes import render_namespace
from rollouts.accounts.tokens import TokenState, state_of, tokens_with_owners
from rollouts.models import User
from rollouts.services.audit import Source, caller_of
from rollouts.services.passwords import password_change, password_change_refused, sessions_end
from rollouts.web.password_attempts import count_attempt, old_password_buckets, set_retry_after, uncount_attempt

_RATE_LIMITED: Final = "too-often"
# Label and help text by field; the help text states the rules of AUTH_PASSWORD_VALIDATORS.
_FIELD_TEXTS: Final = {
    "old_password": ("Old password", ""),
    "new_password1": ("New password", "At least 8 characters; not a common word, not like your name, not only digits."),
    "new_password2": ("New password again", ""),
}


class PasswordForm(PasswordChangeForm):
    """The old password, whose checks are rate-limited, and the new one twice."""

    def __init__(self, request: HttpRequest, user: User, *args: Any) -> None:
        super().__init__(user, *args)
        self._request = request
        for name, (label, help_text) in _FIELD_TEXTS.items():
            self.fields[name].label, self.fields[name].help_text = label, help_text
        self.retry_after_seconds = 0.0  # seconds until the old password can be checked again

    def clean_old_password(self) -> str:
        """Check the old password; a wrong one is audited."""
        attempts = old_password_buckets(self._request, self.user)
        self.retry_after_seconds = count_attempt(attempts)
        if self.retry_after_seconds:
            sentence = f"The old password was wrong too often. Try again in {ceil(self.retry_after_seconds)} s."
            raise ValidationError(sentence, code=_RATE_LIMITED)
        try:
            password = str(super().clean_old_password())
        except ValidationError as error:
            password_change_refused(caller_of(self._request, Source.PAGE))
            raise ValidationError("The old password is wrong.") from error
        uncount_attempt(attempts)
        return password


@never_cache
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Show the account of the user."""
    user = _signed_in_user(request)
    return _render_page(request, PasswordForm(request, user))


@never_cache
@require_POST
@sensitive_post_parameters()
def change_password(request: HttpRequest) -> HttpResponse:
    """Change the user's own password; this session continues, the others end."""
    user = _signed_in_user(request)
    form = PasswordForm(request, user, request.POST)
    if not user.has_usable_password():
        return _render_page(request, form, status=HTTPStatus.CONFLICT)
    if not form.is_valid():
        status = HTTPStatus.TOO_MANY_REQUESTS if form.retry_after_seconds else HTTPStatus.BAD_REQUEST
        response = _render_page(request, form, status=status)
        return set_retry_after(response, form.retry_after_seconds) if form.retry_after_seconds else response
    with_tokens = "tokens" in request.POST
    password_change(caller_of(request, Source.PAGE), user, form.cleaned_data["new_password1"], with_tokens=with_tokens)
    update_session_auth_hash(request, user)
    messages.success(
        request, f"Password changed. Your other sessions {'and your tokens ' if with_tokens else ''}have ended."
    )
    return HttpResponseRedirect(reverse("page-account"))


@never_cache
@require_POST
def end_sessions(request: HttpRequest) -> HttpResponse:
    """End all sessions of the user, including this one, and revoke all tokens."""
    user = _signed_in_user(request)
    if "sure" not in request.POST:
        return _render_page(request, PasswordForm(request, user), is_unsure=True, status=HTTPStatus.BAD_REQUEST)
    sessions_end(caller_of(request, Source.PAGE), user)
    logout(request)
    messages.success(request, "All your sessions have ended and your tokens are revoked. Sign in again to continue.")
    return HttpResponseRedirect(resolve_url(settings.LOGOUT_REDIRECT_URL))


def _signed_in_user(request: HttpRequest) -> User:
    assert isinstance(request.user, User), "LoginRequiredMiddleware redirects anonymous users"  # noqa: S101
    return request.user


def _render_page(
    request: HttpRequest, form: PasswordForm, *, is_unsure: bool = False, status: int = 200
) -> HttpResponse:
    user = _signed_in_user(request)
    now = timezone.now()
    tokens = tokens_with_owners().filter(user=user, revoked_at=None)
    provider = settings.ENVIRONMENT.oidc
    context = {
        "form": form,
        "is_unsure": is_unsure,
        "roles": sorted(user.groups.values_list("name", flat=True)),
        "needs_grants": not user.has_perm(permissions.COMMAND_ANYWHERE),
        "grants": [render_namespace(place) for place in sorted(permissions.grants_of(user))],
        "comes_by_sso": user.identities.exists(),
        "sso_name": provider.name if provider else "single sign-on",
        "token_count": sum(state_of(token, now) in (TokenState.VALID, TokenState.ASLEEP) for token in tokens),
    }
    return render(request, "account/page.html", context, status=status)
