"""What is in a simulated world, arranged, and kept so while things happen there.

Between `cluster`, which notes what something happened to, and `simulate`, which plans again and again: of a thousand
pods one pass changes a few, so only the replicas of the set that were touched are arranged again. The invariant: the
tree is at any time the one that `tree_builder` would make of the whole world.
"""

from collections.abc import Set

from rollouts.engine.simulation.cluster import UNKNOWN_REPLICA, SimulatedCluster
from rollouts.engine.tree.layout import Layout
from rollouts.engine.tree.tree_builder import build_tree, update_tree
from rollouts.engine.tree.views import Tree


class IncrementalTree:
    """A tree that follows a world."""

    def __init__(self, layout: Layout, world: SimulatedCluster) -> None:
        """Look at everything once."""
        self.layout = layout
        self._cluster = world
        self._journal_position = world.journal_position
        self._tree = build_tree(layout, world.observed())
        self._changed = {*self._tree.replicas}  # since somebody asked for it
        # What fits nowhere may be the owner of what belongs somewhere: no replica is looked at without the others then.
        self._has_strangers = bool(self._tree.strangers)

    def refresh(self) -> Tree:
        """Return what is there now."""
        touched = self._cluster.replicas_changed_since(self._journal_position)
        if touched:
            self._journal_position = self._cluster.journal_position
            if self._has_strangers or self._cluster.has_unknown_replica or UNKNOWN_REPLICA in touched:
                self._rebuild()
            else:
                self._update_replicas(touched)
        return self._tree

    def pop_changed(self) -> Set[int]:
        """Return the replicas of the set that may have changed since the last call, or are gone."""
        changed, self._changed = self._changed, set()
        return changed

    def _rebuild(self) -> None:
        self._changed.update(self._tree.replicas)
        self._tree = build_tree(self.layout, self._cluster.observed())
        self._changed.update(self._tree.replicas)

    def _update_replicas(self, touched: Set[int]) -> None:
        self._tree = update_tree(self.layout, self._tree, self._cluster.observed_replicas(touched), touched)
        self._changed.update(touched)
