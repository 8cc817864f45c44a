"""The deletion of a namespace deletes everything in it."""

import pytest

from rollouts.sandbox.apiserver.errors import ApiError
from tests.sandbox.cluster.cluster import Cluster


def test_deleting_a_namespace_empties_it_and_then_it_is_gone(cluster: Cluster) -> None:
    namespaces, configs = cluster.registry.kind("namespaces"), cluster.registry.kind("configmaps")
    cluster.verbs.create(namespaces, None, {"metadata": {"name": "doomed"}})
    cluster.add_node("n1")
    cluster.add_pod("p", namespace="doomed")
    for number in range(60):
        cluster.verbs.create(configs, "doomed", {"metadata": {"name": f"c{number}"}})
    cluster.verbs.create(configs, "default", {"metadata": {"name": "kept"}})
    cluster.advance(5)
    cluster.verbs.delete(namespaces, None, "doomed")
    cluster.advance(0.5)
    assert cluster.verbs.list(configs, "doomed") == []
    assert cluster.store.get(namespaces, None, "doomed") is not None, "its pod is still winding down"
    assert cluster.verbs.get(namespaces, None, "doomed")["status"]["phase"] == "Terminating"
    with pytest.raises(ApiError):
        cluster.verbs.create(configs, "doomed", {"metadata": {"name": "late"}})
    cluster.advance(5)
    assert cluster.store.get(namespaces, None, "doomed") is None
    assert [entry["metadata"]["name"] for entry in cluster.verbs.list(configs)] == ["kept"]
    assert cluster.verbs.list(cluster.registry.kind("events"), "doomed") == []


def test_a_namespace_half_emptied_is_finished_after_a_restart(cluster: Cluster) -> None:
    namespaces, configs = cluster.registry.kind("namespaces"), cluster.registry.kind("configmaps")
    cluster.verbs.create(namespaces, None, {"metadata": {"name": "doomed"}})
    cluster.verbs.create(configs, "doomed", {"metadata": {"name": "c"}})
    cluster.verbs.delete(namespaces, None, "doomed")
    cluster.restart()
    cluster.advance()
    assert cluster.store.get(namespaces, None, "doomed") is None
