"""The scheduling decision: capacity, order, wording, gangs — and properties over generated clusters."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from rollouts.engine.scheduling.constraints import Constraints
from rollouts.engine.scheduling.placement import (
    Demand,
    GangState,
    NamespacedName,
    NodeCapacity,
    PodGroupState,
    SchedulingDecision,
    WaitingPod,
    schedule,
)
from rollouts.engine.simulation.scheduler import SimulatedNode
from tests.thoroughness import examples

GPU = "nvidia.com/gpu"


def room(name: str, *, gpus: int = 0, cpu: int = 8, pods: int = 110, cordoned: bool = False) -> NodeCapacity:
    offered = {"cpu": cpu * 1000, GPU: gpus * 1000, "pods": pods * 1000}
    return NodeCapacity(SimulatedNode(name, resources=offered, labels={"name": name}, cordoned=cordoned), offered)


def demand(*, gpus: int = 0, cpu: int = 0, constraints: Constraints | None = None) -> Demand:
    requests = {"cpu": cpu * 1000, GPU: gpus * 1000, "pods": 1000}
    return Demand(tuple(sorted(item for item in requests.items() if item[1])), constraints or Constraints())


def pod(name: str, asks: Demand | None = None, *, gang: str = "", priority: int = 0, created: str = "1") -> WaitingPod:
    return WaitingPod(("ns", name), priority, created, asks or demand(gpus=1), ("ns", gang) if gang else None)


def group(name: str, *members: str, minimum: int, scheduled: int = 0) -> PodGroupState:
    return PodGroupState(name, minimum, frozenset(("ns", member) for member in members), scheduled)


def gangs(*entries: GangState) -> dict[NamespacedName, GangState]:
    return {gang.key: gang for gang in entries}


def gang(name: str, *groups: PodGroupState) -> GangState:
    return GangState(("ns", name), groups)


def placed(decision: SchedulingDecision) -> dict[str, str]:
    return {binding.pod[1]: binding.node for binding in decision.bindings}


def test_pods_fill_one_node_before_the_next_is_opened() -> None:
    decision = schedule([pod(f"p{i}") for i in range(3)], [room("b", gpus=2), room("a", gpus=2)], {})
    assert placed(decision) == {"p0": "a", "p1": "a", "p2": "b"}


def test_pods_without_gpus_stay_off_gpu_nodes_while_there_is_room_elsewhere() -> None:
    decision = schedule([pod(f"p{i}", demand(cpu=1)) for i in range(3)], [room("a", gpus=8), room("z", cpu=2)], {})
    assert Counter(placed(decision).values()) == {"z": 2, "a": 1}


def test_higher_priority_goes_first_then_the_older_then_the_name() -> None:
    waiting = [
        pod("d", created="2"),
        pod("c", created="1"),
        pod("b", created="1"),
        pod("a", priority=9, created="3"),
    ]
    order = [binding.pod[1] for binding in schedule(waiting, [room("n", gpus=8)], {}).bindings]
    assert order == ["a", "b", "c", "d"]


def test_a_full_cluster_is_told_in_the_words_of_the_scheduler() -> None:
    rooms = [room("a", gpus=1), room("b", gpus=1), room("c"), room("d", gpus=8, cordoned=True)]
    decision = schedule([pod("p", demand(gpus=2, cpu=9))], rooms, {})
    assert decision.unplaced == {
        ("ns", "p"): "0/4 nodes are available: 1 node(s) were unschedulable, "
        "3 Insufficient cpu, 3 Insufficient nvidia.com/gpu."
    }


def test_a_node_takes_no_more_pods_than_it_has_slots_for() -> None:
    decision = schedule([pod("a", demand()), pod("b", demand())], [room("n", pods=1)], {})
    assert placed(decision) == {"a": "n"}
    assert decision.unplaced[("ns", "b")] == "0/1 nodes are available: 1 Too many pods."


def test_a_cluster_without_nodes_says_so() -> None:
    assert schedule([pod("a")], [], {}).unplaced == {("ns", "a"): "no nodes available to schedule pods"}


def test_a_gang_that_does_not_fit_whole_leaves_no_pod_behind_and_takes_no_room() -> None:
    team = gang("g", group("a", "g1", "g2", minimum=2), group("b", "g3", minimum=1))
    waiting = [pod("g1", gang="g"), pod("g2", gang="g"), pod("g3", gang="g"), pod("lone", created="9")]
    decision = schedule(waiting, [room("n", gpus=2)], gangs(team))
    assert placed(decision) == {"lone": "n"}
    assert decision.unplaced[("ns", "g1")].startswith("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    assert "PodGang g is placed all or nothing: 3 pods need room at once." in decision.unplaced[("ns", "g3")]
    assert set(placed(schedule(waiting, [room("n", gpus=4)], gangs(team)))) == {"g1", "g2", "g3", "lone"}


def test_only_the_minimum_of_a_gang_must_fit() -> None:
    team = gang("g", group("a", "g1", "g2", "g3", minimum=2))
    decision = schedule([pod(f"g{i}", gang="g") for i in (1, 2, 3)], [room("n", gpus=2)], gangs(team))
    assert set(placed(decision)) == {"g1", "g2"}
    assert decision.unplaced == {("ns", "g3"): "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."}


def test_pods_beyond_the_minimum_wait_while_the_minimum_does_not_fit() -> None:
    team = gang("g", group("a", "g1", "g2", minimum=1), group("b", "big", minimum=1))
    waiting = [pod("g1", gang="g"), pod("g2", gang="g"), pod("big", demand(gpus=8), gang="g")]
    decision = schedule(waiting, [room("n", gpus=4)], gangs(team))
    assert placed(decision) == {}
    assert "beyond the minimum of PodGang g" in decision.unplaced[("ns", "g2")]


def test_a_minimum_of_one_gang_goes_before_a_spare_pod_of_an_older_one() -> None:
    old = gang("old", group("a", "o1", "o2", minimum=1, scheduled=1))
    young = gang("young", group("a", "y1", minimum=1))
    waiting = [pod("o2", gang="old", created="1"), pod("y1", gang="young", created="2")]
    assert placed(schedule(waiting, [room("n", gpus=1)], gangs(old, young))) == {"y1": "n"}


def test_a_scheduled_gang_takes_further_pods_one_by_one() -> None:
    team = gang("g", group("a", "g0", "g1", "g2", minimum=1, scheduled=1))
    decision = schedule([pod("g1", gang="g"), pod("g2", gang="g")], [room("n", gpus=1)], gangs(team))
    assert placed(decision) == {"g1": "n"}


def test_a_gang_that_lost_a_pod_only_needs_the_missing_one_again() -> None:
    team = gang("g", group("a", "g0", "new", minimum=2, scheduled=1), group("b", "g3", minimum=1, scheduled=1))
    assert placed(schedule([pod("new", gang="g")], [room("n", gpus=1)], gangs(team))) == {"new": "n"}


def test_a_gang_that_has_begun_is_completed_before_others_start() -> None:
    begun = gang("begun", group("a", "b0", "b1", minimum=2, scheduled=1))
    waiting = [pod("lone", created="1"), pod("b1", gang="begun", created="2")]
    assert placed(schedule(waiting, [room("n", gpus=1)], gangs(begun))) == {"b1": "n"}


def test_a_gang_waits_until_enough_of_its_pods_are_there() -> None:
    team = gang("g", group("a", "g1", minimum=1), group("b", "g2", "g3", minimum=2))
    decision = schedule([pod("g1", gang="g"), pod("g2", gang="g")], [room("n", gpus=8)], gangs(team))
    reason = "PodGang g is placed all or nothing: pod group b has 1 of 2 pods"
    assert decision.bindings == ()
    assert decision.unplaced == {("ns", "g1"): reason, ("ns", "g2"): reason}


def test_a_pod_waits_for_its_gang_to_exist_and_then_to_list_it() -> None:
    waiting = [pod("p", gang="g")]
    assert "does not exist" in schedule(waiting, [room("n", gpus=8)], {}).unplaced[("ns", "p")]
    unlisting = gangs(gang("g", group("a", "other", minimum=0)))
    assert "waits to be listed" in schedule(waiting, [room("n", gpus=8)], unlisting).unplaced[("ns", "p")]


def test_a_limit_ends_the_pass_early_but_never_inside_a_minimum() -> None:
    team = gang("g", group("a", "g1", "g2", "g3", minimum=3))
    waiting = [pod(f"g{i}", gang="g") for i in (1, 2, 3)] + [pod("later", created="9")]
    decision = schedule(waiting, [room("n", gpus=8)], gangs(team), limit=2)
    assert set(placed(decision)) == {"g1", "g2", "g3"}
    assert decision.is_cut_short
    assert ("ns", "later") not in decision.unplaced


def test_two_thousand_pods_of_one_template_look_at_each_node_a_few_times_only() -> None:
    rooms = [room(f"n{i:03}", gpus=8) for i in range(200)]
    waiting = [pod(f"p{i:04}") for i in range(2000)]
    decision = schedule(waiting, rooms, {})
    assert len(decision.bindings) == 1600
    assert len(decision.unplaced) == 400
    assert decision.nodes_examined <= 200 + 200 + 2000


def test_many_gangs_that_do_not_fit_cost_as_much_as_one() -> None:
    rooms = [room(f"n{i:03}", gpus=1) for i in range(200)]
    teams = [gang(f"g{i:03}", group("a", *(f"g{i:03}-{j}" for j in range(201)), minimum=201)) for i in range(20)]
    waiting = [pod(f"g{i:03}-{j}", gang=f"g{i:03}") for i in range(20) for j in range(201)]
    decision = schedule(waiting, rooms, gangs(*teams))
    assert decision.bindings == ()
    assert decision.nodes_examined <= 3 * 200 + 201


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[WaitingPod], list[NodeCapacity], dict[NamespacedName, GangState]]:
    rooms = [
        room(f"n{i}", gpus=draw(st.integers(0, 4)), cpu=draw(st.integers(0, 6)), pods=draw(st.integers(0, 5)))
        for i in range(draw(st.integers(0, 5)))
    ]
    selectors = st.sampled_from([Constraints(), Constraints(selector=(("name", "n1"),))])
    waiting: list[WaitingPod] = []
    teams: list[GangState] = []

    def some_pods(prefix: str, count: int, gang_name: str = "") -> Iterable[str]:
        for index in range(count):
            asks = demand(gpus=draw(st.integers(0, 3)), cpu=draw(st.integers(0, 3)), constraints=draw(selectors))
            entry = pod(f"{prefix}-{index}", asks, gang=gang_name, created=str(draw(st.integers(0, 3))))
            waiting.append(replace(entry, priority=draw(st.integers(0, 1))))
            yield entry.pod[1]

    list(some_pods("lone", draw(st.integers(0, 5))))
    for number in range(draw(st.integers(0, 3))):
        groups = []
        for index in range(draw(st.integers(1, 3))):
            members = list(some_pods(f"g{number}-{index}", draw(st.integers(0, 3)), f"g{number}"))
            minimum, scheduled = draw(st.integers(0, 3)), draw(st.integers(0, 2))
            groups.append(group(f"{index}", *members, minimum=minimum, scheduled=scheduled))
        teams.append(gang(f"g{number}", *groups))
    return draw(st.permutations(waiting)), draw(st.permutations(rooms)), gangs(*teams)


@settings(max_examples=examples(300), deadline=None)
@given(clusters(), st.one_of(st.none(), st.integers(1, 4)))
def test_no_node_is_ever_asked_for_more_than_it_has(
    cluster: tuple[list[WaitingPod], list[NodeCapacity], dict[NamespacedName, GangState]], limit: int | None
) -> None:
    waiting, rooms, teams = cluster
    asked = {entry.pod: entry.demand for entry in waiting}
    free = {entry.node.name: Counter(entry.free) for entry in rooms}
    for binding in schedule(waiting, rooms, teams, limit=limit).bindings:
        assert all(binding.node == name for _, name in asked[binding.pod].constraints.selector)
        free[binding.node].subtract(dict(asked[binding.pod].requests))
    assert all(amount >= 0 for amounts in free.values() for amount in amounts.values())


@settings(max_examples=examples(300), deadline=None)
@given(clusters(), st.one_of(st.none(), st.integers(1, 4)))
def test_no_gang_is_left_between_nothing_and_its_minimum(
    cluster: tuple[list[WaitingPod], list[NodeCapacity], dict[NamespacedName, GangState]], limit: int | None
) -> None:
    waiting, rooms, teams = cluster
    bound = {binding.pod for binding in schedule(waiting, rooms, teams, limit=limit).bindings}
    for team in teams.values():
        now_scheduled = [entry.scheduled + len(entry.members & bound) for entry in team.groups]
        untouched = all(not entry.members & bound for entry in team.groups)
        whole = all(count >= entry.min_replicas for count, entry in zip(now_scheduled, team.groups, strict=True))
        assert untouched or whole


@settings(max_examples=examples(200), deadline=None)
@given(clusters(), st.randoms(use_true_random=False))
def test_the_answer_does_not_depend_on_the_order_of_the_question(
    cluster: tuple[list[WaitingPod], list[NodeCapacity], dict[NamespacedName, GangState]], random: Random
) -> None:
    waiting, rooms, teams = cluster
    first = schedule(waiting, rooms, teams)
    random.shuffle(waiting)
    random.shuffle(rooms)
    again = schedule(waiting, rooms, dict(reversed(teams.items())))
    assert (again.bindings, again.unplaced) == (first.bindings, first.unplaced)


@settings(max_examples=examples(200), deadline=None)
@given(clusters())
def test_every_waiting_pod_is_either_placed_or_told_why_not(
    cluster: tuple[list[WaitingPod], list[NodeCapacity], dict[NamespacedName, GangState]],
) -> None:
    waiting, rooms, teams = cluster
    decision = schedule(waiting, rooms, teams)
    bound = {binding.pod for binding in decision.bindings}
    assert bound | set(decision.unplaced) == {entry.pod for entry in waiting}
    assert not bound & set(decision.unplaced)


@settings(max_examples=examples(200), deadline=None)
@given(clusters())
def test_a_lone_pod_is_refused_only_where_no_node_has_room_left(
    cluster: tuple[list[WaitingPod], list[NodeCapacity], dict[NamespacedName, GangState]],
) -> None:
    waiting, rooms, teams = cluster
    asked = {entry.pod: entry for entry in waiting}
    decision = schedule(waiting, rooms, teams)
    free = {entry.node.name: Counter(entry.free) for entry in rooms}
    for binding in decision.bindings:
        free[binding.node].subtract(dict(asked[binding.pod].demand.requests))
    for refused in (asked[key] for key in decision.unplaced if asked[key].gang is None):
        allowed = [n for n in free if all(n == name for _, name in refused.demand.constraints.selector)]
        assert not any(all(free[n][r] >= amount for r, amount in refused.demand.requests) for n in allowed)
