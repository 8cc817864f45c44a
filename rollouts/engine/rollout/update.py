"""Whether an update is under way, and which replica of the set it works on.

`planner` asks this first. The answer follows from the status of the set, which holds the progress, and the observed
objects; `status` writes it back. The invariants: an update is recorded before anything is replaced for it; a new
generation hash resets all progress (`docs/semantics.md` 7); a selected replica stays selected until it is complete, and
meanwhile the update takes nothing from another replica that serves.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from rollouts.engine.model.values import value
from rollouts.engine.rollout.order import set_replica_update_order
from rollouts.engine.tree.availability import ReplicaView, Tree
from rollouts.engine.tree.layout import Layout
from rollouts.engine.tree.surge import has_surge_inside


class UpdatePhase(Enum):
    """The phase of the update in this pass."""

    NONE = "None"  # nothing to update, or OnDelete
    FIRST = "First"  # the first generation hash is recorded; nothing is replaced
    START = "Start"  # a new update is recorded; the next pass begins to replace
    WORK = "Work"  # under way
    END = "End"  # the end is recorded


@value
class Progress:
    """The progress of the update in the stored status of the set."""

    generation_hash: str  # empty: none recorded
    started_at: str  # empty: no update yet
    ended_at: str  # empty: not ended
    updating: Mapping[int, str]  # the replicas being updated, and their start times

    @property
    def is_open(self) -> bool:
        """Whether an update has begun and not ended."""
        return bool(self.started_at) and not self.ended_at


@value
class Update:
    """The update in this pass."""

    phase: UpdatePhase
    is_under_way: bool  # pods are replaced for it in this pass
    generation_hash: str
    former: Progress
    supersedes: bool  # this update begins while another one is open
    selected: int | None  # the replica to update; None under ReplicaRecreate and OnDelete
    # Other replicas that are down: until they are up, the update takes nothing from a replica that serves.
    blocked_by: tuple[int, ...] = ()

    def is_rolling(self, index: int) -> bool:
        """Whether the components of a replica are updated in this pass."""
        return self.is_under_way and index == self.selected and not self.blocked_by


def read_progress(status: Mapping[str, Any]) -> Progress:
    """Return the progress in a stored status; missing fields are empty."""
    stored = status.get("updateProgress") or {}
    updating = stored.get("updatingReplicas") or ()
    return Progress(
        generation_hash=status.get("currentGenerationHash") or "",
        started_at=stored.get("updateStartedAt") or "",
        ended_at=stored.get("updateEndedAt") or "",
        updating={entry["replicaIndex"]: entry.get("updateStartedAt") or "" for entry in updating},
    )


def decide_update(layout: Layout, tree: Tree, former: Progress) -> Update:
    """Return the update in this pass."""
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
        # OnDelete left outdated pods, or they were there when the controller was installed: roll them now.
        return UpdatePhase.START if tree.outdated else UpdatePhase.NONE
    is_done = not tree.incomplete and tree.has_exactly(layout.workload.replicas)
    return UpdatePhase.END if is_done else UpdatePhase.WORK


def _select_replica(layout: Layout, tree: Tree, former: Progress) -> tuple[int | None, tuple[int, ...]]:
    """Return the replica to update, and the replicas that it must wait for.

    A replica whose update has begun is selected until it is complete, whatever happens to the others; then the next is.
    Of several that have begun, which ReplicaRecreate may leave behind, the one in the status is selected. Outdated
    units elsewhere that serve nobody are replaced meanwhile (`steps`), which begins no update there. While another
    replica is down, nothing is taken from a replica that serves: two would be down.
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
    # The update does not wait for a replica that is only scaled below its minimum: no update brings it back.
    down = missing.union([i for i in (tree.unavailable & tree.incomplete) - beyond if not tree.replicas[i].is_up])
    if first in down:
        return first, ()
    blocked_by = tuple(sorted(down))
    return (None if blocked_by and not begun else first), blocked_by


def _find_candidates(layout: Layout, tree: Tree, beyond: frozenset[int]) -> frozenset[int]:
    """Return the candidates among the replicas whose update has not begun.

    Hundreds may be outdated and available. They are candidates only if none is down, because a replica that is down
    comes first (`docs/semantics.md` 6).
    """
    due = (tree.unavailable & tree.outdated & tree.incomplete) - beyond
    due |= {index for index in tree.unfinished - beyond if _has_unrecorded_update(tree.replicas[index], layout)}
    down = due & tree.unavailable
    return down or due | ((tree.outdated & tree.incomplete) - beyond)


def _has_unrecorded_update(replica: ReplicaView, layout: Layout) -> bool:
    """Whether a replica still has surge of its update, or its status does not record the update yet."""
    if has_surge_inside(replica):
        return True
    components = (*(view.clique for view in replica.cliques), *(view.group for view in replica.groups))
    recorded = (one.status.get("currentPodCliqueSetGenerationHash") for one in components if one is not None)
    return any(one not in (None, layout.generation_hash) for one in recorded)
