"""Whole passes: who is updated when, what is taken over, and what a plan looks like."""

from dataclasses import replace
from typing import Any

import pytest

from rollouts.engine.model.actions import Action, Create, Delete, Kind, Patch, RemoveGate, WriteStatus
from rollouts.engine.model.observed import Observed
from rollouts.engine.model.workload import CliqueTemplate, Strategy
from rollouts.engine.plan.planner import plan
from tests.engine.simulated import Cluster, clique, group, settled, with_image, workload

PARTS = (clique("a", 2, 1), clique("l", 1), clique("k", 2), group("g", ("l", "k"), 2))
ORDER: list[type[Action]] = [Create, Patch, Delete, RemoveGate, WriteStatus]


def uids(cluster: Cluster, prefix: str = "") -> set[str]:
    return {pod.uid for pod in cluster.live_pods(prefix)}


def patches(cluster: Cluster, kind: Kind) -> dict[str, Any]:
    return {one.name: one.patch for one in cluster.plan().actions if isinstance(one, Patch) and one.kind is kind}


def test_nothing_observed_makes_the_frame_of_every_replica_first() -> None:
    planned = plan(workload(*PARTS, replicas=2), Observed(), 0.0)
    created = [(one.kind, one.manifest["metadata"]["name"]) for one in planned.actions if isinstance(one, Create)]
    assert created == [
        (kind, name)
        for replica in (0, 1)
        for kind, name in (
            (Kind.SERVICE, f"w-{replica}"),
            (Kind.CLIQUE, f"w-{replica}-a"),
            (Kind.GROUP, f"w-{replica}-g"),
        )
    ]


def test_a_set_of_no_replicas_has_nothing_and_is_content() -> None:
    cluster = Cluster(workload(*PARTS, replicas=0)).settle()
    assert cluster.world.observed() == Observed(status=cluster.status)
    assert cluster.status["availableReplicas"] == 0


def test_actions_come_in_their_order_in_every_pass() -> None:
    cluster = settled(workload(*PARTS, replicas=2))
    cluster.update()
    for planned in cluster.passes():
        places = [ORDER.index(type(action)) for action in planned.actions]
        assert places == sorted(places)


def test_every_owner_is_there_before_what_it_owns() -> None:
    cluster = Cluster(workload(*PARTS))
    for _ in range(50):
        planned = cluster.plan()
        seen = cluster.world.observed()
        there = {one.uid for kind in (seen.cliques, seen.groups) for one in kind} | {"set-uid"}
        for action in planned.actions:
            if isinstance(action, Create):
                (owner,) = action.manifest["metadata"]["ownerReferences"]
                assert owner["uid"] in there
        cluster.world.apply(planned.actions)
        if not planned.actions and not cluster.wait():
            return
    raise AssertionError("no end")


# Strategies.


def test_podcliques_in_no_group_promise_the_new_template_everywhere_at_once() -> None:
    cluster = settled(workload(*PARTS, replicas=2)).update()
    cluster.step()
    assert set(patches(cluster, Kind.CLIQUE)) == {"w-0-a", "w-1-a"}
    change = patches(cluster, Kind.CLIQUE)["w-1-a"]
    assert change["metadata"]["labels"]["grove.io/pod-template-hash"] == cluster.view.hashes["a"]
    assert change["spec"]["podSpec"]["containers"][0]["image"] == "app:v2"
    assert "replicas" not in change["spec"]


def test_a_new_pod_spec_takes_the_place_of_the_former_one() -> None:
    cluster = settled(workload(clique("a", 1))).update()
    cluster.step()
    (patch,) = [one for one in cluster.plan().actions if isinstance(one, Patch)]
    assert patch.replaced_fields == ("spec.podSpec",)
    assert patch.resource_version


def test_under_on_delete_every_podclique_promises_the_new_template_and_no_pod_goes() -> None:
    cluster = settled(workload(*PARTS, strategy=Strategy.ON_DELETE)).update()
    before = uids(cluster)
    cluster.step()
    assert set(patches(cluster, Kind.CLIQUE)) == {one.name for one in cluster.world.observed().cliques}
    assert uids(cluster.settle()) == before


def test_a_pod_lost_before_its_turn_comes_back_with_the_new_template_where_versions_may_mix() -> None:
    cluster = settled(workload(clique("a", 3, 1), replicas=2)).update()
    cluster.step()
    cluster.world.delete(Kind.POD, cluster.live_pods("w-1-a")[0].name)
    cluster.run_until(lambda cluster: len(cluster.live_pods("w-1-a")) == 3)
    assert {pod.template_hash for pod in cluster.live_pods("w-1-a")} >= {cluster.view.hashes["a"]}


