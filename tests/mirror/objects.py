"""Objects of one workload as an API server reports them, with the versions that a test chooses."""

from typing import Any

from rollouts.cluster import Obj
from rollouts.engine.model import names

NAMESPACE = "web"
SET = "my"


def metadata(name: str, *, uid: str, version: int, owner: tuple[str, str] | None = None, **labels: str) -> Obj:
    """Return the metadata of an object; the owner is a kind and a uid."""
    told: Obj = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": uid,
        "resourceVersion": str(version),
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "labels": labels,
    }
    if owner:
        reference = {"apiVersion": "grove.io/v1alpha1", "kind": owner[0], "name": "any", "uid": owner[1]}
        told["ownerReferences"] = [{**reference, "controller": True}]
    return told


def ours(labels: dict[str, str] | None = None, replica: int = 0) -> dict[str, str]:
    """Return the labels of an object that belongs to the set."""
    common = {names.MANAGED_BY: names.OPERATOR, names.PART_OF: SET, names.REPLICA_INDEX: str(replica)}
    return common | (labels or {})


def pod_clique_set(*, version: int = 1, uid: str = "set", name: str = SET, **spec: Any) -> Obj:
    """Return a PodCliqueSet with one clique `c`."""
    clique = {"name": "c", "spec": {"roleName": "c", "replicas": 2, "podSpec": {"containers": [{"name": "main"}]}}}
    return {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodCliqueSet",
        "metadata": {**metadata(name, uid=uid, version=version), "managedFields": [{"manager": "kubectl"}]},
        "spec": {"replicas": 1, "template": {"cliques": [clique]}, **spec},
        "status": {"currentGenerationHash": "g1"},
    }


def clique(
    name: str = "my-0-c", *, version: int = 2, uid: str = "clique", owner: str = "set", replica: int = 0, **spec: Any
) -> Obj:
    """Return a PodClique in no group."""
    labels = ours({names.TEMPLATE_HASH: "t1"}, replica)
    return {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodClique",
        "metadata": metadata(name, uid=uid, version=version, owner=("PodCliqueSet", owner), **labels),
        "spec": {"roleName": "c", "replicas": 2, "minAvailable": 1, **spec},
        "status": {"replicas": 2},
    }


def group(*, version: int = 2, uid: str = "group", owner: str = "set") -> Obj:
    """Return the PodCliqueScalingGroup `sg` of replica 0."""
    return {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodCliqueScalingGroup",
        "metadata": metadata("my-0-sg", uid=uid, version=version, owner=("PodCliqueSet", owner), **ours()),
        "spec": {"replicas": 3, "minAvailable": 2, "cliqueNames": ["c"]},
    }


def member(*, version: int = 2, uid: str = "member", owner: str = "group") -> Obj:
    """Return the PodClique `c` of replica 1 of the scaling group."""
    labels = ours({names.GROUP: "my-0-sg", names.GROUP_REPLICA_INDEX: "1", names.TEMPLATE_HASH: "t1"})
    told = clique("my-0-sg-1-c", version=version, uid=uid)
    told["metadata"] = metadata(
        "my-0-sg-1-c", uid=uid, version=version, owner=("PodCliqueScalingGroup", owner), **labels
    )
    return told


def pod(
    name: str = "my-0-c-abcde",
    *,
    version: int = 3,
    uid: str = "pod",
    owner: str = "clique",
    clique: str = "my-0-c",
    index: int = 0,
    ready: bool = True,
    leaving: bool = False,
) -> Obj:
    """Return a pod of a PodClique, on a node."""
    labels = ours({names.CLIQUE: clique, names.POD_INDEX: str(index), names.TEMPLATE_HASH: "t1"})
    told: Obj = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(name, uid=uid, version=version, owner=("PodClique", owner), **labels),
        "spec": {
            "nodeName": "node-1",
            "hostname": f"{clique}-{index}",
            "containers": [{"name": "main", "image": "a:1"}],
        },
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }
    if leaving:
        told["metadata"]["deletionTimestamp"] = "2026-01-02T03:05:05Z"
    return told


def gang(*, version: int = 4, uid: str = "gang", owner: str = "set") -> Obj:
    """Return the base gang of replica 0."""
    references = [{"namespace": NAMESPACE, "name": "my-0-c-abcde"}]
    return {
        "apiVersion": "scheduler.grove.io/v1alpha1",
        "kind": "PodGang",
        "metadata": metadata("my-0", uid=uid, version=version, owner=("PodCliqueSet", owner), **ours()),
        "spec": {"podgroups": [{"name": "my-0-c", "minReplicas": 1, "podReferences": references}]},
    }


def service(*, version: int = 5, uid: str = "service", owner: str = "set") -> Obj:
    """Return the headless service of replica 0."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata("my-0", uid=uid, version=version, owner=("PodCliqueSet", owner), **ours()),
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True},
    }


def node(name: str = "node-1", *, version: int = 6, ready: bool = True, heartbeat: str = "1") -> Obj:
    """Return a node."""
    condition = {"type": "Ready", "status": "True" if ready else "False", "lastHeartbeatTime": heartbeat}
    told = metadata(name, uid=f"uid-{name}", version=version)
    del told["namespace"]
    return {"apiVersion": "v1", "kind": "Node", "metadata": told, "spec": {}, "status": {"conditions": [condition]}}
