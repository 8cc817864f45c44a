"""The clusters that are shown, and one workload as the engine looks at it.

Everything that shows a workload begins here, so that each of them means the same workload, under the strategy that is
in force. The invariant: what is not configured, or not in the mirror, is `NotFound` with a sentence that says which.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from rollouts import mirror, models
from rollouts.accounts.commands import WorkloadRef
from rollouts.accounts.errors import NotFound, make_cluster_not_found
from rollouts.controller.effective_strategy import (
    EffectiveStrategy,
    Override,
    compute_effective_strategy,
    list_overrides,
)
from rollouts.engine.manifest.findings import Finding
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.engine.model.workload import Workload
from rollouts.engine.tree.layout import Layout, make_layout
from rollouts.engine.tree.tree_builder import build_tree
from rollouts.engine.tree.views import Tree
from rollouts.manifests.workload_version import version_of
from rollouts.mirror import MirroredWorkload
from rollouts.runtime.connections import configured_cluster_names


@dataclass(frozen=True, slots=True)
class PlannerInput:
    """A workload as the engine plans with it."""

    shape: Layout
    tree: Tree


@dataclass(frozen=True)
class WorkloadSnapshot:
    """A workload with everything there is of it, as it was looked at once."""

    cluster: models.Cluster
    mirrored: MirroredWorkload
    overrides: tuple[Override, ...]  # all of its cluster's, also those that hit others
    effective: EffectiveStrategy
    workload: Workload | None  # with the strategy in force; None when its manifest cannot be read
    findings: tuple[Finding, ...]  # why it cannot be read
    now: float

    @property
    def version(self) -> str:
        """What an edit of it refers to."""
        return version_of(self.mirrored.uid, self.mirrored.manifest["metadata"].get("generation") or 0)

    @cached_property
    def planner_input(self) -> PlannerInput | None:
        """Everything in its place, once for all who ask; None when its manifest cannot be read."""
        if self.workload is None:
            return None
        shape = make_layout(self.workload)
        return PlannerInput(shape, build_tree(shape, self.mirrored.observed))


def visible_clusters() -> Mapping[str, models.Cluster]:
    """Return the rows of the clusters that are shown, in the order of the settings; new ones have none yet."""
    names = configured_cluster_names()
    rows = {row.name: row for row in models.Cluster.objects.filter(name__in=names)}
    return {name: rows[name] for name in names if name in rows}


def find_cluster(name: str) -> models.Cluster:
    """Return the row of a cluster; raises NotThere."""
    names = configured_cluster_names()
    row = models.Cluster.objects.filter(name=name).first() if name in names else None
    if row is not None:
        return row
    if name in names:
        raise NotFound(f"The cluster {name} has not been heard of yet: is the watcher running?")
    raise make_cluster_not_found(name, names)


def find_workload(place: WorkloadRef) -> models.Workload:
    """Return the row of a workload, with its cluster's; raises NotThere."""
    cluster = find_cluster(place.cluster)
    found = models.Workload.objects.filter(cluster=cluster, namespace=place.namespace, name=place.name).first()
    if found is None:
        raise make_not_found(place, cluster)
    row: models.Workload = found
    row.cluster = cluster
    return row


def make_not_found(place: WorkloadRef, cluster: models.Cluster) -> NotFound:
    """Return that there is no such workload, or that nobody can tell yet."""
    sentence = f"There is no workload {place.name} in the namespace {place.namespace} of {cluster.name}."
    if not cluster.complete:
        sentence = f"{sentence} The cluster has not been listed to its end yet."
    return NotFound(sentence)


def read_snapshot(place: WorkloadRef) -> WorkloadSnapshot:
    """Read a workload with all its parts and the strategy in force; raises NotThere."""
    cluster = find_cluster(place.cluster)
    seen = mirror.fetch_workload(cluster, place.namespace, place.name)
    if seen is None:
        raise make_not_found(place, cluster)
    now = time.time()
    overrides = tuple(list_overrides(cluster.name))
    effective = compute_effective_strategy(seen.manifest, overrides, now, cluster=cluster.name)
    workload = parse_workload(effective.manifest)
    if isinstance(workload, ParseFailure):
        return WorkloadSnapshot(cluster, seen, overrides, effective, None, workload.findings, now)
    return WorkloadSnapshot(cluster, seen, overrides, effective, workload, (), now)
