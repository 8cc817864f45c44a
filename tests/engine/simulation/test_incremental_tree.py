"""A tree that follows a world is always the one that a fresh look at all of it would give, and so is the plan."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from rollouts.engine.model.actions import Kind
from rollouts.engine.model.workload import Workload
from rollouts.engine.plan.planner import plan, plan_tree
from rollouts.engine.rollout.ready_times import measure_ready_times
from rollouts.engine.simulation.cluster import ClusterBehaviour
from rollouts.engine.simulation.incremental_tree import IncrementalTree
from rollouts.engine.tree.layout import make_layout
from rollouts.engine.tree.tree_builder import build_tree
from tests.engine.chance import (
    EVERYTHING,
    break_pod,
    clusters,
    delete_clique,
    delete_pod,
    scale_component,
    workloads,
)
from tests.engine.simulated import Cluster, clique, group, settled, workload
from tests.thoroughness import examples

IN_THE_WORLD = [delete_pod, delete_clique, break_pod, scale_component]


def watch(cluster: Cluster) -> IncrementalTree:
    return IncrementalTree(make_layout(cluster.workload), cluster.world)


def assert_nothing_is_missed(cluster: Cluster, incremental: IncrementalTree) -> None:
    seen = cluster.world.observed()
    tree = incremental.refresh()
    assert tree == build_tree(incremental.layout, seen)
    assert [*tree.replicas] == sorted(tree.replicas)
    planned = plan_tree(incremental.layout, tree, cluster.world.status, cluster.world.now, measure_ready_times(seen))
    assert planned == plan(cluster.workload, seen, cluster.world.now)


@settings(max_examples=examples(6))
@given(workloads(), clusters(), st.data())
def test_nothing_that_happens_is_missed(start: Workload, behaviour: ClusterBehaviour, data: st.DataObject) -> None:
    cluster = settled(start, behaviour)
    for _ in range(data.draw(st.integers(1, 3))):
        data.draw(st.sampled_from(EVERYTHING))(cluster, data.draw)
        incremental = watch(cluster)
        interfered_at = data.draw(st.integers(0, 10))
        for number, _ in zip(range(15), cluster.passes(), strict=False):
            assert_nothing_is_missed(cluster, incremental)
            if number == interfered_at:
                data.draw(st.sampled_from(IN_THE_WORLD))(cluster, data.draw)
                assert_nothing_is_missed(cluster, incremental)


def a_cluster() -> Cluster:
    return settled(workload(clique("a", 2), clique("l", 1), clique("k", 2), group("g", ("l", "k"), 3), replicas=3))


def test_pods_whose_podclique_was_gone_before_are_followed_until_they_are_gone_too() -> None:
    cluster = a_cluster()
    seen = cluster.world.observed()
    gone = {"w-1-a", "w-2-g-1-k"}
    cluster.begin_from(replace(seen, cliques=tuple(one for one in seen.cliques if one.name not in gone)))
    incremental = watch(cluster)
    assert cluster.world.has_unknown_replica
    for _ in cluster.passes():
        assert_nothing_is_missed(cluster, incremental)
    assert not cluster.world.has_unknown_replica


def test_what_a_stranger_owns_is_followed_where_its_name_says() -> None:
    cluster = a_cluster()
    seen = cluster.world.observed()
    odd = [replace(one, replica=0) if one.name == "w-1-a" else one for one in seen.cliques]
    cluster.begin_from(replace(seen, cliques=tuple(odd)))
    cluster.update()
    incremental = watch(cluster)
    for number, _ in enumerate(cluster.passes()):
        assert_nothing_is_missed(cluster, incremental)
        if number == 5:
            cluster.world.delete(Kind.CLIQUE, "w-1-a")
            assert_nothing_is_missed(cluster, incremental)


def test_only_what_was_touched_is_looked_at_again() -> None:
    cluster = a_cluster()
    incremental = watch(cluster)
    before = dict(incremental.refresh().replicas)
    assert incremental.pop_changed() == {0, 1, 2}
    cluster.world.delete(Kind.POD, cluster.live_pods("w-1-a")[0].name)
    after = incremental.refresh().replicas
    assert incremental.pop_changed() == {1}
    assert [index for index in range(3) if after[index] is not before[index]] == [1]


def test_replicas_that_go_and_come_back_are_followed() -> None:
    cluster = settled(workload(clique("a", 1), replicas=3))
    for replicas in (1, 3):
        cluster.edit(replicas=replicas)
        incremental = watch(cluster)
        for _ in cluster.passes():
            assert_nothing_is_missed(cluster, incremental)
        assert [*incremental.refresh().replicas] == [*range(replicas)]
