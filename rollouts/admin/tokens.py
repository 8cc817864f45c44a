"""API tokens: list and revoke them. Only their owners create them and see their secrets."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import BooleanRadioFilter

from rollouts.accounts import permissions
from rollouts.accounts.commands import Command
from rollouts.accounts.errors import CommandRefused
from rollouts.accounts.token_scopes import describe_scope, scope_of
from rollouts.accounts.tokens import TokenState, expiry_of, state_of, with_owners
from rollouts.admin.confirmation import Confirmation, confirmation_page
from rollouts.admin.filters import RelatedFilter
from rollouts.admin.model_admin import ReadOnlyAdmin
from rollouts.admin.rendering import show_mono, show_pill, show_time
from rollouts.admin.site import site
from rollouts.models import ApiToken
from rollouts.services.audit import Source, caller_of
from rollouts.services.tokens import token_revoke

Shown = str | SafeString


@admin.register(ApiToken, site=site)
class ApiTokenAdmin(ReadOnlyAdmin):
    """The tokens of all accounts."""

    actions = ("revoke",)
    list_display = ("label", "user", "starts", "state", "power", "used", "ends", "since")
    list_filter = (("user", RelatedFilter), ("read_only", BooleanRadioFilter))
    search_fields = ("name", "user__username", "prefix")
    search_help_text = "Part of a name, or how a token begins"
    fields = ("label", "user", "starts", "state", "power", "origin", "since", "used", "ends", "revoked")
    change_form_template = "admin/token_page.html"

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Return whether the account may change accounts."""
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the account may change accounts."""
        return permissions.find_refusal(request.user, Command.CHANGE_ACCOUNT) is None

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Join the rows that the state of a token depends on."""
        rows: QuerySet[Any] = super().get_queryset(request)
        return with_owners(rows)

    def get_urls(self) -> list[URLPattern]:
        """Add the page that confirms revoking a token."""
        view = self.admin_site.admin_view(self.revoke_view)
        return [path("<int:pk>/revoke/", view, name="rollouts_apitoken_revoke"), *super().get_urls()]

    def revoke_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Confirm, then revoke a token."""
        row = ApiToken.objects.select_related("user").filter(pk=pk).first()
        if row is None or not self.has_view_permission(request):
            return HttpResponseRedirect(reverse("admin:rollouts_apitoken_changelist"))
        back = reverse("admin:rollouts_apitoken_change", args=[pk])
        if request.method == "POST":
            self._revoke(request, [row])
            return HttpResponseRedirect(back)
        text = f"Programs can no longer use the token {row} of {row.user}. You cannot undo this."
        return confirmation_page(self, request, Confirmation("Revoke this token?", text, "Revoke", back))

    @admin.action(description="Revoke the selected tokens")
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        """Revoke tokens."""
        self._revoke(request, queryset.select_related("user"))

    def _revoke(self, request: HttpRequest, rows: Any) -> None:
        for row in rows:
            try:
                token_revoke(caller_of(request, Source.ADMIN), row.pk)
            except CommandRefused as refusal:
                messages.error(request, refusal.sentence)
            else:
                messages.success(request, f"Revoked the token {row} of {row.user}.")

    @admin.display(description="Name", ordering="name")
    def label(self, row: ApiToken) -> str:
        """Return its name."""
        return row.name

    @admin.display(description="Begins with", ordering="prefix")
    def starts(self, row: ApiToken) -> Shown:
        """Show its first characters."""
        return show_mono(f"{row.prefix}…")

    @admin.display(description="State", ordering="revoked_at")
    def state(self, row: ApiToken) -> Shown:
        """Show its state."""
        state = state_of(row, timezone.now())
        if state is TokenState.ASLEEP:
            return show_pill("suspended", "warn")
        return show_pill(state, "good" if state is TokenState.VALID else "plain")

    @admin.display(description="Scope", ordering="read_only")
    def power(self, row: ApiToken) -> str:
        """Return its scope."""
        return "; ".join(describe_scope(scope_of(row))) or "same permissions as its owner"

    @admin.display(description="Created by")
    def origin(self, row: ApiToken) -> str:
        """Return who created it."""
        return "the setting GROVE_ADMIN_TOKEN" if row.is_from_settings else "its owner"

    @admin.display(description="Last used", ordering="last_used_at")
    def used(self, row: ApiToken) -> Shown:
        """Show when it was last used."""
        return show_time(row.last_used_at) if row.last_used_at else "never"

    @admin.display(description="Expires", ordering="expires_at")
    def ends(self, row: ApiToken) -> Shown:
        """Show when it expires."""
        return show_time(expiry_of(row)) if expiry_of(row) else "never"

    @admin.display(description="Created", ordering="created")
    def since(self, row: ApiToken) -> Shown:
        """Show when it was created."""
        return show_time(row.created)

    @admin.display(description="Revoked")
    def revoked(self, row: ApiToken) -> Shown:
        """Show when it was revoked."""
        return show_time(row.revoked_at)
