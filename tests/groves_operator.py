"""Grove's own operator beside Grove UI: an API server for the tests of it, and what it leaves there."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from rollouts.accounts.commands import WorkloadRef
from rollouts.cluster import ClusterClient, Obj, Resource, kubeconfig
from rollouts.cluster.client import FIELD_MANAGER
from rollouts.cluster.resources import (
    CUSTOMRESOURCEDEFINITIONS,
    LEASES,
    PODCLIQUES,
    PODCLIQUESETS,
    PODGANGS,
    PODS,
    SERVICES,
)
from rollouts.engine.model import names
from rollouts.mirror import other_operator
from rollouts.mirror.other_operator import GROVE_FINALIZER, GROVE_LEASE, GROVE_MANAGER
from rollouts.queue.results import RequeueAfter
from tests.apiserver import (
    DEFINITIONS,
    HOW_TO_GET_THEM,
    ApiServer,
    install_definitions,
    missing_binaries,
    running_apiserver,
)
from tests.engine.manifests import pod as pod_spec
from tests.parts import missing

KEY = "real/default/my"
PLACE = WorkloadRef("real", "default", "my")
WAITS = RequeueAfter(60.0, "OtherOperator")
GROVES_DEFINITIONS = Path(__file__).parent / "groves_definitions"
KEPT_BY_GROVE = {"metadata": {"finalizers": [GROVE_FINALIZER]}}


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    """An API server with our CRDs."""
    if lacking := missing_binaries():
        missing(" and ".join(lacking), HOW_TO_GET_THEM)
    with running_apiserver() as running:
        install_definitions(ClusterClient(kubeconfig(running.kubeconfig)))
        yield running


@pytest.fixture
def admin(server: ApiServer) -> Iterator[ClusterClient]:
    """The cluster; after each test it has our CRDs, no other operator and no workload."""
    cluster = ClusterClient(kubeconfig(server.kubeconfig))
    yield cluster
    for path in DEFINITIONS.glob("*.yaml"):
        apply_definition(cluster, path)
    for lease in cluster.list(LEASES, fields=f"metadata.name={GROVE_LEASE}").items:
        cluster.delete(LEASES, GROVE_LEASE, namespace=lease["metadata"]["namespace"])
    for obj in cluster.list(PODCLIQUESETS).items:
        name = obj["metadata"]["name"]
        cluster.patch_merge(PODCLIQUESETS, name, {"metadata": {"finalizers": None}}, namespace="default")
        cluster.delete(PODCLIQUESETS, name, namespace="default")
    for kind in (PODGANGS, PODCLIQUES, SERVICES, PODS):
        for obj in cluster.list(kind, namespace="default", labels=f"{names.PART_OF}=my").items:
            cluster.delete(kind, obj["metadata"]["name"], namespace="default", grace_seconds=0)


def mark_definition(cluster: ClusterClient, value: str | None, name: str = "podcliquesets.grove.io") -> None:
    """Set or remove the annotation of a CRD that makes it ours."""
    change = {"metadata": {"annotations": {other_operator.DEFINITION_ANNOTATION: value}}}
    cluster.patch_merge(CUSTOMRESOURCEDEFINITIONS, name, change)


def apply_definition(cluster: ClusterClient, path: Path, manager: str = FIELD_MANAGER) -> Obj:
    """Apply a CRD over the existing one, as an installation does."""
    return cluster.apply(CUSTOMRESOURCEDEFINITIONS, yaml.safe_load(path.read_text()), field_manager=manager, force=True)


def renew_lease(cluster: ClusterClient, ago: float) -> None:
    """Renew the lease of Grove's operator as if it were some seconds ago."""
    renewed = (datetime.now(UTC) - timedelta(seconds=ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "grove-operator-0", "leaseDurationSeconds": 15, "renewTime": renewed}
    if cluster.list(LEASES, fields=f"metadata.name={GROVE_LEASE}").items:
        cluster.patch_merge(LEASES, GROVE_LEASE, {"spec": spec}, namespace="kube-system")
    else:
        cluster.create(LEASES, {"metadata": {"name": GROVE_LEASE, "namespace": "kube-system"}, "spec": spec})


def keep_by_grove(cluster: ClusterClient) -> None:
    """Put the finalizer of Grove's operator on the workload."""
    cluster.patch_merge(PODCLIQUESETS, "my", KEPT_BY_GROVE, namespace="default")


def list_all(cluster: ClusterClient) -> list[Obj]:
    """Return all objects that a controller writes, as they are now."""
    kinds = (PODCLIQUESETS, PODCLIQUES, PODGANGS, PODS, SERVICES)
    return [obj for kind in kinds for obj in cluster.list(kind, namespace="default").items]


class Rival:
    """What a running operator of Grove's does: it creates every missing object again, under its own field manager."""

    def __init__(self, cluster: ClusterClient, stored: Obj, finalizers: Sequence[str]) -> None:
        self.made = 0
        self._cluster = cluster
        self._wanted = [*made_by_grove(stored)]
        applied = {"metadata": {"name": "my", "namespace": "default", "finalizers": [*finalizers]}}
        cluster.apply(PODCLIQUESETS, applied, field_manager=GROVE_MANAGER)

    def reconcile(self) -> None:
        """Create what is missing."""
        for resource, obj in self._wanted:
            name = obj["metadata"]["name"]
            there = {one["metadata"]["name"] for one in self._cluster.list(resource, namespace="default").items}
            if name not in there:
                self._cluster.apply(resource, obj, field_manager=GROVE_MANAGER)
                self.made += 1


def made_by_grove(stored: Obj) -> Iterator[tuple[Resource, Obj]]:
    """Yield a PodClique of two pods, its pods and its gang, with Grove's hash and without the label of the gang."""
    owner = {"kind": "PodCliqueSet", "name": "my", "uid": stored["metadata"]["uid"]}
    labels = {names.PART_OF: "my", names.MANAGED_BY: names.OPERATOR}
    placed = {**labels, names.REPLICA_INDEX: "0", names.TEMPLATE_HASH: "5d98c7b84"}
    spec = {"roleName": "worker", "replicas": 2, "minAvailable": 1, "podSpec": pod_spec()}
    yield PODCLIQUES, {"metadata": _metadata("my-0-worker", placed, owner), "spec": spec}
    for index in "01":
        mine = {**placed, names.CLIQUE: "my-0-worker", names.POD_INDEX: index}
        held = {"schedulingGates": [{"name": names.SCHEDULING_GATE}]}
        metadata = _metadata(f"my-0-worker-{index}", mine, owner)
        yield PODS, {"metadata": metadata, "spec": pod_spec() | held}
    yield PODGANGS, {"metadata": _metadata("my-0", labels, owner), "spec": {"podgroups": []}}


def _metadata(name: str, labels: dict[str, str], owner: dict[str, str]) -> Obj:
    reference = {**owner, "apiVersion": "grove.io/v1alpha1", "controller": True, "blockOwnerDeletion": True}
    return {"name": name, "namespace": "default", "labels": labels, "ownerReferences": [reference]}
