"""Connections to Redis and to the clusters, by the settings.

All code that talks to Redis or a cluster gets its client here. Each process builds its clients on first use, so no
client is ever shared across a fork of the worker pool.

A cluster has a name, which is used in keys, rows, pages and logs: "sandbox", "in-cluster", or the context in the
kubeconfig. The invariant: within a process a name always means the same context, even if somebody changes the current
context of the kubeconfig meanwhile.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.conf import settings
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from grove_ui.environment import Environment
from rollouts.cluster import ClusterClient, Misconfigured, RetryPolicy, in_cluster, kubeconfig
from rollouts.cluster.config import ConfigurationLoader, current_context
from rollouts.telemetry import metrics

_REDIS_TIMEOUT_SECONDS = 5


@dataclass(frozen=True, slots=True)
class ClusterEntry:
    """A cluster that the settings configure."""

    name: str
    kind: str  # value of the setting CLUSTER: sandbox, kubeconfig or in-cluster
    origin: str  # where its address and credentials come from, for people
    load: ConfigurationLoader


def redis_client() -> Redis:
    """Return the Redis client of this process."""
    return _redis_client(os.getpid())


def async_redis_client() -> AsyncRedis:
    """Return a new client for the running event loop; the caller closes it and retries by itself."""
    return AsyncRedis.from_url(
        settings.REDIS_URL,
        socket_timeout=_REDIS_TIMEOUT_SECONDS,
        socket_connect_timeout=_REDIS_TIMEOUT_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )


def cluster_names() -> tuple[str, ...]:
    """Return the names of all configured clusters, in the order of the settings."""
    return tuple(entry.name for entry in cluster_entries())


def configured_cluster_names() -> tuple[str, ...]:
    """Return the names of the configured clusters; none while the settings are wrong."""
    try:
        return cluster_names()
    except Misconfigured:
        return ()


def cluster_entries() -> tuple[ClusterEntry, ...]:
    """Return all configured clusters; raises Misconfigured if two of them have the same name."""
    entries = tuple(_entries(settings.ENVIRONMENT))
    names = [entry.name for entry in entries]
    doubled = next((name for name in names if names.count(name) > 1), None)
    if doubled is not None:
        raise Misconfigured(f"Two clusters have the name {doubled!r}. Rename a context, or remove one of them.")
    return entries


def connect_cluster(name: str, patience: RetryPolicy | None = None) -> ClusterClient:
    """Return a client for a configured cluster; raises Misconfigured if none has that name or it cannot be used."""
    entry = next((entry for entry in cluster_entries() if entry.name == name), None)
    if entry is None:
        raise Misconfigured(f"No cluster {name!r} is configured. Configured clusters: {', '.join(cluster_names())}.")
    return ClusterClient(
        entry.load,
        retry_policy=patience or RetryPolicy(read_timeout=settings.CLUSTER_REQUEST_TIMEOUT),
        observer=metrics.call_observer(name),
    )


def shared_cluster(name: str, url: str = "") -> ClusterClient:
    """Return the client of this process for a cluster, with one connection pool for all callers.

    `url` is the address at which the watcher found the cluster. A new `url` makes a new client: if the context changed
    meanwhile, nothing may be written to the former server.
    """
    return _shared_cluster(os.getpid(), name, url)


@cache
def _redis_client(_pid: int) -> Redis:
    return Redis.from_url(
        settings.REDIS_URL, socket_timeout=_REDIS_TIMEOUT_SECONDS, socket_connect_timeout=_REDIS_TIMEOUT_SECONDS
    )


@cache
def _shared_cluster(_pid: int, name: str, _url: str) -> ClusterClient:
    # Used within passes: a read with all its retries ends well before the time limit of the pass.
    seconds = settings.CLUSTER_REQUEST_TIMEOUT
    return connect_cluster(
        name, RetryPolicy(connect_timeout=min(4.0, seconds), read_timeout=seconds, deadline=2 * seconds)
    )


def _entries(environment: Environment) -> Iterator[ClusterEntry]:
    for kind in environment.clusters:
        if kind == "sandbox":
            yield ClusterEntry("sandbox", kind, "the sandbox", kubeconfig(environment.data_dir / "sandbox.kubeconfig"))
        elif kind == "in-cluster":
            yield ClusterEntry("in-cluster", kind, "the cluster we run in", in_cluster())
        else:
            yield from _entries_of_kubeconfig(environment)


def _entries_of_kubeconfig(environment: Environment) -> Iterator[ClusterEntry]:
    path = environment.kubeconfig or Path("~/.kube/config").expanduser()
    for context in environment.kube_contexts or (_current_context(str(path)),):
        # A slash separates the parts of a key.
        name = context.replace("/", "-")
        load = kubeconfig(path, context or None)
        yield ClusterEntry(name or "kubeconfig", "kubeconfig", f"kubeconfig {path}", load)


def _current_context(path: str) -> str:
    """Return the current context at the time of the first call; empty while the file cannot be read."""
    try:
        return _first_current_context(path)
    except Misconfigured:
        return ""


@cache
def _first_current_context(path: str) -> str:
    return current_context(path)
