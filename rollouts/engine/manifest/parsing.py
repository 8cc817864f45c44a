"""A PodCliqueSet manifest made into a Workload.

The manifest comes from the cluster, the REST API or a form; the Workload goes to the planner and the preview. Parsing
puts the defaults in (`defaults`), checks each field (`schema`) and the names that refer to one another (`references`).
The invariant: it never raises, and it returns a Workload only if every part of it is usable.

That is less than `validation` demands: the controller must also look after a set that was stored under other rules, or
whose replicas no longer fit its budget.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rollouts.engine.manifest.defaults import list_cliques_without_min_available, with_defaults
from rollouts.engine.manifest.findings import Finding, ValidationReport
from rollouts.engine.manifest.references import check_references
from rollouts.engine.manifest.schema import parse_set
from rollouts.engine.manifest.set_manifest import SetManifest
from rollouts.engine.model.durations import parse_duration
from rollouts.engine.model.workload import BudgetSpec, CliqueTemplate, GroupTemplate, StartupType, Strategy, Workload

Obj = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ParseFailure:
    """Why a manifest cannot become a workload."""

    findings: tuple[Finding, ...]


def parse_workload(manifest: object) -> Workload | ParseFailure:
    """Return the workload that a manifest describes, or why there is none.

    The workload shares the inner parts of the manifest (pod specs, labels): do not change it afterwards.
    """
    usable, found = parse_set(with_defaults(manifest))
    found += check_references(SetManifest(usable))
    if found:
        return ParseFailure(ValidationReport.of(found).errors)
    return _workload(usable, list_cliques_without_min_available(manifest))


def _workload(manifest: Obj, without_minimum: frozenset[str]) -> Workload:
    metadata, spec = manifest["metadata"], manifest["spec"]
    template, strategy = spec["template"], spec["updateStrategy"]
    groups = tuple(_group(group) for group in template.get("podCliqueScalingGroups") or ())
    members = {name for group in groups for name in group.clique_names}
    return Workload(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata.get("uid") or "",
        generation=metadata.get("generation") or 0,
        replicas=spec["replicas"],
        strategy=Strategy(strategy["type"]),
        budget=_budget(strategy.get("rollingUpdate")) or BudgetSpec(),
        cliques=tuple(_clique(clique, members, without_minimum) for clique in template["cliques"]),
        groups=groups,
        startup_type=StartupType(template["cliqueStartupType"]),
        priority_class=template.get("priorityClassName") or "",
        termination_delay=parse_duration(template["terminationDelay"]) or 0.0,
        publish_not_ready_addresses=template["headlessServiceConfig"]["publishNotReadyAddresses"],
        manifest=manifest,
    )


def _clique(clique: Obj, members: set[str], without_minimum: frozenset[str]) -> CliqueTemplate:
    spec = clique["spec"]
    return CliqueTemplate(
        name=clique["name"],
        role_name=spec.get("roleName") or "",
        labels=clique.get("labels") or {},
        annotations=clique.get("annotations") or {},
        pod_spec=spec["podSpec"],
        replicas=spec["replicas"],
        min_available=spec["minAvailable"],
        starts_after=tuple(spec.get("startsAfter") or ()),
        auto_scaling=spec.get("autoScalingConfig"),
        # Admission refuses the budget of a member of a group; one that was stored anyway has no effect.
        budget=None if clique["name"] in members else _budget(clique.get("updateStrategy")),
        has_explicit_min_available=clique["name"] not in without_minimum,
    )


def _group(group: Obj) -> GroupTemplate:
    return GroupTemplate(
        name=group["name"],
        clique_names=tuple(group["cliqueNames"]),
        replicas=group["replicas"],
        min_available=group["minAvailable"],
        annotations=group.get("annotations") or {},
        budget=_budget(group.get("updateStrategy")),
    )


def _budget(strategy: Obj | None) -> BudgetSpec | None:
    return None if strategy is None else BudgetSpec(strategy.get("maxUnavailable"), strategy.get("maxSurge"))
