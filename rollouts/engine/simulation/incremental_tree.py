"""The tree of a simulated cluster, updated as the cluster changes.

`cluster` records which replicas of the set changed, and `simulate` plans from the tree. One pass changes a few of a
thousand pods, so only the changed replicas are built again. The invariant: after each refresh the tree equals the one
that `tree_builder` would build from all objects.
"""

from collections.abc import Set

from rollouts.engine.simulation.cluster import UNKNOWN_REPLICA, SimulatedCluster
from rollouts.engine.tree.availability import Tree
from rollouts.engine.tree.layout import Layout
from rollouts.engine.tree.tree_builder import build_tree, update_tree


class IncrementalTree:
    """The tree of one simulated cluster."""

    def __init__(self, layout: Layout, cluster: SimulatedCluster) -> None:
        """Build the tree of all objects."""
        self.layout = layout
        self._cluster = cluster
        self._journal_position = cluster.journal_position
        self._tree = build_tree(layout, cluster.observed())
        self._changed = {*self._tree.replicas}  # since the last `pop_changed`
        # A stranger may own objects of a replica, so with strangers the whole tree is built again.
        self._has_strangers = bool(self._tree.strangers)

    def refresh(self) -> Tree:
        """Return the tree of the objects as they are now."""
        changed = self._cluster.replicas_changed_since(self._journal_position)
        if changed:
            self._journal_position = self._cluster.journal_position
            if self._has_strangers or self._cluster.has_unknown_replica or UNKNOWN_REPLICA in changed:
                self._rebuild()
            else:
                self._update_replicas(changed)
        return self._tree

    def pop_changed(self) -> Set[int]:
        """Return the replicas of the set that may have changed or gone since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def _rebuild(self) -> None:
        self._changed.update(self._tree.replicas)
        self._tree = build_tree(self.layout, self._cluster.observed())
        self._changed.update(self._tree.replicas)

    def _update_replicas(self, changed: Set[int]) -> None:
        self._tree = update_tree(self.layout, self._tree, self._cluster.observed_replicas(changed), changed)
        self._changed.update(changed)
