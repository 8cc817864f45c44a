"""The names of the complete components of a workload: listed when the status needs them, patched when a few change.

`tree_builder` makes one for each tree; `status` writes its names into `updateProgress`. The invariant: patched or
listed anew, the names are the same.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import chain

from rollouts.engine.model.values import value

ComponentNames = tuple[list[str], list[str]]
"""Of a replica of the set: standalone PodCliques, and PodCliqueScalingGroups."""


class LazyNames:
    """Names of components, in the order of their replicas of the set; listed at the first use, and only once."""

    def __init__(self, compute_names: Callable[[], Mapping[int, Sequence[str]]]) -> None:
        """`compute_names` returns the names by replica of the set, in order."""
        self._compute_names = compute_names

    @cached_property
    def names(self) -> list[str]:
        """All names."""
        return [*chain.from_iterable(self._compute_names().values())]

    @cached_property
    def _replica_indices(self) -> list[int]:
        """The replica of the set that each name belongs to."""
        return [index for index, names in self._compute_names().items() for _ in names]

    def with_changes(self, changed: Mapping[int, Sequence[str]]) -> "LazyNames":
        """Return a copy in which the names of these replicas are replaced."""
        other = LazyNames(self._compute_names)
        other.names, other._replica_indices = [*self.names], [*self._replica_indices]
        for index, names in changed.items():
            former = slice(bisect_left(other._replica_indices, index), bisect_right(other._replica_indices, index))
            other.names[former], other._replica_indices[former] = names, [index] * len(names)
        return other

    def __eq__(self, other: object) -> bool:
        """Compare the names."""
        return isinstance(other, LazyNames) and self.names == other.names

    __hash__ = None  # type: ignore[assignment]


@value
class CompleteComponents:
    """The complete components of the wanted replicas."""

    cliques: LazyNames  # PodCliques in no scaling group
    groups: LazyNames  # PodCliqueScalingGroups

    def with_changes(self, changed: Mapping[int, ComponentNames]) -> "CompleteComponents":
        """Return a copy in which the components of these replicas are replaced."""
        if not changed:
            return self
        return CompleteComponents(
            self.cliques.with_changes({index: cliques for index, (cliques, _) in changed.items()}),
            self.groups.with_changes({index: groups for index, (_, groups) in changed.items()}),
        )
