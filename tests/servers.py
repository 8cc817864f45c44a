"""The servers that all processes of a test run share (`tests/shared_servers.py`), each a function that runs one.

`find_apiserver` and `find_cluster` are what tests call. Both skip the test where the programs are missing.
"""

import contextlib
from collections.abc import Iterator

from rollouts.cluster import ClusterClient, kubeconfig
from tests.apiserver import HOW_TO_GET_THEM, ApiServer, install_definitions, missing_binaries, running_apiserver
from tests.data_folders import prepared_data_folder
from tests.nodes import make_nodes
from tests.parts import missing
from tests.scenarios.running_clusters import PATIENCE, TargetCluster, running_real_cluster
from tests.shared_servers import find_shared_server

__all__ = ["apiserver", "cluster", "find_apiserver", "find_cluster", "make_roomy_nodes", "prepared_data_folder"]

NODES = 4
# No test removes its pods. All tests together make more than the 110 for which a node has room by default.
PODS_PER_NODE = 10_000


def make_roomy_nodes(cluster: ClusterClient) -> None:
    """Create nodes with room for the pods of all tests."""
    make_nodes(cluster, [f"node-{number}" for number in range(NODES)], pods=PODS_PER_NODE)


def find_apiserver() -> ApiServer:
    """Return the API server that runs alone, with our definitions: no controller changes what a test stores."""
    if lacking := missing_binaries():
        missing(" and ".join(lacking), HOW_TO_GET_THEM)
    found: ApiServer = find_shared_server(apiserver.__name__)
    return found


def find_cluster() -> TargetCluster:
    """Return the API server with nodes, garbage collector, scheduler and kubelets: pods are placed and become Ready."""
    if lacking := missing_binaries("kube-controller-manager"):
        missing(" and ".join(lacking), HOW_TO_GET_THEM)
    server: ApiServer = find_shared_server(cluster.__name__)
    return TargetCluster("real", server.kubeconfig, ClusterClient(kubeconfig(server.kubeconfig), retry_policy=PATIENCE))


# --- What the main process runs ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def apiserver() -> Iterator[ApiServer]:
    """Run an API server alone."""
    with running_apiserver() as server:
        install_definitions(ClusterClient(kubeconfig(server.kubeconfig)))
        yield server.describe()


@contextlib.contextmanager
def cluster() -> Iterator[ApiServer]:
    """Run an API server with nodes, garbage collector, scheduler and kubelets."""
    with running_real_cluster() as target:
        assert target.server is not None
        make_roomy_nodes(target.cluster)
        yield target.server.describe()
