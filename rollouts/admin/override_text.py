"""Overrides as text, for lists and headings."""

from collections.abc import Iterator, Mapping
from typing import Any

from rollouts.models import StrategyOverride


def render_target(row: StrategyOverride) -> str:
    """Return which workloads an override matches.

    >>> render_target(StrategyOverride(namespace="web", selector={"team": "search"}))
    'namespace web, team=search'
    >>> render_target(StrategyOverride())
    'every workload'
    """
    parts = [
        f"{kind} {value}"
        for kind, value in (("cluster", row.cluster), ("namespace", row.namespace), ("workload", row.name))
        if value
    ]
    labels = [f"{name}={value}" for name, value in (row.selector or {}).items()]
    return ", ".join([*parts, *labels]) or "every workload"


def render_settings(row: StrategyOverride) -> str:
    """Return what an override sets.

    >>> render_settings(StrategyOverride(strategy="OnDelete", components={"decode": {"maxSurge": 1}, "router": None}))
    'OnDelete; decode: maxSurge 1; router: default'
    """
    return "; ".join(_parts(row)) or "nothing"


def _parts(row: StrategyOverride) -> Iterator[str]:
    if row.strategy:
        yield row.strategy
    budget = _render_budget({"maxUnavailable": row.max_unavailable, "maxSurge": row.max_surge})
    if budget:
        yield budget
    for name, component in (row.components or {}).items():
        yield f"{name}: {_render_budget(component) if component else 'default'}"


def _render_budget(budget: Mapping[str, Any]) -> str:
    parts = (f"{name} {budget[name]}" for name in ("maxUnavailable", "maxSurge") if budget.get(name) is not None)
    return ", ".join(parts)
