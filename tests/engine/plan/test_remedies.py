"""What is offered helps: every wait is got into, every remedy it names is carried out, and the wait ends.

Also: the surge that keeps the last original from its room. With maxUnavailable and maxSurge both above 0 and room for
no more than the originals, surge takes the room of the first one deleted and goes only when every original is
available, so the last one finds none. That follows from `docs/semantics.md` 4; here the wait is
named at every level, and its remedies end it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import pytest

from rollouts.engine.model.actions import Kind, Wait
from rollouts.engine.model.workload import BudgetSpec, Strategy
from rollouts.engine.plan.deadlines import DELETED_WITHIN
from rollouts.engine.plan.remedies import Remedy
from rollouts.engine.plan.wait_codes import WaitCode
from rollouts.engine.simulation.cluster import GRACE_SECONDS, ClusterBehaviour
from rollouts.engine.simulation.scheduler import SimulatedNode
from tests.engine.chance import assert_all_there, assert_within_budget, counts
from tests.engine.simulated import QUICK, Cluster, clique, conditions, group, settled, workload

A_DAY = 86400.0


def room(pods: int) -> ClusterBehaviour:
    return replace(QUICK, nodes=(SimulatedNode("node", pods=pods),))


def of_pods(replicas: int, budget: tuple[int, int]) -> Cluster:
    return settled(workload(clique("a", replicas, 1, budget), strategy=Strategy.ROLLING_UPDATE))


def of_group(replicas: int, budget: tuple[int, int]) -> Cluster:
    parts = (clique("l", 1), clique("k", 1), group("g", ("l", "k"), replicas, 1, budget))
    return settled(workload(*parts, strategy=Strategy.ROLLING_UPDATE))


def of_set(replicas: int, budget: tuple[int, int]) -> Cluster:
    parts = (clique("a", 1), clique("l", 1), group("g", ("l",), 1))
    return settled(workload(*parts, replicas=replicas, strategy=Strategy.REPLICA_RECREATE, budget=budget))


LEVELS = [of_pods, of_group, of_set]


def updated_without_room(cluster: Cluster, spare: int = 0) -> Cluster:
    """Update with room for the pods there are and no more than these to spare."""
    cluster.world.set_behaviour(room(len(cluster.world.pods) + spare))
    return cluster.update().settle()


def in_the_last_room(cluster: Cluster, spare: int = 0) -> Cluster:
    """Update a level of three while there is room for one unit of surge more than these; then somebody takes that.

    So the surge is up before the last original looks for room, whatever a scheduler does with two that wait at once.
    """
    pods = len(cluster.world.pods)
    unit = pods // 3
    cluster.world.set_behaviour(room(pods + unit * (spare + 1)))
    cluster.update().run_until(lambda cluster: count_ready_surge(cluster) == unit * (spare + 1))
    cluster.world.set_behaviour(room(pods + unit * spare))
    return cluster.settle()


def count_ready_surge(cluster: Cluster) -> int:
    found = [*surge_of(cluster)]
    inside = {name for kind, name in found if kind is Kind.CLIQUE}
    pods = {name for kind, name in found if kind is Kind.POD}
    return sum(pod.ready and (pod.name in pods or pod.clique in inside) for pod in cluster.live_pods())


def never_ready(cluster: Cluster) -> Cluster:
    cluster.update()
    cluster.world.set_behaviour(replace(QUICK, never_ready=frozenset(cluster.view.hashes.values())))
    return cluster.settle()


def broken_surge(cluster: Cluster) -> Cluster:
    """Update, and let the first surge break on its way up; another one would not."""
    hosts = {"w-0-a-3", "w-0-g-3-l-0", "w-3-a-0"}
    cluster.world.set_behaviour(replace(QUICK, never_ready=frozenset(hosts)))
    cluster.update().settle()
    cluster.world.set_behaviour(QUICK)
    return cluster.settle()


def surge_of(cluster: Cluster) -> Iterator[tuple[Kind, str]]:
    """Yield the objects that somebody would delete to delete the surge, at every level."""
    seen, view = cluster.world.observed(), cluster.view
    wanted = cluster.workload.replicas
    held = {one.name: one.replicas for one in seen.groups}
    yield from ((Kind.GROUP, one.name) for one in seen.groups if one.replica >= wanted)
    for one in seen.cliques:
        if one.replica >= wanted or (one.group and one.group_replica >= held.get(one.group, 0)):
            yield Kind.CLIQUE, one.name
        elif not one.group:
            yield from ((Kind.POD, pod.name) for pod in view.pods[one.name] if pod.index >= one.replicas)
    yield from ((Kind.SERVICE, one.name) for one in seen.services if one.replica >= wanted)


# The remedies, carried out.


def add_capacity(cluster: Cluster, _: Wait) -> None:
    cluster.world.set_behaviour(QUICK)


def rebudget(cluster: Cluster, change: Callable[[BudgetSpec, int], BudgetSpec]) -> None:
    def changed(part: Any) -> Any:
        return part if part.budget is None else replace(part, budget=change(part.budget, part.replicas))

    cluster.edit(
        cliques=tuple(map(changed, cluster.workload.cliques)),
        groups=tuple(map(changed, cluster.workload.groups)),
        budget=change(cluster.workload.budget, cluster.workload.replicas),
    )


def set_max_surge_to_zero(cluster: Cluster, _: Wait) -> None:
    rebudget(cluster, lambda budget, _: BudgetSpec(budget.max_unavailable or 1, 0))


def raise_max_unavailable(cluster: Cluster, _: Wait) -> None:
    rebudget(cluster, lambda budget, replicas: BudgetSpec(replicas, budget.max_surge))


def delete_surge(cluster: Cluster, _: Wait) -> None:
    for kind, name in [*surge_of(cluster)]:
        if name in cluster.world._tables[kind]:
            cluster.world.delete(kind, name)


def look_at_pods(cluster: Cluster, wait: Wait) -> None:
    cluster.world.set_behaviour(QUICK)
    for name in wait.units:
        cluster.world.set_ready(name, ready=True)


def roll_back(cluster: Cluster, _: Wait) -> None:
    cluster.update("app:v1")


def force_delete_pods(cluster: Cluster, wait: Wait) -> None:
    for name in wait.units:
        cluster.world.remove(name)


def delete_outdated_pods(cluster: Cluster, wait: Wait) -> None:
    for name in wait.units:
        cluster.world.delete(Kind.POD, name)


def scale_in(cluster: Cluster, _: Wait) -> None:
    cluster.edit(replicas=cluster.workload.replicas - 1)


APPLY_REMEDY: dict[str, Callable[[Cluster, Wait], None]] = {
    Remedy.ADD_CAPACITY: add_capacity,
    Remedy.SET_MAX_SURGE_TO_ZERO: set_max_surge_to_zero,
    Remedy.DELETE_SURGE: delete_surge,
    Remedy.RAISE_MAX_UNAVAILABLE: raise_max_unavailable,
    Remedy.LOOK_AT_PODS: look_at_pods,
    Remedy.ROLL_BACK: roll_back,
    Remedy.FORCE_DELETE_PODS: force_delete_pods,
    Remedy.DELETE_OUTDATED_PODS: delete_outdated_pods,
    Remedy.SCALE_IN: scale_in,
}


# The waits, got into.


@dataclass(frozen=True, slots=True)
class Scene:
    """A way into a wait, and all that is offered there."""

    code: WaitCode
    start: Callable[[], Cluster]
    remedies: tuple[str, ...]
    is_problem: bool = True
    # Those that end this wait and leave another: what keeps the new pods from becoming available is still there.
    halfway: tuple[str, ...] = ()

    def open(self) -> tuple[Cluster, Wait]:
        cluster = _started(self).fork()
        wait = next(one for one in cluster.plan().waits if one.code == self.code)
        return cluster, wait


@cache
def _started(scene: Scene) -> Cluster:
    return scene.start()


def gated_surge() -> Cluster:
    parts = (clique("a", 1), clique("l", 1), group("g", ("l",), 2, 1, (0, 1)))
    cluster = settled(workload(*parts, strategy=Strategy.ROLLING_UPDATE))
    cluster.world.set_behaviour(room(0))
    return cluster.update().settle()


def lost_node() -> Cluster:
    """The pods of a group's replica never go: whoever would say so is gone."""
    cluster = settled(workload(clique("l", 1), group("g", ("l",), 2)), replace(QUICK, termination_seconds=A_DAY))
    return cluster.update().run_for(GRACE_SECONDS + DELETED_WITHIN + 60.0)


