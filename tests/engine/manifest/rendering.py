"""The manifest of a Workload: the way back from `parse_workload`, for tests that change a workload and store it."""

from collections.abc import Mapping
from typing import Any, Final

from rollouts.engine.model.durations import parse_duration
from rollouts.engine.model.workload import BudgetSpec, CliqueTemplate, GroupTemplate, Workload

Obj = Mapping[str, Any]

_NANOSECONDS: Final = {"h": 3600 * 10**9, "m": 60 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def render_manifest(workload: Workload) -> dict[str, Any]:
    """Return the manifest of a workload: the parsed one, with the values of the workload.

    Other fields are those of the parsed manifest, so after `replace(workload, replicas=5)` only spec.replicas differs.
    The result shares its inner parts with the workload.
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
    """Return the object with these values; an empty value is left out unless it was written as empty."""
    empty = [name for name, value in values.items() if _is_empty(value)]
    kept = {name: value for name, value in former.items() if name not in empty or _is_empty(value)}
    return {**kept, **{name: value for name, value in values.items() if name not in empty}}


def _is_empty(value: object) -> bool:
    return value is None or value in ("", [], {})


def _by_name(entries: list[Obj] | None) -> dict[str, Obj]:
    return {entry["name"]: entry for entry in entries or ()}


def render_duration(seconds: float) -> str:
    """Return a duration in the largest unit that holds it without a fraction: 4h, 90m, 250ms."""
    nanoseconds = round(seconds * 10**9)
    unit, size = next((unit, size) for unit, size in _NANOSECONDS.items() if nanoseconds % size == 0)
    return f"{nanoseconds // size}{unit}"
