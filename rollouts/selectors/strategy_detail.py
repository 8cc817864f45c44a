"""The effective strategy of one workload: each field with its source, and the resolved numbers.

`effective_strategy` applies overrides, and `engine.rollout.levels` resolves the numbers; this module combines them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from rollouts.accounts.commands import WorkloadRef
from rollouts.controller.effective_strategy import EffectiveStrategy, StrategySource
from rollouts.engine.manifest.findings import Finding
from rollouts.engine.manifest.strategy_parts import STRATEGY_TYPE
from rollouts.engine.manifest.validation import validate_create
from rollouts.engine.model.budget import DEFAULT_MAX_SURGE, DEFAULT_MAX_UNAVAILABLE
from rollouts.engine.model.workload import IntOrPercent, Workload
from rollouts.engine.rollout.levels import Level, LevelKind, compute_component_budget, list_levels
from rollouts.models import StrategyOverride
from rollouts.selectors.timestamps import to_datetime_or_none
from rollouts.selectors.workload_snapshot import WorkloadSnapshot, read_snapshot


@dataclass(frozen=True, slots=True)
class PartSource:
    """The source of a field."""

    kind: Literal["workload", "default", "override"]
    override: int | None = None
    reason: str = ""
    author: str = ""
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class StrategyPart:
    """A field of the effective strategy."""

    value: IntOrPercent | None
    source: PartSource


@dataclass(frozen=True, slots=True)
class LiveNumbers:
    """The resolved numbers of a live component that is scaled to another number than the template."""

    name: str  # of the PodClique or PodCliqueScalingGroup
    replicas: int
    max_unavailable: int | None
    max_surge: int | None


@dataclass(frozen=True, slots=True)
class StrategyLevel:
    """A level of the strategy: the set, a scaling group or a clique."""

    component: str  # empty: the set
    kind: LevelKind
    replicas: int
    is_used: bool  # whether the strategy uses the budget of this level
    max_unavailable: StrategyPart
    max_surge: StrategyPart
    # None: the strategy does not replace units at this level.
    resolved_max_unavailable: int | None
    resolved_max_surge: int | None
    live: tuple[LiveNumbers, ...]


@dataclass(frozen=True, slots=True)
class IgnoredOverride:
    """An override that matches this workload and is not valid for it."""

    override: int
    reason: str
    finding: Finding


@dataclass(frozen=True, slots=True)
class StrategyDetail:
    """The effective strategy of a workload."""

    cluster: str
    namespace: str
    name: str
    version: str
    type: StrategyPart
    levels: tuple[StrategyLevel, ...]
    ignored: tuple[IgnoredOverride, ...]
    until: datetime | None  # when the first matching override ends
    warnings: tuple[Finding, ...]  # of the effective strategy
    findings: tuple[Finding, ...]  # why the manifest is not valid


def strategy_detail(place: WorkloadRef) -> StrategyDetail:
    """Return the effective strategy of a workload; raises NotFound."""
    return snapshot_strategy(place, read_snapshot(place))


def snapshot_strategy(place: WorkloadRef, snapshot: WorkloadSnapshot) -> StrategyDetail:
    """Return the effective strategy of a workload, from its snapshot."""
    sources = _Sources(snapshot.effective, _read_overrides(snapshot.effective))
    kind = None if snapshot.workload is None else str(snapshot.workload.strategy)
    return StrategyDetail(
        cluster=place.cluster,
        namespace=place.namespace,
        name=place.name,
        version=snapshot.version,
        type=StrategyPart(kind, sources.of("", STRATEGY_TYPE)),
        levels=() if snapshot.workload is None else tuple(_levels(snapshot.workload, snapshot, sources)),
        ignored=tuple(
            IgnoredOverride(number, sources.reason(number), finding) for number, finding in snapshot.effective.ignored
        ),
        until=to_datetime_or_none(snapshot.effective.next_expiry),
        warnings=_warnings(snapshot.effective.manifest),
        findings=snapshot.findings,
    )


def _warnings(manifest: Any) -> tuple[Finding, ...]:
    warnings = validate_create(manifest).warnings
    return tuple(one for one in warnings if "updateStrategy" in one.field)


def _read_overrides(effective: EffectiveStrategy) -> Mapping[int, StrategyOverride]:
    numbers = {source for source in effective.sources.values() if isinstance(source, int)}
    numbers |= {number for number, _ in effective.ignored}
    if not numbers:
        return {}
    return StrategyOverride.objects.select_related("author").in_bulk(numbers)


@dataclass(frozen=True, slots=True)
class _Sources:
    """Finds the source of each field."""

    effective: EffectiveStrategy
    overrides: Mapping[int, StrategyOverride]

    def of(self, component: str, field: str) -> PartSource:
        source: StrategySource = self.effective.sources.get((component, field), "default")
        if not isinstance(source, int):
            return PartSource(source)
        row = self.overrides.get(source)
        if row is None:  # deleted between two queries
            return PartSource("override", source)
        author = row.author.username if row.author else ""
        return PartSource("override", source, row.reason, author, row.expires_at)

    def reason(self, override: int) -> str:
        row = self.overrides.get(override)
        return "" if row is None else row.reason


def _levels(workload: Workload, snapshot: WorkloadSnapshot, sources: _Sources) -> Iterator[StrategyLevel]:
    for level in list_levels(workload):
        written, budget, component = level.budget_spec, level.budget, level.component
        unavailable, surge = (None, None) if written is None else (written.max_unavailable, written.max_surge)
        yield StrategyLevel(
            component=component,
            kind=level.kind,
            replicas=level.replicas,
            is_used=level.is_used,
            max_unavailable=_part(unavailable, DEFAULT_MAX_UNAVAILABLE, sources.of(component, "maxUnavailable")),
            max_surge=_part(surge, DEFAULT_MAX_SURGE, sources.of(component, "maxSurge")),
            resolved_max_unavailable=None if budget is None else budget.max_unavailable,
            resolved_max_surge=None if budget is None else budget.max_surge,
            live=tuple(_live(workload, level, snapshot)),
        )


def _part(value: IntOrPercent | None, default: int, source: PartSource) -> StrategyPart:
    return StrategyPart(default if value is None else value, source)


def _live(workload: Workload, level: Level, snapshot: WorkloadSnapshot) -> Iterator[LiveNumbers]:
    """Return the numbers of each live component that is scaled to another number than the template."""
    observed = snapshot.mirrored.observed
    objects = {
        LevelKind.CLIQUE: [(one.name, one.template, one.replicas) for one in observed.cliques if not one.group],
        LevelKind.GROUP: [(one.name, one.template, one.replicas) for one in observed.groups],
        LevelKind.SET: [],
    }
    for name, template, replicas in objects[level.kind]:
        if template == level.component and replicas != level.replicas:
            budget = None if level.budget is None else compute_component_budget(workload, level.budget_spec, replicas)
            unavailable, surge = (None, None) if budget is None else (budget.max_unavailable, budget.max_surge)
            yield LiveNumbers(name, replicas, unavailable, surge)
