"""Connections as the settings say: to Redis and to the clusters.

Everything that talks to either asks here. Clients are built on first use in each process, so none of them is ever
carried across a fork of the worker pool.

A cluster has a name, by which keys, rows, pages and logs call it: "sandbox", "in-cluster", or the context of the
kubeconfig that leads to it. The invariant: a name never leads to another cluster than the one it was given for, not
even when somebody changes the current context meanwhile.
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
    """A cluster that the settings name."""

    name: str
    kind: str  # of the setting CLUSTER: sandbox, kubeconfig or in-cluster
    origin: str  # where its address and credentials come from, in words
    load: ConfigurationLoader


def redis_client() -> Redis:
    """This process's Redis client."""
    return _redis_client(os.getpid())


def async_redis_client() -> AsyncRedis:
    """Return a new client for the event loop that asks; whoever has it closes it, and tries again where that helps."""
    return AsyncRedis.from_url(
        settings.REDIS_URL,
        socket_timeout=_REDIS_TIMEOUT_SECONDS,
        socket_connect_timeout=_REDIS_TIMEOUT_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )


def cluster_names() -> tuple[str, ...]:
    """The names of all configured clusters, in the order in which the settings name them."""
    return tuple(entry.name for entry in cluster_entries())


def configured_cluster_names() -> tuple[str, ...]:
    """Return the names of the configured clusters; none while the settings are wrong."""
    try:
        return cluster_names()
    except Misconfigured:
        return ()


def cluster_entries() -> tuple[ClusterEntry, ...]:
    """All configured clusters; a name that two of them would have is a mistake in the settings."""
    entries = tuple(_entries(settings.ENVIRONMENT))
    names = [entry.name for entry in entries]
    doubled = next((name for name in names if names.count(name) > 1), None)
    if doubled is not None:
        raise Misconfigured(f"Two clusters would be called {doubled!r}; rename a context, or leave one of them out.")
    return entries


def connect_cluster(name: str, patience: RetryPolicy | None = None) -> ClusterClient:
    """Open a configured cluster; raises Misconfigured when there is none of that name or it cannot be used."""
    entry = next((entry for entry in cluster_entries() if entry.name == name), None)
    if entry is None:
        raise Misconfigured(f"No cluster {name!r} is configured; there are: {', '.join(cluster_names())}.")
    return ClusterClient(
        entry.load,
        retry_policy=patience or RetryPolicy(read_timeout=settings.CLUSTER_REQUEST_TIMEOUT),
        observer=metrics.call_observer(name),
    )


def shared_cluster(name: str, url: str = "") -> ClusterClient:
    """This process's client of a cluster, with one pool of connections for all who call it.

    With another `url`, where the watcher has found the cluster, it is opened anew: by a context that was changed
    meanwhile, nobody may go on writing to the server that it led to before.
    """
    return _shared_cluster(os.getpid(), name, url)


@cache
def _redis_client(_pid: int) -> Redis:
    return Redis.from_url(
        settings.REDIS_URL, socket_timeout=_REDIS_TIMEOUT_SECONDS, socket_connect_timeout=_REDIS_TIMEOUT_SECONDS
    )


@cache
def _shared_cluster(_pid: int, name: str, _url: str) -> ClusterClient:
    # Used within passes: a read ends with all its repetitions well before the time limit of the pass.
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
    """Return the current context as it was when this process first looked; nothing while the file cannot be read."""
    try:
        return _first_current_context(path)
    except Misconfigured:
        return ""


@cache
def _first_current_context(path: str) -> str:
    return current_context(path)
