"""A PodCliqueSet manifest made into values, and values made into a manifest.

The manifest comes from the cluster, the REST API or a form; the Workload goes to the planner and the preview. Puts the
defaults in (`defaults`), looks at every field (`schema`) and at the names that refer to one another (`references`). The
invariant: whatever is given, nothing is raised, and a Workload comes out only if every part of it can be relied on.

That is less than `validation` asks for: a set that was stored while the rules were others, or that scaling has moved
out of its strategy's bounds, must still be looked after.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rollouts.engine.manifest.defaults import list_cliques_without_min_available, with_defaults
from rollouts.engine.manifest.findings import Finding, ValidationReport
from rollouts.engine.manifest.references import check_references
from rollouts.engine.manifest.schema import parse_set
from rollouts.engine.manifest.set_manifest import SetManifest
from rollouts.engine.model.durations import parse_duration, render_duration
from rollouts.engine.model.workload import BudgetSpec, CliqueTemplate, GroupTemplate, StartupType, Strategy, Workload

Obj = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ParseFailure:
    """A manifest that no workload can be made of, and why."""

    findings: tuple[Finding, ...]


def parse_workload(manifest: object) -> Workload | ParseFailure:
    """Return the workload that a manifest describes, or what is in the way.

    The workload shares the inner parts of the manifest (pod specs, labels): do not change it afterwards.
    """
    usable, found = parse_set(with_defaults(manifest))
    found += check_references(SetManifest(usable))
    if found:
        return ParseFailure(ValidationReport.of(found).errors)
    return _workload(usable, list_cliques_without_min_available(manifest))


def render_manifest(workload: Workload) -> dict[str, Any]:
    """Return the manifest of a workload: the one it was made from, with every value written out.

    Fields that are no part of a Workload are taken over from there, so that after `replace(workload, replicas=5)` the
    result differs in spec.replicas only. It shares its inner parts with the workload.
    """
    former = workload.manifest
    spec = _overlay(
        former["spec"],
        replicas=workload.replicas,
        updateStrategy=_render_strategy(workload, former["spec"]["updateStrategy"]),
        template=_render_template(workload, former["spec"]["template"]),
    )
    metadata = _overlay(former["metadata"], name=workload.name, namespace=workload.namespace)
    return _overlay(former, metadata=metadata, spec=spec)


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
        # Refused at admission for the member of a group; what got past it must not be acted on.
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
        scale_config=group.get("scaleConfig"),
        budget=_budget(group.get("updateStrategy")),
    )


def _budget(strategy: Obj | None) -> BudgetSpec | None:
    return None if strategy is None else BudgetSpec(strategy.get("maxUnavailable"), strategy.get("maxSurge"))


def _render_strategy(workload: Workload, former: Obj) -> dict[str, Any]:
    budget = _render_budget(workload.budget, former.get("rollingUpdate"))
    return _overlay(former, type=str(workload.strategy), rollingUpdate=budget)


def _render_template(workload: Workload, former: Obj) -> dict[str, Any]:
    delay = former["terminationDelay"]
    if parse_duration(delay) != workload.termination_delay:
        delay = render_duration(workload.termination_delay)
    headless = {
        **former["headlessServiceConfig"],
        "publishNotReadyAddresses": workload.publish_not_ready_addresses,
    }
    cliques = _by_name(former["cliques"])
    groups = _by_name(former.get("podCliqueScalingGroups"))
    return _overlay(
        former,
        cliqueStartupType=str(workload.startup_type),
        priorityClassName=workload.priority_class,
        terminationDelay=delay,
        headlessServiceConfig=headless,
        cliques=[_render_clique(clique, cliques.get(clique.name, {})) for clique in workload.cliques],
        podCliqueScalingGroups=[_render_group(group, groups.get(group.name, {})) for group in workload.groups],
    )


def _render_clique(clique: CliqueTemplate, former: Obj) -> dict[str, Any]:
    spec = _overlay(
        former.get("spec", {}),
        roleName=clique.role_name,
        replicas=clique.replicas,
        minAvailable=clique.min_available,
        startsAfter=list(clique.starts_after),
        autoScalingConfig=clique.auto_scaling,
        podSpec=clique.pod_spec,
    )
    rendered = _overlay(former, name=clique.name, labels=clique.labels, annotations=clique.annotations, spec=spec)
    return _with_strategy(rendered, clique.budget)


def _render_group(group: GroupTemplate, former: Obj) -> dict[str, Any]:
    rendered = _overlay(
        former,
        name=group.name,
        cliqueNames=list(group.clique_names),
        replicas=group.replicas,
        minAvailable=group.min_available,
        annotations=group.annotations,
        scaleConfig=group.scale_config,
    )
    return _with_strategy(rendered, group.budget)


def _with_strategy(component: dict[str, Any], budget: BudgetSpec | None) -> dict[str, Any]:
    # An empty updateStrategy is not the same as none: it makes RollingUpdate of a type left out.
    strategy = None if budget is None else _render_budget(budget, component.get("updateStrategy"))
    others = {name: value for name, value in component.items() if name != "updateStrategy"}
    return others if strategy is None else {**others, "updateStrategy": strategy}


def _render_budget(budget: BudgetSpec, former: Obj | None) -> dict[str, Any]:
    return _overlay(former or {}, maxUnavailable=budget.max_unavailable, maxSurge=budget.max_surge)


def _overlay(former: Obj, **values: Any) -> dict[str, Any]:
    """Return the object with these values; one that holds nothing is left out, unless it was written as nothing."""
    empty = [name for name, value in values.items() if _is_empty(value)]
    kept = {name: value for name, value in former.items() if name not in empty or _is_empty(value)}
    return {**kept, **{name: value for name, value in values.items() if name not in empty}}


def _is_empty(value: object) -> bool:
    return value is None or value in ("", [], {})


def _by_name(entries: list[Obj] | None) -> dict[str, Obj]:
    return {entry["name"]: entry for entry in entries or ()}
