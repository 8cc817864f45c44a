"""The simulated cluster itself: what it refuses, what goes with what, who gets a node, and when."""

from dataclasses import replace
from typing import Any

import pytest

from rollouts.engine.model import names
from rollouts.engine.model.actions import Create, Delete, Kind, Patch, RemoveGate, WriteStatus
from rollouts.engine.model.observed import Observed
from rollouts.engine.scheduling.resources import parse_resource_list
from rollouts.engine.simulation.cluster import ClusterBehaviour
from rollouts.engine.simulation.scheduler import SimulatedNode
from tests.engine.disturbed import DisturbedCluster

BEHAVIOUR = ClusterBehaviour(ready_seconds=10.0, termination_seconds=2.0)


def labels(**more: str) -> dict[str, str]:
    return {names.PART_OF: "w", names.REPLICA_INDEX: "0", names.TEMPLATE_HASH: "h1", **more}


def owner(kind: str, name: str, uid: str) -> list[dict[str, str]]:
    return [{"kind": kind, "name": name, "uid": uid}]


def clique(name: str = "w-0-a", group: str = "", group_uid: str = "") -> Create:
    own = {names.GROUP: group, names.GROUP_REPLICA_INDEX: "0"} if group else {}
    held = owner("PodCliqueScalingGroup", group, group_uid) if group else owner("PodCliqueSet", "w", "set-uid")
    metadata = {"name": name, "labels": labels(**own), "ownerReferences": held}
    return Create(Kind.CLIQUE, {"metadata": metadata, "spec": {"replicas": 2}})


def pod(name: str, index: int, clique_uid: str, clique_name: str = "w-0-a", **spec: Any) -> Create:
    own = labels(**{names.CLIQUE: clique_name, names.POD_INDEX: str(index)})
    metadata = {"name": name, "labels": own, "ownerReferences": owner("PodClique", clique_name, clique_uid)}
    gates = [{"name": names.SCHEDULING_GATE}]
    return Create(Kind.POD, {"metadata": metadata, "spec": {"schedulingGates": gates, "containers": [], **spec}})


def gang(name: str, **groups: tuple[int, list[str]]) -> Create:
    listed = [
        {"name": clique, "minReplicas": least, "podReferences": [{"name": pod} for pod in pods]}
        for clique, (least, pods) in groups.items()
    ]
    metadata = {"name": name, "labels": labels(), "ownerReferences": owner("PodCliqueSet", "w", "set-uid")}
    return Create(Kind.GANG, {"metadata": metadata, "spec": {"podgroups": listed}})


def world_of(count: int, least: int = 1, behaviour: ClusterBehaviour = BEHAVIOUR, **spec: Any) -> DisturbedCluster:
    """Return a clique of some pods, all in one gang, their gates open."""
    world = DisturbedCluster(Observed(), behaviour)
    assert world.apply([clique()]) == ()
    (made,) = world.observed().cliques
    pods = [f"p{index}" for index in range(count)]
    assert world.apply([pod(name, index, made.uid, **spec) for index, name in enumerate(pods)]) == ()
    assert world.apply([gang("w-0", **{"w-0-a": (least, pods)})]) == ()
    assert world.apply([RemoveGate(one.name, one.uid) for one in world.pods.values()]) == ()
    return world


def test_a_name_is_taken_until_its_object_is_gone() -> None:
    world = world_of(1)
    (made,) = world.observed().cliques
    again = pod("p0", 0, made.uid)
    assert [refusal.reason for refusal in world.apply([again])] == ["AlreadyExists"]
    world.delete(Kind.POD, "p0")
    assert [refusal.reason for refusal in world.apply([again])] == ["AlreadyExists"]
    world.advance(2.0)
    assert world.apply([again]) == ()
    assert world.pods["p0"].gated


def test_a_write_that_comes_too_late_is_refused() -> None:
    world = world_of(1)
    (before,) = world.observed().cliques
    patch = Patch(Kind.CLIQUE, before.name, before.uid, before.resource_version, {"spec": {"replicas": 5}})
    assert world.apply([patch]) == ()
    assert [refusal.reason for refusal in world.apply([patch])] == ["Conflict"]
    stale = Delete(Kind.POD, "p0", "another uid", "Outdated")
    assert [refusal.reason for refusal in world.apply([stale])] == ["NotFound"]
    assert not world.pods["p0"].leaving


