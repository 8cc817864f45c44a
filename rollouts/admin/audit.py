"""The audit log: commands with account, time, address and result. It can be filtered and exported."""

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.urls import URLPattern, path
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import FieldTextFilter

from rollouts.accounts import errors
from rollouts.accounts.commands import AUDITED_COMMANDS, Command
from rollouts.admin.filters import ValueFilter
from rollouts.admin.model_admin import ReadOnlyAdmin
from rollouts.admin.rendering import show_document, show_mono, show_pill, show_ref, show_result, show_time
from rollouts.admin.site import site
from rollouts.models import AuditEntry
from rollouts.selectors.audit import audit_csv, mask_recorded
from rollouts.services.audit import Source, audited_command, caller_of

Shown = str | SafeString


class _ResultFilter(ValueFilter):
    fixed = tuple(AuditEntry.Result.values)


class _CommandFilter(ValueFilter):
    fixed = tuple(command.value for command in AUDITED_COMMANDS)


class _SourceFilter(ValueFilter):
    fixed = tuple(str(source) for source in Source)


@admin.register(AuditEntry, site=site)
class AuditEntryAdmin(ReadOnlyAdmin):
    """Recorded commands, one entry each."""

    left_out_of_lists = ("before", "after", "begun__before", "begun__after")
    list_display = ("moment", "actor", "what", "where", "came_out", "detail", "source", "origin")
    list_select_related = ("begun",)
    list_filter = (
        *(("result", _ResultFilter), ("command", _CommandFilter), ("via", _SourceFilter)),
        *(("actor", FieldTextFilter), ("cluster", FieldTextFilter), ("namespace", FieldTextFilter)),
    )
    search_fields = ("actor", "name", "namespace", "request_id", "detail")
    search_help_text = "Part of a name, a namespace, a request id or a sentence"
    date_hierarchy = "at"
    change_list_template = "admin/audit_list.html"
    fieldsets = (
        ("Who", {"fields": ("actor", "token", "source", "origin", "request_id")}),
        ("What", {"fields": ("moment", "began", "what", "where", "came_out", "detail")}),
        ("Before and after", {"fields": ("was", "became")}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Show one entry for each command: its result, or its beginning if the result is unknown."""
        return super().get_queryset(request).select_related("begun").filter(outcome__isnull=True)

    def get_urls(self) -> list[URLPattern]:
        """Add the CSV export."""
        export = path("export/", self.admin_site.admin_view(self.export_view), name="rollouts_auditentry_export")
        return [export, *super().get_urls()]

    def export_view(self, request: HttpRequest) -> StreamingHttpResponse:
        """Send all pages of the filtered list as CSV."""
        found = self.get_changelist_instance(request)
        try:
            with audited_command(caller_of(request, Source.ADMIN), Command.EXPORT_AUDIT) as audited:
                audited.done(detail=f"Filtered by {request.GET.urlencode()}." if request.GET else "All entries.")
        except errors.PermissionDenied as refusal:
            raise PermissionDenied(refusal.sentence) from refusal
        headers = {"Content-Disposition": 'attachment; filename="grove-audit.csv"'}
        return StreamingHttpResponse(audit_csv(found.queryset.defer(None)), content_type="text/csv", headers=headers)

    @admin.display(description="When", ordering="at")
    def moment(self, row: AuditEntry) -> Shown:
        """Show when it ended."""
        return show_time(row.at)

    @admin.display(description="Began")
    def began(self, row: AuditEntry) -> Shown:
        """Show when it began."""
        return show_time(row.begun.at if row.begun else row.at)

    @admin.display(description="Command", ordering="command")
    def what(self, row: AuditEntry) -> Shown:
        """Show the command."""
        return show_mono(row.command)

    @admin.display(description="Where", ordering="namespace")
    def where(self, row: AuditEntry) -> str:
        """Return the workload, namespace or cluster."""
        return show_ref(row)

    @admin.display(description="Result", ordering="result")
    def came_out(self, row: AuditEntry) -> Shown:
        """Show the result."""
        if row.result == AuditEntry.Result.BEGUN:
            return show_pill("Begun, result unknown", "warn")
        return show_result(row)

    @admin.display(description="Via", ordering="via")
    def source(self, row: AuditEntry) -> str:
        """Return where the command came from: API, page, admin site or start."""
        return row.via or "–"

    @admin.display(description="Address", ordering="source_ip")
    def origin(self, row: AuditEntry) -> str:
        """Return the IP address of the caller."""
        return row.source_ip or "–"

    @admin.display(description="Before")
    def was(self, row: AuditEntry) -> Shown:
        """Show the values before the command."""
        before = row.before if row.before is not None or row.begun is None else row.begun.before
        return show_document(mask_recorded(before))

    @admin.display(description="After")
    def became(self, row: AuditEntry) -> Shown:
        """Show the values after the command; of a failed one, the intended values."""
        after = row.after if row.after is not None or row.begun is None else row.begun.after
        return show_document(mask_recorded(after))
