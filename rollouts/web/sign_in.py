"""Signing in, by name and password or by single sign-on, and out again.

Wrong passwords are rate-limited by source address and by name; the answer reveals neither whether an account exists nor
whether it is deactivated. Django's signals audit every sign-in, failed sign-in and sign-out, with a password or with
single sign-on.
"""

from dataclasses import replace
from http import HTTPStatus
from math import ceil
from typing import Any, Final

from django.conf import settings
from django.contrib.auth import login, views
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.dispatch import receiver
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import resolve_url
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from grove_ui.environment import Oidc
from rollouts.accounts import rate_limit
from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import CommandRefused
from rollouts.models import User
from rollouts.services.audit import Result, Source, caller_of, record
from rollouts.services.single_sign_on import account_ensure_external
from rollouts.web import oidc
from rollouts.web.password_attempts import count_attempt, set_retry_after, sign_in_buckets, uncount_attempt

_NEXT_URL_KEY: Final = "sign_in_next"  # session key: the page to open after the provider returns
_RATE_LIMITED: Final = "too-often"


class SignInForm(AuthenticationForm):
    """Name and password, whose checks are rate-limited."""

    retry_after_seconds = 0.0  # seconds until a password can be checked again

    def clean(self) -> dict[str, Any]:
        """Check the password under the rate limit; count beforehand, so that simultaneous guesses cannot all pass."""
        attempts = sign_in_buckets(self.request, self.cleaned_data.get("username") or "")
        self.retry_after_seconds = count_attempt(attempts)
        if self.retry_after_seconds:
            raise ValidationError(
                f"Too many failed attempts. Try again in {ceil(self.retry_after_seconds)} s.", code=_RATE_LIMITED
            )
        cleaned = super().clean()
        uncount_attempt(attempts)
        return cleaned


@method_decorator(login_not_required, name="dispatch")
class SignInView(views.LoginView):
    """The sign-in page."""

    form_class = SignInForm
    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the name of the single sign-on provider, if any, and whether this installation has the sandbox."""
        provider: Oidc | None = settings.ENVIRONMENT.oidc
        return {
            **super().get_context_data(**kwargs),
            "sso_name": provider.name if provider else None,
            "is_sandbox": "sandbox" in settings.ENVIRONMENT.clusters,
        }

    def form_invalid(self, form: SignInForm) -> HttpResponse:  # type: ignore[override]
        """Answer 401 for a wrong password, 429 for too many."""
        for error in form.errors.as_data().get(NON_FIELD_ERRORS, ()):
            if error.code == _RATE_LIMITED:
                return set_retry_after(
                    self.render_problem(form, error.messages[0], HTTPStatus.TOO_MANY_REQUESTS), form.retry_after_seconds
                )
        return super().form_invalid(form)

    def render_problem(self, form: AuthenticationForm, sentence: str, status: int) -> HttpResponse:
        """Render the sign-in page with an error."""
        return self.render_to_response(self.get_context_data(form=form, problem=sentence), status=status)


# --- Single sign-on ---------------------------------------------------------------------------------------------------


@login_not_required
@never_cache
@require_GET
def sso_start(request: HttpRequest) -> HttpResponse:
    """Redirect to the identity provider, and remember the page to open afterwards."""
    provider = _provider()
    # Each attempt creates a session in the database.
    bucket = rate_limit.bucket_name_of_address("sso", getattr(request, "source_ip", None))
    if seconds := rate_limit.acquire(bucket, settings.ENVIRONMENT.stranger_rate):
        return _render_rate_limited(request, seconds)
    wanted = request.GET.get("next", "")
    is_ours = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, require_https=request.is_secure())
    request.session[_NEXT_URL_KEY] = wanted if is_ours else ""
    try:
        return oidc.redirect_to_provider(provider, request, request.build_absolute_uri(reverse("sso-done")))
    except oidc.SignInRejected as error:
        return _render_problem(request, str(error), HTTPStatus.BAD_GATEWAY)


@login_not_required
@never_cache
@require_GET
def sso_callback(request: HttpRequest) -> HttpResponse:
    """Sign in the user whom the identity provider confirms."""
    provider = _provider()
    attempts = sign_in_buckets(request)
    if seconds := count_attempt(attempts):
        return _render_rate_limited(request, seconds)
    try:
        vouched = oidc.fetch_identity(provider, request)
        user = account_ensure_external(replace(caller_of(request, Source.PAGE), name="identity provider"), vouched)
    except (oidc.SignInRejected, CommandRefused) as error:
        record(caller_of(request, Source.PAGE), Command.SIGN_IN, WorkloadRef(), Result.REFUSED, detail=str(error))
        return _render_problem(request, str(error), HTTPStatus.FORBIDDEN)
    uncount_attempt(attempts)
    wanted = request.session.pop(_NEXT_URL_KEY, "")
    login(request, user)
    return HttpResponseRedirect(wanted or resolve_url(settings.LOGIN_REDIRECT_URL))


def _provider() -> Oidc:
    provider: Oidc | None = settings.ENVIRONMENT.oidc
    if provider is None:
        raise Http404
    return provider


def _render_rate_limited(request: HttpRequest, seconds: float) -> HttpResponse:
    sentence = f"Too many attempts. Try again in {ceil(seconds)} s."
    return set_retry_after(_render_problem(request, sentence, HTTPStatus.TOO_MANY_REQUESTS), seconds)


def _render_problem(request: HttpRequest, sentence: str, status: int) -> HttpResponse:
    view = SignInView()
    view.setup(request)
    return view.render_problem(SignInForm(request), sentence, status)


# --- Audit ------------------------------------------------------------------------------------------------------------


@receiver(user_logged_in, dispatch_uid="rollouts.web.sign_in")
def _record_sign_in(request: HttpRequest, user: User, **_: Any) -> None:
    if _is_http_request(request):
        detail = "By single sign-on." if request.path == reverse("sso-done") else "By name and password."
        _record_attempt(request, user, Command.SIGN_IN, Result.DONE, detail)


@receiver(user_logged_out, dispatch_uid="rollouts.web.sign_in")
def _record_sign_out(request: HttpRequest, user: User | None, **_: Any) -> None:
    if user is not None and _is_http_request(request):
        _record_attempt(request, user, Command.SIGN_OUT, Result.DONE, "")


@receiver(user_login_failed, dispatch_uid="rollouts.web.sign_in")
def _record_failure(credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    # Users type their password into the name field: only names of accounts are audited.
    if request is not None and _is_http_request(request):
        user = User.objects.filter(username=credentials.get("username", "")).first()
        _record_attempt(request, user, Command.SIGN_IN, Result.REFUSED, "Wrong name or password.")


def _is_http_request(request: HttpRequest) -> bool:
    """Return whether a client sent the request, and not our own code."""
    return hasattr(request, "request_id")


def _record_attempt(request: HttpRequest, user: User | None, command: Command, result: Result, detail: str) -> None:
    via = Source.ADMIN if request.path.startswith("/admin/") else Source.PAGE
    name = user.get_username() if user else ""
    caller = replace(caller_of(request, via), user=user, name=name)
    record(caller, command, WorkloadRef(), result, detail=detail)