def test_an_outdated_group_replica_gets_no_new_pods_before_it_is_replaced() -> None:
    cluster = settled(workload(clique("k", 3, 1), group("g", ("k",), 1), replicas=2)).update()
    cluster.step()
    cluster.world.delete(Kind.POD, cluster.live_pods("w-1")[0].name)
    for _ in cluster.passes():
        versions = {pod.template_hash for pod in cluster.world.pods.values() if pod.clique.startswith("w-1")}
        assert len(versions) <= 1
    assert len(cluster.live_pods("w-1")) == 3


@pytest.mark.parametrize("strategy", [Strategy.ROLLING_RECREATE, Strategy.ROLLING_UPDATE, Strategy.REPLICA_RECREATE])
def test_leaving_on_delete_rolls_what_it_left_behind(strategy: Strategy) -> None:
    cluster = settled(workload(*PARTS, replicas=2, strategy=Strategy.ON_DELETE))
    former = uids(cluster)
    cluster.update().settle()
    started = cluster.progress["updateStartedAt"]
    cluster.world.advance(cluster.world.now + 60.0)
    cluster.edit(strategy=strategy).settle()
    assert not former & uids(cluster)
    assert started < cluster.progress["updateStartedAt"] <= cluster.progress["updateEndedAt"]


def test_going_over_to_on_delete_in_the_middle_stops_the_update_where_it_is() -> None:
    cluster = settled(workload(clique("a", 4))).update()
    cluster.run_until(lambda cluster: len(cluster.deleted()) == 2)
    cluster.edit(strategy=Strategy.ON_DELETE)
    cluster.settle()
    assert len(cluster.deleted()) == 2
    assert cluster.progress["updateEndedAt"]
    assert len(cluster.live_pods()) == 4


def test_the_broken_replica_of_several_is_updated_first_and_no_other_is_taken_down_meanwhile() -> None:
    cluster = settled(workload(clique("a", 1), replicas=3)).update()
    cluster.step()
    (broken,) = cluster.live_pods("w-2")
    cluster.world.set_ready(broken.name, ready=False)
    for _ in cluster.passes():
        assert sum(pod.ready for pod in cluster.live_pods()) >= 1
        if any(pod.template_hash == cluster.view.hashes["a"] for pod in cluster.live_pods("w-2")):
            break
        assert len(cluster.live_pods("w-0")) == len(cluster.live_pods("w-1")) == 1


# Scale.


def test_replicas_set_by_others_stay_until_the_template_changes_its_own() -> None:
    cluster = settled(workload(*PARTS))
    cluster.world.scale(Kind.CLIQUE, "w-0-a", 4)
    cluster.world.scale(Kind.GROUP, "w-0-g", 3)
    cluster.update().settle()
    assert len(cluster.live_pods("w-0-a")) == 4
    assert len(cluster.live_pods("w-0-g")) == 9
    bigger = (replace(cluster.workload.cliques[0], replicas=5), *cluster.workload.cliques[1:])
    cluster.edit(cliques=bigger, groups=(replace(cluster.workload.groups[0], replicas=1),)).settle()
    assert len(cluster.live_pods("w-0-a")) == 5
    assert len(cluster.live_pods("w-0-g")) == 3


def without_minimum(name: str, replicas: int, image: str = "app:v1") -> CliqueTemplate:
    """Return a clique that leaves minAvailable out."""
    template = replace(clique(name, replicas), has_explicit_min_available=False)
    return replace(template, pod_spec={"containers": [{"name": "main", "image": image}]})


def minimums(cluster: Cluster) -> dict[str, tuple[int, int]]:
    """Return the minimum of each PodClique, as it says itself and as its PodGang does."""
    observed = cluster.world.observed()
    gangs = {name: least for gang in observed.gangs for name, (least, _) in gang.pod_groups.items()}
    return {one.name: (one.min_available, gangs[one.name]) for one in observed.cliques}


def test_a_clique_without_a_minimum_that_is_scaled_out_keeps_the_one_it_was_made_with() -> None:
    cluster = settled(workload(without_minimum("a", 3)))
    cluster.edit(cliques=(without_minimum("a", 5),))
    for _ in cluster.passes():
        assert cluster.status["availableReplicas"] == 1
    assert len(cluster.live_pods("w-0-a")) == 5
    assert minimums(cluster) == {"w-0-a": (3, 3)}
    cluster.edit(replicas=2).settle()
    assert minimums(cluster) == {"w-0-a": (3, 3), "w-1-a": (5, 5)}


