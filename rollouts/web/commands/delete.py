"""Delete: the workload goes, and everything that belongs to it.

What stands beside the form is the dry run of the command itself: how many pods and gangs go, and which devices are free
then. A box has to be ticked; of a large workload the name has to be typed instead.
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
    """What would go, or why the command is refused."""

    report: WorkloadDeleted | None = None


class DeleteForm(CommandForm):
    """The form has a box to tick, or the name to type."""

    name, title, submit_label, command = "delete", "Delete the workload", "Delete the workload", Command.DELETE_WORKLOAD
    submit_style: ClassVar[str] = "danger"
    preview_template: ClassVar[str] = "commands/_delete_dry_run.html"
    has_assumptions = False

    def field_context(self, scene: FormContext, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show what goes, and what has to be typed."""
        extent = _measure_extent(scene)
        return {
            "extent": extent,
            "typed": "" if given is None else given.get(_NAME_FIELD, ""),
            **self.blocked_context(_deletion_sentence(scene)),
        }

    def confirmation_text(self, scene: FormContext, given: QueryDict, **about: Any) -> str:
        """Have it said once more what goes; where the name has to be typed, that says it."""
        extent = _measure_extent(scene)
        return "" if extent.is_large else f"This deletes {scene.ref.name} with {extent}. You cannot undo it."

    def execute(self, request: HttpRequest, scene: FormContext, about: Mapping[str, Any]) -> HttpResponse:
        """Delete the workload and go to the list."""
        _require_name(scene, request.POST)
        version = request.POST.get(VERSION_FIELD, "")
        report = workload_delete(caller_of(request, Source.PAGE), scene.ref, expected=f'"{version}"')
        messages.success(request, f"{report.place.name} is being deleted, with {report.extent}.")
        return HttpResponseRedirect(reverse("home"))

    def _compute_preview(self, request: HttpRequest, scene: FormContext, about: Mapping[str, Any]) -> Preview:
        try:
            return DeleteDryRun(report=workload_delete(caller_of(request, Source.PAGE), scene.ref, dry_run=True))
        except CommandRefused as refusal:
            return Preview(error=refusal)

    def _preview_context(self, scene: FormContext, trial: Preview) -> dict[str, Any]:
        return {"told": trial.report if isinstance(trial, DeleteDryRun) else None}


def _measure_extent(scene: FormContext) -> Extent:
    return measure_extent(scene.ref, scene.snapshot.mirrored.observed)


def _deletion_sentence(scene: FormContext) -> str:
    is_leaving = scene.snapshot.mirrored.manifest["metadata"].get("deletionTimestamp")
    return f"{scene.ref.name} is being deleted already." if is_leaving else ""


def _require_name(scene: FormContext, given: QueryDict) -> None:
    """Raise unless somebody has typed the name of a large workload."""
    if _measure_extent(scene).is_large and given.get(_NAME_FIELD, "").strip() != scene.ref.name:
        raise invalid_command([Finding(_NAME_FIELD, FindingCode.FIELD_MISSING, f"type {scene.ref.name} to delete it")])
