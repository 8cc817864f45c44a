"""A workload is read as values of the engine: everything that belongs to it, and nothing else."""

from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from rollouts import mirror, models
from rollouts.cluster import Obj
from rollouts.cluster.resources import (
    PODCLIQUES,
    PODCLIQUESCALINGGROUPS,
    PODCLIQUESETS,
    PODGANGS,
    PODS,
    SERVICES,
)
from rollouts.engine.model import names
from rollouts.engine.model.observed import Clique, Gang, Group, Pod, Service
from rollouts.engine.model.template_keys import TEMPLATE_KEYS, TEMPLATE_REPLICAS
from tests.mirror import objects

pytestmark = [pytest.mark.database, pytest.mark.django_db]

CREATED = 1767323045.0


def store_workload(cluster: models.Cluster) -> None:
    """Store a set with one object of each kind."""
    mirror.store(cluster, PODCLIQUESETS, [objects.pod_clique_set()])
    mirror.store(cluster, PODCLIQUESCALINGGROUPS, [objects.group()])
    mirror.store(cluster, PODCLIQUES, [objects.clique(), objects.member()])
    mirror.store(cluster, PODGANGS, [objects.gang()])
    mirror.store(cluster, SERVICES, [objects.service()])
    mirror.store(cluster, PODS, [objects.pod()])


def seen(cluster: models.Cluster) -> mirror.MirroredWorkload:
    """Read the workload."""
    found = mirror.fetch_workload(cluster, "web", "my")
    assert found is not None
    return found


def test_a_workload_that_is_not_there_is_none(cluster: models.Cluster) -> None:
    mirror.store(cluster, PODS, [objects.pod()])
    assert mirror.fetch_workload(cluster, "web", "my") is None


def test_the_set_is_read_as_it_was_told(cluster: models.Cluster) -> None:
    told = objects.pod_clique_set(version=7)
    mirror.store(cluster, PODCLIQUESETS, [told])
    read = seen(cluster)
    del told["metadata"]["managedFields"]
    assert read.manifest == told
    assert (read.resource_version, read.observed.status) == ("7", {"currentGenerationHash": "g1"})


def test_deletes_in_doubt_outlive_news_of_the_set(cluster: models.Cluster) -> None:
    mirror.store(cluster, PODCLIQUESETS, [objects.pod_clique_set(version=7)])
    assert seen(cluster).unconfirmed_writes == ()
    number = seen(cluster).workload_id
    models.Workload.objects.filter(pk=number).update(in_doubt=[["Pod", "my-0-c-abcde", "pod"]])
    mirror.store(cluster, PODCLIQUESETS, [objects.pod_clique_set(version=8, replicas=3)])
    assert (seen(cluster).unconfirmed_writes, seen(cluster).uid) == ((("Pod", "my-0-c-abcde", "pod"),), "set")
    assert seen(cluster).manifest["spec"]["replicas"] == 3


def test_everything_of_a_workload_is_read(cluster: models.Cluster) -> None:
    store_workload(cluster)
    observed = seen(cluster).observed
    assert observed.groups == (Group("my-0-sg", "group", "2", 0, CREATED, "sg", 0, 3, None, leaving=False, status={}),)
    status = {"replicas": 2}
    assert observed.cliques == (
        Clique(
            *("my-0-c", "clique", "2", 0, CREATED, "c", 0, "", -1, "t1", 2, None),
            leaving=False,
            status=status,
            min_available=1,
        ),
        Clique(
            *("my-0-sg-1-c", "member", "2", 0, CREATED, "c", 0, "my-0-sg", 1, "t1", 2, None),
            leaving=False,
            status=status,
            min_available=1,
        ),
    )
    assert observed.gangs == (
        Gang("my-0", "gang", "4", 0, leaving=False, pod_groups={"my-0-c": (1, ("my-0-c-abcde",))}, status={}),
    )
    assert observed.services == (Service("my-0", "service", 0, leaving=False, publish_not_ready_addresses=True),)
    assert observed.pods == (
        Pod(
            *("my-0-c-abcde", "pod", "my-0-c", 0, "t1", CREATED, "node-1", "Running"),
            ready=True,
            leaving=False,
            gated=False,
            resource_version="3",
        ),
    )
    assert seen(cluster).strangers == ()


def test_the_scheduler_of_a_gang_is_read_from_its_label(cluster: models.Cluster) -> None:
    told = objects.gang()
    told["metadata"]["labels"]["grove.io/scheduler-name"] = "kai-scheduler"
    mirror.store(cluster, PODCLIQUESETS, [objects.pod_clique_set()])
    mirror.store(cluster, PODGANGS, [told])
    (gang,) = seen(cluster).observed.gangs
    assert gang.scheduler == "kai-scheduler"


