"""Gangs in a cluster: the scheduler places all of a gang or none, and the PodGang's status shows its phase."""

from rollouts.sandbox.conditions import find_condition
from tests.sandbox.cluster.cluster import Cluster

GATE = {"name": "grove.io/podgang-pending-creation"}


def reason(cluster: Cluster, pod: str) -> str:
    condition = find_condition(cluster.pod(pod), "PodScheduled")
    assert condition
    return str(condition.get("message", ""))


def test_a_gang_is_placed_only_when_all_of_it_fits(cluster: Cluster) -> None:
    cluster.add_node("n1", gpus=2)
    for name in ("a1", "a2", "b1"):
        cluster.add_pod(name, gpus=1, gang="my-0")
    cluster.put_gang("my-0", a=(2, ["a1", "a2"]), b=(1, ["b1"]))
    cluster.advance(60)
    assert cluster.bound() == set()
    assert "0/1 nodes are available: 1 Insufficient nvidia.com/gpu." in reason(cluster, "a1")
    cluster.add_node("n2", gpus=1)
    cluster.advance(5)
    assert cluster.ready() == {"a1", "a2", "b1"}


def test_pods_wait_for_their_gang_to_be_made_and_to_list_them(cluster: Cluster) -> None:
    cluster.add_node("n1", gpus=8)
    cluster.add_pod("a1", gang="my-0")
    cluster.advance(10)
    assert reason(cluster, "a1") == "pod waits for PodGang my-0, which does not exist"
    cluster.put_gang("my-0", a=(0, []))
    cluster.advance(10)
    assert reason(cluster, "a1") == "pod waits to be listed by PodGang my-0"
    cluster.put_gang("my-0", a=(1, ["a1"]))
    cluster.advance(10)
    assert cluster.ready() == {"a1"}


def test_gated_members_do_not_count_toward_the_minimum(cluster: Cluster) -> None:
    cluster.add_node("n1", gpus=8)
    cluster.add_pod("a1", gang="my-0")
    cluster.add_pod("a2", gang="my-0", schedulingGates=[GATE])
    cluster.put_gang("my-0", a=(2, ["a1", "a2"]))
    cluster.advance(10)
    assert cluster.bound() == set()
    cluster.merge(cluster.pods, "a2", {"spec": {"schedulingGates": None}}, namespace="default")
    cluster.advance(10)
    assert cluster.ready() == {"a1", "a2"}


def test_a_surge_pod_without_room_does_not_block_a_scheduled_gang(cluster: Cluster) -> None:
    cluster.add_node("n1", gpus=2)
    for name in ("a1", "a2"):
        cluster.add_pod(name, gpus=1, gang="my-0")
    cluster.put_gang("my-0", a=(2, ["a1", "a2"]))
    cluster.advance(10)
    cluster.add_pod("surge", gpus=1, gang="my-0")
    cluster.put_gang("my-0", a=(2, ["a1", "a2", "surge"]))
    cluster.advance(10)
    assert cluster.ready() == {"a1", "a2"}
    assert cluster.gang("my-0")["status"]["phase"] == "Running"
    cluster.verbs.delete(cluster.pods, "default", "a1")
    cluster.advance(10)
    assert cluster.ready() == {"a2", "surge"}


def test_a_lost_pod_is_replaced_without_the_rest_of_the_gang_moving(cluster: Cluster) -> None:
    cluster.add_node("n1", gpus=2)
    for name in ("a1", "a2"):
        cluster.add_pod(name, gpus=1, gang="my-0")
    cluster.put_gang("my-0", a=(2, ["a1", "a2"]))
    cluster.advance(10)
    cluster.verbs.delete(cluster.pods, "default", "a1")
    cluster.add_pod("a3", gpus=1, gang="my-0")
    cluster.put_gang("my-0", a=(2, ["a2", "a3"]))
    cluster.advance(10)
    assert cluster.ready() == {"a2", "a3"}


def test_the_gang_tells_its_phase_and_conditions(cluster: Cluster) -> None:
    cluster.put_gang("my-0", a=(1, ["a1"]))
    initialized = {
        "type": "Initialized",
        "status": "True",
        "reason": "PodGangPodsCreated",
        "message": "",
        "lastTransitionTime": "2026-01-01T12:00:00Z",
    }
    cluster.merge(
        cluster.gangs,
        "my-0",
        {"status": {"phase": "Pending", "conditions": [initialized]}},
        namespace="default",
        subresource="status",
    )
    cluster.add_pod("a1", gang="my-0", ready="4")
    seen = []
    for wait in (1, 1, 5):
        cluster.advance(wait)
        gang = cluster.gang("my-0")
        told = [cluster.condition(gang, kind) for kind in ("Scheduled", "Ready", "Initialized")]
        seen.append((gang["status"]["phase"], *told))
        if not cluster.store.count(cluster.nodes):
            cluster.add_node("n1")
    assert seen == [
        ("Pending", "False", "False", "True"),
        ("Starting", "True", "False", "True"),
        ("Running", "True", "True", "True"),
    ]


def test_a_minimum_survives_a_restart_in_the_middle(cluster: Cluster) -> None:
    cluster.add_node("n1", gpus=1)
    for name in ("a1", "a2"):
        cluster.add_pod(name, gpus=1, gang="my-0")
    cluster.put_gang("my-0", a=(2, ["a1", "a2"]))
    cluster.advance(10)
    cluster.restart()
    cluster.advance(10)
    assert cluster.bound() == set()
    cluster.add_node("n2", gpus=1)
    cluster.restart()
    cluster.advance(10)
    assert cluster.ready() == {"a1", "a2"}


def test_higher_priority_is_placed_first_by_class_name(cluster: Cluster) -> None:
    classes = cluster.registry.kind("priorityclasses", "scheduling.k8s.io")
    cluster.verbs.create(classes, None, {"metadata": {"name": "urgent"}, "value": 1000})
    cluster.add_pod("plain", gpus=1)
    cluster.add_pod("pressing", gpus=1, priorityClassName="urgent")
    cluster.add_node("n1", gpus=1)
    cluster.advance(1)
    assert cluster.bound() == {"pressing"}
