"""What is told of a change that was run to its end: its steps, its pods over time, how low availability went.

Before it: `simulation`, which runs a change in a simulated cluster. After it: the API, which answers this as it
is, and the pages from which people command. The invariant: an answer is bounded in size, with what was left out told as
such.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, TypeVar

from rollouts.accounts.commands import WorkloadRef
from rollouts.cluster import Obj
from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESCALINGGROUPS
from rollouts.controller.pod_counts import count_pods
from rollouts.engine.manifest.findings import Finding
from rollouts.engine.model.actions import Action, Create, Delete, Kind, Patch, TimelineEvent, Wait
from rollouts.engine.model.observed import Clique, Group, Observed
from rollouts.engine.model.workload import Workload
from rollouts.engine.plan.desired import patch_replicas
from rollouts.engine.simulation import simulate as engine
from rollouts.engine.simulation.remedy_trials import HARMLESS, TRIABLE
from rollouts.engine.simulation.simulate import SimulationEnd, SimulationResult, UnitCounts
from rollouts.engine.tree.layout import make_layout
from rollouts.manifests.masking import Reader
from rollouts.selectors.forecast import Assumption, Forecast, Pace
from rollouts.services.edit import Change, compute_changes
from rollouts.services.scaling import make_scale_change
from rollouts.services.workload_client import version_of_object

MAX_STEPS: Final = 200
"""Steps that are told: the first ones and the last ones."""
MAX_ENTRIES: Final = 20
"""Of one kind within a step: counts of components, moments."""
MAX_COMPONENTS: Final = 200
MAX_COUNTS: Final = 1000
"""Moments at which pods are counted: the first ones."""

_STEPS_AT_THE_END: Final = 50
T = TypeVar("T", Clique, Group)


@dataclass(frozen=True, slots=True)
class SimulatedStep:
    """A moment at which something changed."""

    at: float  # seconds since the change
    writes: Mapping[str, int]  # how many of each sort: "Create Pod"
    moments: tuple[TimelineEvent, ...]
    counts: tuple[UnitCounts, ...]  # of the components whose counts changed
    left_out: int  # moments and counts beyond those that are told


@dataclass(frozen=True, slots=True)
class Lowest:
    """How far a component's availability went down, and its surge up."""

    component: str
    kind: Kind
    wanted: int
    available: int  # before the change
    lowest: int
    most_surge: int


@dataclass(frozen=True, slots=True)
class PodsAt:
    """How many pods there are at a moment; those that are leaving do not count."""

    at: float  # seconds since the change
    available: int  # the fewest at this moment
    updated: int  # available on the template that is wanted, where a pod is desired; surge is none of them
    live: int  # surge included
    surge: int  # beyond the places that are desired, available or not


@dataclass(frozen=True, slots=True)
class PodsOverTime:
    """All pods of a workload while a change is carried out."""

    desired: int  # in the end
    floor: int  # fewer may not be available because of an update
    lowest: int  # the fewest that were available
    most: int  # the most that were there
    counts: tuple[PodsAt, ...]  # the first one is before the change
    left_out: int  # counts beyond those that are told


@dataclass(frozen=True, slots=True)
class Former:
    """How the same goes without the change."""

    end: SimulationEnd
    seconds: float
    rounds: int
    lowest: int  # the fewest pods that were available


@dataclass(frozen=True, slots=True)
class Simulated:
    """A change, seen to its end."""

    cluster: str
    namespace: str
    name: str
    version: str  # of the workload that it was simulated on; empty for one that is not there yet
    changed: tuple[Change, ...]
    warnings: tuple[Finding, ...]
    starts_update: bool  # the template of some pods is another one
    is_rehearsal: bool  # the change by itself replaces nothing: what is told is the next rollout
    former: Former | None  # to compare with, where a strategy is judged
    end: SimulationEnd
    seconds: float  # of the cluster's time
    pace: Pace
    assumptions: tuple[Assumption, ...]  # what the numbers rest on, each a sentence
    waits: tuple[Wait, ...]
    components: tuple[Lowest, ...]
    components_left_out: int
    pods: PodsOverTime
    pods_created: int
    pods_deleted: int
    replaced: Mapping[str, int]  # how many of the pods that were there before go, by clique of the template
    rounds: int  # moments at which something was created or deleted
    steps: tuple[SimulatedStep, ...]
    steps_left_out: int  # in the middle


