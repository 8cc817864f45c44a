"""A namespace for one scenario: its nodes, its workloads, and a witness that records every write.

Each stage has nodes that only its own pods can use (every template gets a node selector), so scenarios run side by side
on one cluster and still control how much room there is. In `one a node` workloads each pod requests more than half of a
node, so that n free nodes have room for n pods, as in Grove's own tests.
"""

import contextlib
import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from rollouts.cluster import ClusterClient, NotFound, Obj, Resource
from rollouts.cluster.resources import (
    NAMESPACES,
    NODES,
    PODCLIQUES,
    PODCLIQUESCALINGGROUPS,
    PODCLIQUESETS,
    PODGANGS,
    PODS,
    SERVICES,
)
from tests.deploy.manifests import GROVE, SAMPLES, load
from tests.nodes import make_nodes
from tests.scenarios.running_clusters import TargetCluster
from tests.scenarios.scene import Scene
from tests.scenarios.witness import DEADLINE, Witness

POOL = "grove-ui-test/pool"
MORE_THAN_HALF_A_NODE = "20"
OURS = (PODCLIQUESCALINGGROUPS, PODCLIQUES, PODS, PODGANGS, SERVICES)
PATIENCE_FOR_NOTHING = 2.0  # how long a test watches that something does not happen


@dataclass
class Stage:
    """The namespace, nodes and witness of one scenario."""

    cluster: ClusterClient
    namespace: str
    witness: Witness
    target: TargetCluster
    _versions: Iterator[int] = field(default_factory=lambda: count(2))

    # --- nodes -----------------------------------------------------------------------------------------------

    def nodes(self, number: int) -> list[str]:
        """Make nodes for this stage."""
        names = [f"{self.namespace}-{index}" for index in range(number)]
        make_nodes(self.cluster, names, {POOL: self.namespace})
        return names

    def cordon(self, *names: str) -> None:
        """Cordon these nodes."""
        for name in names:
            self.cluster.patch_merge(NODES, name, {"spec": {"unschedulable": True}})

    def uncordon(self, *names: str) -> None:
        """Uncordon these nodes."""
        for name in names:
            self.cluster.patch_merge(NODES, name, {"spec": {"unschedulable": None}})

    # --- workloads -------------------------------------------------------------------------------------------

    def create(self, manifest: Obj, *, one_a_node: bool = False) -> str:
        """Create a workload and return its name."""
        prepared = copy.deepcopy(manifest)
        prepared["metadata"]["namespace"] = self.namespace
        for clique in prepared["spec"]["template"]["cliques"]:
            self._place(clique["spec"]["podSpec"], one_a_node=one_a_node)
        created = self.cluster.create(PODCLIQUESETS, prepared)
        self._hear_of(PODCLIQUESETS, created)
        name: str = created["metadata"]["name"]
        return name

    def _place(self, pod_spec: Obj, *, one_a_node: bool) -> None:
        pod_spec["nodeSelector"] = {POOL: self.namespace}
        pod_spec.pop("affinity", None)
        for container in pod_spec["containers"]:
            container["resources"] = {"requests": {"cpu": MORE_THAN_HALF_A_NODE}} if one_a_node else {}

    def deploy(self, manifest: Obj, *, one_a_node: bool = False) -> str:
        """Create a workload and wait until all of it is available."""
        name = self.create(manifest, one_a_node=one_a_node)
        self.settle(name)
        return name

    def settle(self, name: str, seconds: float = DEADLINE) -> Scene:
        """Wait until the workload is complete and its status says so."""
        return self.witness.wait(lambda scene: scene.is_complete(name), f"{name} is complete", seconds)

    def settle_updated(self, name: str, seconds: float = DEADLINE) -> Scene:
        """Wait until the workload is complete without outdated pods."""
        self.settle(name, seconds)
        return self.witness.wait(lambda scene: scene.is_updated(name), f"{name} is updated", seconds)

    # --- what people do --------------------------------------------------------------------------------------

    def patch(self, name: str, patch: Obj) -> None:
        """Patch the set."""
        self._hear_of(PODCLIQUESETS, self.cluster.patch_merge(PODCLIQUESETS, name, patch, namespace=self.namespace))

    def patch_json(self, name: str, operations: list[Obj]) -> None:
        """Patch the set with a JSON patch, which can change single items of lists."""
        answer = self.cluster.patch_json(PODCLIQUESETS, name, operations, namespace=self.namespace)
        self._hear_of(PODCLIQUESETS, answer)

    def _hear_of(self, kind: Resource, written: Obj) -> None:
        """Wait until the witness has observed an edit, so that later checks are about its effects."""
        name, version = written["metadata"]["name"], int(written["metadata"]["resourceVersion"])
        self.witness.wait(
            lambda scene: int(scene.get(kind, name)["metadata"]["resourceVersion"]) >= version, f"{name} is edited"
        )

    def change(self, name: str, *cliques: str, tag: str = "") -> None:
        """Change the template of cliques, or of all, in one edit."""
        tag = tag or f"v{next(self._versions)}"
        template = self.cluster.get(PODCLIQUESETS, name, namespace=self.namespace)["spec"]["template"]
        operations = [
            {
                "op": "replace",
                "path": f"/spec/template/cliques/{index}/spec/podSpec/containers/0/image",
                "value": f"example:{tag}",
            }
            for index, clique in enumerate(template["cliques"])
            if not cliques or clique["name"] in cliques
        ]
        self.patch_json(name, operations)

    def switch(self, name: str, strategy: str, **budget: Any) -> None:
        """Change the strategy of the set."""
        self.patch(name, {"spec": {"updateStrategy": {"type": strategy, "rollingUpdate": budget or None}}})

    def scale(self, name: str, replicas: int) -> None:
        """Scale the set."""
        self.patch(name, {"spec": {"replicas": replicas}})

    def scale_clique(self, clique: str, replicas: int) -> None:
        """Scale a PodClique, as an autoscaler would."""
        patch = {"spec": {"replicas": replicas}}
        self._hear_of(PODCLIQUES, self.cluster.patch_merge(PODCLIQUES, clique, patch, namespace=self.namespace))

    def scale_group(self, group: str, replicas: int) -> None:
        """Scale a scaling group, as an autoscaler would."""
        patch = {"spec": {"replicas": replicas}}
        answer = self.cluster.patch_merge(PODCLIQUESCALINGGROUPS, group, patch, namespace=self.namespace)
        self._hear_of(PODCLIQUESCALINGGROUPS, answer)

    def kill(self, pod: Obj) -> None:
        """Delete a pod as another client than the controller."""
        metadata = pod["metadata"]
        self.witness.killed.add(metadata["uid"])
        self.cluster.delete(PODS, metadata["name"], namespace=self.namespace, uid=metadata["uid"])

    def delete(self, name: str) -> None:
        """Delete a workload."""
        self.cluster.delete(PODCLIQUESETS, name, namespace=self.namespace)

    def wait_until_nothing_is_left(self, name: str) -> None:
        """Wait until no object of a workload exists any more."""
        self.witness.wait(
            lambda scene: not scene.has(PODCLIQUESETS, name) and not any(scene.all(kind, name) for kind in OURS),
            f"nothing is left of {name}",
        )

    def wait_for(self, true: Callable[[], object], what: str, seconds: float = DEADLINE) -> None:
        """Wait for a condition on objects that the witness does not watch."""
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
            time.sleep(0.1)


