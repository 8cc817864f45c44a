"""Simulates a change to its end before it is made: plan, apply to a simulated cluster, repeat until nothing changes.

The preview, the remedies and the tests use it. The input is the workload before and after the change, the observed
objects, and the expected behaviour of the cluster; the result has each step with the counts that changed, the lowest
availability, the time it took, and whether and why it got stuck. All decisions are those of `planner`; nothing here
knows a strategy.

Objects are arranged and counted by replica of the set, and only changed replicas are updated (`incremental_tree`), so
the cost of a pass does not grow with the replicas that wait.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from rollouts.engine.model.actions import Action, Create, Delete, Kind, Plan, TimelineEvent, Wait
from rollouts.engine.model.observed import Observed
from rollouts.engine.model.values import value
from rollouts.engine.model.workload import Strategy, Workload
from rollouts.engine.plan.planner import plan_tree
from rollouts.engine.rollout.roller import Unit
from rollouts.engine.rollout.units import group_units, set_units
from rollouts.engine.scheduling.placement import NO_DEMAND, Demand
from rollouts.engine.scheduling.resources import ResourceList
from rollouts.engine.simulation.cluster import ClusterBehaviour, RejectedWrite, SimulatedCluster
from rollouts.engine.simulation.incremental_tree import IncrementalTree
from rollouts.engine.simulation.scheduler import read_demand
from rollouts.engine.tree.availability import ReplicaView
from rollouts.engine.tree.layout import make_layout
from rollouts.engine.tree.surge import count_surge_pods, count_updated_pods, iter_cliques_with_surge

# A plan that still has actions after this many passes at one time never ends.
MAX_PASSES_AT_ONE_TIME: Final = 200

# How long a simulation follows a cluster at rest: long enough for every wait to become a problem that is one.
IDLE_LIMIT: Final = 3600.0

_NO_PLAN: Final = Plan((), (), (), (), None)

_PodNumbers: TypeAlias = tuple[int, int, int, int]
_NO_PODS: Final[_PodNumbers] = (0, 0, 0, 0)


@value
class UnitCounts:
    """The counts of one component: pods of a clique, replicas of a scaling group, or replicas of the set."""

    component: str  # name of the PodClique, PodCliqueScalingGroup or PodCliqueSet
    kind: Kind
    wanted: int
    live: int  # not terminating; surge included
    available: int
    surge: int  # live ones beyond the wanted number of this component
    outdated: int  # live ones of another template than the current one


@value
class PodTotals:
    """The counts of all pods of a workload from a time on; terminating pods do not count."""

    at: float  # seconds since the change was made
    live: int
    available: int
    updated: int  # available and of the current template; surge does not count
    surge: int  # live surge pods, at any level


class SimulationEnd(StrEnum):
    """How a simulated change ended."""

    DONE = "Done"  # everything wanted is available, and nothing outdated is left that the strategy would replace
    STUCK = "Stuck"  # nothing changes any more; the waits say why
    ENDLESS = "Endless"  # the plan never ends: a bug
    UNFINISHED = "Unfinished"  # the caller had no more time; the steps so far are right


@value
class SimulatedPass:
    """One pass: its plan, and the writes that the cluster refused."""

    at: float
    plan: Plan
    rejected: tuple[RejectedWrite, ...]


@value
class SimulationStep:
    """A pass in which something changed."""

    at: float  # seconds since the change was made
    actions: tuple[Action, ...]
    timeline_events: tuple[TimelineEvent, ...]
    counts: tuple[UnitCounts, ...]  # of the components whose counts changed, by name


@value
class SimulationResult:
    """The result of a simulated change."""

    end: SimulationEnd
    waits: tuple[Wait, ...]  # why it is stuck; after a rollout that is done, what still waits
    seconds: float  # from the change to its end
    passes: int
    start: Mapping[str, UnitCounts]  # by component, before the change
    steps: tuple[SimulationStep, ...]
    lowest: Mapping[str, int]  # fewest available at any time, of components that existed before
    most_surge: Mapping[str, int]  # of components that ever had surge
    pods: tuple[PodTotals, ...]  # each time that they changed; the first are those before the change
    pods_created: int
    pods_deleted: int  # by the plan or by garbage collection


def simulate(
    workload: Workload,
    observed: Observed,
    changed: Workload,
    behaviour: ClusterBehaviour | None = None,
    now: float = 0.0,
    *,
    first: tuple[Delete, ...] = (),
    requests: Mapping[str, ResourceList] | None = None,
    is_enough: Callable[[], bool] = lambda: False,
) -> SimulationResult:
    """Return what happens when the workload becomes the changed one.

    A pod that is not Ready becomes Ready if it is of the template of its PodClique, and stays as it is otherwise: the
    change may be the repair. `first` are deletions by hand before the first plan. `requests` are the requests of the
    observed pods by name, where they are known; other pods request what their template requests now. The simulation
    ends early if `is_enough` returns true after a pass.
    """
    cluster = SimulatedCluster(
        observed, behaviour or ClusterBehaviour(), now, demands=_map_demands(workload, observed, requests or {})
    )
    tree = IncrementalTree(make_layout(changed), cluster)
    counter = UnitCounter(tree)
    builder = _ResultBuilder(now, dict(counter.counts), _count_live(cluster), [PodTotals(0.0, *counter.pods)])
    if first:
        cluster.apply(first)
        builder.steps.append(SimulationStep(0.0, first, (), ()))
    last = SimulatedPass(now, _NO_PLAN, ())
    for last in run_passes(tree, cluster):
        builder.add_pass(last, counter.count())
        builder.add_pods(last.at - now, counter.pods)
        if is_enough():
            return builder.build(last, SimulationEnd.UNFINISHED, _count_live(cluster))
    if last.plan.actions:
        return builder.build(last, SimulationEnd.ENDLESS, _count_live(cluster))
    done = _is_done(counter.counts.values(), changed.strategy)
    return builder.build(last, SimulationEnd.DONE if done else SimulationEnd.STUCK, _count_live(cluster))


def run_passes(
    tree: IncrementalTree, cluster: SimulatedCluster, idle_limit: float = IDLE_LIMIT
) -> Iterator[SimulatedPass]:
    """Plan and apply in turns; after a plan without actions let time pass, until no event is left.

    In a cluster at rest the passes go on at the times that the plan asks for, so that waits become problems and gang
    termination sets in, until `idle_limit` seconds after the last event.
    """
    in_a_row = 0
    last_event = cluster.now
    while in_a_row < MAX_PASSES_AT_ONE_TIME:
        planned = plan_tree(tree.layout, tree.refresh(), cluster.status, cluster.now)
        rejected = cluster.apply(planned.actions)
        yield SimulatedPass(cluster.now, planned, rejected)
        in_a_row += 1
        if planned.actions:
            continue
        next_time = find_next_time(planned, cluster, last_event + idle_limit)
        if next_time is None:
            return
        last_event = next_time if next_time == cluster.next_at else last_event
        cluster.advance(next_time)
        in_a_row = 0


def find_next_time(planned: Plan, cluster: SimulatedCluster, latest: float) -> float | None:
    """Return when to plan again after a plan without actions; None if nothing happens until `latest`."""
    again = planned.requeue_at
    due = [cluster.next_at, again if again is not None and cluster.now < again <= latest else None]
    return min((one for one in due if one is not None), default=None)


class UnitCounter:
    """Keeps the counts of all components up to date: only changed replicas of the set are counted again."""

    def __init__(self, tree: IncrementalTree) -> None:
        """Count everything once."""
        self._tree = tree
        self._workload = tree.layout.workload
        self._of_replica: dict[int, dict[str, UnitCounts]] = {}  # its components
        self._shares: dict[int, UnitCounts] = {}  # what each replica contributes to the counts of the set
        self._pods: dict[int, _PodNumbers] = {}  # of each replica, as below
        self.pods = _NO_PODS  # all of them: live, available, updated, surge
        self._no_units = UnitCounts(self._workload.name, Kind.SET, self._workload.replicas, 0, 0, 0, 0)
        self.counts: dict[str, UnitCounts] = {}
        self.count()

    def count(self) -> list[UnitCounts]:
        """Count the replicas that changed since the last call; return the counts that changed, by name."""
        tree = self._tree.refresh()
        changed: dict[str, UnitCounts] = {}
        former = total = self.counts.get(self._workload.name, self._no_units)
        for index in self._tree.pop_changed():
            replica = tree.replicas.get(index)
            self._recount_pods(index, replica)
            before, after = self._of_replica.pop(index, {}), self._recount(index, replica)
            if before != after:
                changed |= {name: counts for name, counts in after.items() if before.get(name) != counts}
                changed |= {name: _zero_counts(counts) for name, counts in before.items() if name not in after}
            share, now = self._shares.pop(index, self._no_units), self._share(index, replica)
            if share != now:
                total = _replace_share(total, share, now)
        if total != former or not self.counts:
            changed[total.component] = total
        self.counts |= changed
        return [changed[name] for name in sorted(changed)]

    def _recount_pods(self, index: int, replica: ReplicaView | None) -> None:
        before, live, available, updated, surge = self._pods.pop(index, _NO_PODS), 0, 0, 0, 0
        for clique, is_extra in () if replica is None else iter_cliques_with_surge(replica, self._workload.replicas):
            live += len(clique.live)
            available += clique.available
            updated += count_updated_pods(clique, is_extra=is_extra)
            surge += count_surge_pods(clique, is_extra=is_extra)
        if live:
            self._pods[index] = (live, available, updated, surge)
        total = self.pods
        self.pods = (
            total[0] + live - before[0],
            total[1] + available - before[1],
            total[2] + updated - before[2],
            total[3] + surge - before[3],
        )

    def _recount(self, index: int, replica: ReplicaView | None) -> dict[str, UnitCounts]:
        if replica is None:
            return {}
        self._of_replica[index] = found = {counts.component: counts for counts in _count_components(replica)}
        return found

    def _share(self, index: int, replica: ReplicaView | None) -> UnitCounts:
        if replica is None:
            return self._no_units
        whole = self._workload.strategy is Strategy.REPLICA_RECREATE
        units = set_units([replica], whole=whole, wanted=self._workload.replicas)
        self._shares[index] = share = _count_units(self._workload.name, Kind.SET, self._workload.replicas, units)
        return share


def _replace_share(total: UnitCounts, before: UnitCounts, after: UnitCounts) -> UnitCounts:
    """Return the total with the new share of one replica in place of its former one."""
    return UnitCounts(
        total.component,
        total.kind,
        total.wanted,
        live=total.live + after.live - before.live,
        available=total.available + after.available - before.available,
        surge=total.surge + after.surge - before.surge,
        outdated=total.outdated + after.outdated - before.outdated,
    )


def _count_components(replica: ReplicaView) -> Iterator[UnitCounts]:
    for clique in replica.cliques:
        wanted = clique.wanted if clique.is_live else 0
        surge = count_surge_pods(clique, is_extra=False)
        yield UnitCounts(clique.name, Kind.CLIQUE, wanted, len(clique.live), clique.available, surge, clique.outdated)
    for group in replica.groups:
        yield _count_units(group.name, Kind.GROUP, group.wanted if group.is_live else 0, group_units(group))


def _count_units(component: str, kind: Kind, wanted: int, units: Iterable[Unit]) -> UnitCounts:
    live = available = surge = outdated = 0
    for unit in units:
        if not unit.leaving:
            live += 1
            available += unit.available
            surge += unit.index >= wanted
            outdated += unit.outdated
    return UnitCounts(component, kind, wanted, live, available, surge, outdated)


def _zero_counts(counts: UnitCounts) -> UnitCounts:
    return UnitCounts(counts.component, counts.kind, wanted=0, live=0, available=0, surge=0, outdated=0)


@dataclass
class _ResultBuilder:
    """Collects the result of a simulation while it runs."""

    began: float
    start: dict[str, UnitCounts]
    pods: int
    pods_over_time: list[PodTotals]
    lowest: dict[str, int] = field(init=False)
    most_surge: dict[str, int] = field(default_factory=dict)
    steps: list[SimulationStep] = field(default_factory=list)
    passes: int = 0
    pods_created: int = 0

    def __post_init__(self) -> None:
        self.lowest = {name: counts.available for name, counts in self.start.items()}

    def add_pass(self, last: SimulatedPass, changed: list[UnitCounts]) -> None:
        self.passes += 1
        actions = last.plan.actions
        if not actions and not changed:
            return
        self.pods_created += sum(isinstance(one, Create) and one.kind is Kind.POD for one in actions)
        self.steps.append(SimulationStep(last.at - self.began, actions, last.plan.timeline_events, tuple(changed)))
        for counts in changed:
            if counts.component in self.lowest and counts.wanted:
                self.lowest[counts.component] = min(self.lowest[counts.component], counts.available)
            if counts.surge > self.most_surge.get(counts.component, 0):
                self.most_surge[counts.component] = counts.surge

    def add_pods(self, at: float, now: _PodNumbers) -> None:
        former = self.pods_over_time[-1]
        if (former.live, former.available, former.updated, former.surge) != now:
            self.pods_over_time.append(PodTotals(at, *now))

    def build(self, last: SimulatedPass, end: SimulationEnd, pods: int) -> SimulationResult:
        # Replaced pods may still be terminating when everything wanted is available.
        is_replaced = end is SimulationEnd.DONE and self.pods_created > 0
        return SimulationResult(
            end=end,
            waits=last.plan.waits,
            seconds=self.steps[-1].at if is_replaced else last.at - self.began,
            passes=self.passes,
            start=self.start,
            steps=tuple(self.steps),
            lowest=self.lowest,
            most_surge=self.most_surge,
            pods=tuple(self.pods_over_time),
            pods_created=self.pods_created,
            pods_deleted=self.pods + self.pods_created - pods,
        )


def _is_done(all_counts: Iterable[UnitCounts], strategy: Strategy) -> bool:
    by_hand = strategy is Strategy.ON_DELETE
    return all(
        counts.live == counts.available == counts.wanted and not counts.surge and (by_hand or not counts.outdated)
        for counts in all_counts
    )


def _count_live(cluster: SimulatedCluster) -> int:
    return sum(not pod.leaving for pod in cluster.pods.values())


def _map_demands(workload: Workload, observed: Observed, requests: Mapping[str, ResourceList]) -> dict[str, Demand]:
    """Return what the observed pods demand of a node, by name."""
    asked = {clique.name: read_demand(clique.pod_spec) for clique in workload.cliques}
    template = {clique.name: clique.template for clique in observed.cliques}
    found = {pod.name: asked.get(template.get(pod.clique, ""), NO_DEMAND) for pod in observed.pods}
    known = {name: tuple(sorted(requests[name].items())) for name in found if requests.get(name)}
    return found | {name: Demand(amounts, found[name].constraints) for name, amounts in known.items()}
