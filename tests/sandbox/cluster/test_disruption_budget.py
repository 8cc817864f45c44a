"""Disruption budgets: the numbers in their status, and that evictions respect them."""

from typing import Any

import pytest

from rollouts.sandbox.apiserver.errors import ApiError
from rollouts.sandbox.cluster.disruption_budget import compute_desired_healthy
from tests.sandbox.cluster.cluster import Cluster

Obj = dict[str, Any]


@pytest.mark.parametrize(
    ("spec", "expected", "desired"),
    [
        ({"minAvailable": 2}, 3, 2),
        ({"minAvailable": "50%"}, 7, 4),
        ({"minAvailable": "100%"}, 3, 3),
        ({"maxUnavailable": 1}, 3, 2),
        ({"maxUnavailable": "30%"}, 7, 4),
        ({"maxUnavailable": 5}, 3, 0),
        ({}, 3, 1),
    ],
)
def test_the_pods_that_must_stay_follow_from_the_budget(spec: Obj, expected: int, desired: int) -> None:
    assert compute_desired_healthy(spec, expected) == desired


def add_budget(cluster: Cluster, **spec: Any) -> None:
    kind = cluster.registry.kind("poddisruptionbudgets", "policy")
    body = {"metadata": {"name": "budget"}, "spec": {"selector": {"matchLabels": {"app": "x"}}, **spec}}
    cluster.verbs.create(kind, "default", body)


def status(cluster: Cluster) -> Obj:
    kind = cluster.registry.kind("poddisruptionbudgets", "policy")
    found: Obj = cluster.verbs.get(kind, "default", "budget")["status"]
    return found


def test_the_budget_follows_its_pods(cluster: Cluster) -> None:
    cluster.add_node("n1")
    add_budget(cluster, minAvailable=2)
    for number in range(3):
        cluster.add_pod(f"p{number}", labels={"app": "x"})
    cluster.advance(0.1)
    assert (status(cluster)["disruptionsAllowed"], status(cluster)["currentHealthy"]) == (0, 0)
    cluster.advance(5)
    assert (status(cluster)["disruptionsAllowed"], status(cluster)["currentHealthy"]) == (1, 3)
    cluster.verbs.delete(cluster.pods, "default", "p0")
    cluster.advance(0.1)
    assert status(cluster)["disruptionsAllowed"] == 0


def test_evictions_are_refused_when_the_budget_is_spent(cluster: Cluster) -> None:
    cluster.add_node("n1")
    add_budget(cluster, minAvailable=2)
    for number in range(3):
        cluster.add_pod(f"p{number}", labels={"app": "x"})
    cluster.advance(5)
    cluster.verbs.evict("default", "p0")
    with pytest.raises(ApiError) as refused:
        cluster.verbs.evict("default", "p1")
    assert refused.value.code == 429
    cluster.advance(5)
    with pytest.raises(ApiError):
        cluster.verbs.evict("default", "p1")
    cluster.add_pod("p3", labels={"app": "x"})
    cluster.advance(5)
    cluster.verbs.evict("default", "p1")


def test_percentages_are_of_what_the_controllers_ask_for(cluster: Cluster) -> None:
    cluster.add_node("n1")
    cliques = cluster.registry.kind("podcliques", "grove.io")
    spec = {"roleName": "r", "replicas": 4, "podSpec": {"containers": [{"name": "main", "image": "app:v1"}]}}
    clique = cluster.verbs.create(cliques, "default", {"metadata": {"name": "my-0-a"}, "spec": spec})
    owner = {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodClique",
        "name": "my-0-a",
        "uid": clique["metadata"]["uid"],
        "controller": True,
    }
    add_budget(cluster, maxUnavailable="25%")
    for number in range(2):
        cluster.add_pod(f"p{number}", labels={"app": "x"}, owner=owner)
    cluster.advance(5)
    assert (status(cluster)["expectedPods"], status(cluster)["desiredHealthy"]) == (4, 3)
    assert status(cluster)["disruptionsAllowed"] == 0


def test_a_settled_budget_is_written_no_more(cluster: Cluster) -> None:
    cluster.add_node("n1")
    add_budget(cluster, minAvailable=1)
    cluster.add_pod("p", labels={"app": "x"})
    cluster.advance(10)
    before = cluster.store.revision
    cluster.restart()
    cluster.advance(600)
    assert cluster.store.revision == before
