"""The surroundings of a workload, for a forecast: nodes, what is requested on them, and how its pods have behaved.

`reading` fetches the workload itself. Four queries, whatever the size: nodes; the requests of other workloads' pods,
added up by the database; the workload's own pods; pods that are gone, which stay as tombstones for some minutes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from django.db import connection

from rollouts import models
from rollouts.cluster import Obj
from rollouts.engine.model.observed import TERMINAL_PHASES
from rollouts.engine.rollout.ready_times import compute_interquartile_mean, measure_start
from rollouts.engine.scheduling.constraints import NOT_READY_KEY, Taint
from rollouts.engine.scheduling.resources import (
    MILLI_PER_UNIT,
    PODS,
    ResourceList,
    add_resources,
    compute_requests,
    parse_resource_list,
)
from rollouts.engine.simulation.pod_behaviour import PodRecord
from rollouts.engine.simulation.scheduler import SimulatedNode

# The kubelet's default, for a node that does not say how many pods it accepts.
_DEFAULT_POD_CAPACITY: Final = 110
_NOT_READY: Final = Taint(NOT_READY_KEY, "", "NoSchedule")


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The nodes of a cluster and the pods of one workload."""

    nodes: tuple[SimulatedNode, ...]  # with their free resources, not counting the workload's own pods
    is_complete: bool  # whether all nodes of the cluster were listed, so that a missing one does not exist
    cordoned: int
    not_ready: int
    counts_foreign: bool  # whether pods that are not Grove's are counted on every node
    records: tuple[PodRecord, ...]  # the workload's own pods
    requests: Mapping[str, ResourceList]  # of its pods, by name, also of those whose PodClique is gone
    termination_seconds: float | None  # from a pod's deletion to its end; None: no pod has ended recently
    terminated_pods: int  # the number of pods that this was measured on


def fetch_cluster_snapshot(
    cluster: models.Cluster,
    namespaced_name: tuple[str, str],
    templates: Mapping[str, str],
    grace: Mapping[str, float],
    now: float,
) -> ClusterSnapshot:
    """Return the surroundings of a workload.

    `templates` maps the name of a PodClique to its clique in the template; `grace` maps that clique to the grace period
    of its pods.
    """
    namespace, name = namespaced_name
    requests_by_node = _fetch_foreign_requests(cluster.pk, namespace, name)
    rows = models.Node.objects.filter(cluster=cluster, leaving=False).order_by("name")
    nodes = list(
        rows.values_list("name", "ready", "unschedulable", "labels", "taints", "allocatable", "foreign_requests")
    )
    is_ready = {row[0]: row[1] for row in nodes}
    pods = list(
        models.Pod.objects.filter(cluster=cluster, namespace=namespace, workload=name).values_list(*_POD_COLUMNS)
    )
    allowed = {clique: grace.get(template, _DEFAULT_GRACE_SECONDS) for clique, template in templates.items()}
    termination_seconds = _fetch_termination_seconds(cluster.pk, namespace, name, allowed)
    return ClusterSnapshot(
        nodes=tuple(_parse_node(row, requests_by_node.get(row[0], {})) for row in nodes),
        is_complete=cluster.complete,
        cordoned=sum(row[1] and row[2] for row in nodes),
        not_ready=sum(not row[1] for row in nodes),
        counts_foreign=all(row[6] is not None for row in nodes),
        records=tuple(_parse_pod(row, templates, is_ready, now) for row in pods if row[1] in templates),
        requests={row[0]: row[11] for row in pods if row[11]},
        termination_seconds=compute_interquartile_mean(termination_seconds) if termination_seconds else None,
        terminated_pods=len(termination_seconds),
    )


def store_foreign_requests(cluster: models.Cluster, pods: Iterable[Obj]) -> None:
    """Store on each node what these pods request there; `pods` are all that are not Grove's."""
    taken: dict[str, dict[str, int]] = {}
    for pod in pods:
        spec, status = pod.get("spec") or {}, pod.get("status") or {}
        node = spec.get("nodeName")
        if node and status.get("phase") not in TERMINAL_PHASES:
            taken[node] = add_resources(taken.get(node, {}), compute_requests(spec))
    changed = []
    for node in models.Node.objects.filter(cluster=cluster).only("name", "foreign_requests"):
        requests = dict(sorted(taken.get(node.name, {}).items()))
        if node.foreign_requests != requests:
            node.foreign_requests = requests
            changed.append(node)
    models.Node.objects.bulk_update(changed, ["foreign_requests"], batch_size=_UPDATE_BATCH_SIZE)


