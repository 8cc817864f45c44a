"""What pages and the API read."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from redis import RedisError

from rollouts.cluster import Misconfigured
from rollouts.runtime.connections import cluster_names, redis_client
from rollouts.runtime.readiness import ReadinessCheck, is_ready, readiness_detail
from rollouts.telemetry import heartbeats

# The kinds an operator counts by, in the order of the page.
_COUNTED = {
    "podcliquesets": "Workloads",
    "podcliquescalinggroups": "Scaling groups",
    "podcliques": "Cliques",
    "podgangs": "Gangs",
    "pods": "Pods",
    "nodes": "Nodes",
}


@dataclass(frozen=True, slots=True)
class ClusterCounts:
    """A cluster and how much of everything it holds."""

    name: str
    # Label and number for each kind, empty until the cluster has been listed.
    counts: Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Overview:
    """What the first page shows."""

    clusters: Sequence[ClusterCounts]
    parts: Sequence[ReadinessCheck]
    # Where kubectl finds the sandbox, None without one.
    kubeconfig: Path | None

    @property
    def ready(self) -> bool:
        """Whether work can be done."""
        return is_ready(self.parts)

    @property
    def is_healthy(self) -> bool:
        """Whether every part can do its work."""
        return all(part.ok for part in self.parts)


def overview_detail() -> Overview:
    """Read the state of the installation and of its clusters."""
    return Overview(
        clusters=[ClusterCounts(name, _counts(name)) for name in _cluster_names()],
        parts=readiness_detail(),
        kubeconfig=kubeconfig_path(),
    )


def kubeconfig_path() -> Path | None:
    """Return where kubectl finds the sandbox; None without one."""
    environment = settings.ENVIRONMENT
    return environment.data_dir / "sandbox.kubeconfig" if "sandbox" in environment.clusters else None


def _cluster_names() -> Sequence[str]:
    try:
        return cluster_names()
    except Misconfigured:
        return ()


def _counts(cluster: str) -> list[tuple[str, int]]:
    try:
        counts = heartbeats.fetch_cluster_heartbeat(redis_client(), cluster).counts
    except RedisError:
        return []
    return [(label, counts[plural]) for plural, label in _COUNTED.items() if plural in counts]