def test_a_status_counts_as_a_change_of_the_object() -> None:
    world = world_of(1)
    (before,) = world.observed().cliques
    world.apply([WriteStatus(Kind.CLIQUE, before.name, before.uid, {"replicas": 1})])
    (after,) = world.observed().cliques
    assert (after.status, after.generation) == ({"replicas": 1}, before.generation)
    assert after.resource_version != before.resource_version


def test_nothing_is_created_for_an_owner_that_is_not_there() -> None:
    world = world_of(1)
    assert [refusal.reason for refusal in world.apply([pod("p9", 9, "another uid")])] == ["OwnerNotFound"]


def test_a_pod_is_ready_some_time_after_it_has_a_node() -> None:
    world = world_of(1)
    assert world.pods["p0"].node
    assert not world.pods["p0"].ready
    world.advance()
    assert (world.now, world.pods["p0"].ready) == (10.0, True)


def test_a_pod_on_a_node_takes_its_time_to_go_and_one_on_none_goes_at_once() -> None:
    world = world_of(2, behaviour=replace(BEHAVIOUR, nodes=(SimulatedNode("n", pods=1),)))
    assert [one.node for one in world.pods.values()] == ["n", ""]
    world.delete(Kind.POD, "p1")
    world.delete(Kind.POD, "p0")
    assert [one.name for one in world.pods.values()] == ["p0"]
    assert world.pods["p0"].leaving
    world.advance()
    assert (world.now, list(world.pods)) == (2.0, [])


@pytest.mark.parametrize("key", ["h1", "w-0-a-0"])
def test_pods_of_a_broken_template_or_hostname_never_become_ready(key: str) -> None:
    world = world_of(1, behaviour=replace(BEHAVIOUR, never_ready=frozenset({key})))
    world.advance()
    assert (world.pods["p0"].ready, world.pods["p0"].failing) == (False, True)
    assert world.next_at is None


def test_what_an_owner_owns_goes_with_it() -> None:
    world = world_of(2)
    world.delete(Kind.CLIQUE, "w-0-a")
    assert world.observed().cliques == ()
    assert all(one.leaving for one in world.pods.values())


def test_what_an_owner_owns_may_outlive_it_for_a_while() -> None:
    world = world_of(2, behaviour=replace(BEHAVIOUR, garbage_collection_seconds=1.0))
    world.delete(Kind.CLIQUE, "w-0-a")
    assert not any(one.leaving for one in world.pods.values())
    world.advance(1.0)
    assert all(one.leaving for one in world.pods.values())


def test_an_owner_may_stay_until_all_it_owns_is_gone() -> None:
    world = world_of(2, behaviour=replace(BEHAVIOUR, foreground_deletion=True))
    world.delete(Kind.CLIQUE, "w-0-a")
    (leaving,) = world.observed().cliques
    assert leaving.leaving
    assert all(one.leaving for one in world.pods.values())
    world.advance()
    assert world.observed() == replace(Observed(), gangs=world.observed().gangs)


def test_what_is_made_under_an_owner_that_is_leaving_goes_with_it() -> None:
    world = world_of(2, behaviour=replace(BEHAVIOUR, foreground_deletion=True))
    world.delete(Kind.CLIQUE, "w-0-a")
    (leaving,) = world.observed().cliques
    assert world.apply([pod("late", 2, leaving.uid)]) == ()
    world.advance()
    assert (world.observed().cliques, world.pods) == ((), {})


def test_a_group_takes_its_cliques_and_their_pods_along() -> None:
    world = DisturbedCluster(Observed(), BEHAVIOUR)
    metadata = {"name": "w-0-g", "labels": labels(), "ownerReferences": owner("PodCliqueSet", "w", "set-uid")}
    world.apply([Create(Kind.GROUP, {"metadata": metadata, "spec": {"replicas": 1}})])
    (held,) = world.observed().groups
    world.apply([clique("w-0-g-0-l", "w-0-g", held.uid)])
    (member,) = world.observed().cliques
    assert (member.template, member.group_replica, held.template) == ("l", 0, "g")
    world.apply([pod("p0", 0, member.uid, "w-0-g-0-l")])
    world.delete(Kind.GROUP, "w-0-g")
    assert world.observed() == Observed()


