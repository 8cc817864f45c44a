"""The rolling algorithm: exact sequences, and properties over random runs.

A small level stands for pods or replicas: a deleted unit leaves and is gone some ticks later, a created one becomes
available some ticks later. States are written as in `docs/semantics.md`: `0*` outdated, `3s` surge, `1?` not
available.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollouts.engine.model.budget import Budget
from rollouts.engine.rollout.roller import (
    POD_INDEX_POLICY,
    REPLICA_INDEX_POLICY,
    IndexPolicy,
    Reason,
    Removal,
    RollerStep,
    Unit,
    choose_step,
)
from rollouts.engine.tree.availability import is_complete
from tests.thoroughness import examples

STEPS_AT_MOST = 400


@dataclass
class World:
    """One level with its units; time passes by `tick`."""

    level: IndexPolicy
    wanted: int
    budget: Budget
    units: list[Unit] = field(default_factory=list)
    made: int = 0

    def create(self, index: int, *, outdated: bool = False, available: bool = False) -> None:
        self.made += 1
        key = f"{index}-{self.made}"
        unit = Unit(key, index, outdated, available, False, (self.made, key), (0, -self.made))
        self.units.append(unit)

    def step(self, *, rolling: bool = True) -> RollerStep:
        return choose_step(self.units, self.wanted, self.budget, self.level, rolling=rolling)

    def apply(self, step: RollerStep) -> None:
        for removal in step.delete:
            self.change(removal.unit.key, leaving=True, available=False)
        for index in step.create:
            self.create(index)

    def change(self, key: str, **fields: bool) -> None:
        self.units = [replace(unit, **fields) if unit.key == key else unit for unit in self.units]  # type: ignore[arg-type]

    def settle_time(self) -> None:
        """Remove leaving units and make starting ones available."""
        self.units = [replace(unit, available=True) for unit in self.units if not unit.leaving]

    def outdate(self) -> None:
        self.units = [replace(unit, outdated=True) for unit in self.units]

    @property
    def live(self) -> list[Unit]:
        return [unit for unit in self.units if not unit.leaving]

    @property
    def available(self) -> int:
        return sum(unit.available for unit in self.live)

    def has_ended(self) -> bool:
        outdated = sum(unit.outdated for unit in self.live)
        highest = max([unit.index for unit in self.live], default=-1)
        return is_complete(len(self.live), self.available, outdated, self.wanted, highest)

    def text(self) -> str:
        return " ".join(self._render(unit) for unit in sorted(self.live, key=lambda unit: unit.index))

    def _render(self, unit: Unit) -> str:
        return (
            f"{unit.index}{'s' if unit.index >= self.wanted else ''}"
            f"{'*' if unit.outdated else ''}{'' if unit.available else '?'}"
        )


def outdated_world(level: IndexPolicy, wanted: int, unavailable: int, surge: int) -> World:
    world = World(level, wanted, Budget(unavailable, surge))
    for index in range(wanted):
        world.create(index, outdated=True, available=True)
    return world


def run(world: World) -> Iterator[str]:
    """Take step after step, each with time to take effect, and return the states between them."""
    yield world.text()
    for _ in range(STEPS_AT_MOST):
        step = world.step()
        world.apply(step)
        if step.delete or step.create:
            yield world.text()
        elif all(unit.available for unit in world.units):
            return
        world.settle_time()
    raise AssertionError(f"no end: {world.text()}")


SURGE_ONE_OF_THREE = [
    "0* 1* 2*",
    "0* 1* 2* 3s?",
    "1* 2* 3s",
    "0? 1* 2* 3s",
    "0 2* 3s",
    "0 1? 2* 3s",
    "0 1 3s",
    "0 1 2? 3s",
    "0 1 2",
]


@pytest.mark.parametrize("level", [POD_INDEX_POLICY, REPLICA_INDEX_POLICY], ids=["pods", "replicas"])
def test_a_surge_of_one_updates_one_at_a_time_and_goes_last(level: IndexPolicy) -> None:
    assert list(run(outdated_world(level, 3, 0, 1))) == SURGE_ONE_OF_THREE


@pytest.mark.parametrize("level", [POD_INDEX_POLICY, REPLICA_INDEX_POLICY], ids=["pods", "replicas"])
def test_without_surge_one_goes_and_comes_back_before_the_next(level: IndexPolicy) -> None:
    assert list(run(outdated_world(level, 2, 1, 0))) == ["0* 1*", "1*", "0? 1*", "0", "0 1?"]


def test_two_unavailable_of_four_go_in_pairs() -> None:
    assert list(run(outdated_world(REPLICA_INDEX_POLICY, 4, 2, 0))) == [
        "0* 1* 2* 3*",
        "2* 3*",
        "0? 1? 2* 3*",
        "0 1",
        "0 1 2? 3?",
    ]


def test_all_may_go_at_once_when_all_may_be_unavailable() -> None:
    assert list(run(outdated_world(REPLICA_INDEX_POLICY, 2, 2, 0))) == ["0* 1*", "", "0? 1?"]


def test_unavailable_and_surge_together() -> None:
    # 5 wanted, 2 may be missing, 1 extra: two go at once, three once the surge is there.
    assert list(run(outdated_world(REPLICA_INDEX_POLICY, 5, 2, 1))) == [
        "0* 1* 2* 3* 4*",
        "2* 3* 4* 5s?",
        "0? 1? 3* 4* 5s",
        "0 1 2? 5s",
        "0 1 2 3? 4? 5s",
        "0 1 2 3 4",
    ]


def test_an_outdated_unit_that_serves_nobody_goes_at_once_and_costs_no_budget() -> None:
    world = outdated_world(POD_INDEX_POLICY, 3, 1, 0)
    world.change(world.units[2].key, available=False)
    step = world.step()
    assert [(removal.unit.index, removal.reason) for removal in step.delete] == [(2, Reason.OUTDATED_UNAVAILABLE)]


def test_a_broken_new_unit_stops_the_update_before_the_budget_is_overdrawn() -> None:
    world = outdated_world(POD_INDEX_POLICY, 3, 1, 0)
    world.apply(world.step())
    world.apply(world.step())
    assert world.text() == "0? 1* 2*"
    assert world.step() == RollerStep((), ())


def test_surge_that_is_not_available_buys_no_deletion() -> None:
    world = outdated_world(POD_INDEX_POLICY, 3, 0, 1)
    world.apply(world.step())
    assert world.step() == RollerStep((), ())


def test_a_replica_comes_back_only_when_all_of_it_is_gone() -> None:
    world = outdated_world(REPLICA_INDEX_POLICY, 2, 1, 0)
    world.apply(world.step())
    assert world.step().create == ()
    world.settle_time()
    assert world.step().create == (0,)


def test_a_pod_comes_back_while_its_predecessor_is_leaving() -> None:
    world = outdated_world(POD_INDEX_POLICY, 2, 1, 0)
    world.apply(world.step())
    assert world.step().create == (0,)


def test_an_outdated_surge_unit_goes_before_any_original() -> None:
    world = outdated_world(POD_INDEX_POLICY, 3, 0, 1)
    world.create(3, available=True)
    world.outdate()
    assert [removal.unit.index for removal in world.step().delete] == [3]
    assert world.step().delete[0].reason is Reason.OUTDATED_SURGE


def test_surge_that_is_no_longer_allowed_goes_at_once_when_it_serves_nobody() -> None:
    world = outdated_world(POD_INDEX_POLICY, 3, 0, 1)
    world.apply(world.step())
    world.budget = Budget(1, 0)
    step = world.step()
    assert [(removal.unit.index, removal.reason) for removal in step.delete] == [
        (3, Reason.SURGE_NOT_ALLOWED),
        (0, Reason.OUTDATED),
    ]


def test_surge_that_is_no_longer_allowed_but_serves_goes_as_the_budget_allows() -> None:
    world = World(POD_INDEX_POLICY, 2, Budget(0, 0))
    world.create(0, outdated=True, available=True)
    world.create(2, available=True)
    assert world.step().delete == ()


def test_an_index_that_scaling_moves_below_the_wanted_number_is_an_original() -> None:
    world = outdated_world(REPLICA_INDEX_POLICY, 2, 0, 1)
    world.create(2, available=True)
    world.wanted = 3
    assert list(run(world))[-1] == "0 1 2"


def test_scaling_in_during_an_update_takes_the_outdated_first() -> None:
    world = outdated_world(POD_INDEX_POLICY, 5, 1, 0)
    for unit in world.units[:2]:
        world.change(unit.key, outdated=False)
    world.wanted = 3
    assert [removal.unit.index for removal in world.step().delete] == [4, 3, 2]


def test_settled_pods_are_scaled_in_by_their_order_and_keep_their_indices() -> None:
    world = outdated_world(POD_INDEX_POLICY, 3, 1, 0)
    world.units = [replace(unit, scale_in_order=(unit.index != 0,)) for unit in world.units]
    world.wanted = 2
    world.apply(world.step(rolling=False))
    world.settle_time()
    assert world.text() == "1* 2s*"
    assert world.step(rolling=False) == RollerStep((), ())


def test_settled_replicas_are_scaled_in_from_the_top() -> None:
    world = outdated_world(REPLICA_INDEX_POLICY, 4, 1, 0)
    world.wanted = 2
    assert [removal.unit.index for removal in world.step(rolling=False).delete] == [3, 2]


def test_without_an_update_nothing_outdated_is_deleted_and_what_is_missing_comes_back() -> None:
    world = outdated_world(POD_INDEX_POLICY, 3, 1, 1)
    world.change(world.units[1].key, leaving=True, available=False)
    assert world.step(rolling=False) == RollerStep((), (1,))


def test_a_hole_left_by_scaling_in_is_closed_by_the_next_update() -> None:
    world = World(POD_INDEX_POLICY, 2, Budget(0, 1))
    for index in (0, 4):
        world.create(index, outdated=True, available=True)
    assert list(run(world))[-1] == "0 1"


def test_complete_means_nothing_outdated_all_available_and_no_surge() -> None:
    world = outdated_world(REPLICA_INDEX_POLICY, 2, 1, 0)
    assert not world.has_ended()
    *_, last = run(world)
    assert last == "0 1?"
    assert world.has_ended()
    world.create(2, available=True)
    assert not world.has_ended()


Fault = Callable[[World], None]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    wanted = draw(st.integers(0, 6))
    surge = draw(st.integers(0, 4))
    unavailable = draw(st.integers(0 if surge else 1, max(1, wanted)))
    world = World(draw(st.sampled_from([POD_INDEX_POLICY, REPLICA_INDEX_POLICY])), wanted, Budget(unavailable, surge))
    for index in draw(st.sets(st.integers(0, 9), max_size=8)):
        world.create(index, outdated=draw(st.booleans()), available=draw(st.booleans()))
    return world


def _disturb(world: World, data: st.DataObject) -> None:
    """Interfere: time passes for one unit, or a user deletes, scales, edits the budget or the template."""
    often, seldom = ["ready", "ready", "ready", "gone", "gone"], ["broken", "delete", "scale", "edit", "budget"]
    event = data.draw(st.sampled_from(often + seldom))
    if event == "edit":
        world.outdate()
    elif event == "scale":
        world.wanted = data.draw(st.integers(0, 6))
    elif event == "budget":
        surge = data.draw(st.integers(0, 3))
        world.budget = Budget(data.draw(st.integers(0 if surge else 1, 4)), surge)
    elif world.units:
        unit = data.draw(st.sampled_from(world.units))
        if event == "gone" and unit.leaving:
            world.units.remove(unit)
        elif event == "ready" and not unit.leaving:
            world.change(unit.key, available=True)
        elif event == "broken":
            world.change(unit.key, available=False)
        elif event == "delete":
            world.change(unit.key, leaving=True, available=False)


def count_surge(world: World) -> int:
    return sum(unit.index >= world.wanted for unit in world.live)


@settings(max_examples=examples(25))
@given(worlds(), st.data())
def test_whatever_happens_availability_and_surge_stay_within_the_budget(world: World, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 25))):
        _disturb(world, data)
        before, count, surge = world.available, len(world.live), count_surge(world)
        step = world.step()
        assert step == world.step(), "the same input gives the same step"
        world.apply(step)
        floor = world.wanted - world.budget.max_unavailable
        assert world.available >= min(before, floor)
        assert count_surge(world) <= max(surge, world.budget.max_surge)
        # Surplus that may not go yet takes no room from a missing original.
        assert len(world.live) <= max(count, world.wanted + max(world.budget.max_surge, count_surge(world)))
        assert _indices_are_unique(world)


@settings(max_examples=examples(40))
@given(worlds())
def test_every_rollout_whose_units_become_available_ends_complete_and_without_holes(world: World) -> None:
    for _ in run(world):
        pass
    world.settle_time()
    assert world.has_ended(), world.text()


@given(worlds())
def test_planning_twice_changes_nothing(world: World) -> None:
    world.apply(world.step())
    leaving = [unit for unit in world.units if unit.leaving]
    again = world.step()
    assert not {removal.unit.key for removal in again.delete} & {unit.key for unit in leaving}


@given(worlds())
def test_without_an_update_only_scaling_deletes(world: World) -> None:
    step = world.step(rolling=False)
    assert {removal.reason for removal in step.delete} <= {Reason.SCALED_IN}
    extra = max(0, len(world.live) - world.wanted)
    if world.level is POD_INDEX_POLICY:
        assert len(step.delete) == extra


def _indices_are_unique(world: World) -> bool:
    indices = [unit.index for unit in world.live]
    return len(indices) == len(set(indices))


def test_a_removal_tells_its_unit_and_reason() -> None:
    unit = Unit("a", 0, True, True, False, (), ())
    assert Removal(unit, Reason.OUTDATED).reason == "Outdated"
