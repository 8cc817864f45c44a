"""Looking only at what needs it changes no plan."""

from collections.abc import Iterator, Set

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollouts.engine.model.workload import Strategy, Workload
from rollouts.engine.plan.planner import plan
from rollouts.engine.rollout import steps
from rollouts.engine.rollout.steps import find_replicas_to_plan
from rollouts.engine.rollout.update import Update
from rollouts.engine.tree import tree_builder
from rollouts.engine.tree.availability import ReplicaView, Tree
from rollouts.engine.tree.layout import Layout, ObjectIndex, make_layout
from tests.engine.chance import EVERYTHING, scale_below_minimum, workloads
from tests.engine.simulated import Cluster, clique, group, settled, workload
from tests.thoroughness import examples


def assert_nothing_is_overlooked(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = cluster.world.observed()
    quick = plan(cluster.workload, seen, cluster.world.now)
    with monkeypatch.context() as patch:
        patch.setattr(steps, "find_replicas_to_plan", lambda tree, _: tree.replicas.keys())
        assert plan(cluster.workload, seen, cluster.world.now) == quick
    shape = make_layout(cluster.workload)
    tree = tree_builder.build_tree(shape, seen)
    with monkeypatch.context() as patch:
        patch.setattr(tree_builder, "is_steady_and_complete", lambda *_: False)
        assert tree_builder.build_tree(shape, seen) == tree


@pytest.fixture(scope="module")
def patching() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@settings(max_examples=examples(6))
@given(workloads(), st.data())
def test_no_replica_that_needs_anything_is_passed_over(
    patching: pytest.MonkeyPatch, start: Workload, data: st.DataObject
) -> None:
    cluster = settled(start)
    assert_nothing_is_overlooked(cluster, patching)
    for _ in range(data.draw(st.integers(1, 4))):
        data.draw(st.sampled_from([*EVERYTHING, scale_below_minimum]))(cluster, data.draw)
        for _, _ in zip(range(data.draw(st.integers(0, 12))), cluster.passes(), strict=False):
            assert_nothing_is_overlooked(cluster, patching)


@pytest.mark.parametrize("strategy", [one for one in Strategy if one is not Strategy.ON_DELETE])
def test_all_replicas_are_steady_when_settled_and_most_while_one_is_updated(
    strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = (clique("a", 2), clique("l", 1), clique("k", 2), group("g", ("l", "k"), 3, 2))
    cluster = settled(workload(*parts, replicas=6, strategy=strategy, budget=(1, 0)))
    steady: list[int] = []

    def watched(tree: Tree, update: Update) -> Set[int]:
        busy = find_replicas_to_plan(tree, update)
        steady.append(len(tree.replicas.keys() - busy))
        return busy

    monkeypatch.setattr(steps, "find_replicas_to_plan", watched)
    cluster.plan()
    assert steady[-1] == 6
    cluster.update()
    for _ in range(3):
        cluster.step()
    cluster.plan()
    assert steady[-1] == 5
    cluster.settle()
    assert steady[-1] == 6


def test_nothing_is_made_of_replicas_that_are_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = settled(workload(clique("a", 2), clique("b", 1), replicas=3))
    cluster.update().settle()
    cluster.world.set_ready(cluster.live_pods("w-1-b")[0].name, ready=False)
    made: list[int] = []
    make = Layout.make_replica_view

    def watched(shape: Layout, index: int, found: ObjectIndex) -> ReplicaView:
        made.append(index)
        return make(shape, index, found)

    monkeypatch.setattr(Layout, "make_replica_view", watched)
    tree = tree_builder.build_tree(make_layout(cluster.workload), cluster.world.observed())
    assert tree.complete.cliques.names == ["w-0-a", "w-0-b", "w-1-a", "w-2-a", "w-2-b"]
    assert made == [1]
    assert [tree.replicas[index].is_complete for index in range(3)] == [True, False, True]