@contextlib.contextmanager
def staged(target: TargetCluster, title: str) -> Iterator[Stage]:
    """Set up a stage for one scenario, and remove it afterwards."""
    namespace = _slug(title)
    target.cluster.create(NAMESPACES, {"metadata": {"name": namespace}})
    with Witness(target.cluster, namespace) as witness:
        stage = Stage(target.cluster, namespace, witness, target)
        try:
            yield stage
        finally:
            _clear(target.cluster, namespace)


def _clear(cluster: ClusterClient, namespace: str) -> None:
    for kind, scope in ((PODCLIQUESETS, namespace), (NODES, None)):
        labels = f"{POOL}={namespace}" if kind is NODES else ""
        for obj in cluster.list(kind, namespace=scope, labels=labels).items:
            with contextlib.suppress(NotFound):
                cluster.delete(kind, obj["metadata"]["name"], namespace=scope)


def _slug(title: str) -> str:
    words = "".join(letter if letter.isalnum() else "-" for letter in title.lower())
    return words[:50].strip("-")


# --- manifests ---------------------------------------------------------------------------------------------------


def grove(name: str) -> Obj:
    """Return one of Grove's own test workloads."""
    return load(next(path for path in GROVE if path.stem == name))


def sample(name: str) -> Obj:
    """Return one of our samples."""
    return load(next(path for path in SAMPLES if path.stem == name))


def clique(name: str, replicas: int, least: int | None = None, budget: tuple[Any, Any] | None = None) -> Obj:
    """Return a clique of a template."""
    container = {"name": "main", "image": "example:v1"}
    spec: Obj = {"roleName": name, "replicas": replicas, "podSpec": {"containers": [container]}}
    if least is not None:
        spec["minAvailable"] = least
    return {"name": name, "spec": spec, **_budget(budget)}


def group(
    name: str, cliques: Sequence[str], replicas: int, least: int = 1, budget: tuple[Any, Any] | None = None
) -> Obj:
    """Return a scaling group of a template."""
    return {
        "name": name,
        "cliqueNames": list(cliques),
        "replicas": replicas,
        "minAvailable": least,
        **_budget(budget),
    }


def podcliqueset(
    *parts: Obj,
    name: str = "w",
    replicas: int = 1,
    strategy: str = "RollingRecreate",
    budget: tuple[Any, Any] | None = None,
) -> Obj:
    """Return a set of these cliques and groups."""
    update: Obj = {"type": strategy}
    if budget is not None:
        update["rollingUpdate"] = {"maxUnavailable": budget[0], "maxSurge": budget[1]}
    return {
        "apiVersion": PODCLIQUESETS.api_version,
        "kind": PODCLIQUESETS.kind,
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "updateStrategy": update,
            "template": {
                "cliques": [part for part in parts if "spec" in part],
                "podCliqueScalingGroups": [part for part in parts if "cliqueNames" in part],
            },
        },
    }


def _budget(budget: tuple[Any, Any] | None) -> Obj:
    return {} if budget is None else {"updateStrategy": {"maxUnavailable": budget[0], "maxSurge": budget[1]}}
