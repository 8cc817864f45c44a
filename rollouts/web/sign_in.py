"""Signing in, by name and password or by single sign-on, and out again.

Wrong passwords are counted by the address they come from and by the name they are tried on, so that nobody can go on
guessing; who guesses learns neither whether there is such an account nor whether it is deactivated. Whoever signs in,
fails to, or signs out is on record, by whichever door: Django's signals tell of all of them.
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

from grove_ui.environment import Oidc, Rate
from rollouts import rates
from rollouts.audit import Result, Via, caller_of, record
from rollouts.commands import Command, Place
from rollouts.models import User
from rollouts.refusals import CommandRefused
from rollouts.services.accounts import account_vouched_for
from rollouts.web import oidc

_NEXT: Final = "sign_in_next"  # in the session: where somebody wanted to go who is with the provider now
_TOO_OFTEN: Final = "too-often"
# A name is tried from many addresses when somebody has many; five times as often as from one, since whoever tries a
# name on purpose until nobody is let in keeps its owner out as well.
_TIMES_A_NAME: Final = 5


class SignInForm(AuthenticationForm):
    """Name and password, looked at only so often."""

    def clean(self) -> dict[str, Any]:
        """Let nobody guess on."""
        buckets = _buckets(self.request, self.cleaned_data.get("username") or "")
        seconds = max(rates.look(bucket, rate) for bucket, rate in buckets)
        if seconds:
            sentence = f"That was wrong too often. Try again in {ceil(seconds)} s."
            raise ValidationError(sentence, code=_TOO_OFTEN)
        try:
            return super().clean()
        except ValidationError:
            for bucket, rate in buckets:
                rates.take(bucket, rate)
            raise


@method_decorator(login_not_required, name="dispatch")
class SignInView(views.LoginView):
    """The page to sign in on."""

    form_class = SignInForm
    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Offer single sign-on when there is one."""
        provider: Oidc | None = settings.ENVIRONMENT.oidc
        return {**super().get_context_data(**kwargs), "sso_name": provider.name if provider else None}

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        """Say that it was wrong, or wrong too often."""
        for error in form.errors.as_data().get(NON_FIELD_ERRORS, ()):
            if error.code == _TOO_OFTEN:
                return self.refuse(form, error.messages[0], HTTPStatus.TOO_MANY_REQUESTS)
        return super().form_invalid(form)

    def refuse(self, form: AuthenticationForm, sentence: str, status: int) -> HttpResponse:
        """Show the page with what is in the way."""
        return self.render_to_response(self.get_context_data(form=form, problem=sentence), status=status)


def _buckets(request: HttpRequest | None, name: str) -> list[tuple[str, Rate | None]]:
    rate: Rate | None = settings.ENVIRONMENT.sign_in_rate
    of_a_name = rate and Rate(rate.count * _TIMES_A_NAME, rate.seconds)
    source = getattr(request, "source_ip", None) or "nowhere"
    return [(rates.bucket_of("sign-in", source), rate), (rates.bucket_of("name", name.casefold()), of_a_name)]


# --- Single sign-on ---------------------------------------------------------------------------------------------------


@login_not_required
@never_cache
@require_GET
def sso_set_out(request: HttpRequest) -> HttpResponse:
    """Send somebody to the identity provider, remembering where they wanted to go."""
    provider = _provider()
    # Each attempt leaves a session in the database.
    source = getattr(request, "source_ip", None) or "nowhere"
    if seconds := rates.take(rates.bucket_of("sso", source), settings.ENVIRONMENT.stranger_rate):
        return _show_problem(
            request, f"That was too often. Try again in {ceil(seconds)} s.", HTTPStatus.TOO_MANY_REQUESTS
        )
    wanted = request.GET.get("next", "")
    is_ours = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, require_https=request.is_secure())
    request.session[_NEXT] = wanted if is_ours else ""
    try:
        return oidc.set_out(provider, request, request.build_absolute_uri(reverse("sso-done")))
    except oidc.NotVouchedFor as error:
        return _show_problem(request, str(error), HTTPStatus.BAD_GATEWAY)


@login_not_required
@never_cache
@require_GET
def sso_come_back(request: HttpRequest) -> HttpResponse:
    """Sign somebody in whom the identity provider vouches for."""
    provider = _provider()
    bucket, rate = _buckets(request, "")[0]
    if seconds := rates.look(bucket, rate):
        sentence = f"That failed too often. Try again in {ceil(seconds)} s."
        return _show_problem(request, sentence, HTTPStatus.TOO_MANY_REQUESTS)
    try:
        vouched = oidc.come_back(provider, request)
        user = account_vouched_for(replace(caller_of(request, Via.PAGE), name="identity provider"), vouched)
    except (oidc.NotVouchedFor, CommandRefused) as error:
        rates.take(bucket, rate)
        record(caller_of(request, Via.PAGE), Command.SIGN_IN, Place(), Result.REFUSED, detail=str(error))
        return _show_problem(request, str(error), HTTPStatus.FORBIDDEN)
    wanted = request.session.pop(_NEXT, "")
    login(request, user)
    return HttpResponseRedirect(wanted or resolve_url(settings.LOGIN_REDIRECT_URL))


def _provider() -> Oidc:
    provider: Oidc | None = settings.ENVIRONMENT.oidc
    if provider is None:
        raise Http404
    return provider


def _show_problem(request: HttpRequest, sentence: str, status: int) -> HttpResponse:
    view = SignInView()
    view.setup(request)
    return view.refuse(SignInForm(request), sentence, status)


# --- On record --------------------------------------------------------------------------------------------------------


@receiver(user_logged_in, dispatch_uid="rollouts.web.sign_in")
def _note_sign_in(request: HttpRequest, user: User, **_: Any) -> None:
    if _came_by_a_door(request):
        detail = "By single sign-on." if request.path == reverse("sso-done") else "By name and password."
        _note(request, user, Command.SIGN_IN, Result.DONE, detail)


@receiver(user_logged_out, dispatch_uid="rollouts.web.sign_in")
def _note_sign_out(request: HttpRequest, user: User | None, **_: Any) -> None:
    if user is not None and _came_by_a_door(request):
        _note(request, user, Command.SIGN_OUT, Result.DONE, "")


@receiver(user_login_failed, dispatch_uid="rollouts.web.sign_in")
def _note_failure(credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    # People type their password where the name belongs: what is no account's name is not written down.
    if request is not None and _came_by_a_door(request):
        user = User.objects.filter(username=credentials.get("username", "")).first()
        _note(request, user, Command.SIGN_IN, Result.REFUSED, "The name and the password do not match an account.")


def _came_by_a_door(request: HttpRequest) -> bool:
    """Whether it is a request that somebody sent, and not made up by a program of ours."""
    return hasattr(request, "request_id")


def _note(request: HttpRequest, user: User | None, command: Command, result: Result, detail: str) -> None:
    via = Via.ADMIN if request.path.startswith("/admin/") else Via.PAGE
    name = user.get_username() if user else ""
    caller = replace(caller_of(request, via), user=user, name=name)
    record(caller, command, Place(), result, detail=detail)
