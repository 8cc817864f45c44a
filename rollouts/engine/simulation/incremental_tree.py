"""What is in a simulated world, arranged, and kept so while things happen there.

Between `seed`, which notes what something happened to, and `simulate`, which plans again and again: of a thousand pods
one pass changes a few, so only the replicas of the set that were touched are arranged again. The invariant: the tree is
at any time the one that `tree_builder` would make of the whole world.
"""

from collections.abc import Set

from rollouts.engine.simulation.cluster import NOWHERE, World
from rollouts.engine.tree.layout import Shape
from rollouts.engine.tree.tree_builder import arrange, rearrange
from rollouts.engine.tree.views import Tree


class Sight:
    """A tree that follows a world."""

    def __init__(self, shape: Shape, world: World) -> None:
        """Look at everything once."""
        self.shape = shape
        self._world = world
        self._mark = world.mark
        self._tree = arrange(shape, world.observed())
        self._changed = {*self._tree.replicas}  # since somebody asked for it
        # What fits nowhere may be the owner of what belongs somewhere: no replica is looked at without the others then.
        self._is_mixed = bool(self._tree.strangers)

    def look(self) -> Tree:
        """Return what is there now."""
        touched = self._world.touched_since(self._mark)
        if touched:
            self._mark = self._world.mark
            if self._is_mixed or self._world.has_homeless or NOWHERE in touched:
                self._look_at_all()
            else:
                self._look_at(touched)
        return self._tree

    def take_changed(self) -> Set[int]:
        """Return the replicas of the set that may have changed since the last call, or are gone."""
        changed, self._changed = self._changed, set()
        return changed

    def _look_at_all(self) -> None:
        self._changed.update(self._tree.replicas)
        self._tree = arrange(self.shape, self._world.observed())
        self._changed.update(self._tree.replicas)

    def _look_at(self, touched: Set[int]) -> None:
        self._tree = rearrange(self.shape, self._tree, self._world.observed_replicas(touched), touched)
        self._changed.update(touched)
