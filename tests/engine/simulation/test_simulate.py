"""A change run to its end: what the preview is told."""

from dataclasses import replace

from rollouts.engine.model.actions import Kind
from rollouts.engine.model.workload import Strategy, Workload
from rollouts.engine.scheduling.constraints import Taint
from rollouts.engine.scheduling.resources import MILLI_PER_UNIT, parse_resource_list
from rollouts.engine.simulation.cluster import ClusterBehaviour, SimulatedCluster
from rollouts.engine.simulation.incremental_tree import IncrementalTree
from rollouts.engine.simulation.scheduler import SimulatedNode
from rollouts.engine.simulation.simulate import SimulationEnd, SimulationResult, UnitCounter, UnitCounts, simulate
from rollouts.engine.tree.layout import make_layout
from tests.engine.simulated import QUICK, Cluster, clique, group, hashes, settled, with_image, workload


def surging() -> Cluster:
    return settled(workload(clique("a", 3, budget=(0, 1)), strategy=Strategy.ROLLING_UPDATE))


def preview(cluster: Cluster, changed: Workload | None = None, behaviour: ClusterBehaviour = QUICK) -> SimulationResult:
    changed = changed or with_image(cluster.workload, "app:v2")
    return simulate(cluster.workload, cluster.world.observed(), changed, behaviour, cluster.world.now)


def history(outcome: SimulationResult, component: str) -> list[UnitCounts]:
    return [tally for step in outcome.steps for tally in step.counts if tally.component == component]


def test_an_update_tells_its_counts_step_by_step() -> None:
    outcome = preview(surging())
    assert outcome.end is SimulationEnd.DONE
    told = [(one.live, one.available, one.surge, one.outdated) for one in history(outcome, "w-0-a")]
    assert told == [
        (4, 3, 1, 3),
        (3, 3, 1, 2),
        (4, 3, 1, 2),
        (3, 3, 1, 1),
        (4, 3, 1, 1),
        (3, 3, 1, 0),
        (4, 3, 1, 0),
        (3, 3, 0, 0),
    ]


def test_an_update_tells_its_lowest_availability_its_surge_and_how_much_it_replaces() -> None:
    outcome = preview(surging())
    assert outcome.lowest == {"w": 1, "w-0-a": 3}
    assert outcome.most_surge == {"w-0-a": 1}
    assert (outcome.pods_created, outcome.pods_deleted) == (4, 4)
    # The update has ended when everything wanted is there; the last surge pod may still be going.
    assert outcome.seconds == 4 * QUICK.ready_seconds


def test_an_update_one_at_a_time_tells_what_is_missing_on_the_way() -> None:
    outcome = preview(settled(workload(clique("a", 3), replicas=2)))
    assert outcome.lowest == {"w": 1, "w-0-a": 2, "w-1-a": 2}
    assert outcome.most_surge == {}


def test_the_pods_of_groups_and_cliques_are_counted_together() -> None:
    members = clique("b", 1), clique("c", 2)
    outcome = preview(settled(workload(clique("a", 1), *members, group("g", ("b", "c"), 2))))
    told = [(one.at, one.live, one.available, one.updated) for one in outcome.pods]
    gone, ready = QUICK.termination_seconds, QUICK.ready_seconds
    # The clique's only pod and three of the group go at once; those of the group are created when all are gone.
    assert told[:1] == [(0, 7, 7, 0)]
    assert (0, 3, 3, 0) in told
    assert (gone, 7, 3, 0) in told
    assert told[-1:] == [(2 * (gone + ready), 7, 7, 7)]


def test_a_pod_is_updated_once_it_serves_and_surge_is_none_of_them() -> None:
    outcome = preview(surging())
    told = [(one.live, one.available, one.updated, one.surge) for one in outcome.pods]
    # The surge is created, and each original is deleted and comes back, with the surge in its place.
    assert told == [
        *((3, 3, 0, 0), (4, 3, 0, 1)),
        *((3, 3, 0, 1), (4, 3, 0, 1)),
        *((3, 3, 1, 1), (4, 3, 1, 1)),
        *((3, 3, 2, 1), (4, 3, 2, 1)),
        (3, 3, 3, 0),
    ]


