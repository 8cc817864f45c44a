"""What is free on the nodes, and what pods take of it."""

from collections import Counter, defaultdict

from rollouts.engine.scheduling.placement import NamespacedName, NodeCapacity
from rollouts.sandbox.cluster.node_info import NodeInfo


class NodeResources:
    """The resources that pods take of each node: pods that the API shows there, and pods that are being bound."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeInfo] = {}
        self._taken: dict[NamespacedName, tuple[str, dict[str, int]]] = {}
        self._used: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def take(self, key: NamespacedName, node: str, requests: dict[str, int]) -> None:
        """Reserve a pod's resources on a node."""
        if key not in self._taken:
            self._taken[key] = (node, requests)
            self._used[node].update(requests)

    def release(self, key: NamespacedName) -> bool:
        """Release a pod's resources; return whether it had any."""
        node, requests = self._taken.pop(key, ("", {}))
        if node:
            self._used[node].subtract(requests)
        return bool(node)

    def list_free(self) -> list[NodeCapacity]:
        """Return what is free on each node."""
        return [
            NodeCapacity(
                node, {name: amount - self._used[node.name][name] for name, amount in node.allocatable.items()}
            )
            for node in self.nodes.values()
        ]
