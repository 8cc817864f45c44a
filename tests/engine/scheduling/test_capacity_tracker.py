"""Rooms that are kept from pass to pass: what is decided on them is what would be decided on rooms counted anew."""

from random import Random

import pytest

from rollouts.engine.scheduling.placement import CapacityTracker, Demand, NodeCapacity
from rollouts.engine.scheduling.resources import PODS
from rollouts.engine.simulation.scheduler import SimulatedNode
from tests.thoroughness import examples

NODES = 6
SIZES = (1, 2, 3)


def demand(size: int) -> Demand:
    return Demand((("cpu", size), (PODS, 1)))


@pytest.mark.parametrize("seed", range(examples(60)))
def test_a_kept_board_finds_the_same_nodes_as_a_new_one(seed: int) -> None:
    dice = Random(seed)
    offers = {f"n{number}": {"cpu": dice.randint(1, 8), PODS: dice.randint(1, 5)} for number in range(NODES)}
    kept = CapacityTracker([NodeCapacity(SimulatedNode(name), offer) for name, offer in offers.items()])
    held: list[tuple[str, Demand]] = []
    for _ in range(60):
        if held and dice.random() < 0.5:
            node, gone = held.pop(dice.randrange(len(held)))
            kept.release(node, gone)
        wanted = [demand(dice.choice(SIZES)) for _ in range(dice.choice((1, 1, 2, 4)))]
        anew = CapacityTracker([NodeCapacity(SimulatedNode(name), offer) for name, offer in offers.items()])
        for node, there in held:
            anew.reserve(node, there)
        if dice.random() < 0.1:
            kept = kept.fork()
        found, expected = kept.place_all(wanted), anew.place_all(wanted)
        if isinstance(expected, str):  # the reason may be the one that was found earlier
            assert isinstance(found, str)
        else:
            assert found == expected
            held += zip(expected, wanted, strict=True)