def scaled_out_without_room() -> Cluster:
    cluster = settled(workload(clique("a", 1), replicas=2))
    cluster.world.set_behaviour(room(2))
    return cluster.edit(replicas=3).update().settle()


def never_ready_at_all() -> Cluster:
    return Cluster(workload(clique("a", 1)), replace(QUICK, never_ready=frozenset({"w-0-a-0"}))).settle()


def by_hand() -> Cluster:
    return settled(workload(clique("a", 2), strategy=Strategy.ON_DELETE)).update().settle()


def failing(fault: str, cluster: Cluster) -> Cluster:
    """Let the containers fail of what never becomes Ready."""
    for pod in cluster.live_pods():
        if not pod.ready:
            cluster.world.set_fault(pod.name, fault)
    return cluster.settle()


def two_of_three_lost() -> Cluster:
    cluster = settled(workload(clique("a", 1), replicas=3))
    for pod in cluster.live_pods():
        if pod.clique != "w-0-a":
            cluster.world.set_ready(pod.name, ready=False)
    return cluster


def second_of_two() -> Cluster:
    return never_ready(settled(workload(clique("a", 1), replicas=2)))


def scaled_below() -> Cluster:
    cluster = settled(workload(clique("a", 2)))
    cluster.world.scale(Kind.CLIQUE, "w-0-a", 1)
    return cluster.settle()


