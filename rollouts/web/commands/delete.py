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
from rollouts.engine.manifest.findings import Code, Finding
from rollouts.services.audit import Via, caller_of
from rollouts.services.simulation import Proposal
from rollouts.services.workload_client import refuse
from rollouts.services.workload_deletion import Extent, WorkloadDeleted, measure, workload_delete
from rollouts.web.commands.forms import VERSION, Form, Sitting, Trial

_TYPED: Final = "typed"  # the field for the name of a large workload


@dataclass(frozen=True, slots=True)
class DryRun(Trial):
    """What would go, or why the command is refused."""

    told: WorkloadDeleted | None = None


class Delete(Form):
    """The form has a box to tick, or the name to type."""

    name, title, send, command = "delete", "Delete the workload", "Delete the workload", Command.DELETE_WORKLOAD
    tone: ClassVar[str] = "danger"
    trial_template: ClassVar[str] = "steering/_delete_trial.html"
    supposes = False

    def fill_in(self, scene: Sitting, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show what goes, and what has to be typed."""
        extent = _measure(scene)
        return {
            "extent": extent,
            "typed": "" if given is None else given.get(_TYPED, ""),
            **self.bar(_say_leaving(scene)),
        }

    def propose(self, scene: Sitting, given: QueryDict, **about: Any) -> Proposal:
        """Return the command as something to consider: it changes nothing that could be simulated."""
        return Proposal(self.command)

    def ask(self, scene: Sitting, given: QueryDict, **about: Any) -> str:
        """Have it said once more what goes; where the name has to be typed, that says it."""
        extent = _measure(scene)
        return "" if extent.is_large else f"This deletes {scene.place.name} with {extent}. You cannot undo it."

    def carry_out(self, request: HttpRequest, scene: Sitting, about: Mapping[str, Any]) -> HttpResponse:
        """Delete the workload and go to the list."""
        _require_name(scene, request.POST)
        version = request.POST.get(VERSION, "")
        told = workload_delete(caller_of(request, Via.PAGE), scene.place, expected=f'"{version}"')
        messages.success(request, f"{told.place.name} is being deleted, with {told.extent}.")
        return HttpResponseRedirect(reverse("home"))

    def _try(self, request: HttpRequest, scene: Sitting, about: Mapping[str, Any]) -> Trial:
        try:
            return DryRun(told=workload_delete(caller_of(request, Via.PAGE), scene.place, dry_run=True))
        except CommandRefused as refusal:
            return Trial(refusal=refusal)

    def _show_trial(self, scene: Sitting, trial: Trial) -> dict[str, Any]:
        return {"told": trial.told if isinstance(trial, DryRun) else None}


def _measure(scene: Sitting) -> Extent:
    return measure(scene.place, scene.look.seen.observed)


def _say_leaving(scene: Sitting) -> str:
    is_leaving = scene.look.seen.manifest["metadata"].get("deletionTimestamp")
    return f"{scene.place.name} is being deleted already." if is_leaving else ""


def _require_name(scene: Sitting, given: QueryDict) -> None:
    """Raise unless somebody has typed the name of a large workload."""
    if _measure(scene).is_large and given.get(_TYPED, "").strip() != scene.place.name:
        raise refuse([Finding(_TYPED, Code.FIELD_MISSING, f"type {scene.place.name} to delete it")])
