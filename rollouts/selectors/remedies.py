"""Remedies that help: each is simulated in the cluster of the workload before it is offered.

Before it: a diagnosis with a problem. After it: the page, its fragments and the API, which offer the same remedies.

The cost is limited: only problems are simulated; all trials of a workload together may take one second; a result is
cached until the workload changes, but at most half a minute, because nodes and times change too; and a process
simulates one workload at a time. While another workload takes too long, only remedies that delete nothing that runs are
offered. A remedy that changes a budget is not offered when an override sets that budget.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from rollouts.controller.effective_strategy import compute_effective_strategy
from rollouts.engine.manifest import edits
from rollouts.engine.manifest.edits import InvalidEdit
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.engine.manifest.strategy_parts import MAX_SURGE, MAX_UNAVAILABLE
from rollouts.engine.model.actions import Delete, Wait
from rollouts.engine.model.workload import Workload
from rollouts.engine.plan.remedies import Remedy
from rollouts.engine.plan.wait_codes import WaitCode
from rollouts.engine.simulation import simulate
from rollouts.engine.simulation.remedy_trials import (
    HARMLESS,
    TRIABLE,
    RemedyTrials,
    is_updating,
    list_budget_owners,
    may_fail_by_template,
)
from rollouts.engine.simulation.simulate import SimulationResult
from rollouts.selectors.forecast import compute_forecast, fetch_surroundings
from rollouts.selectors.revisions import find_previous
from rollouts.selectors.workload_snapshot import WorkloadSnapshot

MAX_SECONDS: Final = 1.0
"""The time limit for all trials of a workload."""

_CACHE_SECONDS: Final = 30.0
_MAX_CACHED: Final = 256
_LOCK_WAIT_SECONDS: Final = 2.0
# The field that each remedy changes.
_BUDGET_FIELDS: Final = {Remedy.SET_MAX_SURGE_TO_ZERO: MAX_SURGE, Remedy.RAISE_MAX_UNAVAILABLE: MAX_UNAVAILABLE}

_lock: Final = threading.Lock()
_cache: Final[OrderedDict[Any, tuple[float, dict[Any, tuple[str, ...]]]]] = OrderedDict()


def filter_remedies(snapshot: WorkloadSnapshot, waits: tuple[Wait, ...]) -> tuple[Wait, ...]:
    """Return the waits with the remedies that help; a wait that is no problem has none, except for its command."""
    workload = snapshot.workload
    if workload is None:
        return waits
    waits = tuple(_drop_overridden(snapshot, workload, _drop_if_normal(wait)) for wait in waits)
    tried = any(not TRIABLE.isdisjoint(wait.remedies) for wait in waits) and any(wait.is_problem for wait in waits)
    may_roll_back = any(map(may_fail_by_template, waits)) and is_updating(snapshot.mirrored.observed)
    if not tried and not may_roll_back:
        return waits
    key = _make_key(snapshot, workload)
    if not _lock.acquire(timeout=_LOCK_WAIT_SECONDS):
        return tuple(replace(wait, remedies=_only_harmless(wait.remedies)) for wait in waits)
    try:
        found = _find_cached(key)
        if found is None or not all(_wait_key(wait) in found for wait in waits):
            sifted = _simulate_all(snapshot, workload, waits)
            found = {_wait_key(wait): kept.remedies for wait, kept in zip(waits, sifted, strict=True)}
            _store_cached(key, found)
    finally:
        _lock.release()
    return tuple(replace(wait, remedies=found[_wait_key(wait)]) for wait in waits)


def _drop_if_normal(wait: Wait) -> Wait:
    """Return the wait, without remedies if it ends by itself; outdated pods under OnDelete wait for their command."""
    return wait if wait.is_problem or wait.code == WaitCode.AWAITING_DELETION else replace(wait, remedies=())


def _drop_overridden(snapshot: WorkloadSnapshot, workload: Workload, wait: Wait) -> Wait:
    """Return the wait without remedies for budgets that overrides set."""
    kept = [
        one for one in wait.remedies if one not in _BUDGET_FIELDS or not _is_overridden(snapshot, workload, wait, one)
    ]
    return wait if len(kept) == len(wait.remedies) else replace(wait, remedies=tuple(kept))


def _is_overridden(snapshot: WorkloadSnapshot, workload: Workload, wait: Wait, remedy: str) -> bool:
    field = _BUDGET_FIELDS[Remedy(remedy)]
    parts = list_budget_owners(workload, wait.component)
    return all(isinstance(snapshot.effective.sources.get((part, field)), int) for part in parts)


def _simulate_all(snapshot: WorkloadSnapshot, workload: Workload, waits: Iterable[Wait]) -> tuple[Wait, ...]:
    observed = snapshot.mirrored.observed
    around = fetch_surroundings(snapshot.cluster, workload.namespace, workload, observed, snapshot.now)
    deadline = time.monotonic() + MAX_SECONDS

    def run(after: Workload, first: tuple[Delete, ...], left: int) -> SimulationResult:
        forecast = compute_forecast(workload, after, observed, around)
        now = time.monotonic()
        until = now + (deadline - now) / left
        return simulate.simulate(
            workload,
            observed,
            after,
            forecast.behaviour,
            snapshot.now,
            first=first,
            requests=around.requests,
            is_enough=lambda: time.monotonic() > until,
        )

    return RemedyTrials(workload, observed, _make_rolled_back(snapshot), run).filter_remedies(waits)


def _make_rolled_back(snapshot: WorkloadSnapshot) -> Workload | None:
    """Return the workload after a rollback; None: there is no previous revision."""
    seen = snapshot.mirrored
    revision = find_previous(snapshot.cluster.name, seen.uid, seen.observed.status.get("currentGenerationHash") or "")
    if revision is None:
        return None
    wanted = edits.roll_back(seen.manifest, revision.template)
    if isinstance(wanted, InvalidEdit):
        return None
    effective = compute_effective_strategy(wanted, snapshot.overrides, snapshot.now, cluster=snapshot.cluster.name)
    former = parse_workload(effective.manifest)
    return None if isinstance(former, ParseFailure) else former


def _only_harmless(remedies: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(one for one in remedies if one not in TRIABLE or one in HARMLESS)


# ---- the cache


def _make_key(snapshot: WorkloadSnapshot, workload: Workload) -> tuple[Any, ...]:
    """Return the cache key: the generation, the effective budgets and the objects of a workload."""
    observed = snapshot.mirrored.observed
    budgets = (tuple(one.budget for one in workload.cliques), tuple(one.budget for one in workload.groups))
    cliques = tuple((one.name, one.uid, one.resource_version) for one in observed.cliques)
    groups = tuple((one.name, one.uid, one.resource_version) for one in observed.groups)
    parts = hash((cliques, groups, observed.pods))
    return snapshot.cluster.pk, snapshot.version, workload.strategy, workload.budget, budgets, parts


def _wait_key(wait: Wait) -> tuple[Any, ...]:
    return wait.code, wait.component, wait.remedies


def _find_cached(key: Any) -> dict[Any, tuple[str, ...]] | None:
    at, found = _cache.get(key, (0.0, None))
    return found if found is not None and time.monotonic() - at < _CACHE_SECONDS else None


def _store_cached(key: Any, found: dict[Any, tuple[str, ...]]) -> None:
    _cache[key] = (time.monotonic(), found)
    _cache.move_to_end(key)
    while len(_cache) > _MAX_CACHED:
        _cache.popitem(last=False)
