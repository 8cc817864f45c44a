"""A server that misbehaves, and an adapter with little patience pointed at it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rollouts.cluster import Cluster, Patience, kubeconfig
from tests.cluster.faults import FaultServer, running_fault_server, write_kubeconfig

# Short pauses and little patience with silence, but time enough for a loaded machine to get there in the end.
STEADY = Patience(read=0.5, deadline=60.0, first_pause=0.01, longest_pause=0.05, quiet=0.3)
# Gives up soon: for tests in which nothing good is expected to come.
HURRIED = Patience(read=0.2, deadline=0.4, first_pause=0.01, longest_pause=0.05)


@pytest.fixture
def server() -> Iterator[FaultServer]:
    """A server under the test's control."""
    with running_fault_server() as running:
        yield running


@pytest.fixture
def config_file(server: FaultServer, tmp_path: Path) -> Path:
    """A kubeconfig that points at the server, with a token."""
    return write_kubeconfig(tmp_path / "kubeconfig", server.url, {"token": "s3cret-token"})


@pytest.fixture
def cluster(config_file: Path) -> Cluster:
    """The adapter, pointed at the server, ready to go on for a while."""
    return Cluster(kubeconfig(config_file), patience=STEADY)


@pytest.fixture
def hurried(config_file: Path) -> Cluster:
    """The adapter, pointed at the server, soon at its end."""
    return Cluster(kubeconfig(config_file), patience=HURRIED)
