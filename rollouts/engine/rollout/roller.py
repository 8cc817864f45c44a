"""The rolling algorithm for all three levels: pods of a clique, replicas of a scaling group, replicas of a set.

A level is a list of units; each has an index and is outdated or not, available or not, leaving or not. `choose_step`
takes the units as they are now and returns the next step: which units to delete and why, which indices to create. It
stores nothing between calls: carry the step out, observe, call again, and the level ends with exactly the wanted units
on the current template. `units` builds the units, `steps` asks for the step of each level, and `plan_builder` makes
actions of it. `docs/semantics.md` 4 has the rules.

With R units wanted, U allowed to be unavailable and S allowed as surge, the invariants of every step are:

    an update never lowers the number of available units below R - U
    there are never more than R + S units that are not leaving, except for surplus that may not be deleted yet: surge
    beyond S, and units at R or above that scaling in left

Worked example, R 3, U 0, S 1 (`*` outdated, `s` surge):

    0* 1* 2*        create 3          an original is outdated; nothing may be deleted: 3 - (3 - 0) = 0
    0* 1* 2* 3s     delete 0*         3s is available: 4 - 3 = 1 may go, the lowest index first
    1* 2* 3s        create 0          its index is free once it is leaving
    0 1* 2* 3s      delete 1*         ... and so on
    0 1 2 3s        delete 3s         nothing is outdated and 0, 1, 2 are available
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, count, islice
from typing import Any

from rollouts.engine.model.budget import Budget
from rollouts.engine.model.values import value


class Reason(StrEnum):
    """The reason of a deletion."""

    OUTDATED_UNAVAILABLE = "OutdatedUnavailable"  # costs no budget
    OUTDATED = "Outdated"  # in its turn, within the budget
    OUTDATED_SURGE = "OutdatedSurge"  # surge of a superseded template
    SURGE_NOT_ALLOWED = "SurgeNotAllowed"  # surge beyond S
    SURGE_DONE = "SurgeDone"  # every original is updated and available
    SCALED_IN = "ScaledIn"  # beyond the wanted number


@value
class Unit:
    """A pod or a replica with the properties that rolling depends on."""

    key: str  # unique, also among units that had the same index before
    index: int
    outdated: bool
    available: bool
    leaving: bool
    # Sort keys of `order` for update and scale-in, the smaller first. Empty where unused: outside an update, and for
    # replicas, which are scaled in by index.
    update_order: tuple[Any, ...]
    scale_in_order: tuple[Any, ...]


@value
class Removal:
    """A unit to delete, and why."""

    unit: Unit
    reason: Reason


@value
class RollerStep:
    """The next deletions and creations at one level."""

    delete: tuple[Removal, ...]
    create: tuple[int, ...]  # indices; those from R up are surge


@dataclass(frozen=True, slots=True)
class IndexPolicy:
    """How indices of pods and of replicas differ."""

    # The index of a pod is free as soon as the pod is leaving. The index of a replica is free when all of the replica
    # is gone, so that two versions never meet inside it.
    index_is_free_when_leaving: bool
    # Replicas are scaled in by index, pods by state: a clique may keep the pods 0 and 2.
    indices_stay_contiguous: bool


POD_INDEX_POLICY = IndexPolicy(index_is_free_when_leaving=True, indices_stay_contiguous=False)
REPLICA_INDEX_POLICY = IndexPolicy(index_is_free_when_leaving=False, indices_stay_contiguous=True)


def choose_step(
    units: Sequence[Unit],
    wanted: int,
    budget: Budget,
    index_policy: IndexPolicy,
    *,
    rolling: bool,
    freeing: bool = False,
) -> RollerStep:
    """Return the next step: of the update if `rolling`, else only towards the wanted number of units.

    If `freeing`, the level does not roll yet, but its outdated units that are not available are deleted already.
    """
    live = [unit for unit in units if not unit.leaving]
    if not rolling:
        step = _scale_to_wanted(units, live, wanted, index_policy)
        return _with_free_deletions(step, live) if freeing else step
    delete = _choose_deletions(live, wanted, budget)
    gone = {removal.unit.key for removal in delete}
    staying = [unit for unit in live if unit.key not in gone]
    return RollerStep(
        tuple(delete), tuple(_choose_indices(staying, _taken_indices(units, index_policy), wanted, budget))
    )


def _with_free_deletions(step: RollerStep, live: Sequence[Unit]) -> RollerStep:
    """Return the step with the deletion of outdated units that are not available; a later step refills."""
    going = {removal.unit.key for removal in step.delete}
    return RollerStep(
        (*step.delete, *[removal for removal in _find_free_deletions(live) if removal.unit.key not in going]),
        step.create,
    )


def _find_free_deletions(live: Sequence[Unit]) -> list[Removal]:
    """Return the outdated units that are not available: they serve nobody, so they cost no budget."""
    return [Removal(unit, Reason.OUTDATED_UNAVAILABLE) for unit in live if unit.outdated and not unit.available]


def _choose_deletions(live: Sequence[Unit], wanted: int, budget: Budget) -> list[Removal]:
    """Free, then spend the budget: on surge beyond S, then on outdated units in their order."""
    freed = _find_free_deletions(live)
    rest = [unit for unit in live if unit.available or not unit.outdated]
    if _is_finished(rest, wanted) and not freed:
        extra = sorted((unit for unit in rest if unit.index >= wanted), key=lambda unit: -unit.index)
        return [Removal(unit, Reason.SURGE_DONE) for unit in extra]
    idle, costly = _split_unwanted_surge(rest, wanted, budget)
    available = sum(unit.available for unit in rest)
    allowed = max(0, available - (wanted - budget.max_unavailable))
    return [*freed, *idle, *islice(chain(costly, _outdated_in_order(rest, wanted, costly)), allowed)]


def _is_finished(live: Sequence[Unit], wanted: int) -> bool:
    """Whether nothing is outdated and each of the indices 0 ... R-1 has an available unit."""
    originals = set()
    for unit in live:
        if unit.outdated:
            return False
        if unit.index < wanted and unit.available:
            originals.add(unit.index)
    return len(originals) == wanted


def _split_unwanted_surge(live: Sequence[Unit], wanted: int, budget: Budget) -> tuple[list[Removal], list[Removal]]:
    """Return the surge beyond S: first the units that are not available, then those that cost budget, in order."""
    surge = [unit for unit in live if unit.index >= wanted]
    if len(surge) <= budget.max_surge:
        return [], []
    unwanted = sorted(surge, key=_surge_order)[: len(surge) - budget.max_surge]
    removals = [Removal(unit, Reason.SURGE_NOT_ALLOWED) for unit in unwanted]
    return (
        [removal for removal in removals if not removal.unit.available],
        [removal for removal in removals if removal.unit.available],
    )


def _surge_order(unit: Unit) -> tuple[bool, bool, int]:
    """Surge that goes first: not available, then outdated, then the highest index."""
    return (unit.available, not unit.outdated, -unit.index)


def _outdated_in_order(live: Sequence[Unit], wanted: int, already: Sequence[Removal]) -> Iterable[Removal]:
    """Yield the outdated units: surge first, then originals in the order of the level."""
    chosen = {removal.unit.key for removal in already}
    outdated = [unit for unit in live if unit.outdated and unit.key not in chosen]
    for unit in sorted((unit for unit in outdated if unit.index >= wanted), key=_surge_order):
        yield Removal(unit, Reason.OUTDATED_SURGE)
    for unit in sorted((unit for unit in outdated if unit.index < wanted), key=lambda unit: unit.update_order):
        yield Removal(unit, Reason.OUTDATED)


def _choose_indices(staying: Sequence[Unit], taken: set[int], wanted: int, budget: Budget) -> Iterable[int]:
    """Refill missing originals, and surge while an original is outdated, within R + S and the surplus."""
    room = wanted + budget.max_surge + count_surplus(staying, wanted, budget) - len(staying)
    refill = [index for index in range(wanted) if index not in taken][: max(0, room)]
    if not budget.max_surge:
        return refill
    outdated = sum(unit.outdated for unit in staying if unit.index < wanted)
    surging = sum(unit.index >= wanted for unit in staying)
    surge = max(0, min(budget.max_surge, outdated) - surging)
    free = (index for index in count(wanted) if index not in taken)
    return [*refill, *islice(free, max(0, min(surge, room - len(refill))))]


def count_surplus(staying: Iterable[Unit], wanted: int, budget: Budget) -> int:
    """Count the units beyond R + S that may not be deleted yet; they take no room from a missing original.

    Otherwise both could wait for each other. Example with R 3, U 1, S 0, all in one gang: `0 1? 3s`, where 3s is left
    from a larger S. 3s may go once 1 is available, 1 waits for its gang and so for 2, and 2 for the room of 3s.
    """
    surge = sum(not unit.leaving and unit.index >= wanted for unit in staying)
    return max(0, surge - budget.max_surge)


def _taken_indices(units: Sequence[Unit], index_policy: IndexPolicy) -> set[int]:
    """Return the indices that cannot be created now; a unit that this step deletes keeps its index until it leaves."""
    return {unit.index for unit in units if not (unit.leaving and index_policy.index_is_free_when_leaving)}


def _scale_to_wanted(units: Sequence[Unit], live: Sequence[Unit], wanted: int, index_policy: IndexPolicy) -> RollerStep:
    """Return the step towards the wanted number of units, whatever their templates."""
    if index_policy.indices_stay_contiguous:
        extra = sorted((unit for unit in live if unit.index >= wanted), key=lambda unit: -unit.index)
        candidates: Iterable[int] = range(wanted)
    else:
        extra = sorted(live, key=lambda unit: unit.scale_in_order)[: max(0, len(live) - wanted)]
        candidates = count()
    taken = _taken_indices(units, index_policy)
    missing = max(0, wanted - len(live) + len(extra))
    create = islice((index for index in candidates if index not in taken), missing)
    return RollerStep(tuple(Removal(unit, Reason.SCALED_IN) for unit in extra), tuple(create))