def test_a_surge_without_room_is_stuck_and_says_why() -> None:
    cluster = surging()
    outcome = preview(cluster, behaviour=replace(QUICK, nodes=(SimulatedNode("node", pods=3),)))
    assert outcome.end is SimulationEnd.STUCK
    assert [wait.code for wait in outcome.waits if wait.is_problem] == ["SurgeUnschedulable"]
    assert "SetMaxSurgeToZero" in {remedy for wait in outcome.waits for remedy in wait.remedies}
    assert outcome.lowest["w-0-a"] == 3


def test_what_a_pod_asks_for_decides_whether_there_is_room() -> None:
    asking = clique("a", 3, budget=(0, 1), requests={"memory": "80Mi"})
    cluster = settled(workload(asking, strategy=Strategy.ROLLING_UPDATE))
    room = 4 * 80 * 2**20
    assert (
        preview(
            cluster,
            behaviour=replace(QUICK, nodes=(SimulatedNode("node", resources={"memory": room * MILLI_PER_UNIT}),)),
        ).end
        is SimulationEnd.DONE
    )
    tight = replace(QUICK, nodes=(SimulatedNode("node", resources={"memory": (room - 1) * MILLI_PER_UNIT}),))
    assert preview(cluster, behaviour=tight).end is SimulationEnd.STUCK


def test_an_image_that_never_becomes_ready_stops_within_the_budget() -> None:
    cluster = settled(workload(clique("a", 3)))
    changed = with_image(cluster.workload, "broken")
    outcome = preview(cluster, changed, replace(QUICK, never_ready=frozenset(hashes(changed).values())))
    assert outcome.end is SimulationEnd.STUCK
    assert outcome.lowest["w-0-a"] == 2
    assert "WaitingForReady" in {wait.code for wait in outcome.waits}


def test_nothing_changed_is_done_at_once() -> None:
    cluster = surging()
    outcome = preview(cluster, cluster.workload)
    assert (outcome.end, outcome.steps, outcome.passes, outcome.seconds) == (SimulationEnd.DONE, (), 1, 0.0)


def test_on_delete_is_done_at_once_with_everything_outdated() -> None:
    cluster = settled(workload(clique("a", 3), strategy=Strategy.ON_DELETE))
    outcome = preview(cluster)
    assert outcome.end is SimulationEnd.DONE
    assert (outcome.pods_created, outcome.pods_deleted) == (0, 0)
    assert {wait.code for wait in outcome.waits} == {"AwaitingDeletion"}


def test_scaling_out_and_in_can_be_simulated_too() -> None:
    cluster = settled(workload(clique("a", 2), clique("l", 1), group("g", ("l",), 2)))
    outcome = preview(cluster, replace(cluster.workload, replicas=3))
    assert (outcome.end, outcome.pods_created, outcome.pods_deleted) == (SimulationEnd.DONE, 8, 0)
    outcome = preview(cluster, replace(cluster.workload, replicas=0))
    assert (outcome.end, outcome.pods_created, outcome.pods_deleted) == (SimulationEnd.DONE, 0, 4)


def test_a_simulation_leaves_what_was_observed_as_it_was() -> None:
    cluster = surging()
    before = cluster.world.observed()
    assert preview(cluster) == preview(cluster)
    assert cluster.world.observed() == before


def test_counts_kept_up_to_date_are_those_of_a_fresh_count() -> None:
    parts = (clique("a", 3, budget=(1, 1)), clique("l", 1), clique("k", 2), group("g", ("l", "k"), 3, 1, (1, 1)))
    cluster = settled(workload(*parts, replicas=2, strategy=Strategy.ROLLING_UPDATE)).update()
    shape = make_layout(cluster.workload)
    counter = UnitCounter(IncrementalTree(shape, cluster.world))
    for _ in cluster.passes():
        counter.count()
        fresh = UnitCounter(IncrementalTree(shape, SimulatedCluster(cluster.world.observed(), QUICK)))
        assert {tally for tally in counter.counts.values() if tally.live} == {
            tally for tally in fresh.counts.values() if tally.live
        }


