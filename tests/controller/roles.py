"""Roles for the user of a real cluster whom none allows anything, taken notice of before a test goes on.

An API server learns of roles and bindings by watching them, each by itself and a moment after they are stored. So a
role has a name that no other had, and a test goes on only once the server acts by it: both when it is bound and when
it is taken away, or the next test would begin with what this one was allowed.
"""

import contextlib
from collections.abc import Iterator
from secrets import token_hex
from typing import Final

from rollouts.cluster import ClusterClient, Forbidden, Obj, Resource, kubeconfig
from rollouts.cluster.resources import NODES
from tests.project.running import wait_until
from tests.scenarios.running_clusters import TargetCluster

SECONDS: Final = 60.0  # generous: only reached when something is broken
CLUSTERROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
BINDINGS: Final = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)


def restricted_user(target: TargetCluster) -> ClusterClient:
    """Return a client of the cluster for a user without permissions of its own."""
    return ClusterClient(kubeconfig(target.kubeconfig, "restricted"))


@contextlib.contextmanager
def bound(cluster: ClusterClient, role: Obj) -> Iterator[None]:
    """Bind the user `restricted` to a role; the server may act on it a moment later."""
    name = f"{role['metadata']['name']}-{token_hex(4)}"
    cluster.create(CLUSTERROLES, {**role, "metadata": {"name": name}})
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "restricted"}
    reference = {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": name}
    binding = {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference}
    cluster.create(BINDINGS, {"apiVersion": role["apiVersion"], "kind": "ClusterRoleBinding", **binding})
    try:
        yield
    finally:
        cluster.delete(BINDINGS, name)
        cluster.delete(CLUSTERROLES, name)


@contextlib.contextmanager
def allowed(cluster: ClusterClient, restricted: ClusterClient, role: Obj) -> Iterator[None]:
    """Bind the user to a role that includes listing nodes for the block, and wait until the server acts on it."""
    try:
        with bound(cluster, role):
            wait_until(lambda: may_list_nodes(restricted), SECONDS)
            yield
    finally:
        wait_until(lambda: not may_list_nodes(restricted), SECONDS)


def may_list_nodes(restricted: ClusterClient) -> bool:
    """Return whether the server lets the user do what nobody may without a role."""
    try:
        restricted.list(NODES)
    except Forbidden:
        return False
    return True
