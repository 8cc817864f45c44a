"""Roll back: restore the pod templates of an earlier revision, with the diff shown first."""

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
    """The form has no fields: the revision is in its URL."""

    name, title, command = "roll-back", "Roll back", Command.ROLL_BACK_WORKLOAD
    path_suffix = "<number:number>/"
    shows_manifest_diff = False  # the page shows the diff of the revisions
    unchanged_text = "Nothing to change: the workload has the pod templates of that revision."

    def field_context(self, context: FormContext, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show how the revision differs from the current one."""
        number: int = about["number"]
        other = choose_base_revision(revision_list(context.ref), number)
        diff = None if other is None else revision_diff(context.ref, other, number, context.reader)
        return {
            "revision": revision_detail(context.ref, number, context.reader),
            "diff": diff,
            "lines": parse_diff(diff.text) if diff else [],
            "title": f"Roll back to revision {number}",
            "submit_label": f"Roll back to revision {number}",
        }

    def parse_change(self, context: FormContext, given: QueryDict, **about: Any) -> WorkloadChange:
        """Return the rollback."""
        return workloads.roll_back(context.ref, about["number"])

    def find_field(self, context: FormContext, finding: Finding) -> str:
        """Return no field: the form has none."""
        return ""

    def success_message(self, changed: EditResult) -> str:
        """Return that the rollback has begun."""
        return "The rollback has started: the update strategy decides when pods are replaced."