@dataclass(frozen=True, slots=True)
class SimulationRun:
    """A workload that was changed, and what came of it."""

    before: Workload
    after: Workload
    observed: Observed  # when it was changed
    outcome: SimulationResult
    forecast: Forecast  # the cluster that it was run in

    @property
    def changes_nothing(self) -> bool:
        """Whether nothing had to be done."""
        return (
            self.outcome.end is SimulationEnd.DONE and not self.outcome.pods_created and not self.outcome.pods_deleted
        )


@dataclass(frozen=True, slots=True)
class SimulatedChange:
    """A change of a manifest that somebody considers."""

    place: WorkloadRef
    before: Obj
    after: Obj
    observed: Observed  # as it is there
    is_new: bool  # there is nothing of it yet
    warnings: tuple[Finding, ...]
    reader: Reader  # who considers it


def build_report(change: SimulatedChange, run: SimulationRun) -> Simulated:
    """Tell what a change does by itself."""
    outcome, components = run.outcome, _summarize_components(run.outcome)
    first = outcome.steps[: MAX_STEPS - _STEPS_AT_THE_END]
    last = outcome.steps[len(first) :][-_STEPS_AT_THE_END:]
    return Simulated(
        cluster=change.place.cluster,
        namespace=change.place.namespace,
        name=change.place.name,
        version="" if change.is_new else version_of_object(change.before),
        changed=(
            *compute_changes(
                change.place, {"metadata": {}} if change.is_new else change.before, change.after, change.reader
            ),
            *_compute_scale_changes(change.observed, run.observed),
        ),
        warnings=change.warnings,
        starts_update=make_layout(run.before).generation_hash != make_layout(run.after).generation_hash,
        is_rehearsal=False,
        former=None,
        end=outcome.end,
        seconds=outcome.seconds,
        pace=run.forecast.pace,
        assumptions=run.forecast.assumptions,
        waits=tuple(_drop_untested_remedies(outcome.waits[:MAX_ENTRIES], outcome)),
        components=tuple(components[:MAX_COMPONENTS]),
        components_left_out=max(0, len(components) - MAX_COMPONENTS),
        pods=count_pods_over_time(run),
        pods_created=outcome.pods_created,
        pods_deleted=outcome.pods_deleted,
        replaced=_count_replaced(run.observed, outcome),
        rounds=count_rounds(outcome),
        steps=tuple(_build_step(step) for step in (*first, *last)),
        steps_left_out=len(outcome.steps) - len(first) - len(last),
    )


def _drop_untested_remedies(waits: Iterable[Wait], outcome: SimulationResult) -> Iterator[Wait]:
    """Yield the waits; those of a change that gets stuck without the remedies that would have to be tried there first.

    They are tried and offered on the page of the workload once somebody has made the change.
    """
    for wait in waits:
        kept = [one for one in wait.remedies if one not in TRIABLE or one in HARMLESS]
        yield wait if outcome.end is SimulationEnd.DONE else replace(wait, remedies=tuple(kept))


def build_baseline(run: SimulationRun) -> Former:
    """Tell how it goes without the change."""
    outcome = run.outcome
    return Former(outcome.end, outcome.seconds, count_rounds(outcome), count_pods_over_time(run).lowest)


def _compute_scale_changes(before: Observed, after: Observed) -> Iterator[Change]:
    """Return which live components are scaled, in the words of the command itself."""
    for clique, scaled in zip(before.cliques, after.cliques, strict=True):
        if clique.replicas != scaled.replicas:
            yield make_scale_change(PODCLIQUES, clique.name, clique.replicas, scaled.replicas)
    for group, grown in zip(before.groups, after.groups, strict=True):
        if group.replicas != grown.replicas:
            yield make_scale_change(PODCLIQUESCALINGGROUPS, group.name, group.replicas, grown.replicas)


