"""Connections as the settings say: to Redis and to the cluster.

Everything that talks to either asks here. Clients are built on first use in each process, so none of them is ever
carried across a fork of the worker pool.
"""

import os
from functools import cache
from pathlib import Path

from django.conf import settings
from redis import Redis

from rollouts.cluster import Cluster, Patience, in_cluster, kubeconfig
from rollouts.cluster.config import Source

_SECONDS_TO_ANSWER = 5


def redis_client() -> Redis:
    """This process's Redis client."""
    return _redis_client(os.getpid())


def connect_cluster(patience: Patience | None = None) -> Cluster:
    """Open the configured cluster; raises Misconfigured when its configuration cannot be used."""
    return Cluster(_cluster_source(), patience=patience or Patience(read=settings.CLUSTER_REQUEST_TIMEOUT))


@cache
def _redis_client(_pid: int) -> Redis:
    return Redis.from_url(
        settings.REDIS_URL, socket_timeout=_SECONDS_TO_ANSWER, socket_connect_timeout=_SECONDS_TO_ANSWER
    )


def _cluster_source() -> Source:
    environment = settings.ENVIRONMENT
    if environment.cluster == "in-cluster":
        return in_cluster()
    if environment.cluster == "kubeconfig":
        return kubeconfig(environment.kubeconfig or Path("~/.kube/config").expanduser(), environment.kube_context)
    return kubeconfig(environment.data_dir / "sandbox.kubeconfig")