def _fetch_foreign_requests(cluster: int, namespace: str, name: str) -> dict[str, dict[str, int]]:
    """Return what the pods of other workloads request, by node."""
    table = connection.ops.quote_name(models.Pod._meta.db_table)  # noqa: SLF001 (public in all but name)
    statement = (
        f"SELECT node, requests, COUNT(*) FROM {table} WHERE cluster_id = %s AND gone_at IS NULL AND node <> '' "  # noqa: S608
        "AND phase NOT IN (%s, %s) AND NOT (namespace = %s AND workload = %s) GROUP BY node, requests"
    )
    taken: dict[str, dict[str, int]] = {}
    with connection.cursor() as cursor:
        cursor.execute(statement, (cluster, *TERMINAL_PHASES, namespace, name))
        for node, text, count in cursor.fetchall():
            requests = orjson.loads(text) or {PODS: MILLI_PER_UNIT}
            taken[node] = add_resources(taken.get(node, {}), {key: count * value for key, value in requests.items()})
    return taken


def _fetch_termination_seconds(cluster: int, namespace: str, name: str, grace: Mapping[str, float]) -> list[float]:
    """Return how long scheduled pods took to end: those of the workload, or else those of the whole cluster.

    A deletionTimestamp is the end of the grace period, cut to a whole second: half a second too early on average.
    """
    rows = models.Pod.everything.filter(cluster_id=cluster, gone_at__isnull=False, gone_by__isnull=False)
    newest = rows.exclude(node="").order_by("-gone_at")
    own: list[float] = []
    others: list[float] = []
    for *whose, clique, gone_by, gone_at in newest.values_list("namespace", "workload", "clique", "gone_by", "gone_at")[
        :_MAX_SAMPLES
    ]:
        is_own = whose == [namespace, name]
        allowed = grace.get(clique, _DEFAULT_GRACE_SECONDS) if is_own else _DEFAULT_GRACE_SECONDS
        seconds = gone_at - gone_by - 0.5 + allowed
        # Otherwise the pod was deleted with another grace period than that of its template, or its end was seen late.
        if -1.0 < seconds <= allowed + _MAX_DELAY_SECONDS:
            (own if is_own else others).append(max(0.0, seconds))
    return own or others


_UPDATE_BATCH_SIZE: Final = 200
_MAX_SAMPLES: Final = 500
_MAX_DELAY_SECONDS: Final = 5.0
_DEFAULT_GRACE_SECONDS: Final = 30.0  # if a template names none
_POD_COLUMNS: Final = (
    *("name", "clique", "template_hash", "images", "node", "ready", "ready_since", "scheduled_at", "created"),
    *("reason", "restarts", "requests", "phase", "leaving"),
)


def _parse_node(row: tuple[Any, ...], taken: ResourceList) -> SimulatedNode:
    name, is_ready, unschedulable, labels, taints, allocatable, foreign = row
    offered = {PODS: _DEFAULT_POD_CAPACITY * MILLI_PER_UNIT, **parse_resource_list(allocatable)}
    used = add_resources(taken, foreign or {})
    entries = [one for one in taints if isinstance(one, dict)] if isinstance(taints, list) else []
    parsed = [Taint(str(one.get("key")), str(one.get("value") or ""), str(one.get("effect"))) for one in entries]
    return SimulatedNode(
        name=name,
        resources={key: amount - used.get(key, 0) for key, amount in offered.items()},
        labels=labels,
        taints=tuple(parsed if is_ready else (*parsed, _NOT_READY)),
        cordoned=unschedulable,
        is_exhaustive=True,
    )


def _parse_pod(
    row: tuple[Any, ...], templates: Mapping[str, str], is_ready: Mapping[str, bool], now: float
) -> PodRecord:
    name, clique, template_hash, images, node, ready, since, scheduled_at, created, reason, restarts, *_ = row
    on_node_since = scheduled_at or created
    return PodRecord(
        name=name,
        clique=templates[clique],
        template_hash=template_hash,
        images=images,
        is_ready=ready,
        ready_seconds=measure_start(on_node_since, since, restarts) if ready else None,
        seconds_on_node=max(0.0, now - on_node_since) if node else None,
        reason=reason,
        restarts=restarts,
        is_node_ready=is_ready.get(node, True),
        seconds_ready=max(0.0, now - since) if ready and since is not None else None,
    )
