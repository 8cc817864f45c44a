"""Gauges, which are read when `/metrics` is requested: the queue, the clusters, the rollouts.

`/metrics` shows them beside the counters of `rollouts.telemetry.metrics`. Nothing is stored here: each gauge is read
from Redis or the database with a constant number of queries. If a source is down, its gauges are missing, and
`grove_ui_part_up` shows which source it is.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from django.db import Error as DatabaseError
from django.db.models import Count, Exists, F, OuterRef, Q
from redis import RedisError

from rollouts.models import Clique, Cluster, Rollout, Workload
from rollouts.queue.dispatch import open_queue
from rollouts.runtime.connections import redis_client
from rollouts.runtime.readiness import readiness_detail
from rollouts.telemetry import heartbeats

UNDER_WAY = "Progressing"
# Reasons of the condition UpdateStuck about surge.
_SURGE = "Surge"


Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gauge:
    """A gauge with its value for each combination of labels."""

    name: str
    help: str
    labels: Labels
    values: dict[Labels, float]


def read_gauges() -> Iterator[Gauge]:
    """Return every gauge whose source answers."""
    for source in (_parts, _queue, _clusters, _workloads, _rollouts, _stuck_surges, _outdated_pods):
        yield from _read_source(source)


def _read_source(source: Callable[[], Iterator[Gauge]]) -> list[Gauge]:
    try:
        return list(source())
    except (RedisError, DatabaseError):
        return []


def _parts() -> Iterator[Gauge]:
    up: dict[Labels, float] = {(part.name,): float(part.ok) for part in readiness_detail()}
    yield Gauge("grove_ui_part_up", "Whether a part of the installation works, as in /readyz.", ("part",), up)


def _queue() -> Iterator[Gauge]:
    depth = open_queue().depth()
    states = {"ready": depth.ready, "flying": depth.processing, "dirty": depth.dirty, "delayed": depth.delayed}
    yield Gauge(
        "grove_ui_queue_keys",
        "Workloads in the queue: ready for a worker, processing, due again after that (dirty), due later.",
        ("state",),
        {(state,): number for state, number in states.items()},
    )
    yield Gauge(
        "grove_ui_queue_oldest_seconds",
        "How long the first workload in the queue has been due.",
        (),
        {(): depth.oldest_ms / 1000},
    )


def _clusters() -> Iterator[Gauge]:
    ages = {name: heartbeats.fetch_cluster_heartbeat(redis_client(), name).age for name in _cluster_names()}
    yield Gauge(
        "grove_ui_cluster_silence_seconds",
        "How long ago a cluster last sent anything, bookmarks included.",
        ("cluster",),
        {(name,): age for name, age in ages.items() if age is not None},
    )


def _workloads() -> Iterator[Gauge]:
    rows = Workload.objects.values_list("cluster__name").annotate(number=Count("id"))
    found: Counter[Labels] = Counter({(cluster,): number for cluster, number in rows})
    yield Gauge("grove_ui_workloads", "Workloads in a cluster.", ("cluster",), _with_zeros(found))


def _rollouts() -> Iterator[Gauge]:
    rows = Rollout.objects.order_by().values_list("cluster", "outcome").annotate(number=Count("id"))
    found: Counter[Labels] = Counter({(cluster, outcome or UNDER_WAY): number for cluster, outcome, number in rows})
    states = (UNDER_WAY, *Rollout.Outcome.values)
    yield Gauge(
        "grove_ui_rollouts",
        "Stored rollouts by state: in progress, stuck, or how they ended.",
        ("cluster", "state"),
        _with_zeros(found, *((state,) for state in states)),
    )


def _stuck_surges() -> Iterator[Gauge]:
    stuck = Workload.objects.filter(stuck_reason__startswith=_SURGE)
    rows = stuck.values_list("cluster__name", "stuck_reason").annotate(number=Count("id"))
    yield Gauge(
        "grove_ui_stuck_surges",
        "Workloads whose update waits for surge that does not become available, by reason.",
        ("cluster", "reason"),
        {(cluster, reason): float(number) for cluster, reason, number in rows},
    )


def _outdated_pods() -> Iterator[Gauge]:
    """Count outdated pods from the status of PodCliques, for workloads that are not completely updated.

    Such a workload has an update in progress, or fewer updated replicas than replicas: under OnDelete an update ends at
    once.
    """
    behind = Workload.objects.filter(
        Q(update_ended_at=None) | Q(updated_replicas__lt=F("replicas")),
        cluster=OuterRef("cluster"),
        namespace=OuterRef("namespace"),
        name=OuterRef("workload"),
    )
    found: Counter[Labels] = Counter()
    for cluster, status in Clique.objects.filter(Exists(behind)).values_list("cluster__name", "status").iterator():
        found[(cluster,)] += max(0, status.get("replicas", 0) - status.get("updatedReplicas", 0))
    yield Gauge(
        "grove_ui_outdated_pods",
        "Pods that run another template than the current one.",
        ("cluster",),
        _with_zeros(found),
    )


def _with_zeros(found: Counter[Labels], *rest: Labels) -> dict[Labels, float]:
    """Add every known cluster, so that an empty one has the value 0 and not a gap."""
    zeros = {(name, *labels): 0.0 for name in _cluster_names() for labels in (rest or ((),))}
    return zeros | {labels: float(number) for labels, number in found.items()}


def _cluster_names() -> list[str]:
    return list(Cluster.objects.order_by("name").values_list("name", flat=True))
