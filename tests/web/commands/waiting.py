"""Workloads that wait, as remedies are for: for surge that is never Ready, for a pod whose node is gone."""

from rollouts.cluster import ClusterClient, Obj
from rollouts.cluster.resources import NODES, PODS
from rollouts.engine.manifest.edits import ImageEdit
from rollouts.engine.tree.surge import find_surge
from rollouts.services.audit import Caller
from rollouts.services.changes import execute
from rollouts.services.workloads import edit_strategy, set_images
from rollouts.web.workload import WorkloadContext
from tests.services.stage import Stage


def surge_of(stage: Stage) -> list[str]:
    """Return the names of the units of surge."""
    look = WorkloadContext(stage.place).snapshot
    assert look.workload is not None
    return [unit.name for unit in find_surge(look.workload, look.mirrored.observed)]


def make_surge(stage: Stage, caller: Caller) -> None:
    """Give the frontend of a workload that runs a surge pod that never becomes Ready."""
    budget = {"maxUnavailable": 0, "maxSurge": 1}
    changes = {"type": "RollingUpdate", "components": {"frontend": budget, "decode": budget}}
    execute(caller, stage.place, edit_strategy(changes))
    execute(caller, stage.place, set_images([ImageEdit("frontend", "app:broken")]))
    stage.loop.run(lambda: bool(surge_of(stage)))
    stage.observe()


def lose_pod(stage: Stage) -> str:
    """Delete a pod whose node is gone, so that nobody says that it has ended; return its name and uid."""
    pod = stage.loop.pods()[0]
    lose_node(stage.cluster, pod)
    stage.cluster.delete(PODS, pod["metadata"]["name"], namespace=stage.namespace)
    stage.observe()
    return f"{pod['metadata']['name']}/{pod['metadata']['uid']}"


def lose_node(cluster: ClusterClient, pod: Obj) -> None:
    """Have the node of a pod gone: nobody stops its containers, nor says that they have ended."""
    set_node(cluster, pod["spec"]["nodeName"], is_up=False)


def is_there(stage: Stage, pod: str) -> bool:
    """Whether the cluster knows a pod of this name and uid, be it on its way out."""
    pods = stage.cluster.list(PODS, namespace=stage.namespace).items
    return pod in [f"{one['metadata']['name']}/{one['metadata']['uid']}" for one in pods]


def bring_nodes_back(cluster: ClusterClient) -> None:
    """Have all nodes up again, as other tests find them."""
    for node in cluster.list(NODES).items:
        set_node(cluster, node["metadata"]["name"], is_up=True)


def set_node(cluster: ClusterClient, name: str, *, is_up: bool) -> None:
    """Have a node up or down."""
    condition = {"type": "Ready", "status": str(is_up), "reason": "Told"}
    cluster.patch_merge(NODES, name, {"status": {"conditions": [condition]}}, subresource="status")
