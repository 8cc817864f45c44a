"""The scenarios by their titles, so that they can be played side by side while each is a test of its own."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.scenarios.stage import Stage

Play = Callable[[Stage], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A named scenario and the function that plays it on a stage."""

    title: str
    play: Play
    needs_real: bool  # it cannot be played on the sandbox


SCENARIOS: dict[str, Scenario] = {}


def scenario(title: str, *, needs_real: bool = False) -> Callable[[Play], Play]:
    """Register a function as a scenario."""

    def enter(play: Play) -> Play:
        assert title not in SCENARIOS, title
        SCENARIOS[title] = Scenario(title, play, needs_real)
        return play

    return enter
