"""Pods, nodes and gangs, indexed for the controllers and updated with every write.

The cache is filled from the stored objects at start and from the store's changes after that, so it can always be
rebuilt and holds nothing of its own. Each lookup is one dictionary access: no controller walks all pods because one of
them changed. `controller_manager` passes every change to the cache first, so the cache is never older than the change
that a controller observes.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from rollouts.engine.model import names
from rollouts.engine.model.observed import TERMINAL_PHASES
from rollouts.engine.scheduling.placement import NamespacedName
from rollouts.engine.scheduling.pod_groups import PodGroup, parse_pod_groups
from rollouts.sandbox.apiserver.registry import Kind, Registry
from rollouts.sandbox.apiserver.storage import Storage, StorageChange
from rollouts.sandbox.cluster.node_info import NodeInfo, parse_node_info
from rollouts.sandbox.conditions import is_true

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds that the controllers refer to by name."""

    pods: Kind
    nodes: Kind
    gangs: Kind
    events: Kind
    namespaces: Kind
    disruption_budgets: Kind
    priority_classes: Kind

    @classmethod
    def from_registry(cls, registry: Registry) -> "Kinds":
        """Look the kinds up, once."""
        return cls(
            pods=registry.kind("pods"),
            nodes=registry.kind("nodes"),
            gangs=registry.kind("podgangs", "scheduler.grove.io"),
            events=registry.kind("events"),
            namespaces=registry.kind("namespaces"),
            disruption_budgets=registry.kind("poddisruptionbudgets", "policy"),
            priority_classes=registry.kind("priorityclasses", "scheduling.k8s.io"),
        )


class ClusterCache:
    """Indexes over pods, nodes and gangs."""

    def __init__(self, store: Storage, kinds: Kinds) -> None:
        self._store = store
        self.kinds = kinds
        self.nodes: dict[str, NodeInfo] = {}
        self.pods_by_node: defaultdict[str, dict[NamespacedName, None]] = defaultdict(
            dict
        )  # node name → its pods, oldest first
        self.gangs: dict[NamespacedName, tuple[PodGroup, ...]] = {}
        self.gang_by_pod: dict[
            NamespacedName, NamespacedName
        ] = {}  # pod → the gang that lists it, or else the gang its label names
        self.pods_by_gang: defaultdict[NamespacedName, dict[NamespacedName, None]] = defaultdict(
            dict
        )  # the same, by gang
        self.ready_count_by_clique: defaultdict[NamespacedName, int] = defaultdict(
            int
        )  # namespace and clique → Ready pods

    def get_pod(self, key: NamespacedName) -> Obj | None:
        """Return the stored pod."""
        stored = self._store.get(self.kinds.pods, *key)
        return None if stored is None else stored.obj

    def observe(self, change: StorageChange) -> None:
        """Update the indexes with one change."""
        if change.kind is self.kinds.pods:
            self._observe_pod(change)
        elif change.kind is self.kinds.nodes:
            self._observe_node(change)
        elif change.kind is self.kinds.gangs:
            self._observe_gang(change)

    def _observe_pod(self, change: StorageChange) -> None:
        key = key_of(change.obj)
        old, new = change.old, None if change.type == "DELETED" else change.obj
        before, after = node_name(old), node_name(new)
        if before != after:
            if before:
                self.pods_by_node[before].pop(key, None)
            if after:
                self.pods_by_node[after][key] = None
        for pod, step in ((old, -1), (new, 1)):
            if pod is not None and is_ready(pod):
                self._count_ready(clique_key(pod), step)
        self._resolve_gang(key, new)

    def _count_ready(self, clique: NamespacedName, step: int) -> None:
        self.ready_count_by_clique[clique] += step
        if not self.ready_count_by_clique[clique]:
            del self.ready_count_by_clique[clique]

    def _resolve_gang(self, key: NamespacedName, pod: Obj | None) -> None:
        """Find the gang of a pod: the gang that lists it, or else the gang its label names."""
        groups = self.gangs.get(self.gang_by_pod.get(key, ("", "")), ())
        if any(key in group.members for group in groups):
            return
        label = (pod["metadata"].get("labels") or {}).get(names.GANG) if pod is not None else None
        self._assign_gang(key, (key[0], label) if label else None)

    def _assign_gang(self, pod: NamespacedName, gang: NamespacedName | None) -> None:
        before = self.gang_by_pod.pop(pod, None)
        if before is not None:
            self.pods_by_gang[before].pop(pod, None)
            if not self.pods_by_gang[before]:
                del self.pods_by_gang[before]
        if gang is not None:
            self.gang_by_pod[pod] = gang
            self.pods_by_gang[gang][pod] = None

    def _observe_node(self, change: StorageChange) -> None:
        name = change.obj["metadata"]["name"]
        if change.type == "DELETED":
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = parse_node_info(change.obj)

    def _observe_gang(self, change: StorageChange) -> None:
        gang = key_of(change.obj)
        before = {pod for group in self.gangs.pop(gang, ()) for pod in group.members}
        after: set[NamespacedName] = set()
        if change.type != "DELETED":
            self.gangs[gang] = parse_pod_groups(change.obj)
            after = {pod for group in self.gangs[gang] for pod in group.members}
        for pod in after - before:
            self._assign_gang(pod, gang)
        for pod in before - after:
            self._resolve_gang(pod, self.get_pod(pod))


def key_of(obj: Obj) -> NamespacedName:
    """Return the namespace and name of an object."""
    return obj["metadata"].get("namespace") or "", obj["metadata"]["name"]


def clique_key(pod: Obj) -> NamespacedName:
    """Return the namespace of a pod and the clique its label names."""
    return pod["metadata"]["namespace"], (pod["metadata"].get("labels") or {}).get(names.CLIQUE, "")


def node_name(pod: Obj | None) -> str | None:
    """Return the node a pod is bound to."""
    return None if pod is None else pod["spec"].get("nodeName") or None


def is_finished(pod: Obj) -> bool:
    """Return whether the pod has ended: its phase is Succeeded or Failed."""
    return (pod.get("status") or {}).get("phase") in TERMINAL_PHASES


def is_terminating(obj: Obj) -> bool:
    """Return whether the object has a deletionTimestamp."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def is_ready(pod: Obj | None) -> bool:
    """Return whether the pod is Ready and not terminating."""
    return pod is not None and not is_terminating(pod) and is_true(pod, "Ready")


def uses_node_resources(pod: Obj | None) -> bool:
    """Return whether the pod takes resources of its node: from binding to its end, also while it terminates."""
    return pod is not None and node_name(pod) is not None and not is_finished(pod)
