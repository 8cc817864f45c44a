"""Restart: have all pods replaced, or those of some components, as the strategy says."""

from functools import partial
from typing import Any

from django.http import QueryDict
from django.utils import timezone

from rollouts.commands import Command
from rollouts.engine import edits
from rollouts.engine.findings import Code, Finding
from rollouts.engine.times import parse_time, render_time
from rollouts.services.changing import Changed
from rollouts.services.simulation import Proposal
from rollouts.services.sites import refuse
from rollouts.services.workloads import workload_restart
from rollouts.web.steering.desk import Desk, Draft
from rollouts.web.workload import Scene


class Restart(Desk):
    """The form has the components, and when it was opened: one form is one restart, however often it is sent."""

    name, title, send, command = "restart", "Restart", "Restart the pods", Command.RESTART_WORKLOAD

    def fill_in(self, scene: Scene, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show every component; none chosen means all."""
        return {
            "levels": [level for level in scene.strategy.levels if level.component],
            "chosen": [] if given is None else given.getlist("component"),
            "at": render_time(timezone.now().timestamp()) if given is None else given.get("at", ""),
            "fields": ["components"],
        }

    def read(self, scene: Scene, given: QueryDict, **about: Any) -> Draft:
        """Return the restart that is meant."""
        at, components = parse_time(given.get("at", "")), given.getlist("component")
        if at is None:
            raise refuse([Finding("at", Code.WRONG_TYPE, "the form does not say when it was opened; open it again")])
        return Draft(
            partial(workload_restart, place=scene.place, components=components, at=at),
            Proposal(self.command, partial(edits.restart, at=render_time(at), components=components)),
        )

    def field_of(self, finding: Finding) -> str:
        """Every finding is about the components that were named."""
        return "components" if finding.field.startswith("components") else ""

    def say_done(self, changed: Changed) -> str:
        """Say what happens now."""
        return "The restart has begun: its pods are replaced as the strategy says."
