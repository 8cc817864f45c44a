"""Restart: replace all pods, or those of some components, as the strategy says."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict
from django.utils import timezone

from rollouts.accounts.commands import Command
from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.model.times import parse_time, render_time
from rollouts.engine.model.workload import Strategy, Workload
from rollouts.services import workloads
from rollouts.services.changes import WorkloadChange
from rollouts.services.edit import EditResult
from rollouts.services.workload_client import invalid_command
from rollouts.web.commands.forms import EditForm, FormContext
from rollouts.web.commands.pod_counts import count_pods_by_clique


@dataclass(frozen=True, slots=True)
class RestartTarget:
    """A component that can be restarted alone."""

    component: str
    pods: int
    members: tuple["RestartTarget", ...] = ()  # the cliques of a scaling group


class RestartForm(EditForm):
    """The form has the components, and the time it was opened: a form that is sent twice is one restart."""

    name, title, submit_label, command = "restart", "Restart", "Restart the pods", Command.RESTART_WORKLOAD

    def field_context(self, context: FormContext, given: QueryDict | None, **about: Any) -> dict[str, Any]:
        """Show every component with its number of pods; none chosen means all."""
        workload, pods = context.snapshot.workload, count_pods_by_clique(context.tree)
        return {
            "choices": [] if workload is None else list(_list_targets(workload, pods)),
            "total": sum(pods.values()),
            "strategy": context.tree.strategy,
            "is_by_hand": context.tree.strategy == Strategy.ON_DELETE,
            "chosen": [] if given is None else given.getlist("component"),
            "at": render_time(timezone.now().timestamp()) if given is None else given.get("at", ""),
            "fields": ["components"],
        }

    def parse_change(self, context: FormContext, given: QueryDict, **about: Any) -> WorkloadChange:
        """Return the restart of the chosen components."""
        at, components = parse_time(given.get("at", "")), given.getlist("component")
        if at is None:
            raise invalid_command([Finding("at", FindingCode.WRONG_TYPE, "the form is incomplete; open it again")])
        return workloads.restart(components, at=at)

    def find_field(self, context: FormContext, finding: Finding) -> str:
        """Return the field of a finding: every finding is about the components."""
        return "components" if finding.field.startswith("components") else ""

    def success_message(self, changed: EditResult) -> str:
        """Return that the restart has begun."""
        return "The restart has started: the update strategy decides when pods are replaced."


def _list_targets(workload: Workload, pods: Mapping[str, int]) -> Iterator[RestartTarget]:
    groups = {group.name: group.clique_names for group in workload.groups}
    members = {name for names in groups.values() for name in names}
    # A name that a clique shares with a scaling group means the group.
    for name in (clique.name for clique in workload.cliques if clique.name not in members | groups.keys()):
        yield RestartTarget(name, pods.get(name, 0))
    for group, names in groups.items():
        cliques = tuple(RestartTarget(name, pods.get(name, 0)) for name in names if name not in groups)
        yield RestartTarget(group, sum(pods.get(name, 0) for name in names), cliques)
