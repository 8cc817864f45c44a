"""The two servers of the contract: the sandbox, and a real kube-apiserver.

Every test of this folder runs once on each. Each test has a namespace of its own and touches nothing else, so tests do
not affect each other. Where the two servers differ, the sandbox is wrong.
"""

import contextlib
import itertools
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rollouts.cluster import ClusterClient, RetryPolicy, kubeconfig
from rollouts.cluster.resources import NAMESPACES
from tests.apiserver import HOW_TO_GET_THEM, install_definitions, missing_binaries, running_apiserver
from tests.contract.raw import Raw
from tests.contract.sandbox_process import SandboxProcess
from tests.parts import missing

PATIENCE = RetryPolicy(connect_timeout=30, read_timeout=60, deadline=120, watch_timeout=30)


@dataclass(frozen=True, slots=True)
class Server:
    """A server under contract."""

    name: str
    kubeconfig: Path
    forget: Callable[[], None]  # compacts the server's history: a request that refers to it gets 410


@contextlib.contextmanager
def _sandbox(folder: Path) -> Iterator[Server]:
    with SandboxProcess(folder) as process:
        yield Server("sandbox", process.kubeconfig, process.restart)


@contextlib.contextmanager
def _apiserver(_folder: Path) -> Iterator[Server]:
    lacking = missing_binaries()
    if lacking:
        missing(" and ".join(lacking), HOW_TO_GET_THEM)
    with running_apiserver() as apiserver:
        install_definitions(ClusterClient(kubeconfig(apiserver.kubeconfig)))
        yield Server("kube-apiserver", apiserver.kubeconfig, apiserver.compact)


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(_sandbox, id="sandbox"),
        pytest.param(_apiserver, id="kube-apiserver", marks=pytest.mark.apiserver),
    ],
)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One of the two servers, running."""
    with request.param(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="session")
def cluster(server: Server) -> ClusterClient:
    """The adapter under test, pointed at the server."""
    return ClusterClient(kubeconfig(server.kubeconfig), retry_policy=PATIENCE)


@pytest.fixture(scope="session")
def raw(server: Server) -> Raw:
    """The same server, by plain HTTP."""
    return Raw(server.kubeconfig)


_numbers = itertools.count(1)


@pytest.fixture
def namespace(cluster: ClusterClient) -> str:
    """A namespace that no other test uses."""
    name = f"contract-{next(_numbers)}-{secrets.token_hex(3)}"
    cluster.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name
