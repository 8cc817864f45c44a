"""Roll back: make the pods again what they were under an earlier revision, once the difference has been seen."""

from functools import partial
from typing import Any

from django.http import QueryDict

from rollouts.accounts.commands import Command
from rollouts.engine.manifest.findings import Finding
from rollouts.selectors.revisions import revision_detail, revision_diff, revision_list
from rollouts.services.edit import Changed
from rollouts.services.simulation import Proposal
from rollouts.services.workloads import roll_back_to, workload_roll_back
from rollouts.web.commands.forms import Desk, Draft, Sitting
from rollouts.web.revisions import choose_other, parse_diff


class RollBack(Desk):
    """The form has nothing to fill in: the revision stands in its address."""

    name, title, command = "roll-back", "Roll back", Command.ROLL_BACK_WORKLOAD
    more = "<number:number>/"
    has_manifest = False  # the difference of the revisions says it already
    idle = "Nothing: pods are made as they were under that revision already."

    def fill_in(self, scene: Sitting, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show how the revision differs from the one in force."""
        number: int = about["number"]
        other = choose_other(revision_list(scene.place), number)
        diff = None if other is None else revision_diff(scene.place, other, number, scene.reader)
        return {
            "revision": revision_detail(scene.place, number, scene.reader),
            "diff": diff,
            "lines": parse_diff(diff.text) if diff else [],
            "title": f"Roll back to revision {number}",
            "send": f"Roll back to revision {number}",
        }

    def read(self, scene: Sitting, given: QueryDict, **about: Any) -> Draft:
        """Return the way back."""
        number: int = about["number"]
        return Draft(
            partial(workload_roll_back, place=scene.place, revision=number),
            Proposal(self.command, partial(roll_back_to, place=scene.place, revision=number)),
        )

    def find_field(self, scene: Sitting, finding: Finding) -> str:
        """There is no field to be wrong."""
        return ""

    def say_done(self, changed: Changed) -> str:
        """Say what happens now."""
        return "The way back has begun: pods are replaced as the strategy says."
