"""A workload that commands are given to: the cluster itself, the mirror's row of it, and passes on request."""

from dataclasses import dataclass, field
from typing import Any

from rollouts import mirror, models
from rollouts.accounts.commands import WorkloadRef
from rollouts.cluster import ClusterClient, Obj, Resource
from rollouts.cluster.resources import NODES, PODCLIQUES, PODCLIQUESETS, PODS
from rollouts.engine.model.names import PART_OF
from tests.controller.loop import Loop
from tests.scenarios.scene import is_ready


@dataclass(slots=True)
class Stage:
    """One workload on one of the clusters."""

    cluster: ClusterClient
    namespace: str
    name: str
    cluster_name: str  # as the settings call it
    loop: Loop = field(init=False)

    def __post_init__(self) -> None:
        self.loop = Loop(self.cluster, self.namespace, self.name)
        self.loop.row = mirror.ensure_cluster(self.cluster_name)
        self.loop.row.complete = True
        self.loop.row.save()

    @property
    def place(self) -> WorkloadRef:
        """The workload by name."""
        return WorkloadRef(self.cluster_name, self.namespace, self.name)

    def observe(self) -> None:
        """List everything into the mirror, nodes too: where none are known, no pod finds room."""
        self.loop.observe()
        mirror.store(self.loop.row, NODES, self.cluster.list(NODES).items)

    def deploy(self) -> None:
        """Look and take passes until everything is there and nothing is under way but what waits for people."""
        self.loop.run(self._is_settled)
        self.observe()

    def _is_settled(self) -> bool:
        # A status may be from before pods were deleted, so the pods are asked themselves.
        return self._is_written() and self._are_pods_there()

    def _is_written(self) -> bool:
        stored = self.stored()
        if (stored["spec"].get("updateStrategy") or {}).get("type") != "OnDelete":
            return self.loop.is_complete()
        status = stored.get("status") or {}
        is_seen: bool = status.get("observedGeneration") == stored["metadata"]["generation"]
        return is_seen and status.get("availableReplicas") == stored["spec"]["replicas"]

    def _are_pods_there(self) -> bool:
        wanted = sum(clique["spec"]["replicas"] for clique in self._owned(PODCLIQUES))
        pods = self._owned(PODS)
        return len(pods) == wanted and all(is_ready(pod) and "deletionTimestamp" not in pod["metadata"] for pod in pods)

    def _owned(self, resource: Resource) -> list[Obj]:
        return list(self.cluster.list(resource, namespace=self.namespace, labels=f"{PART_OF}={self.name}").items)

    def stored(self) -> Obj:
        """Return the PodCliqueSet."""
        return self.loop.stored()

    def spec(self) -> Any:
        """Return its spec."""
        return self.stored()["spec"]

    def mirrored(self) -> Obj:
        """Return the manifest that the mirror has."""
        row: models.Workload = models.Workload.objects.get(cluster=self.loop.row, namespace=self.namespace)
        manifest: Obj = row.manifest
        return manifest

    def version(self) -> str:
        """Return what If-Match names the present state by."""
        metadata = self.stored()["metadata"]
        return f'"{metadata["uid"]}.{metadata["generation"]}"'

    def write_status(self) -> None:
        """Write its status, as the controller does all the time."""
        obj = self.stored()
        status = {**(obj.get("status") or {}), "observedGeneration": obj["metadata"]["generation"]}
        status["replicas"] = (status.get("replicas") or 0) + 1
        self.cluster.update(PODCLIQUESETS, {**obj, "status": status}, subresource="status")

    def edit_elsewhere(self, **spec: Any) -> None:
        """Change its spec as somebody else does."""
        self.cluster.patch_merge(PODCLIQUESETS, self.name, {"spec": spec}, namespace=self.namespace)
