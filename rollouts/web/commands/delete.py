"""Delete: the workload, and everything that it owns.

The preview is the dry run of the command: how many pods and gangs are deleted, and which devices become free. The user
ticks a box; for a large workload they type its name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse

from rollouts.accounts.commands import Command
from rollouts.accounts.errors import CommandRefused
from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.services.audit import Source, caller_of
from rollouts.services.workload_client import invalid_command
from rollouts.services.workload_deletion import Extent, WorkloadDeleted, measure_extent, workload_delete
from rollouts.web.commands.forms import VERSION_FIELD, CommandForm, FormContext, Preview

_NAME_FIELD: Final = "typed"  # the field for the name of a large workload


@dataclass(frozen=True, slots=True)
class DeleteDryRun(Preview):
    """What would be deleted, or why the command is refused."""

    report: WorkloadDeleted | None = None


class DeleteForm(CommandForm):
    """The form has a box to tick, or the name to type."""

    name, title, submit_label, command = "delete", "Delete the workload", "Delete the workload", Command.DELETE_WORKLOAD
    submit_style: ClassVar[str] = "danger"
    preview_template: ClassVar[str] = "commands/_delete_dry_run.html"
    has_assumptions = False

    def field_context(self, context: FormContext, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show what would be deleted, and whether the name has to be typed."""
        extent = _measure_extent(context)
        return {
            "extent": extent,
            "typed": "" if given is None else given.get(_NAME_FIELD, ""),
            **self.blocked_context(_deletion_sentence(context)),
        }

    def confirmation_text(self, context: FormContext, given: QueryDict, **about: Any) -> str:
        """Ask for a confirmation, unless the name has to be typed."""
        extent = _measure_extent(context)
        return "" if extent.is_large else f"This deletes {context.ref.name} with {extent}. You cannot undo it."

    def execute(self, request: HttpRequest, context: FormContext, about: Mapping[str, Any]) -> HttpResponse:
        """Delete the workload and redirect to the list."""
        _require_name(context, request.POST)
        version = request.POST.get(VERSION_FIELD, "")
        report = workload_delete(caller_of(request, Source.PAGE), context.ref, expected=f'"{version}"')
        messages.success(request, f"{report.place.name} is being deleted, with {report.extent}.")
        return HttpResponseRedirect(reverse("home"))

    def _compute_preview(self, request: HttpRequest, context: FormContext, about: Mapping[str, Any]) -> Preview:
        try:
            return DeleteDryRun(report=workload_delete(caller_of(request, Source.PAGE), context.ref, dry_run=True))
        except CommandRefused as refusal:
            return Preview(error=refusal)

    def _preview_context(self, context: FormContext, preview: Preview) -> dict[str, Any]:
        return {"report": preview.report if isinstance(preview, DeleteDryRun) else None}


def _measure_extent(context: FormContext) -> Extent:
    return measure_extent(context.ref, context.snapshot.mirrored.observed)


def _deletion_sentence(context: FormContext) -> str:
    is_leaving = context.snapshot.mirrored.manifest["metadata"].get("deletionTimestamp")
    return f"{context.ref.name} is already being deleted." if is_leaving else ""


def _require_name(context: FormContext, given: QueryDict) -> None:
    """Raise ValidationFailed unless the user has typed the name of a large workload."""
    if _measure_extent(context).is_large and given.get(_NAME_FIELD, "").strip() != context.ref.name:
        raise invalid_command(
            [Finding(_NAME_FIELD, FindingCode.FIELD_MISSING, f"type {context.ref.name} to delete it")]
        )
