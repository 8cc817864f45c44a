"""Clusters for the controller: a real API server with scheduler, kubelets and garbage collector, and the sandbox.

Neither has a controller for PodCliqueSets. Scheduler and kubelets are fast in both: the tests check the order of
events, which must not depend on their speed.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rollouts.cluster import ClusterClient, RetryPolicy, kubeconfig
from tests.apiserver import (
    HOW_TO_GET_THEM,
    OwnApiServer,
    install_definitions,
    missing_binaries,
    running_apiserver,
    running_controller_manager,
)
from tests.contract.sandbox_process import SandboxProcess
from tests.parts import missing
from tests.standin.process import running_standin

# A write is sent once: on a busy machine it is better to wait than to fail.
PATIENCE = RetryPolicy(connect_timeout=30.0, read_timeout=60.0, deadline=120.0)
READY_SECONDS = 0.1
TERMINATION_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class TargetCluster:
    """A cluster without a controller."""

    name: str
    kubeconfig: Path
    cluster: ClusterClient
    server: OwnApiServer | None = None  # set where this process has started a real API server


@contextlib.contextmanager
def running_real_cluster(
    *flags: str, ready: float = READY_SECONDS, termination: float = TERMINATION_SECONDS
) -> Iterator[TargetCluster]:
    """Run a real API server with the garbage collector and the stand-in for scheduler and kubelets."""
    if lacking := missing_binaries("kube-controller-manager"):
        missing(" and ".join(lacking), HOW_TO_GET_THEM)
    with running_apiserver(*flags) as server:
        cluster = ClusterClient(kubeconfig(server.kubeconfig), retry_policy=PATIENCE)
        install_definitions(cluster)
        # After the definitions: the garbage collector looks for new kinds only now and then.
        with (
            running_controller_manager(server),
            running_standin(server.kubeconfig, ready=ready, termination=termination),
        ):
            yield TargetCluster("real", server.kubeconfig, cluster, server)


@contextlib.contextmanager
def running_sandbox_cluster(folder: Path) -> Iterator[TargetCluster]:
    """Run the sandbox without nodes and samples."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    pace = {"SANDBOX_READY_SECONDS": str(READY_SECONDS), "SANDBOX_TERMINATION_SECONDS": str(TERMINATION_SECONDS)}
    with SandboxProcess(folder, SANDBOX_NODES="cpu=0,gpu=0", **pace) as sandbox:
        yield TargetCluster(
            "sandbox", sandbox.kubeconfig, ClusterClient(kubeconfig(sandbox.kubeconfig), retry_policy=PATIENCE)
        )
