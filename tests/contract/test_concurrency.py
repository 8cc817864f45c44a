"""Concurrent writers: no write is lost or done twice, and resource versions only grow."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from rollouts.cluster import AlreadyExists, ClusterClient, Conflict, NotFound
from rollouts.cluster.resources import PODCLIQUES, PODS
from tests.builtin_resources import CONFIGMAPS
from tests.contract.manifests import config_map, gated_pod, pod_clique

WRITERS = 6
TURNS = 5


def _increment(cluster: ClusterClient, namespace: str) -> int:
    """Add one to the counter, reading it again after each conflict; return the number of conflicts."""
    conflicts = 0
    while True:
        seen = cluster.get(CONFIGMAPS, "counter", namespace=namespace)
        patch = {
            "metadata": {"resourceVersion": seen["metadata"]["resourceVersion"]},
            "data": {"count": str(int(seen["data"]["count"]) + 1)},
        }
        try:
            cluster.patch_merge(CONFIGMAPS, "counter", patch, namespace=namespace)
        except Conflict:
            conflicts += 1
        else:
            return conflicts


def test_no_update_is_lost_between_writers_that_look_again(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(CONFIGMAPS, config_map(namespace, "counter", data={"count": "0"}))
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda _: _increment(cluster, namespace), range(WRITERS * TURNS)))
    assert cluster.get(CONFIGMAPS, "counter", namespace=namespace)["data"]["count"] == str(WRITERS * TURNS)


def test_writers_of_different_fields_do_not_disturb_each_other(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(CONFIGMAPS, config_map(namespace, "a"))

    def write(number: int) -> None:
        cluster.patch_merge(CONFIGMAPS, "a", {"data": {f"k{number}": "1"}}, namespace=namespace)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, range(WRITERS * TURNS)))
    assert len(cluster.get(CONFIGMAPS, "a", namespace=namespace)["data"]) == WRITERS * TURNS


def test_only_one_of_many_creates_succeeds(cluster: ClusterClient, namespace: str) -> None:
    def create(_: int) -> str | None:
        try:
            uid: str = cluster.create(PODCLIQUES, pod_clique(namespace, "a"))["metadata"]["uid"]
        except AlreadyExists:
            return None
        return uid

    with ThreadPoolExecutor(WRITERS) as pool:
        winners = [uid for uid in pool.map(create, range(WRITERS)) if uid]
    assert winners == [cluster.get(PODCLIQUES, "a", namespace=namespace)["metadata"]["uid"]]


def test_an_object_is_deleted_once_however_many_try(cluster: ClusterClient, namespace: str) -> None:
    uid = cluster.create(PODCLIQUES, pod_clique(namespace, "a"))["metadata"]["uid"]

    def delete(_: int) -> bool:
        try:
            cluster.delete(PODCLIQUES, "a", namespace=namespace, uid=uid)
        except NotFound:
            return False
        return True

    with ThreadPoolExecutor(WRITERS) as pool:
        assert sum(pool.map(delete, range(WRITERS))) == 1


def test_versions_grow_from_write_to_write_over_all_kinds(cluster: ClusterClient, namespace: str) -> None:
    written = [
        cluster.create(CONFIGMAPS, config_map(namespace, "a")),
        cluster.create(PODCLIQUES, pod_clique(namespace, "a")),
        cluster.create(PODS, gated_pod(namespace, "a")),
        cluster.patch_merge(CONFIGMAPS, "a", {"data": {"k": "v"}}, namespace=namespace),
    ]
    versions = [int(obj["metadata"]["resourceVersion"]) for obj in written]
    assert all(earlier < later for earlier, later in pairwise(versions))
    assert int(cluster.list(PODCLIQUES, namespace=namespace).resource_version) >= versions[1]
