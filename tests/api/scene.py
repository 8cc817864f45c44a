"""A workload in the sandbox with everything that the API can show of it: pods, history, an update that waits.

The sandbox is a real process; the mirror is fed by lists and passes follow each other, as in `tests.controller.loop`.
The workload is under OnDelete and was changed after it had been deployed: all its pods are outdated, so each command
has something to do. What a test then does to the cluster stays there. The rows are kept aside: a test puts them into
its own transaction, which is rolled back after it.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.db.models import Model
from django.test import override_settings

from rollouts import mirror, models
from rollouts.cluster import ClusterClient, Obj
from rollouts.cluster.resources import EVENTS, NAMESPACES, NODES, PODCLIQUES, PODCLIQUESETS, PODS
from rollouts.controller.reconciler import reconcile_workload
from rollouts.engine.model.names import CLIQUE, PART_OF, POD_INDEX
from rollouts.engine.model.times import render_time
from rollouts.runtime import connections
from tests.controller.loop import observe
from tests.nodes import make_nodes
from tests.scenarios.running_clusters import running_sandbox_cluster
from tests.scenarios.scene import is_ready
from tests.scenarios.stage import clique, group, podcliqueset

CLUSTER: Final = "sandbox"
NAMESPACE: Final = "team-a"
ELSEWHERE: Final = "team-b"
NAME: Final = "chat"
_SECONDS: Final = 120.0  # generous: only reached when something is broken
_SURPLUS: Final = 7  # an index beyond the number of pods
_TABLES: Final[tuple[type[Model], ...]] = (
    *(models.Cluster, models.Workload, models.ScalingGroup, models.Clique, models.Gang, models.Service, models.Pod),
    *(models.Node, models.Revision, models.Rollout, models.Step, models.Sample),
)


@dataclass(slots=True)
class Scene:
    """The workload, its cluster, and the row of the mirror."""

    cluster: ClusterClient
    row: models.Cluster
    rows: list[list[Model]] = field(default_factory=list)  # of the mirror and of history, a list a table
    pattern: Obj | None = None  # a pod of the first clique, on a node
    lost_nodes: set[str] = field(default_factory=set)  # nothing on them says any more that it has ended

    def put_rows(self) -> None:
        """Bring mirror and history into the database as they were, and then up to what the cluster says by now."""
        for rows in self.rows:
            type(rows[0])._default_manager.bulk_create(rows)
        self.observe()

    @property
    def key(self) -> str:
        """The workload as the queue calls it."""
        return f"{CLUSTER}/{NAMESPACE}/{NAME}"

    def observe(self) -> None:
        """List the objects of the cluster into the mirror."""
        observe(self.cluster, self.row)
        mirror.store(self.row, NODES, self.cluster.list(NODES).items)

    def stored(self) -> Obj:
        """Return the PodCliqueSet."""
        return self.cluster.get(PODCLIQUESETS, NAME, namespace=NAMESPACE)

    def pods(self) -> list[Obj]:
        """Return its pods that stay, by name."""
        listing = self.cluster.list(PODS, namespace=NAMESPACE, labels=f"{PART_OF}={NAME}")
        return [pod for pod in listing.items if "deletionTimestamp" not in pod["metadata"]]

    def tell(self, about: Obj, reason: str, message: str = "", *, seconds_ago: float = 0, kind: str = "Pod") -> None:
        """Have the cluster tell something about an object, as its scheduler or a kubelet does."""
        metadata, at = about["metadata"], render_time(time.time() - seconds_ago)
        involved = {"kind": kind, "name": metadata["name"], "namespace": NAMESPACE, "uid": metadata["uid"]}
        event = {
            "metadata": {"name": f"{metadata['name']}.{reason.lower()}", "namespace": NAMESPACE},
            "involvedObject": involved,
            "type": "Warning",
            "reason": reason,
            "message": message,
            "source": {"component": "kubelet"},
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 2,
        }
        self.cluster.create(EVENTS, event)

    def take_passes(self) -> None:
        """Look and take passes until the workload is complete and the controller has seen its last edit."""
        self.run_until(self._is_complete)

    def run_until(self, is_so: Callable[[], bool]) -> None:
        """Look and take passes until something is so."""
        deadline = time.monotonic() + _SECONDS
        while not is_so():
            assert time.monotonic() < deadline, f"not in time: {self.stored().get('status')}"
            self.observe()
            reconcile_workload(
                self.cluster, self.row, self.key, mirror.fetch_workload(self.row, NAMESPACE, NAME), time.time()
            )
        self.observe()

    def add_surge(self) -> Obj:
        """Give the first clique a pod beyond its number, as the controller does under RollingUpdate."""
        assert self.pattern is not None
        listed = self.cluster.list(PODS, namespace=NAMESPACE, labels=f"{PART_OF}={NAME}").items
        taken = {pod["metadata"]["labels"][POD_INDEX] for pod in listed}
        index = next(text for text in map(str, count(_SURPLUS)) if text not in taken)
        labels = {**self.pattern["metadata"]["labels"], POD_INDEX: index}
        metadata = {
            "name": f"{labels[CLIQUE]}-{token_hex(3)}",
            "namespace": NAMESPACE,
            "labels": labels,
            "ownerReferences": self.pattern["metadata"]["ownerReferences"],
        }
        spec = {**self.pattern["spec"], "hostname": f"{labels[CLIQUE]}-{index}"}
        pod = self.cluster.create(PODS, {"metadata": metadata, "spec": spec})
        self.observe()
        return pod

    def lost_pods(self) -> list[Obj]:
        """Return the pods that were deleted and do not go, since their nodes are gone."""
        listing = self.cluster.list(PODS, namespace=NAMESPACE, labels=f"{PART_OF}={NAME}")
        leaving = [pod for pod in listing.items if "deletionTimestamp" in pod["metadata"]]
        return [pod for pod in leaving if pod["spec"].get("nodeName") in self.lost_nodes]

    def lose_pod(self) -> Obj:
        """Delete another pod whose node is gone, so that it stays terminating; return it."""
        pod = self.add_surge()
        node = pod["spec"]["nodeName"]
        condition = {"type": "Ready", "status": "False", "reason": "Told"}
        self.cluster.patch_merge(NODES, node, {"status": {"conditions": [condition]}}, subresource="status")
        self.lost_nodes.add(node)
        self.cluster.delete(PODS, pod["metadata"]["name"], namespace=NAMESPACE)
        self.observe()
        return pod

    def change_image(self, image: str) -> None:
        """Change the template of the first clique, as kubectl does."""
        path = "/spec/template/cliques/0/spec/podSpec/containers/0/image"
        operation = {"op": "replace", "path": path, "value": image}
        self.cluster.patch_json(PODCLIQUESETS, NAME, [operation], namespace=NAMESPACE)

    def _is_complete(self) -> bool:
        """Say whether nothing more happens: a replica counts as available while some of its pods are still starting."""
        stored = self.stored()
        status: dict[str, Any] = stored.get("status") or {}
        conditions = {one["type"]: one for one in status.get("conditions") or ()}
        seen = status.get("observedGeneration") == stored["metadata"]["generation"]
        wanted = status.get("availableReplicas") == stored["spec"]["replicas"]
        return bool(seen and wanted and "Progressing" in conditions) and self._are_pods_ready()

    def _are_pods_ready(self) -> bool:
        pods = self.pods()
        cliques = self.cluster.list(PODCLIQUES, namespace=NAMESPACE, labels=f"{PART_OF}={NAME}").items
        return len(pods) == sum(one["spec"]["replicas"] for one in cliques) and all(map(is_ready, pods))


@contextlib.contextmanager
def running_sandbox(folder: Path) -> Iterator[ClusterClient]:
    """Start a sandbox with nodes, namespaces and the workload, and make it the cluster that the settings name."""
    environment = replace(settings.ENVIRONMENT, data_dir=folder)
    with running_sandbox_cluster(folder) as target, override_settings(ENVIRONMENT=environment):
        connections._shared_cluster.cache_clear()
        make_nodes(target.cluster, [f"node-{number}" for number in range(4)])
        for name in (NAMESPACE, ELSEWHERE):
            target.cluster.create(NAMESPACES, {"metadata": {"name": name}})
        target.cluster.create(PODCLIQUESETS, _workload())
        try:
            yield target.cluster
        finally:
            connections._shared_cluster.cache_clear()


def make_scene(cluster: ClusterClient) -> Scene:
    """Take the controller's passes in a transaction that is taken back, and keep its rows.

    They bring the workload to where every command has something to do.
    """
    with transaction.atomic():
        scene = Scene(cluster, mirror.ensure_cluster(CLUSTER))
        scene.take_passes()
        scene.change_image("example:v2")
        scene.take_passes()
        scene.row.complete = True
        scene.row.save()
        scene.pattern = next(pod for pod in scene.pods() if "-frontend-" in pod["metadata"]["name"])
        scene.rows = [rows for table in _TABLES if (rows := list(table._default_manager.all()))]
        transaction.set_rollback(True)
    return scene


def _workload() -> Obj:
    manifest = podcliqueset(
        clique("frontend", 4, 1), clique("leader", 1), group("decode", ["leader"], 2), name=NAME, strategy="OnDelete"
    )
    manifest["metadata"]["namespace"] = NAMESPACE
    return manifest
