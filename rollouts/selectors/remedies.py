"""Remedies that help, tried in the workload's own cluster before anybody is offered them.

Before it: a diagnosis with a problem. After it: the page, its live parts and the API, all of which offer the same.

The cost is bounded: only problems are looked into; all remedies of a workload together may take a second, of which
each trial has its share; what was found is kept for as long as the workload stays as it is, but no longer than half a
minute, since nodes and times change too; and a process looks into one workload at a time. While another one is looked
into for too long, only what takes nothing from what runs is offered. A budget that an override sets cannot be changed
in the manifest, so no remedy that would change it is offered.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from rollouts.controller.effective_strategy import MAX_SURGE, MAX_UNAVAILABLE, compute_effective
from rollouts.engine.manifest import edits
from rollouts.engine.manifest.edits import Unfit
from rollouts.engine.manifest.parsing import Unreadable, parse_workload
from rollouts.engine.model.actions import Delete, Wait
from rollouts.engine.model.workload import Workload
from rollouts.engine.plan.remedies import Remedy
from rollouts.engine.simulation import simulate
from rollouts.engine.simulation.remedy_trials import (
    HARMLESS,
    TRIED,
    Trials,
    is_updating,
    list_parts_meant,
    may_fail_by_template,
)
from rollouts.engine.simulation.simulate import Outcome
from rollouts.selectors.forecast import make_forecast, read_cluster
from rollouts.selectors.revisions import find_former
from rollouts.selectors.workload_snapshot import Look

SECONDS: Final = 1.0
"""For all remedies of a workload together."""

_KEPT_FOR: Final = 30.0
_MOST_KEPT: Final = 256
_SECONDS_TO_WAIT: Final = 2.0
# The field that a remedy changes.
_FIELDS: Final = {Remedy.SET_MAX_SURGE_TO_ZERO: MAX_SURGE, Remedy.RAISE_MAX_UNAVAILABLE: MAX_UNAVAILABLE}

_turn: Final = threading.Lock()
_kept: Final[OrderedDict[Any, tuple[float, dict[Any, tuple[str, ...]]]]] = OrderedDict()


def sift_remedies(look: Look, waits: tuple[Wait, ...]) -> tuple[Wait, ...]:
    """Return the waits with the remedies that would end them; without a problem they are as the engine says."""
    workload = look.workload
    if workload is None:
        return waits
    waits = tuple(_leave_out_overridden(look, workload, wait) for wait in waits)
    tried = any(not TRIED.isdisjoint(wait.remedies) for wait in waits) and any(wait.is_problem for wait in waits)
    may_roll_back = any(map(may_fail_by_template, waits)) and is_updating(look.seen.observed)
    if not tried and not may_roll_back:
        return waits
    key = _make_key(look, workload)
    if not _turn.acquire(timeout=_SECONDS_TO_WAIT):
        return tuple(replace(wait, remedies=_without_risk(wait.remedies)) for wait in waits)
    try:
        found = _recall(key)
        if found is None or not all(_name(wait) in found for wait in waits):
            sifted = _try_all(look, workload, waits)
            found = {_name(wait): kept.remedies for wait, kept in zip(waits, sifted, strict=True)}
            _keep(key, found)
    finally:
        _turn.release()
    return tuple(replace(wait, remedies=found[_name(wait)]) for wait in waits)


def _leave_out_overridden(look: Look, workload: Workload, wait: Wait) -> Wait:
    """Return the wait without remedies for budgets that overrides set, which the pages of these remedies refuse."""
    kept = [one for one in wait.remedies if one not in _FIELDS or not _is_overridden(look, workload, wait, one)]
    return wait if len(kept) == len(wait.remedies) else replace(wait, remedies=tuple(kept))


def _is_overridden(look: Look, workload: Workload, wait: Wait, remedy: str) -> bool:
    field = _FIELDS[Remedy(remedy)]
    parts = list_parts_meant(workload, wait.component)
    return all(isinstance(look.effective.sources.get((part, field)), int) for part in parts)


def _try_all(look: Look, workload: Workload, waits: Iterable[Wait]) -> tuple[Wait, ...]:
    observed = look.seen.observed
    around = read_cluster(look.cluster, workload.namespace, workload, observed, look.now)
    deadline = time.monotonic() + SECONDS

    def run(after: Workload, first: tuple[Delete, ...], left: int) -> Outcome:
        forecast = make_forecast(workload, after, observed, around)
        now = time.monotonic()
        until = now + (deadline - now) / left
        return simulate.simulate(
            workload,
            observed,
            after,
            forecast.behaviour,
            look.now,
            first=first,
            requests=around.requests,
            is_enough=lambda: time.monotonic() > until,
        )

    return Trials(workload, observed, _make_former(look), run).sift(waits)


def _make_former(look: Look) -> Workload | None:
    """Return the workload as rolling back would make it; None: there is no revision to go back to."""
    seen = look.seen
    revision = find_former(look.cluster.name, seen.uid, seen.observed.status.get("currentGenerationHash") or "")
    if revision is None:
        return None
    wanted = edits.roll_back(seen.manifest, revision.template)
    if isinstance(wanted, Unfit):
        return None
    effective = compute_effective(wanted, look.overrides, look.now, cluster=look.cluster.name)
    former = parse_workload(effective.manifest)
    return None if isinstance(former, Unreadable) else former


def _without_risk(remedies: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(one for one in remedies if one not in TRIED or one in HARMLESS)


# ---- what was found


def _make_key(look: Look, workload: Workload) -> tuple[Any, ...]:
    """Return what tells a workload from the same one otherwise: its generation, its budgets in force, its parts."""
    observed = look.seen.observed
    budgets = (tuple(one.budget for one in workload.cliques), tuple(one.budget for one in workload.groups))
    cliques = tuple((one.name, one.uid, one.resource_version) for one in observed.cliques)
    groups = tuple((one.name, one.uid, one.resource_version) for one in observed.groups)
    parts = hash((cliques, groups, observed.pods))
    return look.cluster.pk, look.version, workload.strategy, workload.budget, budgets, parts


def _name(wait: Wait) -> tuple[Any, ...]:
    return wait.code, wait.component, wait.remedies


def _recall(key: Any) -> dict[Any, tuple[str, ...]] | None:
    at, found = _kept.get(key, (0.0, None))
    return found if found is not None and time.monotonic() - at < _KEPT_FOR else None


def _keep(key: Any, found: dict[Any, tuple[str, ...]]) -> None:
    _kept[key] = (time.monotonic(), found)
    _kept.move_to_end(key)
    while len(_kept) > _MOST_KEPT:
        _kept.popitem(last=False)
