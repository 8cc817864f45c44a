"""The list counts in the database what the page of a workload counts by the engine's views: they must say the same."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from rollouts import mirror, models
from rollouts.cluster.resources import PODCLIQUESETS
from rollouts.controller.pod_counts import count_pods
from rollouts.engine.model.hashing import compute_generation_hash
from rollouts.engine.model.observed import Observed
from rollouts.engine.model.workload import Strategy, Workload
from rollouts.selectors.paging import Window
from rollouts.selectors.workload_rows import RowPodCounts, workload_rows
from rollouts.selectors.workloads import WorkloadFilters, workload_list
from tests.api.read import fleet
from tests.engine.manifest.rendering import render_manifest
from tests.engine.simulated import clique, group, run_workload, settled, with_image, workload

pytestmark = pytest.mark.django_db

CREATED: Final = "2026-01-02T03:04:05Z"


def figures() -> RowPodCounts:
    """Return what the list says of the only workload."""
    (line,) = workload_rows(workload_list(WorkloadFilters(), Window()).page.items)
    return line.pods


class Rows:
    """Puts what is observed of a workload into the mirror, in the place of what was there."""

    def __init__(self, cluster: models.Cluster, wanted: Workload) -> None:
        """Put the workload on record, with the revision that it is."""
        self._cluster = cluster
        self._wanted = wanted
        self._versions = iter(range(1, 100_000))
        models.Revision.objects.create(
            cluster=cluster.name,
            namespace=wanted.namespace,
            name=wanted.name,
            workload_uid=wanted.uid,
            number=1,
            generation_hash=compute_generation_hash(wanted),
            template=render_manifest(wanted)["spec"]["template"],
            created=datetime(2026, 1, 2, tzinfo=UTC),
        )

    def store(self, observed: Observed) -> None:
        """Store what is observed."""
        manifest = render_manifest(self._wanted)
        version = {"creationTimestamp": CREATED, "resourceVersion": str(next(self._versions))}
        metadata = {**manifest["metadata"], "generation": self._wanted.generation, **version}
        mirror.store(self._cluster, PODCLIQUESETS, [{**manifest, "metadata": metadata, "status": {**observed.status}}])
        for model, rows in ((models.Clique, observed.cliques), (models.ScalingGroup, observed.groups)):
            self._put(model, [{**_fields(row), "resource_version": next(self._versions)} for row in rows])
        owners = {one.name: one.uid for one in observed.cliques}
        pods = [{**_fields(row), "owner_uid": owners.get(row.clique, "")} for row in observed.pods]
        self._put(models.Pod, [{**row, "resource_version": next(self._versions)} for row in pods])

    def _put(self, model: Any, rows: list[dict[str, Any]]) -> None:
        model.everything.all().delete()
        known = {field.name for field in model._meta.get_fields()} - {"template_keys"}
        whose = {"cluster": self._cluster, "namespace": self._wanted.namespace, "workload": self._wanted.name}
        model.everything.bulk_create(
            model(**{name: value for name, value in row.items() if name in known}, **whose) for row in rows
        )


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


SURGE: Final = (0, 1)
PARTS: Final = (clique("b", 1), clique("c", 2))
ROLLED: Final = {
    "pods": workload(clique("a", 3, 2, SURGE), strategy=Strategy.ROLLING_UPDATE),
    "group": workload(
        clique("a", 1), *PARTS, group("g", ("b", "c"), 2, budget=SURGE), strategy=Strategy.ROLLING_UPDATE
    ),
    "replicas": workload(clique("a", 2), replicas=2, strategy=Strategy.REPLICA_RECREATE, budget=SURGE),
    "recreated": workload(clique("a", 2), *PARTS, group("g", ("b", "c"), 2), strategy=Strategy.REPLICA_RECREATE),
}


def rollout(before: Workload, after: Workload) -> Iterator[Observed]:
    """Yield what is there after each pass of a rollout, where it is new; in the first one the rollout is begun."""
    cluster = settled(before)
    former = cluster.world.observed()
    for _ in run_workload(after, cluster.world):
        observed = cluster.world.observed()
        if observed != former:
            former = observed
            yield observed


@pytest.mark.parametrize("what", ROLLED)
def test_the_list_and_the_page_count_alike_all_along_a_rollout(row: models.Cluster, what: str) -> None:
    before = ROLLED[what]
    after = with_image(before, "app:v2")
    rows = Rows(row, after)
    seen = []
    for observed in rollout(before, after):
        rows.store(observed)
        said, counts = figures(), count_pods(after, observed)
        seen.append((said.desired, said.available, said.updated, said.surge))
        assert seen[-1] == (counts.desired, counts.available, counts.updated, counts.surge)
        assert said.updated + said.available_outdated + said.surge_available == said.available
    desired = seen[0][0]
    assert {one[0] for one in seen} == {desired}
    assert [updated for _, _, updated, _ in seen] == sorted(updated for _, _, updated, _ in seen)
    assert (seen[0], seen[-1]) == ((desired, desired, 0, 0), (desired, desired, desired, 0))
    assert any(surge for *_, surge in seen) == (what != "recreated")


def test_a_pod_of_a_higher_index_that_scaling_in_has_left_is_no_surge(row: models.Cluster) -> None:
    wanted = workload(clique("a", 3))
    observed = settled(wanted).world.observed()
    (one,) = observed.cliques
    left = tuple(pod for pod in observed.pods if pod.index != 1)
    scaled = replace(observed, cliques=(replace(one, replicas=2),), pods=left)
    rows = Rows(row, wanted)
    first, last = left
    for pods, updated in (left, 2), ((replace(first, ready=False), last), 1):
        there = replace(scaled, pods=pods)
        rows.store(there)
        said, counts = figures(), count_pods(wanted, there)
        assert (counts.desired, counts.updated, counts.surge) == (2, updated, 0)
        assert (said.desired, said.updated, said.surge) == (2, updated, 0)


def test_what_is_not_there_is_desired_all_the_same(row: models.Cluster) -> None:
    manifest = fleet.podcliqueset("chat", cliques=[fleet.clique("main", 3)], replicas=2)
    fleet.store_sets(row, [manifest])
    assert figures() == RowPodCounts(desired=6, available=0, updated=0, available_outdated=0, outdated=0, surge=0)
    fleet.store_parts(row, manifest)
    models.Clique.objects.filter(replica=0).update(replicas=5)
    assert figures().desired == 8
    models.Clique.objects.filter(replica=1).delete()
    assert (figures().desired, figures().available) == (8, 3)
