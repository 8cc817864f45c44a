"""The two clusters that passes are tried on: the sandbox, and a real kube-apiserver with nothing behind it."""

import contextlib
import itertools
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollouts.cluster import Cluster, Patience, kubeconfig
from rollouts.cluster.resources import NAMESPACES
from tests.apiserver import HOW_TO_GET_THEM, install_definitions, missing_binaries, running_apiserver
from tests.contract.sandbox_process import SandboxProcess
from tests.parts import missing

PATIENCE = Patience(connect=5, read=30, deadline=60)


@contextlib.contextmanager
def _sandbox(folder: Path) -> Iterator[Cluster]:
    with SandboxProcess(folder) as process:
        yield Cluster(kubeconfig(process.kubeconfig), patience=PATIENCE)


@contextlib.contextmanager
def _apiserver(_folder: Path) -> Iterator[Cluster]:
    lacking = missing_binaries()
    if lacking:
        missing(" and ".join(lacking), HOW_TO_GET_THEM)
    with running_apiserver() as apiserver:
        cluster = Cluster(kubeconfig(apiserver.kubeconfig), patience=PATIENCE)
        install_definitions(cluster)
        yield cluster


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(_sandbox, id="sandbox"),
        pytest.param(_apiserver, id="kube-apiserver", marks=pytest.mark.apiserver),
    ],
)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One of the two clusters."""
    with request.param(tmp_path_factory.mktemp("cluster")) as running:
        yield running


_numbers = itertools.count(1)


@pytest.fixture
def namespace(cluster: Cluster) -> str:
    """A namespace that no other test uses."""
    name = f"control-{next(_numbers)}-{secrets.token_hex(3)}"
    cluster.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name
