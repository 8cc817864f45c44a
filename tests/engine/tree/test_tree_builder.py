"""Everything observed is in its place, or it is a stranger that is reported and never touched."""

from dataclasses import replace
from typing import Any

import pytest

from rollouts.engine.model.observed import Observed
from rollouts.engine.plan.planner import plan
from rollouts.engine.tree.availability import Tree
from rollouts.engine.tree.layout import Layout
from rollouts.engine.tree.tree_builder import build_tree
from tests.engine.simulated import Cluster, clique, group, hashes, settled, workload


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return settled(workload(clique("a", 2), clique("l", 1), clique("k", 2), group("g", ("l", "k"), 3, 2), replicas=2))


def arranged(cluster: Cluster, observed: Observed) -> Tree:
    return build_tree(Layout(cluster.workload, hashes(cluster.workload)), observed)


def test_everything_is_where_it_belongs(cluster: Cluster) -> None:
    seen = cluster.world.observed()
    tree = arranged(cluster, seen)
    assert tree.strangers == ()
    assert sorted(tree.replicas) == [0, 1]
    for index, replica in tree.replicas.items():
        (a,), (g,) = replica.cliques, replica.groups
        assert [pod.index for pod in a.pods] == [0, 1]
        assert sorted(g.replicas) == [0, 1, 2]
        assert [view.name for view in g.replicas[2].cliques] == [f"w-{index}-g-2-l", f"w-{index}-g-2-k"]
        assert replica.service is not None
        assert [gang.name for gang in replica.gangs] == [f"w-{index}", f"w-{index}-g-0"]
        assert replica.is_complete
    placed = [pod.name for replica in tree.replicas.values() for view in replica.all_cliques for pod in view.pods]
    assert sorted(placed) == sorted(pod.name for pod in seen.pods)


def test_pods_that_outlive_their_podclique_keep_their_place(cluster: Cluster) -> None:
    seen = cluster.world.observed()
    gone = {"w-1-a", "w-0-g-2-k"}
    tree = arranged(cluster, replace(seen, cliques=tuple(one for one in seen.cliques if one.name not in gone)))
    assert tree.strangers == ()
    (a,), (g,) = tree.replicas[1].cliques, tree.replicas[0].groups
    assert (a.clique, len(a.pods)) == (None, 2)
    assert [len(view.pods) for view in g.replicas[2].cliques] == [1, 2]
    assert not g.replicas[2].is_available


def stray(cluster: Cluster, kind: str, **fields: Any) -> tuple[Observed, str]:
    """Return what is observed, with one object more that is like another but for some fields."""
    seen = cluster.world.observed()
    like = getattr(seen, kind)[0]
    odd = replace(like, **{"name": "odd", "uid": "odd-uid"} | fields)
    more: dict[str, Any] = {kind: (*getattr(seen, kind), odd)}
    return replace(seen, **more), odd.name


STRAYS: list[tuple[str, dict[str, Any], str]] = [
    ("cliques", {"template": "zz"}, "the set has no clique 'zz'"),
    ("cliques", {"replica": 7}, "its labels require the name w-7-a"),
    ("cliques", {"replica": -1}, "it has no valid label for its replica of the set"),
    ("cliques", {"group": "w-0-g", "group_replica": 1}, "the clique a is in no scaling group"),
    ("groups", {"template": "zz"}, "the set has no scaling group 'zz'"),
    ("groups", {"replica": 3}, "no PodCliqueScalingGroup of replica 3 has this name"),
    ("services", {}, "no Service of replica 0 has this name"),
    ("gangs", {"name": "w-0-zz-0"}, "no PodGang of replica 0 has this name"),
    ("pods", {"name": "w-0-zz-x", "clique": "w-0-zz"}, "the set has no PodClique 'w-0-zz'"),
    ("pods", {"name": "other-0-a-x", "clique": "other-0-a"}, "the set has no PodClique 'other-0-a'"),
    ("pods", {}, "no pod of w-0-a has this name"),
    ("pods", {"name": "w-0-a-zzzzz", "index": -1}, "it has no index"),
    ("pods", {"name": "w-0-a-zzzzz", "created": 9e9}, "another pod of w-0-a has the index 0"),
]


@pytest.mark.parametrize(("kind", "fields", "why"), STRAYS, ids=[why for _, _, why in STRAYS])
def test_what_fits_nowhere_is_reported_and_left_alone(
    cluster: Cluster, kind: str, fields: dict[str, Any], why: str
) -> None:
    seen, name = stray(cluster, kind, **fields)
    planned = plan(cluster.workload, seen, cluster.world.now)
    assert planned.strangers == ((name, why),)
    assert planned.actions == ()


def test_a_member_of_another_group_is_a_stranger(cluster: Cluster) -> None:
    seen = cluster.world.observed()
    member = next(one for one in seen.cliques if one.name == "w-0-g-0-l")
    wrong: list[dict[str, Any]] = [{"group": "w-1-g"}, {"group": ""}, {"group_replica": -1}]
    for fields in wrong:
        odd = replace(member, **fields)
        tree = arranged(cluster, Observed(cliques=(odd,)))
        ((name, why),) = tree.strangers
        assert name == "w-0-g-0-l"
        assert why.startswith("the clique l of replica 0 is in the scaling group w-0-g, but its labels do not name ")


def test_a_leaving_pod_does_not_make_its_successor_a_stranger(cluster: Cluster) -> None:
    seen = cluster.world.observed()
    former = replace(seen.pods[0], name="w-0-a-former", uid="former-uid", leaving=True)
    assert arranged(cluster, replace(seen, pods=(former, *seen.pods))).strangers == ()


def test_of_two_pods_with_one_index_the_older_is_ours(cluster: Cluster) -> None:
    seen = cluster.world.observed()
    younger = replace(seen.pods[0], name="w-0-a-aaa", uid="younger", created=seen.pods[0].created + 1)
    tree = arranged(cluster, replace(seen, pods=(younger, *seen.pods)))
    assert [name for name, _ in tree.strangers] == ["w-0-a-aaa"]


def test_a_pod_that_has_ended_is_counted_nowhere(cluster: Cluster) -> None:
    seen = cluster.world.observed()
    (first, *others) = seen.pods
    ended = replace(first, phase="Failed", ready=False)
    (view,) = arranged(cluster, replace(seen, pods=(ended, *others))).replicas[0].cliques
    assert (len(view.pods), len(view.live), view.available) == (2, 1, 1)


def test_a_pod_that_has_ended_is_replaced(cluster: Cluster) -> None:
    seen = cluster.world.observed()
    (first, *others) = seen.pods
    ended = replace(first, phase="Failed", ready=False)
    planned = plan(cluster.workload, replace(seen, pods=(ended, *others)), cluster.world.now)
    reasons = [getattr(action, "reason", type(action).__name__) for action in planned.actions]
    assert reasons[:2] == ["Create", "PodEnded"]
