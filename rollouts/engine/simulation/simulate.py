"""A change run to its end before it is made: plan, carry out in a simulated cluster, look again, until nothing moves.

The preview and the tests use it. It takes a workload as it is and as it is to be, what is observed, and how the cluster
is believed to behave, and returns each step with the counts that changed, the lowest availability on the way, how long
it took, and whether and why it got stuck. The decisions are `planner`'s own: nothing here knows a strategy.

What is there is arranged and counted by replica of the set, and only those are looked at again to which something
happened (`incremental_tree`), so that what a pass costs does not grow with the replicas that just wait.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from rollouts.engine.model.actions import Action, Create, Delete, Kind, Moment, Plan, Wait
from rollouts.engine.model.observed import Observed
from rollouts.engine.model.values import value
from rollouts.engine.model.workload import Strategy, Workload
from rollouts.engine.plan.planner import plan_tree
from rollouts.engine.rollout.roller import Unit
from rollouts.engine.rollout.units import group_units, set_units
from rollouts.engine.scheduling.placement import NO_DEMAND, Demand
from rollouts.engine.scheduling.resources import Amounts
from rollouts.engine.simulation.cluster import Behaviour, Refusal, World
from rollouts.engine.simulation.incremental_tree import Sight
from rollouts.engine.simulation.scheduler import read_demand
from rollouts.engine.tree.layout import make_shape
from rollouts.engine.tree.views import Replica

# A plan that still wants something after so many passes in which no time went by will never be content.
PASSES_AT_ONE_MOMENT: Final = 200

# How long a preview follows a world at rest: long enough for every wait to be called a problem that is one.
PATIENCE: Final = 3600.0

BY_HAND: Final = "ByHand"
"""Why something is deleted that no plan deletes."""

_NO_PLAN: Final = Plan((), (), (), (), None)

_Numbers: TypeAlias = tuple[int, int, int, int]
_NO_PODS: Final[_Numbers] = (0, 0, 0, 0)


@value
class Tally:
    """How one component stands: pods of a clique, replicas of a scaling group, replicas of the set."""

    component: str  # name of the PodClique, PodCliqueScalingGroup or PodCliqueSet
    kind: Kind
    wanted: int
    live: int  # not leaving; surge included
    available: int
    surge: int  # live ones with an index beyond the wanted number
    outdated: int  # live ones of another template than the current one


@value
class Pods:
    """All pods of a workload from a moment on; those that are leaving do not count."""

    at: float  # seconds since the change was made
    live: int
    available: int
    updated: int  # available on the current template where a pod is desired; surge is none of them
    surge: int  # live ones beyond the places that are desired, at any level


class End(StrEnum):
    """How a simulated change ended."""

    DONE = "Done"  # everything wanted is there and available; nothing outdated is left that the strategy would replace
    STUCK = "Stuck"  # nothing moves any more; the waits say why
    ENDLESS = "Endless"  # the plan is never content: a defect of ours
    UNFINISHED = "Unfinished"  # whoever asked had no more time for it; the steps so far are right


@value
class Pass:
    """One look at the world, and what was done about it."""

    at: float
    plan: Plan
    refused: tuple[Refusal, ...]


@value
class Step:
    """A pass in which something changed."""

    at: float  # seconds since the change was made
    actions: tuple[Action, ...]
    moments: tuple[Moment, ...]
    tallies: tuple[Tally, ...]  # of the components whose counts changed, by name


@value
class Outcome:
    """A change, seen to its end."""

    end: End
    waits: tuple[Wait, ...]  # why it is stuck; when done, what there is still to say
    seconds: float  # from the change to its end
    passes: int
    start: Mapping[str, Tally]  # by component, before the change
    steps: tuple[Step, ...]
    lowest: Mapping[str, int]  # of the components that were there before: fewest available at any time
    most_surge: Mapping[str, int]  # of all components that ever had surge
    pods: tuple[Pods, ...]  # each time their numbers changed; the first are those before the change
    pods_created: int
    pods_deleted: int  # by the plan itself or with their owner


def simulate(
    workload: Workload,
    observed: Observed,
    changed: Workload,
    behaviour: Behaviour | None = None,
    now: float = 0.0,
    *,
    first: tuple[Delete, ...] = (),
    requests: Mapping[str, Amounts] | None = None,
    is_enough: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Return what happens when a workload that is observed so becomes the changed one.

    A pod that is not Ready now becomes so if it is of the template that its PodClique promises, and stays as it is if
    it is not: the change may well be the repair. `first` is what somebody deletes by hand, before the plan has a say.
    `request_id` says what the pods that are there request, by name, where that is known; of others it is what their
    template requests now. `is_enough` is asked after each pass whether to leave it at that.
    """
    world = World(observed, behaviour or Behaviour(), now, demands=_demands(workload, observed, requests or {}))
    sight = Sight(make_shape(changed), world)
    counter = Counter(sight)
    record = _Record(now, dict(counter.tallies), _count_live(world), [Pods(0.0, *counter.pods)])
    if first:
        world.apply(first)
        record.steps.append(Step(0.0, first, (), ()))
    last = Pass(now, _NO_PLAN, ())
    for last in _passes(sight, world, PATIENCE):
        record.note(last, counter.count())
        record.note_pods(last.at - now, counter.pods)
        if is_enough():
            return record.close(last, End.UNFINISHED, _count_live(world))
    if last.plan.actions:
        return record.close(last, End.ENDLESS, _count_live(world))
    done = _is_done(counter.tallies.values(), changed.strategy)
    return record.close(last, End.DONE if done else End.STUCK, _count_live(world))


