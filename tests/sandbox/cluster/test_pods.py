"""Pods in a cluster: placed, started, stopped, evicted, and the same after a restart."""

from collections.abc import Callable

from rollouts.sandbox.cluster.node import DOWN_ANNOTATION
from rollouts.sandbox.cluster.pod_lifecycle import KubeletTimings
from rollouts.sandbox.conditions import find_condition
from tests.sandbox.cluster.cluster import Cluster


def test_a_pod_gets_a_node_starts_and_becomes_ready(cluster: Cluster) -> None:
    cluster.add_node("n1")
    cluster.add_pod("p", ready="2")
    cluster.advance(0.1)
    assert cluster.pod("p")["spec"]["nodeName"] == "n1"
    assert cluster.pod("p")["status"]["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
    cluster.advance(1)
    assert cluster.pod("p")["status"]["phase"] == "Running"
    assert cluster.ready() == set()
    cluster.advance(1)
    status = cluster.pod("p")["status"]
    assert cluster.ready() == {"p"}
    assert (status["podIP"], status["hostIP"]) == (
        "10.244.0.1",
        cluster.node("n1")["status"]["addresses"][0]["address"],
    )
    assert [entry["reason"] for entry in cluster.events("Scheduled")] == ["Scheduled"]


def test_a_pod_that_names_its_node_itself_runs_there(cluster: Cluster) -> None:
    cluster.add_node("n1")
    cluster.add_pod("p", nodeName="n1")
    cluster.advance(5)
    assert cluster.ready() == {"p"}
    assert cluster.condition(cluster.pod("p"), "PodScheduled") == "True"


def test_a_settled_cluster_is_at_rest(cluster: Cluster) -> None:
    cluster.add_node("n1")
    cluster.add_pod("p")
    cluster.advance(5)
    before = cluster.store.revision
    cluster.advance(600)
    assert cluster.store.revision == before


def test_a_gated_pod_says_so_and_is_placed_when_the_gate_goes(cluster: Cluster) -> None:
    cluster.add_node("n1")
    cluster.add_pod("p", schedulingGates=[{"name": "grove.io/podgang-pending-creation"}])
    cluster.advance(60)
    condition = find_condition(cluster.pod("p"), "PodScheduled")
    assert condition
    assert (condition["status"], condition["reason"]) == ("False", "SchedulingGated")
    assert cluster.bound() == set()
    cluster.merge(cluster.pods, "p", {"spec": {"schedulingGates": None}}, namespace="default")
    cluster.advance(1)
    assert cluster.bound() == {"p"}


def test_a_pod_without_room_waits_with_a_reason_and_is_placed_when_room_appears(cluster: Cluster) -> None:
    cluster.add_node("n1", gpus=1)
    cluster.add_pod("first", gpus=1)
    cluster.advance(5)
    cluster.add_pod("second", gpus=1)
    cluster.advance(5)
    condition = find_condition(cluster.pod("second"), "PodScheduled")
    assert condition
    assert condition["reason"] == "Unschedulable"
    assert condition["message"] == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    assert [event["count"] for event in cluster.events("FailedScheduling")] == [1]
    cluster.verbs.delete(cluster.pods, "default", "first")
    cluster.advance(0.5)
    assert cluster.bound() == {"first"}
    cluster.advance(2)
    assert cluster.bound() == {"second"}


def test_the_same_reason_again_raises_the_count_of_its_event(cluster: Cluster) -> None:
    cluster.add_node("n1")
    cluster.add_pod("p", nodeSelector={"zone": "a"})
    cluster.advance(1)
    for cordoned in (True, None, True):
        cluster.merge(cluster.nodes, "n1", {"spec": {"unschedulable": cordoned}})
        cluster.advance(10)
    counts = {event["message"]: event["count"] for event in cluster.events("FailedScheduling")}
    assert counts == {
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.": 2,
        "0/1 nodes are available: 1 node(s) were unschedulable.": 2,
    }


def test_events_are_dropped_an_hour_after_their_last_time(cluster: Cluster) -> None:
    cluster.add_node("n1")
    cluster.add_pod("p")
    cluster.advance(1800)
    assert len(cluster.events("Scheduled")) == 1
    cluster.advance(1900)
    assert cluster.verbs.list(cluster.registry.kind("events")) == []


def test_a_deleted_pod_ends_after_the_termination_time(cluster: Cluster) -> None:
    cluster.add_node("n1")
    cluster.add_pod("p")
    cluster.advance(5)
    cluster.verbs.delete(cluster.pods, "default", "p")
    cluster.advance(0.9)
    assert cluster.pod("p")["metadata"]["deletionTimestamp"]
    cluster.advance(0.2)
    assert not cluster.exists("p")


def test_termination_never_takes_longer_than_the_grace_period(
    make_cluster: Callable[[KubeletTimings], Cluster],
) -> None:
    cluster = make_cluster(KubeletTimings(termination=60))
    cluster.add_node("n1")
    cluster.add_pod("p", terminationGracePeriodSeconds=5)
    cluster.advance(5)
    cluster.verbs.delete(cluster.pods, "default", "p")
    cluster.advance(4.5)
    assert cluster.exists("p")
    cluster.advance(1)
    assert not cluster.exists("p")


def test_a_pod_kept_by_a_finalizer_has_ended_and_gives_its_room_back(cluster: Cluster) -> None:
    cluster.add_node("n1", gpus=1)
    cluster.add_pod("kept", gpus=1)
    cluster.merge(cluster.pods, "kept", {"metadata": {"finalizers": ["example.com/hold"]}}, namespace="default")
    cluster.advance(5)
    cluster.verbs.delete(cluster.pods, "default", "kept")
    cluster.add_pod("next", gpus=1)
    cluster.advance(10)
    assert cluster.pod("kept")["status"]["phase"] == "Succeeded"
    assert cluster.ready() == {"next"}
    cluster.merge(cluster.pods, "kept", {"metadata": {"finalizers": None}}, namespace="default")
    cluster.advance()
    assert not cluster.exists("kept")


def test_a_pod_deleted_by_force_is_gone_at_once(cluster: Cluster) -> None:
    cluster.add_node("n1")
    cluster.add_pod("p")
    cluster.advance(5)
    cluster.verbs.delete(cluster.pods, "default", "p", grace_seconds=0)
    assert not cluster.exists("p")
    cluster.advance(5)


def test_a_new_pod_of_the_same_name_starts_its_own_life(cluster: Cluster) -> None:
    cluster.add_node("n1")
    cluster.add_pod("p")
    cluster.advance(5)
    cluster.verbs.delete(cluster.pods, "default", "p", grace_seconds=0)
    cluster.add_pod("p")
    cluster.advance(0.1)
    assert cluster.ready() == set()
    cluster.advance(3)
    assert cluster.ready() == {"p"}


def test_a_cordoned_node_keeps_its_pods_and_gets_no_new_ones(cluster: Cluster) -> None:
    cluster.add_node("n1")
    cluster.add_pod("old")
    cluster.advance(5)
    cluster.merge(cluster.nodes, "n1", {"spec": {"unschedulable": True}})
    cluster.add_pod("new")
    cluster.advance(60)
    assert (cluster.ready(), cluster.bound()) == ({"old"}, {"old"})
    cluster.merge(cluster.nodes, "n1", {"spec": {"unschedulable": None}})
    cluster.advance(5)
    assert cluster.ready() == {"old", "new"}
    assert not cluster.node("n1")["spec"].get("taints")


def test_the_pods_of_a_deleted_node_are_removed(cluster: Cluster) -> None:
    cluster.add_node("n1")
    cluster.add_pod("p")
    cluster.advance(5)
    cluster.verbs.delete(cluster.nodes, None, "n1")
    cluster.advance(0.1)
    assert not cluster.exists("p")


def test_a_node_that_is_down_loses_its_pods_readiness_then_its_pods_and_gets_both_back(cluster: Cluster) -> None:
    cluster.add_node("n1")
    cluster.add_pod("short")
    cluster.add_pod("long", tolerations=[{"operator": "Exists", "effect": "NoExecute"}])
    cluster.advance(5)
    cluster.merge(cluster.nodes, "n1", {"metadata": {"annotations": {DOWN_ANNOTATION: "true"}}})
    cluster.advance(5)
    assert cluster.condition(cluster.node("n1"), "Ready") == "Unknown"
    assert cluster.ready() == set()
    assert {taint["effect"] for taint in cluster.node("n1")["spec"]["taints"]} == {"NoSchedule", "NoExecute"}
    cluster.advance(280)
    assert not cluster.pod("short")["metadata"].get("deletionTimestamp"), "five minutes are not over"
    cluster.advance(60)
    assert cluster.pod("short")["metadata"].get("deletionTimestamp"), "evicted, but nobody is there to end it"
    assert not cluster.pod("long")["metadata"].get("deletionTimestamp")
    cluster.merge(cluster.nodes, "n1", {"metadata": {"annotations": {DOWN_ANNOTATION: None}}})
    cluster.advance(5)
    assert cluster.placement() == {"long": "n1"}
    assert cluster.ready() == {"long"}
    assert not cluster.node("n1")["spec"].get("taints")


def test_a_ready_condition_set_by_hand_is_honoured(cluster: Cluster) -> None:
    cluster.add_node("n1")
    cluster.add_pod("p")
    cluster.advance(5)
    for status, ready in (("False", set[str]()), ("True", {"p"})):
        condition = {"type": "Ready", "status": status, "reason": "ByHand", "message": ""}
        cluster.merge(cluster.nodes, "n1", {"status": {"conditions": [condition]}}, subresource="status")
        cluster.advance(5)
        assert cluster.ready() == ready


def test_a_taint_that_drives_off_removes_pods_that_do_not_tolerate_it(cluster: Cluster) -> None:
    cluster.add_node("n1")
    cluster.add_pod("leaves")
    cluster.add_pod("stays", tolerations=[{"key": "maintenance", "operator": "Exists"}])
    cluster.add_pod("later", tolerations=[{"key": "maintenance", "operator": "Exists", "tolerationSeconds": 20}])
    cluster.advance(5)
    cluster.merge(cluster.nodes, "n1", {"spec": {"taints": [{"key": "maintenance", "effect": "NoExecute"}]}})
    cluster.advance(5)
    assert cluster.bound() == {"stays", "later"}
    cluster.advance(20)
    assert cluster.bound() == {"stays"}


def test_a_clique_starts_after_the_one_it_waits_for(cluster: Cluster) -> None:
    cluster.add_node("n1")
    waits = {"name": "grove-initc", "image": "initc:v1", "args": ["--podcliques=my-0-a:2"]}
    cluster.add_pod("b", initContainers=[waits], labels={"grove.io/podclique": "my-0-b"})
    cluster.add_pod("a1", labels={"grove.io/podclique": "my-0-a"})
    cluster.advance(60)
    assert cluster.ready() == {"a1"}
    assert cluster.pod("b")["status"]["phase"] == "Pending"
    cluster.add_pod("a2", labels={"grove.io/podclique": "my-0-a"})
    cluster.advance(10)
    assert cluster.ready() == {"a1", "a2", "b"}
    cluster.verbs.delete(cluster.pods, "default", "a1")
    cluster.advance(10)
    assert cluster.ready() == {"a2", "b"}, "a pod that has started is not stopped again"


def test_a_restart_at_any_moment_ends_in_the_same_state(make_cluster: Callable[[KubeletTimings], Cluster]) -> None:
    def live(restarts: bool) -> dict[str, tuple[str | None, str]]:
        cluster = make_cluster(KubeletTimings())
        cluster.add_node("n1", gpus=2)
        cluster.add_pod("a", gpus=1)
        cluster.add_pod("b", gpus=1, image="app:broken")
        cluster.add_pod("c", gpus=1)
        cluster.add_pod("d", schedulingGates=[{"name": "g"}])
        for moment in range(40):
            if moment == 20:
                cluster.verbs.delete(cluster.pods, "default", "a")
            if restarts:
                cluster.restart()
            cluster.advance(0.25)
        return {
            name: (node, str(cluster.condition(cluster.pod(name), "Ready")))
            for name, node in cluster.placement().items()
        }

    assert (
        live(restarts=True)
        == live(restarts=False)
        == {
            "b": ("n1", "False"),
            "c": ("n1", "True"),
            "d": (None, "None"),
        }
    )


def test_pods_keep_their_addresses_over_a_restart_and_share_none(cluster: Cluster) -> None:
    cluster.add_node("n1")
    for number in range(5):
        cluster.add_pod(f"p{number}")
    cluster.advance(5)
    before = {name: cluster.pod(name)["status"]["podIP"] for name in cluster.placement()}
    cluster.restart()
    cluster.add_pod("p5")
    cluster.advance(5)
    after = {name: cluster.pod(name)["status"]["podIP"] for name in cluster.placement()}
    assert after == {**before, "p5": after["p5"]}
    assert len(set(after.values())) == 6


def test_a_pod_caught_by_a_restart_before_it_had_an_address_takes_nobody_elses(cluster: Cluster) -> None:
    cluster.add_node("n1")
    cluster.add_pod("z-first")
    cluster.advance(5)
    cluster.add_pod("a-second")
    cluster.advance(0.1)
    cluster.restart()
    cluster.advance(5)
    assert cluster.pod("a-second")["status"]["podIP"] != cluster.pod("z-first")["status"]["podIP"]
