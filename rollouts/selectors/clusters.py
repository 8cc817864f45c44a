"""Clusters and their nodes: the connection to each cluster, its workloads by state, and the pods on each node."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any, Final

from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from rollouts import models
from rollouts.accounts.errors import make_cluster_not_found
from rollouts.cluster import Misconfigured
from rollouts.runtime.connections import ClusterEntry, cluster_entries
from rollouts.selectors.paging import Page, Window, read_page
from rollouts.selectors.timestamps import to_datetime
from rollouts.selectors.workload_snapshot import find_cluster
from rollouts.selectors.workload_state import STATE_INDEX, STATES, State


@dataclass(frozen=True, slots=True)
class ClusterDetail:
    """A cluster that is configured."""

    name: str
    kind: str  # sandbox, kubeconfig or in-cluster
    origin: str  # the source of its URL and credentials, in words
    version: str  # of its API server; empty: unknown
    complete: bool  # whether every kind has been listed
    heard_at: datetime | None
    trouble_code: str  # empty: no problem
    trouble: str
    trouble_since: datetime | None
    other_operator_code: str  # OtherOperator, or empty
    other_operator: str  # why Grove UI changes nothing there; empty: no other operator
    workloads: Mapping[State, int]
    grove_workloads: int  # how many Grove's own operator manages; they can be taken over when it is gone
    nodes: int
    ready_nodes: int
    pods: int


@dataclass(frozen=True, slots=True)
class PodsOnNode:
    """The pods of one workload and one template on a node."""

    namespace: str
    workload: str
    template_hash: str
    pods: int
    ready: int


@dataclass(frozen=True, slots=True)
class NodeDetail:
    """A node."""

    name: str
    ready: bool
    unschedulable: bool
    leaving: bool
    created: datetime
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, Any], ...]
    allocatable: Mapping[str, Any]
    pods: tuple[PodsOnNode, ...]


def cluster_list() -> list[ClusterDetail]:
    """Return the configured clusters, in the order of the settings, also those that were never reached."""
    entries = _entries()
    names = [entry.name for entry in entries]
    rows = {row.name: row for row in models.Cluster.objects.filter(name__in=names)}
    keys = [row.pk for row in rows.values()]
    counts = _Counts(keys)
    return [_cluster(entry, rows.get(entry.name), counts) for entry in entries]


def cluster_detail(name: str) -> ClusterDetail:
    """Return one cluster; raises NotFound."""
    found = next((one for one in cluster_list() if one.name == name), None)
    if found is None:
        raise make_cluster_not_found(name, (entry.name for entry in _entries()))
    return found


def node_list(cluster: str, search: str, window: Window) -> Page[NodeDetail]:
    """Return the nodes of a cluster by name, with their pods; raises NotFound."""
    row = find_cluster(cluster)
    rows = models.Node.objects.filter(cluster=row).order_by("name")
    for word in search.split():
        rows = rows.filter(name__icontains=word)
    page = read_page(rows, window)
    running = _running_on(row, [node.name for node in page.items])
    return Page([_node(node, tuple(running.get(node.name, ()))) for node in page.items], page.count, window)


def _entries() -> tuple[ClusterEntry, ...]:
    try:
        return cluster_entries()
    except Misconfigured:
        return ()


class _Counts:
    """Counts of workloads, nodes and pods by cluster, with four queries for all clusters."""

    def __init__(self, clusters: list[int]) -> None:
        workloads = models.Workload.objects.filter(cluster__in=clusters).annotate(state_index=STATE_INDEX).order_by()
        self._workloads = {
            (cluster, state_index): number
            for cluster, state_index, number in workloads.values_list("cluster_id", "state_index").annotate(Count("id"))
        }
        theirs = _filter_grove_managed(models.Workload.objects.filter(cluster__in=clusters)).order_by()
        self._grove_workloads: dict[int, int] = dict(theirs.values_list("cluster_id").annotate(Count("id")))
        nodes = models.Node.objects.filter(cluster__in=clusters).order_by().values_list("cluster_id")
        counted = nodes.annotate(total=Count("id"), working=Count("id", filter=Q(ready=True)))
        self._nodes = {cluster: (total, ready) for cluster, total, ready in counted}
        pods = models.Pod.objects.filter(cluster__in=clusters).order_by().values_list("cluster_id")
        self._pods: dict[int, int] = dict(pods.annotate(Count("id")))

    def workloads(self, cluster: int) -> dict[State, int]:
        return {state: self._workloads.get((cluster, index), 0) for index, state in enumerate(STATES)}

    def grove_workloads(self, cluster: int) -> int:
        return self._grove_workloads.get(cluster, 0)

    def nodes(self, cluster: int) -> tuple[int, int]:
        return self._nodes.get(cluster, (0, 0))

    def pods(self, cluster: int) -> int:
        return self._pods.get(cluster, 0)


def count_grove_workloads(row: models.Cluster) -> int:
    """Return how many workloads of a cluster Grove's own operator manages."""
    return _filter_grove_managed(models.Workload.objects.filter(cluster=row)).count()


def _filter_grove_managed(workloads: QuerySet[models.Workload]) -> QuerySet[models.Workload]:
    """Keep the workloads of which Grove's operator manages the set, or wrote a part after us."""
    parts = (
        table.objects.filter(
            cluster=OuterRef("cluster"),
            namespace=OuterRef("namespace"),
            workload=OuterRef("name"),
            written_by_grove=True,
        )
        for table in (models.ScalingGroup, models.Clique, models.Gang)
    )
    return workloads.filter(reduce(or_, map(Exists, parts), Q(written_by_grove=True)))


_NO_CLUSTER: Final = -1


def _cluster(entry: ClusterEntry, row: models.Cluster | None, counts: _Counts) -> ClusterDetail:
    key = _NO_CLUSTER if row is None else row.pk
    nodes, ready = counts.nodes(key)
    stored = row or models.Cluster(name=entry.name)
    return ClusterDetail(
        name=entry.name,
        kind=entry.kind,
        origin=entry.origin,
        version=stored.version,
        complete=stored.complete,
        heard_at=stored.heard_at,
        trouble_code=stored.trouble_code,
        trouble=stored.trouble,
        trouble_since=stored.trouble_since,
        other_operator_code=stored.other_operator_code,
        other_operator=stored.other_operator,
        workloads=counts.workloads(key),
        grove_workloads=counts.grove_workloads(key),
        nodes=nodes,
        ready_nodes=ready,
        pods=counts.pods(key),
    )


def _running_on(cluster: models.Cluster, names: list[str]) -> dict[str, list[PodsOnNode]]:
    rows = models.Pod.objects.filter(cluster=cluster, node__in=names, leaving=False)
    columns = ("node", "namespace", "workload", "template_hash")
    counted = (
        rows.order_by(*columns)
        .values_list(*columns)
        .annotate(total=Count("id"), working=Count("id", filter=Q(ready=True)))
    )
    running: dict[str, list[PodsOnNode]] = {}
    for node, *rest in counted:
        running.setdefault(node, []).append(PodsOnNode(*rest))
    return running


def _node(row: models.Node, pods: tuple[PodsOnNode, ...]) -> NodeDetail:
    return NodeDetail(
        name=row.name,
        ready=row.ready,
        unschedulable=row.unschedulable,
        leaving=row.leaving,
        created=to_datetime(row.created),
        labels=row.labels,
        taints=tuple(row.taints),
        allocatable=row.allocatable,
        pods=pods,
    )
