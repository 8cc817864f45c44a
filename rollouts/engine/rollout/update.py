"""Whether an update is under way, and where it is at work.

Read from the status of the set, where progress lives, and from what is observed. `planner` asks first of all; `errors`
writes the answer back. The invariants: an update is recorded before anything is replaced for it; a new generation hash
forgets all progress (DESIGN 6.7); a selected replica stays selected until it is complete, and from no other that
serves anything is taken meanwhile.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from rollouts.engine.model.values import value
from rollouts.engine.tree.layout import Shape
from rollouts.engine.tree.views import Replica, Tree


class Turn(Enum):
    """What becomes of the update in this pass."""

    NONE = "None"  # nothing to update, or nobody to do it
    FIRST = "First"  # the first hash ever: noted, nothing to replace
    START = "Start"  # an update begins: noted now, worked at from the next pass on
    WORK = "Work"  # under way
    END = "End"  # nothing is left to do: the end is noted


@value
class Progress:
    """What the status of the set says about its update."""

    generation_hash: str  # empty: none yet
    started_at: str  # empty: there was no update yet
    ended_at: str  # empty: not ended
    updating: Mapping[int, str]  # the replicas being updated, and since when

    @property
    def is_open(self) -> bool:
        """Whether an update has begun and not ended."""
        return bool(self.started_at) and not self.ended_at


@value
class Update:
    """The update as this pass sees it."""

    turn: Turn
    is_under_way: bool  # pods are replaced for it in this pass
    generation_hash: str
    former: Progress
    supersedes: bool  # another update was still open when this one began
    selected: int | None  # the replica being updated; None under ReplicaRecreate and OnDelete
    # Other replicas that are down: until they are up nothing is taken from one that serves.
    held_by: tuple[int, ...] = ()

    def is_rolling(self, index: int) -> bool:
        """Whether the components of a replica are updated in this pass."""
        return self.is_under_way and index == self.selected and not self.held_by


def read_progress(status: Mapping[str, Any]) -> Progress:
    """Return what a stored status says; what it does not say is empty."""
    stored = status.get("updateProgress") or {}
    updating = stored.get("updatingReplicas") or ()
    return Progress(
        generation_hash=status.get("currentGenerationHash") or "",
        started_at=stored.get("updateStartedAt") or "",
        ended_at=stored.get("updateEndedAt") or "",
        updating={entry["replicaIndex"]: entry.get("updateStartedAt") or "" for entry in updating},
    )


def decide_update(shape: Shape, tree: Tree, former: Progress) -> Update:
    """Return what becomes of the update in this pass."""
    generation_hash = shape.generation_hash
    turn = _decide_turn(shape, tree, former)
    is_under_way = turn is Turn.WORK
    supersedes = turn is Turn.START and former.is_open and former.generation_hash != generation_hash
    if not is_under_way or shape.replaces_whole:
        return Update(turn, is_under_way, generation_hash, former, supersedes, selected=None)
    selected, held_by = _select(shape, tree, former)
    return Update(turn, is_under_way, generation_hash, former, supersedes, selected, held_by)


def _decide_turn(shape: Shape, tree: Tree, former: Progress) -> Turn:
    if not former.generation_hash:
        return Turn.FIRST
    if former.generation_hash != shape.generation_hash:
        return Turn.START
    if shape.is_on_delete:
        return Turn.END if former.is_open else Turn.NONE
    if not former.is_open:
        # Left behind by OnDelete, or found when we came: to be rolled by whoever rolls now.
        return Turn.START if tree.outdated else Turn.NONE
    is_done = not tree.incomplete and tree.has_just(shape.workload.replicas)
    return Turn.END if is_done else Turn.WORK


def _select(shape: Shape, tree: Tree, former: Progress) -> tuple[int | None, tuple[int, ...]]:
    """Return the replica whose turn it is, and those that it has to wait for.

    It is the one that was begun, until it is complete, whatever becomes of the others; then the next. Of several that
    were begun, as ReplicaRecreate leaves them behind, it is the one that the status names. What serves
    nobody elsewhere is replaced meanwhile (`timeline_entries`), which begins nothing. From one that serves nothing is taken while
    another is down: that would be a second one down.
    """
    wanted = shape.workload.replicas
    missing, beyond = tree.missing(wanted), tree.beyond(wanted)
    touched = tree.begun | former.updating.keys()
    begun = ((touched & tree.incomplete) - beyond) | (touched & missing)
    candidates = (begun & former.updating.keys()) or begun or _find_due(shape, tree, beyond)
    if not candidates:
        return None, ()
    replicas = [tree.replicas[index] for index in candidates - missing]
    replicas += [shape.replica(index) for index in candidates & missing]
    first = min([replica.update_order for replica in replicas])[-1]  # which is its index
    # What somebody scaled below its minimum is not waited for: no update brings it back.
    down = missing.union([i for i in (tree.unavailable & tree.incomplete) - beyond if not tree.replicas[i].is_up])
    if first in down:
        return first, ()
    held_by = tuple(sorted(down))
    return (None if held_by and not begun else first), held_by


def _find_due(shape: Shape, tree: Tree, beyond: frozenset[int]) -> frozenset[int]:
    """Return the replicas that are to be updated and were not begun.

    Hundreds may be outdated and serve. They are looked at only when none of those that are down is next: the order of
    the design would put them behind.
    """
    due = (tree.unavailable & tree.outdated & tree.incomplete) - beyond
    due |= {index for index in tree.unfinished - beyond if _is_due(tree.replicas[index], shape)}
    down = due & tree.unavailable
    return down or due | ((tree.outdated & tree.incomplete) - beyond)


def _is_due(replica: Replica, shape: Shape) -> bool:
    """Whether a replica has surge left of its update, or was updated and nobody has written it down yet."""
    if replica.has_surge:
        return True
    components = (*(view.clique for view in replica.cliques), *(view.group for view in replica.groups))
    noted = (one.status.get("currentPodCliqueSetGenerationHash") for one in components if one is not None)
    return any(one not in (None, shape.generation_hash) for one in noted)
