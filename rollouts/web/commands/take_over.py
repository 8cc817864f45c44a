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
from rollouts.mirror.other_operator import find_other_keeper
from rollouts.services.audit import Via, caller_of
from rollouts.services.edit import Change
from rollouts.services.simulation import Proposal
from rollouts.services.takeover import TakenOver, workload_take_over
from rollouts.web.commands.forms import VERSION, Form, Sitting, Trial, address_of

_OBJECTS_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class DryRun(Trial):
    """What the command would change, or why it is refused."""

    told: TakenOver | None = None


@dataclass(frozen=True, slots=True)
class ChangedObject:
    """An object that would be changed."""

    name: str  # its kind and name
    changes: tuple[Change, ...]  # with the fields as its manifest names them


class TakeOver(Form):
    """The form has nothing to fill in but the box that says that Grove's operator is gone."""

    name, title, send, command = "take-over", "Take over", "Take over from Grove", Command.TAKE_OVER_WORKLOAD
    trial_template: ClassVar[str] = "steering/_take_over_trial.html"
    supposes = False

    def fill_in(self, scene: Sitting, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show why the workload is Grove's."""
        seen = scene.look.seen
        return {"keeper": find_other_keeper(seen.manifest, seen.written_by_grove)}

    def propose(self, scene: Sitting, given: QueryDict, **about: Any) -> Proposal:
        """Return the command as something to consider: it changes nothing that could be simulated."""
        return Proposal(self.command)

    def ask(self, scene: Sitting, given: QueryDict, **about: Any) -> str:
        """Ask for what nobody but the operator of the cluster can know."""
        return (
            f"Grove's own operator no longer runs in the cluster {scene.place.cluster} and does not come back. "
            f"From now on Grove UI creates, updates and deletes the pods of {scene.place.name}."
        )

    def carry_out(self, request: HttpRequest, scene: Sitting, about: Mapping[str, Any]) -> HttpResponse:
        """Take the workload over and go back to it."""
        version = request.POST.get(VERSION, "")
        told = workload_take_over(caller_of(request, Via.PAGE), scene.place, expected=f'"{version}"')
        if told.changed.changes:
            messages.success(
                request, f"{told.objects} objects are Grove UI's now. None of {told.pods} pods is replaced."
            )
        else:
            messages.success(request, "It was so already; nothing has been changed.")
        for warning in told.changed.warnings:
            messages.warning(request, warning.message)
        return HttpResponseRedirect(address_of(scene.place))

    def _try(self, request: HttpRequest, scene: Sitting, about: Mapping[str, Any]) -> Trial:
        try:
            return DryRun(told=workload_take_over(caller_of(request, Via.PAGE), scene.place, dry_run=True))
        except CommandRefused as refusal:
            return Trial(refusal=refusal)

    def _show_trial(self, scene: Sitting, trial: Trial) -> dict[str, Any]:
        told = trial.told if isinstance(trial, DryRun) else None
        objects = [] if told is None else _group(told)
        shown = objects[:_OBJECTS_SHOWN]
        return {"told": told, "objects": shown, "untold": len(objects) - len(shown)}


def _group(told: TakenOver) -> list[ChangedObject]:
    """Return the changes by object, the set first."""
    found: dict[str, list[Change]] = {}
    for change in told.changed.changes:
        name, _, field = change.field.partition(": ")
        found.setdefault(name, []).append(Change(field, change.before, change.after))
    objects = [ChangedObject(name, tuple(changes)) for name, changes in found.items()]
    return sorted(objects, key=lambda one: not one.name.startswith("PodCliqueSet "))
