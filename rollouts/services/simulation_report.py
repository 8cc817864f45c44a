"""Builds the report of a simulated change: its steps, its pods over time, how low availability went.

Before it: `simulation`, which runs a change in a simulated cluster. After it: the API, which answers with this value,
and the preview of forms. The invariant: a report has a limited size, and counts what it leaves out.
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
"""How many steps a report has: the first and the last ones."""
MAX_ENTRIES: Final = 20
"""How many events, and how many counts of components, a step has."""
MAX_COMPONENTS: Final = 200
MAX_COUNTS: Final = 1000
"""How many counts of pods a report has: the first ones."""

_STEPS_AT_THE_END: Final = 50
T = TypeVar("T", Clique, Group)


@dataclass(frozen=True, slots=True)
class SimulatedStep:
    """A time at which something changed."""

    at: float  # seconds since the change
    writes: Mapping[str, int]  # how many of each kind: "Create Pod"
    moments: tuple[TimelineEvent, ...]
    counts: tuple[UnitCounts, ...]  # of the components whose counts changed
    left_out: int  # how many events and counts are not in this step


@dataclass(frozen=True, slots=True)
class Lowest:
    """The lowest availability of a component, and its highest surge."""

    component: str
    kind: Kind
    wanted: int
    available: int  # before the change
    lowest: int
    most_surge: int


@dataclass(frozen=True, slots=True)
class PodsAt:
    """How many pods there are at a time; terminating pods do not count."""

    at: float  # seconds since the change
    available: int  # the fewest at this time
    updated: int  # available pods of the new template in desired positions; surge does not count
    live: int  # surge included
    surge: int  # pods beyond the desired positions, available or not


@dataclass(frozen=True, slots=True)
class PodsOverTime:
    """All pods of a workload during a change."""

    desired: int  # at the end
    floor: int  # an update keeps at least so many available
    lowest: int  # the fewest available pods
    most: int  # the most live pods
    counts: tuple[PodsAt, ...]  # the first one is before the change
    left_out: int  # how many counts are not in the report


@dataclass(frozen=True, slots=True)
class Former:
    """The same rollout without the change."""

    end: SimulationEnd
    seconds: float
    rounds: int
    lowest: int  # the fewest available pods


@dataclass(frozen=True, slots=True)
class Simulated:
    """A change that was simulated to its end."""

    cluster: str
    namespace: str
    name: str
    version: str  # of the simulated workload; empty for a new one
    changed: tuple[Change, ...]
    warnings: tuple[Finding, ...]
    starts_update: bool  # the template of some pods changes
    is_rehearsal: bool  # the change alone replaces no pod: this is the report of the next rollout
    former: Former | None  # for a change of the strategy: the rollout without it
    end: SimulationEnd
    seconds: float  # of simulated time
    pace: Pace
    assumptions: tuple[Assumption, ...]  # each a sentence
    waits: tuple[Wait, ...]
    components: tuple[Lowest, ...]
    components_left_out: int
    pods: PodsOverTime
    pods_created: int
    pods_deleted: int
    replaced: Mapping[str, int]  # how many of the present pods are replaced, by clique of the template
    rounds: int  # times at which something was created or deleted
    steps: tuple[SimulatedStep, ...]
    steps_left_out: int  # in the middle


@dataclass(frozen=True, slots=True)
class SimulationRun:
    """A simulation of a workload."""

    before: Workload
    after: Workload
    observed: Observed  # at the time of the change
    outcome: SimulationResult
    forecast: Forecast  # the simulated cluster

    @property
    def changes_nothing(self) -> bool:
        """Whether no pod was created or deleted."""
        return (
            self.outcome.end is SimulationEnd.DONE and not self.outcome.pods_created and not self.outcome.pods_deleted
        )


@dataclass(frozen=True, slots=True)
class SimulatedChange:
    """The change that is simulated."""

    place: WorkloadRef
    before: Obj
    after: Obj
    observed: Observed  # now
    is_new: bool  # the workload does not exist yet
    warnings: tuple[Finding, ...]
    reader: Reader  # of the report


def build_report(change: SimulatedChange, run: SimulationRun) -> Simulated:
    """Return the report of a simulation."""
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
    """Yield the waits; if the change gets stuck, without the remedies that need a trial.

    The page of the workload tries and offers those once the change has been made.
    """
    for wait in waits:
        kept = [one for one in wait.remedies if one not in TRIABLE or one in HARMLESS]
        yield wait if outcome.end is SimulationEnd.DONE else replace(wait, remedies=tuple(kept))


def build_baseline(run: SimulationRun) -> Former:
    """Return the summary of a simulation without the change."""
    outcome = run.outcome
    return Former(outcome.end, outcome.seconds, count_rounds(outcome), count_pods_over_time(run).lowest)


def _compute_scale_changes(before: Observed, after: Observed) -> Iterator[Change]:
    """Yield the changes of live components, as the command itself reports them."""
    for clique, scaled in zip(before.cliques, after.cliques, strict=True):
        if clique.replicas != scaled.replicas:
            yield make_scale_change(PODCLIQUES, clique.name, clique.replicas, scaled.replicas)
    for group, grown in zip(before.groups, after.groups, strict=True):
        if group.replicas != grown.replicas:
            yield make_scale_change(PODCLIQUESCALINGGROUPS, group.name, group.replicas, grown.replicas)


def _count_replaced(observed: Observed, outcome: SimulationResult) -> dict[str, int]:
    """Return how many of the present pods were deleted, by clique; deleting an owner deletes its pods."""
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
    """Return how many writes of each kind there are; writes of statuses and gates do not count."""
    counted = (one for one in actions if isinstance(one, Create | Patch | Delete))
    return dict(Counter(f"{type(one).__name__} {one.kind}" for one in counted))


def count_rounds(outcome: SimulationResult) -> int:
    """Return at how many times something was created or deleted."""
    busy = (step.at for step in outcome.steps if any(isinstance(one, Create | Delete) for one in step.actions))
    return len({*busy})


def _summarize_components(outcome: SimulationResult) -> list[Lowest]:
    """Return the components, the largest loss of availability first."""
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
    """Yield one count for each time, with the fewest available and the most live pods; the first stays separate."""
    first, *others = (PodsAt(one.at, one.available, one.updated, one.live, one.surge) for one in counts)
    yield first
    for _, group in groupby(others, key=lambda one: one.at):
        at_once = list(group)
        fewest, most = min(one.available for one in at_once), max(one.live for one in at_once)
        yield replace(at_once[-1], available=fewest, updated=min(at_once[-1].updated, fewest), live=most)


def _scale_observed(observed: Observed, workload: Workload) -> Observed:
    """Return the observed objects with the replicas that the template gives them."""
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