def test_what_was_noted_of_the_template_is_read(cluster: models.Cluster) -> None:
    told = objects.clique()
    told["metadata"]["annotations"] = {TEMPLATE_REPLICAS: "5", TEMPLATE_KEYS: "team,tier,"}
    mirror.store(cluster, PODCLIQUESETS, [objects.pod_clique_set()])
    mirror.store(cluster, PODCLIQUES, [told])
    (clique,) = seen(cluster).observed.cliques
    assert (clique.template_replicas, clique.template_keys) == (5, ("team", "tier"))


def test_other_workloads_namespaces_and_clusters_are_left_out(cluster: models.Cluster) -> None:
    store_workload(cluster)
    store_workload(mirror.ensure_cluster("west"))
    elsewhere, other = objects.pod("elsewhere", uid="1"), objects.pod("other", uid="2")
    elsewhere["metadata"]["namespace"] = "elsewhere"
    other["metadata"]["labels"][names.PART_OF] = "other"
    mirror.store(cluster, PODS, [elsewhere, other])
    assert [pod.name for pod in seen(cluster).observed.pods] == ["my-0-c-abcde"]


@pytest.mark.parametrize(
    ("resource", "told", "part"),
    [
        (PODCLIQUESCALINGGROUPS, objects.group(version=9, owner="earlier set"), "groups"),
        (PODCLIQUES, objects.clique(version=9, owner="earlier set"), "cliques"),
        (PODCLIQUES, objects.member(version=9, owner="earlier group"), "cliques"),
        (PODGANGS, objects.gang(version=9, owner="earlier set"), "gangs"),
        (SERVICES, objects.service(version=9, owner="earlier set"), "services"),
        (PODS, objects.pod(version=9, owner="earlier clique"), "pods"),
    ],
)
def test_what_another_incarnation_owns_is_leaving(cluster: models.Cluster, resource: Any, told: Obj, part: str) -> None:
    store_workload(cluster)
    assert [thing for thing in getattr(seen(cluster).observed, part) if thing.leaving] == []
    mirror.store(cluster, resource, [told])
    assert [thing.name for thing in getattr(seen(cluster).observed, part) if thing.leaving] == [
        told["metadata"]["name"]
    ]


def test_what_a_former_set_left_behind_is_leaving_down_to_its_pods(cluster: models.Cluster) -> None:
    store_workload(cluster)
    mirror.store(cluster, PODS, [objects.pod("of-member", uid="2", owner="member", clique="my-0-sg-1-c")])
    mirror.store(cluster, PODCLIQUESETS, [objects.pod_clique_set(version=99, uid="another set")])
    observed = seen(cluster).observed
    everything: list[Any] = [*observed.groups, *observed.cliques, *observed.gangs, *observed.services, *observed.pods]
    assert len(everything) == 7
    assert all(thing.leaving for thing in everything)


def test_pods_whose_clique_is_gone_are_leaving(cluster: models.Cluster) -> None:
    store_workload(cluster)
    mirror.store(cluster, PODCLIQUES, [], gone=[objects.clique(version=50)])
    assert [pod.leaving for pod in seen(cluster).observed.pods] == [True]


