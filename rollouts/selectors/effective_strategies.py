"""The effective strategies of many workloads at once, for lists and their filters.

Few workloads have an override, so for most the column of the mirror is the answer. Only for a workload that an override
matches is the manifest read, and `effective_strategy` called, which alone applies overrides.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from rollouts import models
from rollouts.controller.effective_strategy import StrategySource, compute_effective_strategy, list_overrides
from rollouts.engine.manifest.override_precedence import Override, matches
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.engine.manifest.strategy_parts import STRATEGY_TYPE


@dataclass(frozen=True, slots=True)
class StrategyInForce:
    """The type of a strategy, and its source."""

    type: str
    override: int | None = None  # the id of the override that sets it


@dataclass(frozen=True, slots=True)
class OverrideTarget:
    """The columns by which overrides match a workload."""

    id: int  # of its row
    cluster: str
    namespace: str
    name: str
    labels: Mapping[str, str]
    strategy: str  # of the mirror's column
    uid: str
    generation: int

    @property
    def metadata(self) -> dict[str, Any]:
        """A manifest with only these fields."""
        return {"metadata": {"namespace": self.namespace, "name": self.name, "labels": self.labels}}


def list_active_overrides(clusters: Iterable[str]) -> dict[str, list[Override]]:
    """Return the overrides in force by cluster."""
    now = time.time()
    return {
        cluster: [one for one in list_overrides(cluster) if one.expires_at is None or one.expires_at > now]
        for cluster in clusters
    }


def list_effective_strategies(
    workloads: Sequence[OverrideTarget], overrides: Mapping[str, Sequence[Override]]
) -> dict[int, StrategyInForce]:
    """Return the strategy of each workload, by the id of its row."""
    found = {one.id: StrategyInForce(one.strategy) for one in workloads}
    hit = [(one, by) for one in workloads if (by := _find_matching(one, overrides.get(one.cluster, ())))]
    if hit:
        rows = models.Workload.objects.filter(id__in=[one.id for one, _ in hit])
        manifests: dict[int, Any] = dict(rows.values_list("id", "manifest"))
        found |= {one.id: _resolve(one, by, manifests[one.id]) for one, by in hit if one.id in manifests}
    return found


def _find_matching(workload: OverrideTarget, overrides: Sequence[Override]) -> list[Override]:
    manifest = workload.metadata
    return [one for one in overrides if matches(one, manifest, workload.cluster)]


def _resolve(workload: OverrideTarget, overrides: Sequence[Override], manifest: Any) -> StrategyInForce:
    marks = tuple((one.id, one.precedence, repr(sorted(one.settings.items(), key=repr))) for one in overrides)
    key = (workload.uid, workload.generation, workload.cluster, marks)
    return _compute(_StrategyQuery(key, manifest, tuple(overrides)))


@dataclass(frozen=True, slots=True)
class _StrategyQuery:
    """A workload with its matching overrides; equal if the keys are equal."""

    key: tuple[Any, ...]
    manifest: Any = field(compare=False)
    overrides: tuple[Override, ...] = field(compare=False)


@lru_cache(maxsize=2048)
def _compute(question: _StrategyQuery) -> StrategyInForce:
    """Cache the strategy for all lists, because the rules read the whole manifest, which is slow."""
    cluster = question.key[2]
    effective = compute_effective_strategy(question.manifest, question.overrides, time.time(), cluster=cluster)
    source: StrategySource = effective.sources["", STRATEGY_TYPE]
    workload = parse_workload(effective.manifest)
    written = "" if isinstance(workload, ParseFailure) else str(workload.strategy)
    return StrategyInForce(written, source if isinstance(source, int) else None)
