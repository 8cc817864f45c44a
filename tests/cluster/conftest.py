"""A server that misbehaves, and adapters with more or less patience pointed at it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rollouts.cluster import Cluster, Patience, kubeconfig
from tests.cluster.faults import FaultServer, running_fault_server, write_kubeconfig

# Short pauses, and all the time that a loaded machine may need for an answer: no answer is taken for silence.
STEADY = Patience(connect=30.0, read=60.0, deadline=120.0, first_pause=0.01, longest_pause=0.05, quiet=60.0)
# Soon tired of silence, though not of trying: where silence is what is tried, and an answer comes in the end. It may
# come too late for one try or the other, so that nobody can tell how many there are.
IMPATIENT = replace(STEADY, read=0.3, quiet=0.3)
# Gives up soon: for tests in which nothing good is expected to come.
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
def cluster(config_file: Path) -> Cluster:
    """The adapter, pointed at the server, ready to go on for a while."""
    return Cluster(kubeconfig(config_file), patience=STEADY)


@pytest.fixture
def impatient(config_file: Path) -> Cluster:
    """The adapter, pointed at the server, ready to go on for a while but not to wait."""
    return Cluster(kubeconfig(config_file), patience=IMPATIENT)


@pytest.fixture
def hurried(config_file: Path) -> Cluster:
    """The adapter, pointed at the server, soon at its end."""
    return Cluster(kubeconfig(config_file), patience=HURRIED)
