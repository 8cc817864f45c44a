"""The stand-in for scheduler and kubelets, without any controller: pods are placed, become Ready, and are removed."""

from collections.abc import Callable, Iterator

import pytest

from rollouts.cluster import ClusterClient, Obj, kubeconfig
from rollouts.cluster.resources import NAMESPACES, NODES, PODGANGS, PODS
from rollouts.engine.model import names
from tests.apiserver import HOW_TO_GET_THEM, install_definitions, missing_binaries, running_apiserver
from tests.nodes import make_nodes
from tests.parts import missing
from tests.project.running import wait_until
from tests.scenarios.running_clusters import PATIENCE
from tests.scenarios.scene import is_placed, is_ready
from tests.standin.process import running_standin

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

SECONDS = 90.0
MORE_THAN_HALF_A_NODE = {"requests": {"cpu": "20"}}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterClient]:
    """A real API server with two nodes and the stand-in."""
    if lacking := missing_binaries():
        missing(" and ".join(lacking), HOW_TO_GET_THEM)
    with running_apiserver() as server:
        cluster = ClusterClient(kubeconfig(server.kubeconfig), retry_policy=PATIENCE)
        install_definitions(cluster)
        make_nodes(cluster, ["node-0", "node-1", "node-2"])
        cluster.patch_merge(NODES, "node-2", {"spec": {"unschedulable": True}})
        with running_standin(server.kubeconfig, ready=0.05, termination=0.05):
            yield cluster


@pytest.fixture
def namespace(cluster: ClusterClient, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace; its pods are removed afterwards, so that the next test has the nodes for itself."""
    name = request.node.name.replace("_", "-")[:60].strip("-")
    cluster.create(NAMESPACES, {"metadata": {"name": name}})
    yield name
    for pod in pods(cluster, name):
        cluster.delete(PODS, pod["metadata"]["name"], namespace=name)
    wait_until(lambda: not pods(cluster, name), SECONDS)


def pods(cluster: ClusterClient, namespace: str) -> list[Obj]:
    return list(cluster.list(PODS, namespace=namespace).items)


def count(cluster: ClusterClient, namespace: str, true: Callable[[Obj], bool]) -> int:
    return sum(map(true, pods(cluster, namespace)))


def create_pod(cluster: ClusterClient, namespace: str, name: str, *, image: str = "app:v1", gang: str = "") -> None:
    labels = {names.GANG: gang} if gang else {}
    container = {"name": "main", "image": image, "resources": MORE_THAN_HALF_A_NODE}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    cluster.create(PODS, {"metadata": metadata, "spec": {"containers": [container]}})


def create_gang(cluster: ClusterClient, namespace: str, name: str, least: int, members: list[str]) -> None:
    group = {
        "name": "group",
        "minReplicas": least,
        "podReferences": [{"namespace": namespace, "name": member} for member in members],
    }
    head = {"apiVersion": PODGANGS.api_version, "kind": PODGANGS.kind}
    cluster.create(
        PODGANGS, {**head, "metadata": {"name": name, "namespace": namespace}, "spec": {"podgroups": [group]}}
    )


def test_a_pod_becomes_ready_and_goes_when_it_is_deleted(cluster: ClusterClient, namespace: str) -> None:
    create_pod(cluster, namespace, "one")
    wait_until(lambda: count(cluster, namespace, is_ready) == 1, SECONDS)
    status = pods(cluster, namespace)[0]["status"]
    assert status["phase"] == "Running"
    assert status["containerStatuses"][0]["ready"]
    cluster.delete(PODS, "one", namespace=namespace)
    wait_until(lambda: not pods(cluster, namespace), SECONDS)


def test_a_broken_image_runs_and_is_never_ready(cluster: ClusterClient, namespace: str) -> None:
    create_pod(cluster, namespace, "one", image="app:broken")
    wait_until(lambda: count(cluster, namespace, lambda pod: pod["status"]["phase"] == "Running") == 1, SECONDS)
    create_pod(cluster, namespace, "two")
    wait_until(lambda: count(cluster, namespace, is_ready) == 1, SECONDS)
    assert not is_ready(cluster.get(PODS, "one", namespace=namespace))


def test_a_gang_is_placed_whole_or_not_at_all(cluster: ClusterClient, namespace: str) -> None:
    members = ["a", "b", "c"]
    for member in members:
        create_pod(cluster, namespace, member, gang="gang")
    create_gang(cluster, namespace, "gang", 3, members)
    wait_until(lambda: count(cluster, namespace, _is_told_why) == 3, SECONDS)
    assert count(cluster, namespace, is_placed) == 0
    cluster.patch_merge(NODES, "node-2", {"spec": {"unschedulable": None}})
    wait_until(lambda: count(cluster, namespace, is_ready) == 3, SECONDS)
    cluster.patch_merge(NODES, "node-2", {"spec": {"unschedulable": True}})


def test_a_pod_waits_for_a_gang_that_lists_it(cluster: ClusterClient, namespace: str) -> None:
    create_pod(cluster, namespace, "a", gang="gang")
    wait_until(lambda: count(cluster, namespace, _is_told_why) == 1, SECONDS)
    assert count(cluster, namespace, is_placed) == 0
    create_gang(cluster, namespace, "gang", 1, ["a"])
    wait_until(lambda: count(cluster, namespace, is_ready) == 1, SECONDS)


def test_room_that_is_taken_is_given_when_its_pod_has_gone(cluster: ClusterClient, namespace: str) -> None:
    for name in ("a", "b"):
        create_pod(cluster, namespace, name)
    wait_until(lambda: count(cluster, namespace, is_ready) == 2, SECONDS)
    create_pod(cluster, namespace, "c")
    wait_until(lambda: count(cluster, namespace, _is_told_why) == 1, SECONDS)
    cluster.delete(PODS, "a", namespace=namespace)
    wait_until(
        lambda: {pod["metadata"]["name"] for pod in pods(cluster, namespace) if is_ready(pod)} == {"b", "c"}, SECONDS
    )


def _is_told_why(pod: Obj) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(one["type"] == "PodScheduled" and one["status"] == "False" and one.get("message") for one in conditions)
