"""Scales a live component of one replica of the set, as an autoscaler does; the template keeps its number.

Before it: `changes.execute`. After it: the PodClique or PodCliqueScalingGroup in the cluster, which gets a patch with
the same preconditions as every edit (`edit`). The PodCliqueSet does not change, so no rollout begins.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, TypeAlias

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.cluster import Obj, Resource
from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESCALINGGROUPS
from rollouts.engine.manifest.edits import make_unknown_component
from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.engine.manifest.references import MAX_PODS
from rollouts.engine.model import names
from rollouts.engine.model.observed import Observed
from rollouts.engine.model.workload import CliqueTemplate, GroupTemplate, Workload
from rollouts.engine.tree.availability import compute_min_available, resolve_min_available
from rollouts.mirror import ObjectChanges
from rollouts.services.audit import AuditedCommand, Caller, audited_command
from rollouts.services.edit import MAX_ATTEMPTS, Change, EditResult, fetch_expected, too_many_conflicts
from rollouts.services.workload_client import (
    WorkloadClient,
    invalid_command,
    open_writable_client,
    require_not_grove_managed,
    version_of_object,
)

_FIELD: Final = "spec.replicas"

Component: TypeAlias = CliqueTemplate | GroupTemplate


@dataclass(frozen=True, slots=True)
class ScaleLive:
    """The number of replicas that a live component shall have."""

    command: ClassVar[Command] = Command.SCALE_WORKLOAD

    component: str  # name in the template
    replica: int  # of the set
    replicas: int


def live_component_scale(
    caller: Caller, place: WorkloadRef, wanted: ScaleLive, *, expected: str | None, dry_run: bool
) -> EditResult:
    """Scale a live component; `expected` is the version of the set."""
    with audited_command(caller, wanted.command, place, dry_run=dry_run) as audited:
        return _scale(open_writable_client(place), audited, wanted, expected=expected, dry_run=dry_run)


def _scale(
    client: WorkloadClient, audited: AuditedCommand, wanted: ScaleLive, *, expected: str | None, dry_run: bool
) -> EditResult:
    live = fetch_expected(client, expected)
    workload = parse_workload(live)
    if isinstance(workload, ParseFailure):
        raise invalid_command(workload.findings)
    component, resource, name = find_live_component(workload, wanted)
    for attempt in range(MAX_ATTEMPTS):
        target = client.fetch_object(resource, name)
        require_not_grove_managed(target)
        _require_minimum(component, _minimum_of_object(component, target), wanted.replicas)
        before = (target.get("spec") or {}).get("replicas")
        change = make_scale_change(resource, name, before, wanted.replicas)
        if before == wanted.replicas:
            return EditResult(client.place, version_of_object(live), (), (), dry_run)
        if attempt == 0:
            audited.begin(before={change.field: before}, after={change.field: wanted.replicas})
        scaled = {**target, "spec": {**target["spec"], "replicas": wanted.replicas}}
        stored = client.patch(resource, target, scaled, dry_run=dry_run)
        if stored is not None:
            if not dry_run:
                client.write_through([ObjectChanges(resource, [stored])])
                audited.done(before={change.field: before}, after={change.field: wanted.replicas})
            return EditResult(client.place, version_of_object(live), (change,), (), dry_run)
    raise too_many_conflicts(name)


def make_scale_change(resource: Resource, name: str, before: Any, after: int) -> Change:
    """Return the change of a live component, which is not a field of the set."""
    return Change(f"{resource.kind} {name}: {_FIELD}", before, after)


def find_live_component(workload: Workload, wanted: ScaleLive) -> tuple[Component, Resource, str]:
    """Return a component with the kind and name of its object; raises ValidationFailed when there is none."""
    component, resource = _find_component(workload, wanted.component)
    if wanted.replica >= workload.replicas:
        sentence = f"the set has replicas 0 to {workload.replicas - 1}; name one of them"
        raise invalid_command([Finding("replica", FindingCode.OUT_OF_RANGE, sentence)])
    return component, resource, names.clique_name(workload.name, wanted.replica, component.name)


def _require_minimum(component: Component, minimum: int, replicas: int) -> None:
    if not minimum <= replicas <= MAX_PODS:
        sentence = f"replicas of {component.name} must be {minimum} (its minAvailable) or more"
        raise invalid_command([Finding("replicas", FindingCode.MIN_AVAILABLE_OVER_REPLICAS, sentence)])


def _minimum_of_object(component: Component, target: Obj) -> int:
    """Return the minAvailable of a live component, from its object."""
    if isinstance(component, GroupTemplate):
        return component.min_available
    stored = (target.get("spec") or {}).get("minAvailable")
    return resolve_min_available(component, stored if isinstance(stored, int) else 0)


def scale_observed(workload: Workload, observed: Observed, wanted: ScaleLive) -> Observed:
    """Return the observed objects after such a command, for a simulation; raises ValidationFailed."""
    component, _, name = find_live_component(workload, wanted)
    minimum = component.min_available
    if isinstance(component, CliqueTemplate):
        minimum = compute_min_available(component, next((one for one in observed.cliques if one.name == name), None))
    _require_minimum(component, minimum, wanted.replicas)
    cliques = tuple(replace(one, replicas=wanted.replicas) if one.name == name else one for one in observed.cliques)
    groups = tuple(replace(one, replicas=wanted.replicas) if one.name == name else one for one in observed.groups)
    return replace(observed, cliques=cliques, groups=groups)


def _find_component(workload: Workload, component: str) -> tuple[Component, Resource]:
    group = next((one for one in workload.groups if one.name == component), None)
    if group is not None:
        return group, PODCLIQUESCALINGGROUPS
    clique = next((one for one in workload.cliques if one.name == component), None)
    if clique is None:
        raise invalid_command([make_unknown_component("component")])
    owner = next((one.name for one in workload.groups if component in one.clique_names), None)
    if owner is not None:
        sentence = f"a clique in a scaling group is scaled with its group; scale {owner}, or leave out replica"
        raise invalid_command([Finding("component", FindingCode.MEMBER_AUTOSCALED, sentence)])
    return clique, PODCLIQUES
