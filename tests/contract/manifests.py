"""Small manifests for the contract: the least that a server accepts, plus what a test adds."""

from collections.abc import Callable
from typing import Any

from rollouts.cluster import Obj, Resource
from rollouts.cluster.resources import PODCLIQUES, PODS
from tests.builtin_resources import CONFIGMAPS


def config_map(namespace: str, name: str, *, data: dict[str, str] | None = None, **metadata: Any) -> Obj:
    """Return a ConfigMap: an object of a built-in kind that no controller acts on."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "data": data or {},
    }


def gated_pod(namespace: str, name: str, *, node: str | None = None, **metadata: Any) -> Obj:
    """Return a pod that no scheduler and no kubelet changes: it is gated, or on a node that does not exist."""
    spec: Obj = {"containers": [{"name": "main", "image": "registry.example/app:1"}]}
    if node is None:
        spec["schedulingGates"] = [{"name": "example.com/held"}]
    else:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": spec,
    }


def pod_clique(namespace: str, name: str, *, replicas: int = 2, **metadata: Any) -> Obj:
    """Return a PodClique: an object of a custom kind with status and scale."""
    return {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodClique",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {
            "roleName": "worker",
            "replicas": replicas,
            "podSpec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]},
        },
    }


def pod_clique_set(namespace: str, name: str, **spec: Any) -> Obj:
    """Return a PodCliqueSet with one clique."""
    clique = {
        "name": "worker",
        "spec": {
            "roleName": "worker",
            "replicas": 2,
            "minAvailable": 1,
            "podSpec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]},
        },
    }
    return {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodCliqueSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": 1, "template": {"cliques": [clique]}, **spec},
    }


def disruption_budget(namespace: str, name: str, labels: dict[str, str], min_available: int) -> Obj:
    """Return a budget over the pods with these labels."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": labels}},
    }


_BUILDERS: dict[Resource, Callable[..., Obj]] = {CONFIGMAPS: config_map, PODCLIQUES: pod_clique, PODS: gated_pod}


def minimal(resource: Resource, namespace: str, name: str, **metadata: Any) -> Obj:
    """Return the smallest manifest of a kind."""
    return _BUILDERS[resource](namespace, name, **metadata)
