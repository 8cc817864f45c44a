"""Roll back: make the pods again what they were under an earlier revision, once the difference has been seen."""

from typing import Any

from django.http import QueryDict

from rollouts.accounts.commands import Command
from rollouts.engine.manifest.findings import Finding
from rollouts.selectors.revisions import revision_detail, revision_diff, revision_list
from rollouts.services import workloads
from rollouts.services.changes import WorkloadChange
from rollouts.services.edit import EditResult
from rollouts.web.commands.forms import EditForm, FormContext
from rollouts.web.revisions import choose_base_revision, parse_diff


class RollBackForm(EditForm):
    """The form has nothing to fill in: the revision stands in its address."""

    name, title, command = "roll-back", "Roll back", Command.ROLL_BACK_WORKLOAD
    path_suffix = "<number:number>/"
    shows_manifest_diff = False  # the difference of the revisions says it already
    unchanged_text = "Nothing: pods are made as they were under that revision already."

    def field_context(self, scene: FormContext, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show how the revision differs from the one in force."""
        number: int = about["number"]
        other = choose_base_revision(revision_list(scene.ref), number)
        diff = None if other is None else revision_diff(scene.ref, other, number, scene.reader)
        return {
            "revision": revision_detail(scene.ref, number, scene.reader),
            "diff": diff,
            "lines": parse_diff(diff.text) if diff else [],
            "title": f"Roll back to revision {number}",
            "send": f"Roll back to revision {number}",
        }

    def parse_change(self, scene: FormContext, given: QueryDict, **about: Any) -> WorkloadChange:
        """Return the way back."""
        return workloads.roll_back(scene.ref, about["number"])

    def find_field(self, scene: FormContext, finding: Finding) -> str:
        """There is no field to be wrong."""
        return ""

    def success_message(self, changed: EditResult) -> str:
        """Say what happens now."""
        return "The way back has begun: pods are replaced as the strategy says."