def test_slow_cliques_take_their_own_time() -> None:
    cluster = settled(workload(clique("a", 1), clique("b", 1)))
    outcome = preview(cluster, behaviour=replace(QUICK, ready_seconds_of={"b": 100.0}))
    assert outcome.seconds == 100.0


def test_a_whole_group_replica_is_counted_as_one() -> None:
    cluster = settled(workload(clique("l", 1), clique("k", 2), group("g", ("l", "k"), 2)))
    outcome = preview(cluster)
    assert outcome.start["w-0-g"] == UnitCounts("w-0-g", Kind.GROUP, 2, 2, 2, 0, 2)
    assert outcome.lowest == {"w": 1, "w-0-g": 1}
    assert (outcome.pods_created, outcome.pods_deleted) == (6, 6)


def test_a_simulation_is_left_when_whoever_asked_has_enough() -> None:
    wanted = workload(clique("a", 3))
    observed = settled(wanted).world.observed()
    changed = with_image(wanted, "app:v2")
    whole = simulate(wanted, observed, changed, QUICK)
    answers = iter([False] * 5 + [True])
    part = simulate(wanted, observed, changed, QUICK, is_enough=lambda: next(answers))
    assert (whole.end, part.end, part.passes) == (SimulationEnd.DONE, SimulationEnd.UNFINISHED, 6)
    assert part.steps == whole.steps[: len(part.steps)]


def test_a_change_in_a_cluster_whose_nodes_are_all_cordoned_is_stuck() -> None:
    cluster = settled(workload(clique("a", 3)))
    outcome = preview(cluster, behaviour=replace(QUICK, nodes=(SimulatedNode("node", cordoned=True),)))
    assert outcome.end is SimulationEnd.STUCK
    (problem,) = (wait for wait in outcome.waits if wait.is_problem)
    assert "1 node(s) were unschedulable" in problem.text


def test_taints_and_selectors_decide_which_nodes_count() -> None:
    cluster = settled(workload(clique("a", 3)))
    tainted = SimulatedNode("node", taints=(Taint("dedicated", "others", "NoSchedule"),))
    assert preview(cluster, behaviour=replace(QUICK, nodes=(tainted,))).end is SimulationEnd.STUCK
    picky = with_image(cluster.workload, "app:v2")
    picky = replace(
        picky,
        cliques=tuple(replace(one, pod_spec={**one.pod_spec, "nodeSelector": {"zone": "a"}}) for one in picky.cliques),
    )
    elsewhere, here = SimulatedNode("node", labels={"zone": "b"}), SimulatedNode("other", labels={"zone": "a"})
    assert preview(cluster, picky, replace(QUICK, nodes=(elsewhere,))).end is SimulationEnd.STUCK
    assert preview(cluster, picky, replace(QUICK, nodes=(elsewhere, here))).end is SimulationEnd.DONE


def test_a_real_node_offers_nothing_that_it_does_not_name() -> None:
    cluster = settled(workload(clique("a", 1)))
    greedy = workload(clique("a", 1, requests={"nvidia.com/gpu": "200"}))
    node = SimulatedNode("node", resources=parse_resource_list({"pods": 110, "nvidia.com/gpu": 64}), is_exhaustive=True)
    assert preview(cluster, greedy, replace(QUICK, nodes=(node,))).end is SimulationEnd.STUCK
    plain = SimulatedNode("node", resources=parse_resource_list({"pods": 110}), is_exhaustive=True)
    assert preview(cluster, greedy, replace(QUICK, nodes=(plain,))).end is SimulationEnd.STUCK


def test_a_pod_that_has_been_on_its_node_for_a_while_needs_only_the_rest() -> None:
    cluster = settled(workload(clique("a", 1)))
    starting = cluster.world.observed()
    starting = replace(starting, pods=tuple(replace(pod, ready=False) for pod in starting.pods))
    (pod,) = starting.pods
    slow = ClusterBehaviour(ready_seconds=100.0, seconds_on_node={pod.name: 60.0})
    assert simulate(cluster.workload, starting, cluster.workload, slow, cluster.world.now).seconds == 40
