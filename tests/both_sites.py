"""Fixtures for what is tried on both clusters: the sandbox, and a real kube-apiserver with its companions.

A suite's conftest imports them and says what `cluster` is there.
"""

import itertools
import secrets
from collections.abc import Iterator

import pytest

from rollouts.cluster import Cluster
from rollouts.cluster.resources import NAMESPACES
from tests.scenarios.sites import Site, real_site, sandbox_site
from tests.standin import make_nodes


@pytest.fixture(
    scope="session",
    params=[pytest.param("sandbox"), pytest.param("kube-apiserver", marks=pytest.mark.apiserver)],
)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One of the two clusters, with nodes."""
    running = real_site() if request.param == "kube-apiserver" else sandbox_site(tmp_path_factory.mktemp("sandbox"))
    with running as opened:
        make_nodes(opened.cluster, [f"node-{number}" for number in range(4)])
        yield opened


_numbers = itertools.count(1)


@pytest.fixture
def namespace(cluster: Cluster) -> str:
    """A namespace that no other test uses."""
    name = f"try-{next(_numbers)}-{secrets.token_hex(3)}"
    cluster.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name