@pytest.mark.parametrize("owner", [None, {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r"}])
def test_what_nobody_of_grove_controls_is_a_stranger(cluster: models.Cluster, owner: Obj | None) -> None:
    store_workload(cluster)
    told = objects.pod("handmade", uid="handmade")
    told["metadata"]["ownerReferences"] = [owner | {"controller": True}] if owner else []
    mirror.store(cluster, PODS, [told])
    read = seen(cluster)
    assert [pod.name for pod in read.observed.pods] == ["my-0-c-abcde"]
    assert [name for name, _ in read.strangers] == ["handmade"]
    assert "no object of this workload controls it" in read.strangers[0][1]


def test_what_does_not_say_its_place_is_a_stranger(cluster: models.Cluster) -> None:
    store_workload(cluster)
    told = objects.pod("nowhere", uid="nowhere")
    del told["metadata"]["labels"][names.POD_INDEX]
    told["spec"]["hostname"] = "nowhere"
    mirror.store(cluster, PODS, [told])
    assert [name for name, _ in seen(cluster).strangers] == ["nowhere"]


def test_the_index_of_a_pod_is_read_from_its_hostname_where_it_has_no_label(cluster: models.Cluster) -> None:
    store_workload(cluster)
    told = objects.pod("old", uid="old", index=7)
    del told["metadata"]["labels"][names.POD_INDEX]
    mirror.store(cluster, PODS, [told])
    assert {pod.name: pod.index for pod in seen(cluster).observed.pods} == {"my-0-c-abcde": 0, "old": 7}


def container(*, ready: bool = False, started: bool = False, **states: Any) -> Obj:
    """Return the status of a container."""
    return {"name": "main", "ready": ready, "started": started, "restartCount": 0, **states}


ERROR = {"terminated": {"exitCode": 1, "reason": "Error"}}
SUCCESS = {"terminated": {"exitCode": 0, "reason": "Completed"}}


@pytest.mark.parametrize(
    ("ready", "status", "failing"),
    [
        (False, {}, False),
        (False, {"containerStatuses": [container(state={"waiting": {"reason": "ContainerCreating"}})]}, False),
        (False, {"containerStatuses": [container(state={"running": {}})]}, False),
        (False, {"containerStatuses": [container(started=True, state={"running": {}})]}, True),
        (False, {"containerStatuses": [container(state={"waiting": {}}, lastState=ERROR)]}, True),
        (False, {"containerStatuses": [container(state=ERROR)]}, True),
        (False, {"initContainerStatuses": [container(state={"waiting": {}}, lastState=ERROR)]}, True),
        (False, {"initContainerStatuses": [container(ready=True, state=SUCCESS)]}, False),
        (True, {"containerStatuses": [container(ready=True, started=True, lastState=ERROR)]}, False),
    ],
)
def test_a_pod_fails_once_it_has_started_or_ended_badly_and_is_not_ready(
    cluster: models.Cluster, ready: bool, status: Obj, failing: bool
) -> None:
    store_workload(cluster)
    told = objects.pod(version=9, ready=ready)
    told["status"] |= status
    mirror.store(cluster, PODS, [told])
    (pod,) = seen(cluster).observed.pods
    assert (pod.ready, pod.failing) == (ready, failing)


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
                ]
            },
            "Unschedulable",
            "no room",
        ),
        (
            {
                "containerStatuses": [
                    container(state={"waiting": {"reason": "ErrImagePull", "message": "no such image"}})
                ]
            },
            "ErrImagePull",
            "no such image",
        ),
        ({"reason": "Evicted", "message": "the node was low on memory"}, "Evicted", "the node was low on memory"),
        (
            {"conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "[main]"}]},
            "ContainersNotReady",
            "[main]",
        ),
    ],
)
def test_a_pod_that_is_not_ready_says_why(cluster: models.Cluster, status: Obj, reason: str, message: str) -> None:
    store_workload(cluster)
    told = objects.pod(version=9, ready=False)
    told["status"] |= status
    mirror.store(cluster, PODS, [told])
    assert seen(cluster).observed.pods[0].message == message
    assert models.Pod.objects.get().reason == reason


def test_our_gate_is_told_from_those_of_others(cluster: models.Cluster) -> None:
    store_workload(cluster)
    told = objects.pod(version=9)
    told["spec"]["schedulingGates"] = [{"name": "example.com/held"}]
    mirror.store(cluster, PODS, [told])
    assert not seen(cluster).observed.pods[0].gated
    told["metadata"]["resourceVersion"] = "10"
    told["spec"]["schedulingGates"].append({"name": names.SCHEDULING_GATE})
    mirror.store(cluster, PODS, [told])
    assert seen(cluster).observed.pods[0].gated


def test_a_deleted_workload_leaves_nothing_behind(cluster: models.Cluster) -> None:
    store_workload(cluster)
    for resource, told in (
        (PODS, [objects.pod(version=60)]),
        (PODCLIQUES, [objects.clique(version=61), objects.member(version=61)]),
        (PODCLIQUESCALINGGROUPS, [objects.group(version=62)]),
        (PODGANGS, [objects.gang(version=63)]),
        (SERVICES, [objects.service(version=64)]),
        (PODCLIQUESETS, [objects.pod_clique_set(version=65)]),
    ):
        mirror.store(cluster, resource, [], gone=told)
    assert mirror.fetch_workload(cluster, "web", "my") is None
    assert all(not table.model.objects.exists() for table in mirror.MIRRORED.values())
    mirror.delete_tombstones(before=float("inf"))
    assert all(not table.model.everything.exists() for table in mirror.MIRRORED.values())


