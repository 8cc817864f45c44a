"""Nodes that tests create in their clusters."""

import contextlib
from collections.abc import Iterable

from rollouts.cluster import AlreadyExists, ClusterClient
from rollouts.cluster.resources import NODES


def make_nodes(
    cluster: ClusterClient,
    names: Iterable[str],
    labels: dict[str, str] | None = None,
    *,
    pods: int = 110,
    cpus: int = 32,
) -> None:
    """Create nodes that are up and have room for 128 GiB and a number of cpus and pods each."""
    capacity = {"cpu": str(cpus), "memory": "128Gi", "pods": str(pods)}
    for name in names:
        node = {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
            "status": {
                "capacity": capacity,
                "allocatable": capacity,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            },
        }
        with contextlib.suppress(AlreadyExists):
            cluster.create(NODES, node)