def test_a_gated_pod_gets_no_node() -> None:
    world = world_of(1)
    (made,) = world.observed().cliques
    world.apply([pod("p1", 1, made.uid)])
    assert not world.pods["p1"].node


def test_a_pod_that_no_gang_lists_gets_no_node_and_says_so() -> None:
    world = world_of(1)
    (made,) = world.observed().cliques
    world.apply([pod("p1", 1, made.uid)])
    world.apply([RemoveGate("p1", world.pods["p1"].uid)])
    assert (world.pods["p1"].node, world.pods["p1"].message) == ("", "waits to be listed by its PodGang")


def test_a_gang_is_placed_up_to_its_minimum_or_not_at_all() -> None:
    tight = replace(BEHAVIOUR, nodes=(SimulatedNode("n", pods=2),))
    world = world_of(4, least=3, behaviour=tight)
    assert not any(one.node for one in world.pods.values())
    assert "3 pods" in world.pods["p0"].message
    world.set_behaviour(replace(BEHAVIOUR, nodes=(SimulatedNode("n", pods=3),)))
    assert [one.node for one in world.pods.values()] == ["n", "n", "n", ""]
    assert world.pods["p3"].message == "0/1 nodes are available: 1 Too many pods."


def test_a_gang_that_stands_is_not_blocked_by_a_pod_beyond_its_minimum() -> None:
    world = world_of(3, least=1, behaviour=replace(BEHAVIOUR, nodes=(SimulatedNode("n", pods=2),)))
    assert [bool(one.node) for one in world.pods.values()] == [True, True, False]


def test_room_is_counted_in_what_pods_ask_for() -> None:
    asks = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 4}, "requests": {"memory": "80Mi"}}}]
    nodes = (
        SimulatedNode("small", resources=parse_resource_list({"memory": "150Mi"})),
        SimulatedNode("gpu", resources=parse_resource_list({"nvidia.com/gpu": 8})),
    )
    world = world_of(4, behaviour=replace(BEHAVIOUR, nodes=nodes), containers=asks)
    assert [one.node for one in world.pods.values()] == ["small", "gpu", "gpu", ""]
    world.delete(Kind.POD, "p1")
    assert [one.node for one in world.pods.values()] == ["small", "gpu", "gpu", ""]
    world.advance()
    assert [one.node for one in world.pods.values()] == ["small", "gpu", "gpu"]


def test_a_world_begun_from_what_is_observed_goes_on_from_there() -> None:
    first = world_of(2)
    first.advance()
    first.delete(Kind.POD, "p1")
    second = DisturbedCluster(first.observed(), BEHAVIOUR, first.now)
    assert second.observed() == first.observed()
    second.advance()
    assert list(second.pods) == ["p0"]
    (made,) = second.observed().cliques
    second.apply([pod("p2", 1, made.uid)])
    assert second.pods["p2"].uid not in {one.uid for one in first.pods.values()}


def test_a_forked_world_goes_its_own_way() -> None:
    first = world_of(2, behaviour=replace(BEHAVIOUR, nodes=(SimulatedNode("n", pods=2),)))
    before = first.observed()
    second = first.fork()
    second.delete(Kind.POD, "p0")
    second.advance()
    assert list(second.pods) == ["p1"]
    assert first.observed() == before
    first.advance()
    assert all(one.ready for one in first.pods.values())


def test_only_the_replica_to_which_something_happened_is_touched() -> None:
    world = world_of(2)
    mark = world.journal_position
    assert world.replicas_changed_since(mark) == set()
    world.advance()
    assert world.replicas_changed_since(mark) == {0}
    assert world.observed_replicas([0]).pods == world.observed().pods
    assert world.observed_replicas([1]) == Observed()