def _count_replaced(observed: Observed, outcome: SimulationResult) -> dict[str, int]:
    """Return how many of the pods that were there before went, by clique; what owns a pod takes it along."""
    deleted = {one.uid for step in outcome.steps for one in step.actions if isinstance(one, Delete)}
    groups = {group.name: group.uid for group in observed.groups}
    owners = {one.name: (one.uid, groups.get(one.group, "")) for one in observed.cliques}
    templates = {one.name: one.template for one in observed.cliques}
    there = (pod for pod in observed.pods if not pod.leaving)
    gone = (pod for pod in there if not deleted.isdisjoint((pod.uid, *owners.get(pod.clique, ()))))
    return dict(Counter(templates.get(pod.clique, pod.clique) for pod in gone))


# ---- steps


def _build_step(step: engine.SimulationStep) -> SimulatedStep:
    moments, counts = step.timeline_events[:MAX_ENTRIES], step.counts[:MAX_ENTRIES]
    left_out = len(step.timeline_events) + len(step.counts) - len(moments) - len(counts)
    return SimulatedStep(step.at, _count_writes(step.actions), moments, counts, left_out)


def _count_writes(actions: Iterable[Action]) -> dict[str, int]:
    """Return how many writes of each sort there are; statuses and gates are no news to anybody."""
    told = (one for one in actions if isinstance(one, Create | Patch | Delete))
    return dict(Counter(f"{type(one).__name__} {one.kind}" for one in told))


def count_rounds(outcome: SimulationResult) -> int:
    """Return at how many moments something was created or deleted."""
    busy = (step.at for step in outcome.steps if any(isinstance(one, Create | Delete) for one in step.actions))
    return len({*busy})


def _summarize_components(outcome: SimulationResult) -> list[Lowest]:
    """Return the components, those first whose availability goes furthest down."""
    found = [
        Lowest(
            component=name,
            kind=tally.kind,
            wanted=tally.wanted,
            available=tally.available,
            lowest=outcome.lowest.get(name, tally.available),
            most_surge=outcome.most_surge.get(name, 0),
        )
        for name, tally in outcome.start.items()
    ]
    return sorted(found, key=lambda one: (one.kind is not Kind.SET, one.lowest - one.available, one.component))


# ---- pods over time


def count_pods_over_time(run: SimulationRun) -> PodsOverTime:
    """Count the pods of a workload from before a change to its end."""
    counts = list(_merge_by_time(run.outcome.pods))
    meant = count_pods(run.after, _scale_observed(run.observed, run.after))
    return PodsOverTime(
        desired=meant.desired,
        floor=meant.floor,
        lowest=min(one.available for one in counts),
        most=max(one.live for one in counts),
        counts=tuple(counts[:MAX_COUNTS]),
        left_out=max(0, len(counts) - MAX_COUNTS),
    )


def _merge_by_time(counts: Iterable[engine.PodTotals]) -> Iterator[PodsAt]:
    """Yield one count for each moment, with the fewest available and the most live; the first stays by itself."""
    first, *others = (PodsAt(one.at, one.available, one.updated, one.live, one.surge) for one in counts)
    yield first
    for _, group in groupby(others, key=lambda one: one.at):
        at_once = list(group)
        fewest, most = min(one.available for one in at_once), max(one.live for one in at_once)
        yield replace(at_once[-1], available=fewest, updated=min(at_once[-1].updated, fewest), live=most)


def _scale_observed(observed: Observed, workload: Workload) -> Observed:
    """Return what is observed with the replicas that components will have once the template is put in force."""
    cliques = {one.name: one.replicas for one in workload.cliques}
    groups = {one.name: one.replicas for one in workload.groups}
    return replace(
        observed,
        cliques=tuple(one if one.group else _scale_one(one, cliques) for one in observed.cliques),
        groups=tuple(_scale_one(one, groups) for one in observed.groups),
    )


def _scale_one(one: T, replicas: Mapping[str, int]) -> T:
    patch = patch_replicas(one, replicas[one.template]) if one.template in replicas else None
    wanted: int = ((patch or {}).get("spec") or {}).get("replicas", one.replicas)
    return replace(one, replicas=wanted)
