"""Fixtures for tests that run on both clusters: the sandbox, and a real kube-apiserver with its companions.

A suite's conftest imports them and defines its own `cluster`. Each test process has a sandbox of its own; all of
them share the real cluster.
"""

import itertools
import secrets

import pytest

from rollouts.cluster import ClusterClient
from rollouts.cluster.resources import NAMESPACES
from tests.scenarios.running_clusters import TargetCluster
from tests.servers import find_cluster


@pytest.fixture(
    scope="session",
    params=[pytest.param("sandbox"), pytest.param("kube-apiserver", marks=pytest.mark.apiserver)],
)
def target(request: pytest.FixtureRequest) -> TargetCluster:
    """One of the two clusters, with nodes."""
    if request.param == "kube-apiserver":
        return find_cluster()
    sandbox: TargetCluster = request.getfixturevalue("sandbox_with_nodes")
    return sandbox


_numbers = itertools.count(1)


@pytest.fixture
def namespace(cluster: ClusterClient) -> str:
    """A namespace that no other test uses."""
    name = f"try-{next(_numbers)}-{secrets.token_hex(3)}"
    cluster.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name