@pytest.mark.parametrize("pods", [10, 1000])
def test_reading_and_writing_take_the_same_queries_whatever_the_size(
    cluster: models.Cluster, pods: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    store_workload(cluster)
    told = [objects.pod(f"p-{number}", version=100, uid=f"u-{number}", index=number) for number in range(pods)]
    with django_assert_num_queries(3):  # one statement, and the savepoint around it
        assert mirror.store(cluster, PODS, told) == {"east/web/my"}
    with django_assert_num_queries(4):
        mirror.store(cluster, PODS, told, gone=[objects.pod(version=101)])
    with django_assert_num_queries(6):
        assert len(seen(cluster).observed.pods) == pods
    with django_assert_num_queries(2):
        mirror.replace(cluster, PODS, set(), "200")
    assert seen(cluster).observed.pods == ()


LATE, LATER = "2026-01-02T03:05:00Z", "2026-01-02T03:06:00Z"
KILLED = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
RUNNING = {"running": {"startedAt": LATER}}


def ended(at: str) -> Obj:
    return {"terminated": {**ERROR["terminated"], "finishedAt": at}}


def waiting(reason: str, message: str = "") -> Obj:
    return {"waiting": {"reason": reason, "message": message}}


@pytest.mark.parametrize(
    ("told", "fault", "detail"),
    [
        ({"state": waiting("ContainerCreating")}, "", ""),
        ({"state": waiting("ErrImagePull", "not found"), "image": "a:2"}, "ImagePullBackOff", "a:2"),
        ({"state": waiting("ImagePullBackOff", "Back-off pulling"), "image": "a:2"}, "ImagePullBackOff", "a:2"),
        ({"state": waiting("InvalidImageName"), "image": "A"}, "ImagePullBackOff", "A"),
        (
            {"state": waiting("CreateContainerConfigError", 'configmap "c" not found')},
            "CreateContainerConfigError",
            'configmap "c" not found',
        ),
        ({"state": waiting("CrashLoopBackOff", "back-off 10s"), "lastState": ERROR}, "CrashLoopBackOff", "exit code 1"),
        ({"state": waiting("CrashLoopBackOff", "back-off 10s")}, "CrashLoopBackOff", ""),
        ({"state": waiting("CrashLoopBackOff", "back-off 10s"), "lastState": KILLED}, "OOMKilled", ""),
        ({"state": KILLED}, "OOMKilled", ""),
        ({"state": RUNNING, "lastState": KILLED, "restartCount": 1}, "OOMKilled", ""),
        ({"state": RUNNING, "lastState": ERROR, "restartCount": 1}, "", ""),
        ({"state": RUNNING, "lastState": ended("2026-01-02T03:05:58Z"), "restartCount": 1}, "", ""),
        (
            {"state": RUNNING, "lastState": ended("2026-01-02T03:05:50Z"), "restartCount": 1},
            "CrashLoopBackOff",
            "exit code 1",
        ),
        ({"state": RUNNING, "lastState": ERROR, "restartCount": 2}, "CrashLoopBackOff", "exit code 1"),
        ({"state": RUNNING, "lastState": SUCCESS, "restartCount": 2}, "CrashLoopBackOff", "exit code 0"),
    ],
)
def test_what_a_container_fails_with_is_read_and_stays_the_same_while_it_is_started_again(
    cluster: models.Cluster, told: Obj, fault: str, detail: str
) -> None:
    store_workload(cluster)
    pod = objects.pod(version=9, ready=False)
    pod["status"]["conditions"][0]["lastTransitionTime"] = LATE
    pod["status"]["containerStatuses"] = [container(ready=True, state=RUNNING), container(**told)]
    mirror.store(cluster, PODS, [pod])
    (found,) = seen(cluster).observed.pods
    assert (found.fault, found.fault_detail) == (fault, detail)
    pod["metadata"]["resourceVersion"] = "10"
    pod["status"]["conditions"][0]["status"] = "True"
    mirror.store(cluster, PODS, [pod])
    (found,) = seen(cluster).observed.pods
    assert (found.fault, found.fault_detail) == ("", "")


def test_what_a_container_failed_with_before_it_was_ready_again_is_over(cluster: models.Cluster) -> None:
    store_workload(cluster)
    pod = objects.pod(version=9, ready=False)
    pod["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-02T04:00:00Z"
    pod["status"]["containerStatuses"] = [container(state=RUNNING, lastState=KILLED, restartCount=5)]
    mirror.store(cluster, PODS, [pod])
    (found,) = seen(cluster).observed.pods
    assert (found.fault, found.restarts) == ("", 5)


def test_when_a_pod_got_its_node_and_became_ready_is_read(cluster: models.Cluster) -> None:
    store_workload(cluster)
    pod = objects.pod(version=9)
    pod["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-02T03:04:15Z"},
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:35Z"},
    ]
    mirror.store(cluster, PODS, [pod])
    (found,) = seen(cluster).observed.pods
    assert found.started_at == CREATED + 10.0
    assert found.ready_since == CREATED + 30.0
