"""All controllers of the sandbox over a real store and real verbs, driven step by step.

`advance` replaces the event loop: it sets the clock to one due time after the other and lets the controllers work at
each, until nothing is due before the new time. `restart` drops everything in memory and opens the same file again, as a
process that was killed does.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from rollouts.sandbox.apiserver.patch import PatchType
from rollouts.sandbox.apiserver.registry import Kind, Registry
from rollouts.sandbox.apiserver.storage import Storage
from rollouts.sandbox.apiserver.verbs import Verbs
from rollouts.sandbox.cluster.controller_manager import ControllerManager
from rollouts.sandbox.cluster.pod_lifecycle import READY_SECONDS_ANNOTATION, KubeletTimings
from rollouts.sandbox.conditions import find_condition

Obj = dict[str, Any]
CRDS = Path(__file__).parents[3] / "deploy" / "crds"
STEPS = 100_000
"""More steps than any test needs: a simulation that never settles fails instead of hanging."""


@cache
def load_registry() -> Registry:
    """Read the kinds, once for all tests; nothing changes them."""
    return Registry.load(CRDS)


class Cluster:
    """A simulated cluster with a clock of its own."""

    def __init__(self, path: Path, pace: KubeletTimings) -> None:
        self._path, self._pace = path, pace
        self.now = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
        self.registry = load_registry()
        self._open()

    def _open(self) -> None:
        self.store = Storage.open(self._path)
        self.verbs = Verbs(self.store, self.registry, lambda: self.now)
        self.simulation = ControllerManager(self.verbs, self.store, lambda: self.now, self._pace)
        self.simulation.start()
        self.pods = self.registry.kind("pods")
        self.nodes = self.registry.kind("nodes")
        self.gangs = self.registry.kind("podgangs", "scheduler.grove.io")

    def close(self) -> None:
        self.simulation.stop()
        self.store.close()
        assert self.simulation.failures == 0, "a controller failed; see the log"

    def restart(self) -> None:
        """Drop everything but the file, and open it again."""
        self.close()
        self._open()

    def advance(self, seconds: float = 0.1) -> None:
        """Let time pass; the default is enough for everything without a delay."""
        end = self.now + timedelta(seconds=seconds)
        for _ in range(STEPS):
            due = self.simulation.next_due()
            if due is None or due > end:
                self.now = end
                return
            self.now = max(self.now, due)
            self.simulation.step()
        raise AssertionError("the simulation does not come to rest")

    # --- making things ---------------------------------------------------------------------------------------

    def add_node(
        self, name: str, *, gpus: int | None = None, capacity: Mapping[str, str] | None = None, **labels: str
    ) -> None:
        """Add a node with the default CPU or GPU capacity, or with a capacity of its own."""
        kind = "gpu-node" if gpus else "cpu-node"
        body = {"metadata": {"name": name, "labels": {"node.kubernetes.io/instance-type": kind, **labels}}}
        node = self.verbs.create(self.nodes, None, body)
        offered = {**(capacity or {}), **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
        if offered:
            amounts = {"cpu": "32", "memory": "128Gi", "pods": "110", **offered}
            status = {"capacity": amounts}
            self.verbs.update(self.nodes, None, name, {**node, "status": status}, subresource="status")
        self.advance()

    def add_pod(
        self,
        name: str,
        *,
        gpus: int = 0,
        image: str = "app:v1",
        ready: str = "2",
        gang: str = "",
        owner: Obj | None = None,
        namespace: str = "default",
        labels: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Obj:
        """Create a pod; nothing happens to it before time passes."""
        resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
        metadata: Obj = {
            "name": name,
            "annotations": {READY_SECONDS_ANNOTATION: ready},
            "labels": {**(labels or {}), **({"grove.io/podgang": gang} if gang else {})},
        }
        if owner is not None:
            metadata["ownerReferences"] = [owner]
        containers = [{"name": "main", "image": image, "resources": resources}]
        body = {"metadata": metadata, "spec": {"containers": containers, **spec}}
        return self.verbs.create(self.pods, namespace, body)

    def put_gang(self, name: str, **groups: tuple[int, Iterable[str]]) -> None:
        """Create or change a PodGang from `group=(minReplicas, pods)`."""
        podgroups = [
            {
                "name": group,
                "minReplicas": minimum,
                "podReferences": [{"namespace": "default", "name": pod} for pod in pods],
            }
            for group, (minimum, pods) in groups.items()
        ]
        stored = self.store.get(self.gangs, "default", name)
        if stored is None:
            self.verbs.create(self.gangs, "default", {"metadata": {"name": name}, "spec": {"podgroups": podgroups}})
        else:
            changed = {**stored.obj, "spec": {"podgroups": podgroups}}
            self.verbs.update(self.gangs, "default", name, changed)

    def merge(self, kind: Kind, name: str, patch: Obj, *, namespace: str | None = None, **more: Any) -> None:
        """Patch an object as kubectl would."""
        self.verbs.patch(kind, namespace, name, PatchType.MERGE, patch, **more)

    # --- looking at things -----------------------------------------------------------------------------------

    def pod(self, name: str) -> Obj:
        return self.verbs.get(self.pods, "default", name)

    def node(self, name: str) -> Obj:
        return self.verbs.get(self.nodes, None, name)

    def gang(self, name: str) -> Obj:
        return self.verbs.get(self.gangs, "default", name)

    def exists(self, name: str) -> bool:
        return self.store.get(self.pods, "default", name) is not None

    def placement(self) -> dict[str, str | None]:
        """Return the node of each pod."""
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in self.verbs.list(self.pods)}

    def bound(self) -> set[str]:
        return {pod for pod, node in self.placement().items() if node}

    def ready(self) -> set[str]:
        return {name for name in self.placement() if self.condition(self.pod(name), "Ready") == "True"}

    def condition(self, obj: Obj, kind: str) -> str | None:
        return find_condition(obj, kind).get("status")

    def events(self, reason: str) -> list[Obj]:
        found = self.verbs.list(self.registry.kind("events"))
        return [event for event in found if event["reason"] == reason]
