"""Take over: make a workload of Grove's own operator ours, after that operator is gone.

What stands beside the form is the dry run of the command itself, asked of the cluster: every object that would be
changed, field by field. No pod is replaced, so there is nothing to simulate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict

from rollouts.accounts.commands import Command
from rollouts.accounts.errors import CommandRefused
from rollouts.mirror.other_operator import find_grove_management
from rollouts.services.audit import Source, caller_of
from rollouts.services.edit import Change
from rollouts.services.takeover import TakeoverResult, workload_take_over
from rollouts.web.commands.forms import VERSION_FIELD, CommandForm, FormContext, Preview, workload_url

_MAX_OBJECTS: Final = 200


@dataclass(frozen=True, slots=True)
class TakeOverDryRun(Preview):
    """What the command would change, or why it is refused."""

    report: TakeoverResult | None = None


@dataclass(frozen=True, slots=True)
class ChangedObject:
    """An object that would be changed."""

    name: str  # its kind and name
    changes: tuple[Change, ...]  # with the fields as its manifest names them


class TakeOverForm(CommandForm):
    """The form has nothing to fill in but the box that says that Grove's operator is gone."""

    name, title, submit_label, command = "take-over", "Take over", "Take over from Grove", Command.TAKE_OVER_WORKLOAD
    preview_template: ClassVar[str] = "commands/_take_over_dry_run.html"
    has_assumptions = False

    def field_context(self, scene: FormContext, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show why the workload is Grove's."""
        seen = scene.snapshot.mirrored
        return {"keeper": find_grove_management(seen.manifest, seen.written_by_grove)}

    def confirmation_text(self, scene: FormContext, given: QueryDict, **about: Any) -> str:
        """Ask for what nobody but the operator of the cluster can know."""
        return (
            f"Grove's own operator no longer runs in the cluster {scene.ref.cluster} and does not come back. "
            f"From now on Grove UI creates, updates and deletes the pods of {scene.ref.name}."
        )

    def execute(self, request: HttpRequest, scene: FormContext, about: Mapping[str, Any]) -> HttpResponse:
        """Take the workload over and go back to it."""
        version = request.POST.get(VERSION_FIELD, "")
        report = workload_take_over(caller_of(request, Source.PAGE), scene.ref, expected=f'"{version}"')
        if report.changed.changes:
            messages.success(
                request, f"{report.objects} objects are Grove UI's now. None of {report.pods} pods is replaced."
            )
        else:
            messages.success(request, "It was so already; nothing has been changed.")
        for warning in report.changed.warnings:
            messages.warning(request, warning.message)
        return HttpResponseRedirect(workload_url(scene.ref))

    def _compute_preview(self, request: HttpRequest, scene: FormContext, about: Mapping[str, Any]) -> Preview:
        try:
            return TakeOverDryRun(report=workload_take_over(caller_of(request, Source.PAGE), scene.ref, dry_run=True))
        except CommandRefused as refusal:
            return Preview(error=refusal)

    def _preview_context(self, scene: FormContext, trial: Preview) -> dict[str, Any]:
        told = trial.report if isinstance(trial, TakeOverDryRun) else None
        objects = [] if told is None else _group_by_object(told)
        shown = objects[:_MAX_OBJECTS]
        return {"told": told, "objects": shown, "untold": len(objects) - len(shown)}


def _group_by_object(told: TakeoverResult) -> list[ChangedObject]:
    """Return the changes by object, the set first."""
    found: dict[str, list[Change]] = {}
    for change in told.changed.changes:
        name, _, field = change.field.partition(": ")
        found.setdefault(name, []).append(Change(field, change.before, change.after))
    objects = [ChangedObject(name, tuple(changes)) for name, changes in found.items()]
    return sorted(objects, key=lambda one: not one.name.startswith("PodCliqueSet "))
