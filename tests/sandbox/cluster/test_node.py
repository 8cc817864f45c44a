"""Nodes: what a machine reports and which taints follow."""

from rollouts.sandbox.cluster.node import DOWN_ANNOTATION, compute_node_taints
from tests.sandbox.cluster.cluster import Cluster


def test_a_node_that_was_only_named_reports_capacity_by_its_instance_type(cluster: Cluster) -> None:
    for name, kind in (("c", "cpu-node"), ("g", "gpu-node")):
        labels = {"node.kubernetes.io/instance-type": kind}
        cluster.verbs.create(cluster.nodes, None, {"metadata": {"name": name, "labels": labels}})
    cluster.advance()
    assert "nvidia.com/gpu" not in cluster.node("c")["status"]["capacity"]
    assert cluster.node("g")["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    addresses = [cluster.node(name)["status"]["addresses"][0]["address"] for name in "cg"]
    assert len(set(addresses)) == 2
    assert all(cluster.condition(cluster.node(name), "Ready") == "True" for name in "cg")


def test_a_capacity_given_by_hand_is_kept_over_restarts(cluster: Cluster) -> None:
    cluster.add_node("n", gpus=3)
    cluster.restart()
    cluster.advance(60)
    assert cluster.node("n")["status"]["capacity"]["nvidia.com/gpu"] == "3"


def test_a_cordoned_node_carries_the_taint_that_says_so_beside_the_ones_people_set(cluster: Cluster) -> None:
    cluster.add_node("n")
    own = {"key": "team", "value": "a", "effect": "NoSchedule"}
    cluster.merge(cluster.nodes, "n", {"spec": {"unschedulable": True, "taints": [own]}})
    cluster.advance()
    keys = [taint["key"] for taint in cluster.node("n")["spec"]["taints"]]
    assert keys == ["team", "node.kubernetes.io/unschedulable"]
    cluster.merge(cluster.nodes, "n", {"spec": {"unschedulable": None}})
    cluster.advance()
    assert cluster.node("n")["spec"]["taints"] == [own]


def test_a_taint_that_drives_off_is_dated_once(cluster: Cluster) -> None:
    node = {"metadata": {"name": "n"}, "spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}
    dated = compute_node_taints(node, cluster.now)
    assert dated[0]["timeAdded"] == "2026-01-01T12:00:00Z"
    cluster.advance(60)
    assert compute_node_taints({**node, "spec": {"taints": dated}}, cluster.now) == dated


def test_a_node_going_down_and_up_is_told_in_events(cluster: Cluster) -> None:
    cluster.add_node("n")
    cluster.merge(cluster.nodes, "n", {"metadata": {"annotations": {DOWN_ANNOTATION: "true"}}})
    cluster.advance()
    cluster.merge(cluster.nodes, "n", {"metadata": {"annotations": {DOWN_ANNOTATION: None}}})
    cluster.advance()
    assert len(cluster.events("NodeNotReady")) == 1
    assert [event["count"] for event in cluster.events("NodeReady")] == [2]
