"""The two servers for the tests of the definitions: the sandbox, and a real kube-apiserver.

A test that takes `server` runs on each; a test that takes `apiserver` runs only on the real one. Both have the
definitions of `deploy/crds` installed, and every test gets a namespace of its own.
"""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.contract.raw import Raw
from tests.contract.sandbox_process import SandboxProcess
from tests.deploy.sets import Sets
from tests.servers import find_apiserver


@dataclass(frozen=True, slots=True)
class Server:
    """A server with the definitions installed."""

    kubeconfig: Path
    raw: Raw


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The sandbox, started as a user starts it, without samples."""
    with SandboxProcess(tmp_path_factory.mktemp("sandbox")) as process:
        yield Server(process.kubeconfig, Raw(process.kubeconfig))


@pytest.fixture(scope="session")
def apiserver() -> Server:
    """A real kube-apiserver with the definitions installed."""
    running = find_apiserver()
    return Server(running.kubeconfig, Raw(running.kubeconfig))


@pytest.fixture(
    params=["sandbox", pytest.param("apiserver", id="kube-apiserver", marks=pytest.mark.apiserver)],
    scope="session",
)
def server(request: pytest.FixtureRequest) -> Server:
    """Each of the two servers in turn."""
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def sets(server: Server) -> Sets:
    """PodCliqueSets in a namespace that no other test uses."""
    return Sets.in_new_namespace(server.raw, f"deploy-{secrets.token_hex(4)}")
