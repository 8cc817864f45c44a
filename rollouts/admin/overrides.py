"""Strategy overrides: create, change and end them, with a live preview of the effect."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import DropdownFilter

from rollouts.accounts import permissions
from rollouts.accounts.commands import Command
from rollouts.accounts.errors import CommandRefused, PermissionDenied
from rollouts.admin.confirmation import Confirmation, confirmation_page
from rollouts.admin.filters import PlainForm, RelatedFilter, ValueFilter
from rollouts.admin.model_admin import BaseAdmin
from rollouts.admin.override_check import list_components, make_table
from rollouts.admin.override_form import OverrideForm
from rollouts.admin.override_text import render_settings, render_target
from rollouts.admin.rendering import show_pill, show_time
from rollouts.admin.site import site
from rollouts.models import StrategyOverride
from rollouts.selectors.audit import audit_of_override
from rollouts.services.audit import Source, caller_of, require
from rollouts.services.overrides import override_change, override_create, override_end

Shown = str | SafeString

_IN_FORCE, _ENDED = "in-force", "ended"


class _StateFilter(DropdownFilter):
    title = "state"
    parameter_name = "state"
    form_class = PlainForm  # type: ignore[assignment]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(_IN_FORCE, "in force"), (_ENDED, "ended")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[StrategyOverride]) -> QuerySet[StrategyOverride]:
        rows = StrategyOverride.objects
        chosen = {_IN_FORCE: rows.in_force, _ENDED: rows.ended}.get(self.value() or "")
        return queryset if chosen is None else queryset & chosen(timezone.now())


@admin.register(StrategyOverride, site=site)
class StrategyOverrideAdmin(BaseAdmin):
    """Overrides; ended ones stay as history."""

    form = OverrideForm
    actions = ("end",)
    list_display = ("target", "sets", "why", "author", "state", "ends", "since")
    list_select_related = ("author",)
    list_filter = (
        *(_StateFilter, ("cluster", ValueFilter), ("namespace", ValueFilter)),
        ("author", RelatedFilter),
    )
    search_fields = ("reason", "namespace", "name")
    search_help_text = "Part of a reason, a namespace or the name of a workload"
    change_form_template = "admin/override_page.html"

    # ---- permissions

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the account may view workloads."""
        return permissions.may_view(request.user)

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Return whether the account may view workloads."""
        return self.has_view_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return whether the account may create an override for any workload."""
        return _may(request, Command.CREATE_OVERRIDE)

    def has_change_permission(self, request: HttpRequest, obj: StrategyOverride | None = None) -> bool:
        """Return whether the account may change it; an ended one is read-only."""
        return _may(request, Command.CHANGE_OVERRIDE, obj) and (obj is None or obj.is_in_force(timezone.now()))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse it: overrides are ended, and stay as history."""
        return False

    def has_end_permission(self, request: HttpRequest, obj: StrategyOverride | None = None) -> bool:
        """Return whether the account may end it."""
        return _may(request, Command.END_OVERRIDE, obj) and (obj is None or obj.is_in_force(timezone.now()))

    # ---- pages

    def get_urls(self) -> list[URLPattern]:
        """Add the live check, and the page that confirms ending an override."""
        view = self.admin_site.admin_view
        return [
            path("check/", view(self.check_view), name="rollouts_strategyoverride_check"),
            path("<int:pk>/end/", view(self.end_view), name="rollouts_strategyoverride_end"),
            *super().get_urls(),
        ]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Show the form, or the values of an override that cannot be changed."""
        editable = self.has_change_permission(request, obj) if obj else self.has_add_permission(request)
        fields = (
            tuple(OverrideForm.base_fields)
            if editable
            else ("target", "sets", "why", "author", "state", "ends", "since")
        )
        return ((None, {"fields": fields}),)

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """Show the form, or pass the input to the service, which has transactions of its own."""
        row = _find(object_id)
        context = {
            **(extra_context or {}),
            "check_url": reverse("admin:rollouts_strategyoverride_check"),
            "may_end": row is not None and self.has_end_permission(request, row),
            "entries": audit_of_override(row.pk) if row else (),
            "is_form": self.has_change_permission(request, row) if row else True,
            "show_save_and_continue": False,
            "show_save_and_add_another": False,
        }
        if request.method != "POST":
            return super().changeform_view(request, object_id, form_url, context)
        try:
            # Skips the transaction that Django would open.
            return self._changeform_view(request, object_id, form_url, context)  # type: ignore[attr-defined]
        except CommandRefused as refusal:
            messages.error(request, refusal.sentence)
            return HttpResponseRedirect(request.get_full_path())

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Save the draft through the service."""
        caller = caller_of(request, Source.ADMIN)
        if change:
            seen = form.cleaned_data.get("version")
            result = override_change(caller, obj.pk, form.draft, f'"{seen}"' if seen else None)
        else:
            result = override_create(caller, form.draft)
            obj.pk = result.override.pk
        obj.refresh_from_db()
        messages.success(request, f"Override {obj.pk} is in force. {make_table(result.check).summary}")
        for warning in result.check.warnings:
            messages.warning(request, f"{warning.message[:1].upper()}{warning.message[1:]}.")

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        """Return to the list; `save_model` has added the messages."""
        return HttpResponseRedirect(reverse("admin:rollouts_strategyoverride_changelist"))

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        """Return to the list; `save_model` has added the messages."""
        return HttpResponseRedirect(reverse("admin:rollouts_strategyoverride_changelist"))

    def check_view(self, request: HttpRequest) -> HttpResponse:
        """Return the effect and the errors of the form as it is typed."""
        row = _find(request.GET.get("override"))
        command = Command.CHANGE_OVERRIDE if row else Command.CREATE_OVERRIDE
        if request.method != "POST" or not _may(request, command):
            return JsonResponse({"sentence": f"You may not {command.label}."}, status=403)
        form = OverrideForm(request.POST, instance=row)
        form.is_valid()
        found = form.check_result
        errors = {name: [str(error) for error in errors] for name, errors in form.errors.items()}
        whole = [*errors.pop("__all__", []), *_find_refusal(request, command, form)]
        context = {"table": make_table(found) if found else None, "errors": errors, "whole": whole}
        html = render_to_string("admin/override_check.html", context)
        return JsonResponse({"html": html, "errors": errors, "components": list_components(found) if found else []})

    def end_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Confirm, then end an override."""
        row = StrategyOverride.objects.filter(pk=pk).first()
        back = reverse("admin:rollouts_strategyoverride_changelist")
        if row is None or not self.has_end_permission(request, row):
            return HttpResponseRedirect(back)
        if request.method == "POST":
            self._end(request, [row])
            return HttpResponseRedirect(back)
        text = (
            f"{render_settings(row)} for {render_target(row)}. "
            "These workloads then use their manifests and any other matching overrides."
        )
        back = reverse("admin:rollouts_strategyoverride_change", args=[pk])
        return confirmation_page(self, request, Confirmation(f"End override {pk} now?", text, "End the override", back))

    @admin.action(description="End the selected overrides now", permissions=["end"])
    def end(self, request: HttpRequest, queryset: QuerySet[StrategyOverride]) -> None:
        """End overrides."""
        self._end(request, queryset)

    def _end(self, request: HttpRequest, rows: Any) -> None:
        for row in rows:
            try:
                override_end(caller_of(request, Source.ADMIN), row.pk)
            except CommandRefused as refusal:
                messages.error(request, refusal.sentence)
            else:
                messages.success(request, f"Override {row.pk} has ended.")

    # ---- columns

    @admin.display(description="Applies to")
    def target(self, row: StrategyOverride) -> str:
        """Return the workloads that it matches."""
        return render_target(row)

    @admin.display(description="Sets")
    def sets(self, row: StrategyOverride) -> str:
        """Return the values that it sets."""
        return render_settings(row)

    @admin.display(description="Reason", ordering="reason")
    def why(self, row: StrategyOverride) -> str:
        """Return the reason."""
        return row.reason

    @admin.display(description="State", ordering="expires_at")
    def state(self, row: StrategyOverride) -> Shown:
        """Show whether it is in force."""
        return show_pill("in force", "good") if row.is_in_force(timezone.now()) else show_pill("ended", "plain")

    @admin.display(description="Ends", ordering="expires_at")
    def ends(self, row: StrategyOverride) -> Shown:
        """Show when it ends."""
        return show_time(row.expires_at) if row.expires_at else "never"

    @admin.display(description="Created", ordering="created")
    def since(self, row: StrategyOverride) -> Shown:
        """Show when it was created."""
        return show_time(row.created)


def _find(number: str | None) -> StrategyOverride | None:
    return StrategyOverride.objects.filter(pk=int(number)).first() if number and number.isdecimal() else None


def _may(request: HttpRequest, command: Command, row: StrategyOverride | None = None) -> bool:
    """Return whether the account may give the command: for this override, or without one for any place."""
    cluster, namespace = (row.cluster, row.namespace) if row else ("", "")
    refusal = permissions.find_refusal(request.user, command, cluster, namespace)
    return refusal is None or (row is None and refusal.reason is permissions.RefusalReason.GRANT_MISSING)


def _find_refusal(request: HttpRequest, command: Command, form: OverrideForm) -> list[str]:
    try:
        require(caller_of(request, Source.ADMIN), command, form.draft.place)
    except PermissionDenied as refusal:
        return [refusal.sentence]
    return []