def passes(workload: Workload, world: World, patience: float = PATIENCE) -> Iterator[Pass]:
    """Plan and carry out again and again; when there is nothing to do let time pass, until nothing would happen.

    When the world has come to rest, look again as the plan asks, so that it can say what has taken too long and end
    what has been broken too long, but not later than `retry_policy` seconds after anything last happened.
    """
    return _passes(Sight(make_shape(workload), world), world, patience)


def _passes(sight: Sight, world: World, patience: float) -> Iterator[Pass]:
    in_a_row = 0
    last_event = world.now
    while in_a_row < PASSES_AT_ONE_MOMENT:
        planned = plan_tree(sight.shape, sight.look(), world.status, world.now)
        refused = world.apply(planned.actions)
        yield Pass(world.now, planned, refused)
        in_a_row += 1
        if planned.actions:
            continue
        moment = next_moment(planned, world, last_event + patience)
        if moment is None:
            return
        last_event = moment if moment == world.next_at else last_event
        world.advance(moment)
        in_a_row = 0


def next_moment(planned: Plan, world: World, latest: float) -> float | None:
    """Return when to plan again after a plan that had nothing to do; None: nothing would happen until the latest."""
    again = planned.look_again_at
    due = [world.next_at, again if again is not None and world.now < again <= latest else None]
    return min((one for one in due if one is not None), default=None)


class Counter:
    """Counts kept up to date: only replicas of the set to which something happened are counted again."""

    def __init__(self, sight: Sight) -> None:
        """Count everything once."""
        self._sight = sight
        self._workload = sight.shape.workload
        self._of_replica: dict[int, dict[str, Tally]] = {}  # its components
        self._shares: dict[int, Tally] = {}  # what each replica counts for in the tally of the set
        self._pods: dict[int, _Numbers] = {}  # of each replica, as below
        self.pods = _NO_PODS  # all of them: live, available, updated, surge
        self._none = Tally(self._workload.name, Kind.SET, self._workload.replicas, 0, 0, 0, 0)
        self.tallies: dict[str, Tally] = {}
        self.count()

    def count(self) -> list[Tally]:
        """Look at what happened since the last call; return the tallies that changed, by name."""
        tree = self._sight.look()
        changed: dict[str, Tally] = {}
        former = total = self.tallies.get(self._workload.name, self._none)
        for index in self._sight.take_changed():
            replica = tree.replicas.get(index)
            self._recount_pods(index, replica)
            before, after = self._of_replica.pop(index, {}), self._look_at(index, replica)
            if before != after:
                changed |= {name: tally for name, tally in after.items() if before.get(name) != tally}
                changed |= {name: _none_of(tally) for name, tally in before.items() if name not in after}
            share, now = self._shares.pop(index, self._none), self._share(index, replica)
            if share != now:
                total = _shift(total, share, now)
        if total != former or not self.tallies:
            changed[total.component] = total
        self.tallies |= changed
        return [changed[name] for name in sorted(changed)]

    def _recount_pods(self, index: int, replica: Replica | None) -> None:
        before, live, available, updated, surge = self._pods.pop(index, _NO_PODS), 0, 0, 0, 0
        for clique, is_extra in () if replica is None else replica.sort_out(self._workload.replicas):
            live += len(clique.live)
            available += clique.available
            updated += clique.count_updated(is_extra=is_extra)
            surge += clique.count_surge(is_extra=is_extra)
        if live:
            self._pods[index] = (live, available, updated, surge)
        total = self.pods
        self.pods = (
            total[0] + live - before[0],
            total[1] + available - before[1],
            total[2] + updated - before[2],
            total[3] + surge - before[3],
        )

    def _look_at(self, index: int, replica: Replica | None) -> dict[str, Tally]:
        if replica is None:
            return {}
        self._of_replica[index] = found = {tally.component: tally for tally in _tallies(replica)}
        return found

    def _share(self, index: int, replica: Replica | None) -> Tally:
        if replica is None:
            return self._none
        whole = self._workload.strategy is Strategy.REPLICA_RECREATE
        units = set_units([replica], whole=whole, wanted=self._workload.replicas)
        self._shares[index] = share = _tally(self._workload.name, Kind.SET, self._workload.replicas, units)
        return share


