"""Whether an update is under way, and where it is at work.

Read from the status of the set, where progress lives, and from what is observed. `planner` asks first of all; `status`
writes the answer back. The invariants: an update is recorded before anything is replaced for it; a new generation hash
forgets all progress (`docs/semantics.md` 7); a selected replica stays selected until it is complete, and nothing
is taken meanwhile from another replica that serves.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from rollouts.engine.model.values import value
from rollouts.engine.rollout.order import set_replica_update_order
from rollouts.engine.tree.layout import Layout
from rollouts.engine.tree.views import ReplicaView, Tree


class UpdatePhase(Enum):
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

    phase: UpdatePhase
    is_under_way: bool  # pods are replaced for it in this pass
    generation_hash: str
    former: Progress
    supersedes: bool  # another update was still open when this one began
    selected: int | None  # the replica being updated; None under ReplicaRecreate and OnDelete
    # Other replicas that are down: until they are up nothing is taken from one that serves.
    blocked_by: tuple[int, ...] = ()

    def is_rolling(self, index: int) -> bool:
        """Whether the components of a replica are updated in this pass."""
        return self.is_under_way and index == self.selected and not self.blocked_by


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


def decide_update(layout: Layout, tree: Tree, former: Progress) -> Update:
    """Return what becomes of the update in this pass."""
    generation_hash = layout.generation_hash
    phase = _decide_phase(layout, tree, former)
    is_under_way = phase is UpdatePhase.WORK
    supersedes = phase is UpdatePhase.START and former.is_open and former.generation_hash != generation_hash
    if not is_under_way or layout.replaces_whole:
        return Update(phase, is_under_way, generation_hash, former, supersedes, selected=None)
    selected, blocked_by = _select_replica(layout, tree, former)
    return Update(phase, is_under_way, generation_hash, former, supersedes, selected, blocked_by)


def _decide_phase(layout: Layout, tree: Tree, former: Progress) -> UpdatePhase:
    if not former.generation_hash:
        return UpdatePhase.FIRST
    if former.generation_hash != layout.generation_hash:
        return UpdatePhase.START
    if layout.is_on_delete:
        return UpdatePhase.END if former.is_open else UpdatePhase.NONE
    if not former.is_open:
        # Left behind by OnDelete, or found when we came: to be rolled by whoever rolls now.
        return UpdatePhase.START if tree.outdated else UpdatePhase.NONE
    is_done = not tree.incomplete and tree.has_exactly(layout.workload.replicas)
    return UpdatePhase.END if is_done else UpdatePhase.WORK


def _select_replica(layout: Layout, tree: Tree, former: Progress) -> tuple[int | None, tuple[int, ...]]:
    """Return the replica whose turn it is, and those that it has to wait for.

    It is the one that was begun, until it is complete, whatever becomes of the others; then the next. Of several that
    were begun, as ReplicaRecreate leaves them behind, it is the one that the status names. What serves
    nobody elsewhere is replaced meanwhile (`steps`), which begins nothing. From one that serves nothing is
    taken while another is down: that would be a second one down.
    """
    wanted = layout.workload.replicas
    missing, beyond = tree.missing(wanted), tree.beyond(wanted)
    touched = tree.updating | former.updating.keys()
    begun = ((touched & tree.incomplete) - beyond) | (touched & missing)
    candidates = (begun & former.updating.keys()) or begun or _find_candidates(layout, tree, beyond)
    if not candidates:
        return None, ()
    replicas = [tree.replicas[index] for index in candidates - missing]
    replicas += [layout.make_replica_view(index) for index in candidates & missing]
    first = min(replicas, key=set_replica_update_order).index
    # What somebody scaled below its minimum is not waited for: no update brings it back.
    down = missing.union([i for i in (tree.unavailable & tree.incomplete) - beyond if not tree.replicas[i].is_up])
    if first in down:
        return first, ()
    blocked_by = tuple(sorted(down))
    return (None if blocked_by and not begun else first), blocked_by


def _find_candidates(layout: Layout, tree: Tree, beyond: frozenset[int]) -> frozenset[int]:
    """Return the replicas that are to be updated and were not begun.

    Hundreds may be outdated and serve. They are looked at only when none of those that are down is next: the order of
    `docs/semantics.md` 6 would put them behind.
    """
    due = (tree.unavailable & tree.outdated & tree.incomplete) - beyond
    due |= {index for index in tree.unfinished - beyond if _has_unrecorded_update(tree.replicas[index], layout)}
    down = due & tree.unavailable
    return down or due | ((tree.outdated & tree.incomplete) - beyond)


def _has_unrecorded_update(replica: ReplicaView, layout: Layout) -> bool:
    """Whether a replica has surge left of its update, or was updated and nobody has written it down yet."""
    if replica.has_surge:
        return True
    components = (*(view.clique for view in replica.cliques), *(view.group for view in replica.groups))
    noted = (one.status.get("currentPodCliqueSetGenerationHash") for one in components if one is not None)
    return any(one not in (None, layout.generation_hash) for one in noted)
