"""The site itself: its door, its name, and the one relaxation of the content security policy.

Signing in and out and changing one's own password happen at the dashboard's own pages, so that there is one door.
Every view is wrapped with the policy that the theme needs (docs/adr/0017): its pages are alive by Alpine, which makes
functions of attributes.
"""

from typing import Any, Final

from csp.constants import SELF, UNSAFE_EVAL
from csp.decorators import csp_replace
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import LogoutView, redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.decorators import method_decorator
from unfold.sites import UnfoldAdminSite

from rollouts.accounts import permissions

_POLICY: Final = {"script-src": [SELF, UNSAFE_EVAL]}
_REFUSAL: Final = (
    "You may not use the admin site: your account is not one of those that look after this installation. "
    "Ask an administrator for the role admin."
)


class GroveAdminSite(UnfoldAdminSite):
    """The admin site of Grove UI."""

    index_title = "Administration"

    def has_permission(self, request: HttpRequest) -> bool:
        """Let in those who look after the installation."""
        return permissions.may_administer(request.user)

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        """Wrap a view with what every page here needs."""
        return csp_replace(_POLICY)(super().admin_view(view, cacheable))

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        """Return what every page is rendered with."""
        context = super().each_context(request)
        # They would come as a <style> of the page, which the policy refuses; static/admin.css has them.
        context["colors"] = None
        return context

    @method_decorator(login_not_required)
    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Send strangers to the page where everybody signs in, and tell the others why they are not let in."""
        if not request.user.is_authenticated:
            return redirect_to_login(request.GET.get("next") or request.path)
        return render(request, "admin/forbidden.html", {"sentence": _REFUSAL}, status=403)

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """Send people to the page where everybody changes their own password."""
        return redirect("page-account")

    def logout(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """Sign out as everywhere."""
        return LogoutView.as_view()(request)


site = GroveAdminSite()
