"""The admin site: its access check, its name, and its relaxed content security policy.

Signing in, signing out and changing one's own password use the pages of the dashboard. Every view gets the policy that
the theme needs (docs/adr/0017): its scripts use Alpine, which compiles attributes to functions.
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
_REFUSAL: Final = "Your account may not use the admin site. Ask an administrator for the role admin."


class GroveAdminSite(UnfoldAdminSite):
    """The admin site of Grove UI."""

    index_title = "Administration"

    def has_permission(self, request: HttpRequest) -> bool:
        """Return whether the account may use the admin site."""
        return permissions.may_administer(request.user)

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        """Wrap a view with the content security policy."""
        return csp_replace(_POLICY)(super().admin_view(view, cacheable))

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        """Return the context of every page."""
        context = super().each_context(request)
        # The theme would render them as a <style>, which the policy forbids; static/admin-theme.css has them.
        context["colors"] = None
        return context

    @method_decorator(login_not_required)
    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Redirect anonymous visitors to the sign-in page; tell other accounts why they have no access."""
        if not request.user.is_authenticated:
            return redirect_to_login(request.GET.get("next") or request.path)
        return render(request, "admin/forbidden.html", {"sentence": _REFUSAL}, status=403)

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """Redirect to the page where accounts change their own password."""
        return redirect("page-account")

    def logout(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """Sign out."""
        return LogoutView.as_view()(request)


site = GroveAdminSite()
