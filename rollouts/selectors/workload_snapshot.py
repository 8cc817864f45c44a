"""The visible clusters, and one workload with its effective strategy, as the engine sees it.

Every selector of a workload starts here, so that all use the same workload and strategy. The invariant: a cluster that
is not configured, and a workload that is not in the mirror, raise `NotFound` with a sentence that says which it is.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from rollouts import mirror, models
from rollouts.accounts.commands import WorkloadRef
from rollouts.accounts.errors import NotFound, make_cluster_not_found
from rollouts.controller.effective_strategy import EffectiveStrategy, compute_effective_strategy, list_overrides
from rollouts.engine.manifest.findings import Finding
from rollouts.engine.manifest.override_precedence import Override
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.engine.model.workload import Workload
from rollouts.engine.tree.availability import Tree
from rollouts.engine.tree.layout import Layout, make_layout
from rollouts.engine.tree.tree_builder import build_tree
from rollouts.manifests.workload_version import version_of
from rollouts.mirror import MirroredWorkload
from rollouts.runtime.connections import configured_cluster_names


@dataclass(frozen=True, slots=True)
class PlannerInput:
    """The layout and tree of a workload, the input of the planner."""

    layout: Layout
    tree: Tree


@dataclass(frozen=True)
class WorkloadSnapshot:
    """A workload with all its objects at one time."""

    cluster: models.Cluster
    mirrored: MirroredWorkload
    overrides: tuple[Override, ...]  # of its cluster, also those that do not match it
    effective: EffectiveStrategy
    workload: Workload | None  # with the effective strategy; None when the manifest cannot be parsed
    findings: tuple[Finding, ...]  # why the manifest is not valid
    now: float

    @property
    def version(self) -> str:
        """The version, for edits."""
        return version_of(self.mirrored.uid, self.mirrored.manifest["metadata"].get("generation") or 0)

    @cached_property
    def planner_input(self) -> PlannerInput | None:
        """The input of the planner; None when the manifest cannot be parsed."""
        if self.workload is None:
            return None
        layout = make_layout(self.workload)
        return PlannerInput(layout, build_tree(layout, self.mirrored.observed))


def visible_clusters() -> Mapping[str, models.Cluster]:
    """Return the rows of the configured clusters that have one, in the order of the settings."""
    names = configured_cluster_names()
    rows = {row.name: row for row in models.Cluster.objects.filter(name__in=names)}
    return {name: rows[name] for name in names if name in rows}


def find_cluster(name: str) -> models.Cluster:
    """Return the row of a cluster; raises NotFound."""
    names = configured_cluster_names()
    row = models.Cluster.objects.filter(name=name).first() if name in names else None
    if row is not None:
        return row
    if name in names:
        raise NotFound(f"The watcher has not reached the cluster {name} yet. Is the watcher running?")
    raise make_cluster_not_found(name, names)


def find_workload(place: WorkloadRef) -> models.Workload:
    """Return the row of a workload, with that of its cluster; raises NotFound."""
    cluster = find_cluster(place.cluster)
    found = models.Workload.objects.filter(cluster=cluster, namespace=place.namespace, name=place.name).first()
    if found is None:
        raise make_not_found(place, cluster)
    row: models.Workload = found
    row.cluster = cluster
    return row


def make_not_found(place: WorkloadRef, cluster: models.Cluster) -> NotFound:
    """Return the error for a workload that does not exist, or is not in the mirror yet."""
    sentence = f"There is no workload {place.name} in the namespace {place.namespace} of {cluster.name}."
    if not cluster.complete:
        sentence = f"{sentence} The objects of the cluster are still being listed."
    return NotFound(sentence)


def read_snapshot(place: WorkloadRef) -> WorkloadSnapshot:
    """Read a workload with all its objects and its effective strategy; raises NotFound."""
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