ROOM = ("AddCapacity", "SetMaxSurgeToZero")
STALL = (*ROOM, "DeleteSurge")
UNREADY = ("LookAtPods", "RollBack")
LARGER = ("RaiseMaxUnavailable",)

SCENES = {
    "not Ready": Scene(WaitCode.WAITING_FOR_READY, lambda: never_ready(of_pods(3, (1, 0))), UNREADY),
    "never Ready at all": Scene(WaitCode.WAITING_FOR_READY, never_ready_at_all, ("LookAtPods",)),
    "not gone": Scene(WaitCode.WAITING_FOR_TERMINATION, lost_node, ("ForceDeletePods",)),
    "gated surge": Scene(WaitCode.SURGE_GATED, gated_surge, ROOM, halfway=("SetMaxSurgeToZero",)),
    "no room": Scene(
        WaitCode.REPLICA_UNSCHEDULABLE, lambda: Cluster(workload(clique("a", 3, 1)), room(2)).settle(), ("AddCapacity",)
    ),
    "one scaled out": Scene(WaitCode.WAITING_FOR_REPLICA, scaled_out_without_room, ("AddCapacity", "ScaleIn")),
    "one at a time": Scene(WaitCode.WAITING_FOR_REPLICA, second_of_two, (), is_problem=False),
    "scaled below its minimum": Scene(WaitCode.SCALED_BELOW_MIN_AVAILABLE, scaled_below, ()),
    "OnDelete": Scene(WaitCode.AWAITING_DELETION, by_hand, ("DeleteOutdatedPods",), is_problem=False),
    "two of three lost": Scene(WaitCode.TOO_FEW_AVAILABLE, two_of_three_lost, ()),
}

for _fault in (WaitCode.IMAGE_NOT_PULLED, WaitCode.CONTAINER_NOT_CREATED, WaitCode.OUT_OF_MEMORY, WaitCode.CRASH_LOOP):
    SCENES |= {
        f"{_fault} in an update": Scene(
            _fault, partial(lambda one: failing(one, never_ready(of_pods(3, (1, 0)))), _fault), UNREADY
        ),
        f"{_fault} at all": Scene(
            _fault, partial(lambda one: failing(one, never_ready_at_all()), _fault), ("LookAtPods",)
        ),
    }


