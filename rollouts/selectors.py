"""What pages and the API read."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from redis import RedisError

from rollouts import heartbeats
from rollouts.connections import redis_client
from rollouts.readiness import Part, readiness_detail

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
class Overview:
    """What the first page shows."""

    cluster: str
    parts: Sequence[Part]
    # Label and number for each kind, empty until the cluster has been listed.
    counts: Sequence[tuple[str, int]]
    # Where kubectl finds the sandbox, None for a real cluster.
    kubeconfig: Path | None

    @property
    def ready(self) -> bool:
        """Whether every part can do its work."""
        return all(part.ok for part in self.parts)


def overview_detail() -> Overview:
    """Read the state of the installation and of its cluster."""
    environment = settings.ENVIRONMENT
    sandbox = environment.cluster == "sandbox"
    return Overview(
        cluster=environment.cluster,
        parts=readiness_detail(),
        counts=_counts(environment.cluster),
        kubeconfig=environment.data_dir / "sandbox.kubeconfig" if sandbox else None,
    )


def _counts(cluster: str) -> list[tuple[str, int]]:
    try:
        counts = heartbeats.cluster_word(redis_client(), cluster).counts
    except RedisError:
        return []
    return [(label, counts[plural]) for plural, label in _COUNTED.items() if plural in counts]