def _shift(total: Tally, before: Tally, after: Tally) -> Tally:
    """Return a tally in which one share is as it is now and not as it was before."""
    return Tally(
        total.component,
        total.kind,
        total.wanted,
        live=total.live + after.live - before.live,
        available=total.available + after.available - before.available,
        surge=total.surge + after.surge - before.surge,
        outdated=total.outdated + after.outdated - before.outdated,
    )


def _tallies(replica: Replica) -> Iterator[Tally]:
    for clique in replica.cliques:
        wanted = clique.wanted if clique.is_live else 0
        surge = sum([pod.index >= wanted for pod in clique.live])
        yield Tally(clique.name, Kind.CLIQUE, wanted, len(clique.live), clique.available, surge, clique.outdated)
    for group in replica.groups:
        yield _tally(group.name, Kind.GROUP, group.wanted if group.is_live else 0, group_units(group))


def _tally(component: str, kind: Kind, wanted: int, units: Iterable[Unit]) -> Tally:
    live = available = surge = outdated = 0
    for unit in units:
        if not unit.leaving:
            live += 1
            available += unit.available
            surge += unit.index >= wanted
            outdated += unit.outdated
    return Tally(component, kind, wanted, live, available, surge, outdated)


def _none_of(tally: Tally) -> Tally:
    return Tally(tally.component, tally.kind, wanted=0, live=0, available=0, surge=0, outdated=0)


@dataclass
class _Record:
    """What is kept of a simulation while it runs."""

    began: float
    start: dict[str, Tally]
    pods: int
    pods_over_time: list[Pods]
    lowest: dict[str, int] = field(init=False)
    most_surge: dict[str, int] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    passes: int = 0
    pods_created: int = 0

    def __post_init__(self) -> None:
        self.lowest = {name: tally.available for name, tally in self.start.items()}

    def note(self, last: Pass, changed: list[Tally]) -> None:
        self.passes += 1
        actions = last.plan.actions
        if not actions and not changed:
            return
        self.pods_created += sum(isinstance(one, Create) and one.kind is Kind.POD for one in actions)
        self.steps.append(Step(last.at - self.began, actions, last.plan.moments, tuple(changed)))
        for tally in changed:
            if tally.component in self.lowest and tally.wanted:
                self.lowest[tally.component] = min(self.lowest[tally.component], tally.available)
            if tally.surge > self.most_surge.get(tally.component, 0):
                self.most_surge[tally.component] = tally.surge

    def note_pods(self, at: float, now: _Numbers) -> None:
        former = self.pods_over_time[-1]
        if (former.live, former.available, former.updated, former.surge) != now:
            self.pods_over_time.append(Pods(at, *now))

    def close(self, last: Pass, end: End, pods: int) -> Outcome:
        # What was replaced may still be going when all that is wanted is there.
        is_replaced = end is End.DONE and self.pods_created > 0
        return Outcome(
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


def _is_done(tallies: Iterable[Tally], strategy: Strategy) -> bool:
    by_hand = strategy is Strategy.ON_DELETE
    return all(
        tally.live == tally.available == tally.wanted and not tally.surge and (by_hand or not tally.outdated)
        for tally in tallies
    )


def _count_live(world: World) -> int:
    return sum(not pod.leaving for pod in world.pods.values())


def _demands(workload: Workload, observed: Observed, requests: Mapping[str, Amounts]) -> dict[str, Demand]:
    """Return what the pods that are there ask of a node, by name."""
    asked = {clique.name: read_demand(clique.pod_spec) for clique in workload.cliques}
    template = {clique.name: clique.template for clique in observed.cliques}
    found = {pod.name: asked.get(template.get(pod.clique, ""), NO_DEMAND) for pod in observed.pods}
    known = {name: tuple(sorted(requests[name].items())) for name in found if requests.get(name)}
    return found | {name: Demand(amounts, found[name].constraints) for name, amounts in known.items()}