def test_a_minimum_that_is_written_at_last_is_written_on_the_podcliques_too() -> None:
    cluster = settled(workload(without_minimum("a", 3)))
    cluster.edit(cliques=(without_minimum("a", 5),)).settle()
    before = uids(cluster)
    cluster.edit(cliques=(replace(without_minimum("a", 5), has_explicit_min_available=True),)).settle()
    assert minimums(cluster) == {"w-0-a": (5, 5)}
    assert uids(cluster) == before


def test_a_clique_without_a_minimum_that_is_scaled_in_has_its_replicas_as_one() -> None:
    cluster = settled(workload(without_minimum("a", 3)))
    cluster.edit(cliques=(without_minimum("a", 2),)).settle()
    assert minimums(cluster) == {"w-0-a": (2, 2)}
    assert cluster.status["availableReplicas"] == 1


@pytest.mark.parametrize("strategy", [Strategy.REPLICA_RECREATE, Strategy.ROLLING_RECREATE])
def test_more_replicas_and_another_image_at_once_cost_no_more_than_the_budget(strategy: Strategy) -> None:
    members = without_minimum("l", 1), without_minimum("k", 2), group("g", ("l", "k"), 2, 2)
    cluster = settled(workload(without_minimum("a", 3), *members, replicas=3, strategy=strategy))
    cluster.edit(
        cliques=(
            without_minimum("a", 4, "app:v2"),
            without_minimum("l", 1, "app:v2"),
            without_minimum("k", 3, "app:v2"),
        )
    )
    for _ in cluster.passes():
        assert cluster.status["availableReplicas"] >= 2
    assert cluster.view.set_text() == "0 1 2"
    assert len(cluster.live_pods("w-0-g")) == 8


def test_a_service_follows_the_set() -> None:
    cluster = settled(workload(clique("a", 1))).edit(publish_not_ready_addresses=False)
    assert patches(cluster, Kind.SERVICE) == {"w-0": {"spec": {"publishNotReadyAddresses": False}}}


# Taking over.


def by_another_operator(cluster: Cluster) -> Observed:
    """Return what is there as if somebody else had made it: no notes of ours, other hashes, no status."""
    seen = cluster.world.observed()
    return Observed(
        cliques=tuple(replace(one, template_replicas=None, template_hash="x", status={}) for one in seen.cliques),
        groups=tuple(replace(one, template_replicas=None, status={}) for one in seen.groups),
        gangs=seen.gangs,
        services=seen.services,
        pods=tuple(replace(pod, template_hash="x") for pod in seen.pods),
    )


def test_what_another_operator_made_is_taken_over_and_nothing_is_deleted_at_first() -> None:
    cluster = settled(workload(*PARTS))
    planned = plan(cluster.workload, by_another_operator(cluster), cluster.world.now)
    assert not [one for one in planned.actions if isinstance(one, Create | Delete)]
    assert planned.strangers == ()
    noted = [one.patch for one in planned.actions if isinstance(one, Patch) and one.kind is Kind.GROUP]
    assert noted == [{"metadata": {"annotations": {"grove.io/template-replicas": "2"}}}]


def test_what_another_operator_made_is_rolled_to_hashes_of_ours_within_the_budget() -> None:
    cluster = settled(workload(*PARTS))
    taken = Cluster(cluster.workload)
    taken.world = type(cluster.world)(by_another_operator(cluster), cluster.behaviour, cluster.world.now)
    lowest = min(sum(pod.ready for pod in taken.live_pods("w-0-a")) for _ in taken.passes())
    assert lowest == 1
    assert {pod.template_hash for pod in taken.live_pods()} == set(taken.view.hashes.values())
    assert taken.progress["updateEndedAt"]


# What is told.


def test_the_timeline_of_an_update() -> None:
    cluster = settled(workload(clique("a", 1), replicas=2)).update()
    told = [moment.reason for planned in cluster.passes() for moment in planned.timeline_events]
    one_replica = ["ReplicaSelected", "Outdated", "PodsCreated"]
    assert told == ["UpdateStarted", *one_replica, *one_replica, "UpdateEnded"]


def test_a_superseded_update_says_so() -> None:
    cluster = settled(workload(clique("a", 2))).update("app:v2")
    cluster.step()
    cluster.step()
    planned = cluster.update("app:v3").step()
    assert [moment.reason for moment in planned.timeline_events] == ["UpdateSuperseded", "UpdateStarted"]


def test_going_back_before_anything_was_replaced_is_an_update_that_replaces_nothing() -> None:
    cluster = settled(workload(clique("a", 2)))
    before = uids(cluster)
    cluster.update("app:v2").step()
    cluster.workload = with_image(cluster.workload, "app:v1")
    cluster.settle()
    assert uids(cluster) == before
    assert cluster.progress["updateEndedAt"]
