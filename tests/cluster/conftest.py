"""A server that misbehaves, and clients with longer or shorter timeouts that are pointed at it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rollouts.cluster import ClusterClient, RetryPolicy, kubeconfig
from tests.cluster.faults import FaultServer, running_fault_server, write_kubeconfig

# Short pauses, and all the time that a loaded machine may need for an answer: no answer is taken for silence.
STEADY = RetryPolicy(
    connect_timeout=30.0,
    read_timeout=60.0,
    deadline=120.0,
    initial_backoff=0.01,
    max_backoff=0.05,
    watch_idle_timeout=60.0,
)
# Short timeouts, but many attempts: for tests in which the server is silent and answers in the end. An answer may come
# too late for some of the attempts, so their number is not known.
IMPATIENT = replace(STEADY, read_timeout=0.3, watch_idle_timeout=0.3)
# Gives up soon: for tests in which no good answer comes.
HURRIED = replace(IMPATIENT, deadline=0.4)


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
def cluster(config_file: Path) -> ClusterClient:
    """A client with long timeouts that repeats reads for a while."""
    return ClusterClient(kubeconfig(config_file), retry_policy=STEADY)


@pytest.fixture
def impatient(config_file: Path) -> ClusterClient:
    """A client with short timeouts that repeats reads for a while."""
    return ClusterClient(kubeconfig(config_file), retry_policy=IMPATIENT)


@pytest.fixture
def hurried(config_file: Path) -> ClusterClient:
    """A client that soon gives up."""
    return ClusterClient(kubeconfig(config_file), retry_policy=HURRIED)
