"""Take over: manage a workload of Grove's own operator, after that operator has been removed.

The preview is the dry run of the command: every object that would be changed, field by field. No pod is replaced, so
there is nothing to simulate.
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
    changes: tuple[Change, ...]  # with paths in its own manifest


class TakeOverForm(CommandForm):
    """The form has only the box that confirms that Grove's operator is gone."""

    name, title, submit_label, command = "take-over", "Take over", "Take over from Grove", Command.TAKE_OVER_WORKLOAD
    preview_template: ClassVar[str] = "commands/_take_over_dry_run.html"
    has_assumptions = False

    def field_context(self, context: FormContext, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show why Grove's operator manages the workload."""
        seen = context.snapshot.mirrored
        return {"keeper": find_grove_management(seen.manifest, seen.written_by_grove)}

    def confirmation_text(self, context: FormContext, given: QueryDict, **about: Any) -> str:
        """Ask for a fact that only the user can know."""
        return (
            f"I confirm that Grove's own operator no longer runs in the cluster {context.ref.cluster} and will not be "
            f"started again. From now on Grove UI creates, updates and deletes the pods of {context.ref.name}."
        )

    def execute(self, request: HttpRequest, context: FormContext, about: Mapping[str, Any]) -> HttpResponse:
        """Take over the workload and redirect to it."""
        version = request.POST.get(VERSION_FIELD, "")
        report = workload_take_over(caller_of(request, Source.PAGE), context.ref, expected=f'"{version}"')
        if report.changed.changes:
            messages.success(request, _render_success(context.ref.name, report))
        else:
            messages.success(request, "Nothing to change.")
        for warning in report.changed.warnings:
            messages.warning(request, warning.message)
        return HttpResponseRedirect(workload_url(context.ref))

    def _compute_preview(self, request: HttpRequest, context: FormContext, about: Mapping[str, Any]) -> Preview:
        try:
            return TakeOverDryRun(report=workload_take_over(caller_of(request, Source.PAGE), context.ref, dry_run=True))
        except CommandRefused as refusal:
            return Preview(error=refusal)

    def _preview_context(self, context: FormContext, preview: Preview) -> dict[str, Any]:
        report = preview.report if isinstance(preview, TakeOverDryRun) else None
        objects = [] if report is None else _group_by_object(report)
        shown = objects[:_MAX_OBJECTS]
        return {"report": report, "objects": shown, "omitted": len(objects) - len(shown)}


def _render_success(name: str, report: TakeoverResult) -> str:
    changed = "1 object was" if report.objects == 1 else f"{report.objects} objects were"
    replaced = f"none of the {report.pods} pods" if report.pods > 1 else "no pod"
    return f"Grove UI manages {name} now. {changed} changed; {replaced} was replaced."


def _group_by_object(report: TakeoverResult) -> list[ChangedObject]:
    """Return the changes by object, the set first."""
    found: dict[str, list[Change]] = {}
    for change in report.changed.changes:
        name, _, field = change.field.partition(": ")
        found.setdefault(name, []).append(Change(field, change.before, change.after))
    objects = [ChangedObject(name, tuple(changes)) for name, changes in found.items()]
    return sorted(objects, key=lambda one: not one.name.startswith("PodCliqueSet "))
