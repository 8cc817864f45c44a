"""The strategies of many workloads at once, as they are in force.

Lists show and filter by them. Almost no workload is hit by an override, so almost always the column of the mirror says
it; only where one is hit are manifests read and `effective_strategy` asked, which alone applies overrides.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from rollouts import models
from rollouts.controller.effective_strategy import (
    Override,
    StrategySource,
    compute_effective_strategy,
    list_overrides,
    matches,
)
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.engine.manifest.strategy_parts import STRATEGY_TYPE


@dataclass(frozen=True, slots=True)
class StrategyInForce:
    """The type of a workload's strategy, and who says so."""

    type: str
    override: int | None = None  # the id of the override that it comes from


@dataclass(frozen=True, slots=True)
class OverrideTarget:
    """As much of a workload as overrides choose by."""

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
        """The same as a manifest that consists of nothing else."""
        return {"metadata": {"namespace": self.namespace, "name": self.name, "labels": self.labels}}


def list_active_overrides(clusters: Iterable[str]) -> dict[str, list[Override]]:
    """Return the overrides of each cluster that have not run out."""
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
    """A workload and what hits it, told from others by its key alone."""

    key: tuple[Any, ...]
    manifest: Any = field(compare=False)
    overrides: tuple[Override, ...] = field(compare=False)


@lru_cache(maxsize=2048)
def _compute(question: _StrategyQuery) -> StrategyInForce:
    """Ask once for the many lists that show the same: the rules look at the whole manifest, which takes a while."""
    cluster = question.key[2]
    effective = compute_effective_strategy(question.manifest, question.overrides, time.time(), cluster=cluster)
    source: StrategySource = effective.sources["", STRATEGY_TYPE]
    workload = parse_workload(effective.manifest)
    written = "" if isinstance(workload, ParseFailure) else str(workload.strategy)
    return StrategyInForce(written, source if isinstance(source, int) else None)