def scenes_of(level: Callable[[int, tuple[int, int]], Cluster]) -> dict[str, Scene]:
    """Return the waits that each level knows."""
    return {
        "budget": Scene(
            WaitCode.BUDGET_EXHAUSTED, lambda: never_ready(level(3, (1, 0))), LARGER, False, halfway=LARGER
        ),
        "surge without room": Scene(WaitCode.SURGE_UNSCHEDULABLE, lambda: updated_without_room(level(3, (0, 1))), ROOM),
        "surge that broke": Scene(
            WaitCode.SURGE_NOT_READY,
            lambda: broken_surge(level(3, (0, 1))),
            (*UNREADY, "SetMaxSurgeToZero", "DeleteSurge"),
        ),
        "surge in the last room": Scene(
            WaitCode.REPLICA_UNSCHEDULABLE, lambda: in_the_last_room(level(3, (1, 1))), STALL
        ),
        "two surge in the last rooms": Scene(
            WaitCode.REPLICA_UNSCHEDULABLE, lambda: in_the_last_room(level(3, (0, 2)), spare=1), STALL
        ),
    }


SCENES |= {f"{of.__name__}: {name}": scene for of in LEVELS for name, scene in scenes_of(of).items()}


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_a_wait_offers_what_helps_and_says_whether_it_is_a_problem(scene: Scene) -> None:
    _, wait = scene.open()
    assert (wait.remedies, wait.is_problem) == (scene.remedies, scene.is_problem)


def test_there_is_a_way_into_every_wait() -> None:
    assert {scene.code for scene in SCENES.values()} == {*WaitCode}


OFFERED = [(name, remedy) for name, scene in SCENES.items() for remedy in scene.remedies]


@pytest.mark.parametrize(("name", "remedy"), OFFERED)
def test_a_remedy_that_is_offered_ends_the_wait(name: str, remedy: str) -> None:
    scene = SCENES[name]
    cluster, wait = scene.open()
    APPLY_REMEDY[remedy](cluster, wait)
    cluster.settle()
    assert scene.code not in {one.code for one in cluster.waits}
    if remedy not in scene.halfway:
        assert_all_there(cluster)
        assert not any(unit.outdated for unit in cluster.view.set_units())
        assert not cluster.progress or cluster.progress["updateEndedAt"]


@pytest.mark.parametrize("level", LEVELS)
def test_surge_of_a_template_that_never_becomes_ready_goes_when_it_is_rolled_back(level: Any) -> None:
    cluster = never_ready(level(3, (0, 1)))
    assert {wait.code for wait in cluster.waits if wait.is_problem} == {WaitCode.SURGE_NOT_READY}
    cluster.update("app:v1").settle()
    assert_all_there(cluster)


STALLS = {"of_pods": ("w-0-a-", "w-0-a"), "of_group": ("w-0-g-3", "w-0-g-2-l"), "of_set": ("w-3", "w-2-a")}


@pytest.mark.parametrize("level", LEVELS)
def test_surge_that_keeps_the_last_original_from_its_room_is_named(level: Any) -> None:
    cluster = in_the_last_room(level(3, (1, 1)))
    surge, component = STALLS[level.__name__]
    wait = next(wait for wait in cluster.waits if wait.code == WaitCode.REPLICA_UNSCHEDULABLE)
    assert wait.component == component
    assert f" has no node; surge {surge}" in wait.text
    assert " occupies nodes until every original is available: " in wait.text
    stuck = conditions(cluster.status)["UpdateStuck"]
    assert stuck == ("True", WaitCode.REPLICA_UNSCHEDULABLE)


@pytest.mark.parametrize("level", LEVELS)
def test_surge_in_the_last_room_never_costs_more_than_the_budget(level: Any) -> None:
    cluster = level(3, (1, 1))
    before = counts(cluster.workload, cluster.world.observed())
    in_the_last_room(cluster)
    assert_within_budget(cluster.workload, before, counts(cluster.workload, cluster.world.observed()))
    delete_surge(cluster, cluster.waits[0])
    assert_within_budget(cluster.workload, before, counts(cluster.workload, cluster.world.observed()))
