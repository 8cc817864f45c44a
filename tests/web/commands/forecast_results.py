"""What a case of `forecasts` found: the preview, what then happened, and where the two disagree."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from rollouts.engine.plan.remedies import Remedy
from rollouts.engine.rollout.roller import Reason
from rollouts.engine.simulation.simulate import SimulationEnd
from rollouts.services.simulation_report import Simulated

MOST_LAG = 0.1  # of the seconds that were measured
FAILING = ("broken", "crash")
SCALE_OUT, LOST, BY_HAND = "scale-out", "lost", "by-hand"
EXPECTED: dict[str, tuple[str, ...]] = {
    SCALE_OUT: (Remedy.SCALE_IN,),
    LOST: (Remedy.ROLL_BACK, Remedy.SET_MAX_SURGE_TO_ZERO, Remedy.DELETE_SURGE, Remedy.RAISE_MAX_UNAVAILABLE),
    BY_HAND: (Remedy.DELETE_OUTDATED_PODS,),
}
"""The kinds that are arranged for remedies which the others seldom lead to: a scale-out during an update of a full
cluster, surge whose node is lost, and OnDelete."""
REPLACED = (Reason.OUTDATED, Reason.OUTDATED_UNAVAILABLE)


@dataclass
class Seen:
    """What happened."""

    stuck: bool = False
    seconds: float = 0.0
    # Of these, those that went by until the controller here noticed something or did several writes in a row. In the
    # product these are milliseconds; here cases take turns, on a machine that may be busy.
    lag: float = 0.0
    lowest: int = 1000  # replicas of the set that were available
    order: list[int] = field(default_factory=list)  # replicas of the set in the order in which they were replaced


@dataclass
class Result:
    """A preview, and what happened."""

    seed: int
    kind: str
    title: str
    told: Simulated
    seen: Seen
    again: Simulated | None = None  # where it is stuck: the same, asked then
    offered: tuple[str, ...] = ()
    is_problem: bool = False  # whether the page called it one when an operator looked
    first: str = ""  # what is offered first, on the first card
    pressed: str = ""
    said: Simulated | None = None  # what the page of the remedy said
    after: Seen | None = None  # what came of pressing it
    left: tuple[str, ...] = ()  # what is waited for in the end that was waited for before, by code

    def find_faults(self) -> list[str]:
        """Return where preview and sandbox disagree."""
        told, seen = self.told, self.seen
        faults = [*self._find_faults_of_remedies()]
        if told.end not in (SimulationEnd.DONE, SimulationEnd.STUCK):
            faults.append(f"end: {told.end} forecast")
        if self.again is not None and self.again.end is not SimulationEnd.STUCK:
            faults.append(f"stuck: {self.again.end} forecast when it was stuck already")
        if (told.end is SimulationEnd.STUCK) != seen.stuck:
            faults.append(f"stuck: {told.end} forecast")
        if told.components[0].lowest != seen.lowest:
            faults.append(f"lowest: {told.components[0].lowest} forecast, {seen.lowest} seen")
        if order_of(told) != seen.order:
            faults.append(f"order: {order_of(told)} forecast, {seen.order} seen")
        # The lag of one component may be time in which another one comes up, so it is taken off or not. Where the
        # machine was too busy to measure anything, a forecast can only be found to be too long.
        least, most = seen.seconds - seen.lag, seen.seconds
        # Where nothing is replaced, there is no duration.
        if (
            told.pods_created
            and not seen.stuck
            and not (0.75 * least if self.is_measured else 0.0) <= told.seconds <= 1.25 * most
        ):
            faults.append(f"seconds: {told.seconds:.1f} forecast, {least:.1f} to {most:.1f} seen")
        return faults

    def _find_faults_of_remedies(self) -> Iterator[str]:
        if self.seen.stuck and self.kind in FAILING and not self.is_problem:
            yield "no problem"
        if self.seen.stuck and self.kind in FAILING and self.first != Remedy.ROLL_BACK:
            yield f"first of what is offered: {self.first}"
        if missing := {*EXPECTED.get(self.kind, ())} - {*self.offered}:
            yield f"not offered: {', '.join(sorted(missing))}"
        # On cordoned nodes nothing may help but other nodes, and on different ones it depends on who is where.
        if self.seen.stuck and self.kind in (*FAILING, "full") and not self.pressed:
            yield "nothing offered"
        if self.after is None or self.said is None:
            return
        if self.left:
            yield f"{self.pressed} did not end {self.left}"
        if (self.said.end is SimulationEnd.STUCK) != self.after.stuck:
            yield f"{self.pressed}: {self.said.end} said"
        if self.after.lowest < self.said.components[0].lowest:
            yield f"{self.pressed}: {self.said.components[0].lowest} said, {self.after.lowest} seen"

    @property
    def is_measured(self) -> bool:
        """Whether the machine was quiet enough to tell how long it took."""
        return self.seen.stuck or not self.told.pods_created or self.seen.lag <= MOST_LAG * self.seen.seconds

    def render(self) -> str:
        """Return it as a row of the table."""
        told, seen = self.told, self.seen
        forecast = "stuck" if told.end is SimulationEnd.STUCK else f"{told.seconds:5.1f} s"
        happened = "stuck" if seen.stuck else f"{seen.seconds - seen.lag:5.1f}-{seen.seconds:.1f} s"
        row = (
            f"{self.title:48} {forecast:>8} {happened:>12}   lowest {told.components[0].lowest} {seen.lowest}"
            f"   order {order_of(told)} {seen.order}"
        )
        return f"{self.seed} {row}   {self._render_remedy()}" if self.offered or seen.stuck else f"{self.seed} {row}"

    def _render_remedy(self) -> str:
        """Return what was offered, and what came of pressing one of it: the fewest replicas forecast and seen."""
        if self.said is None or self.after is None:
            return f"offered: {', '.join(self.offered) or 'nothing'}"
        came = "another wait" if self.after.stuck else f"complete after {self.after.seconds:.1f} s"
        lowest = f"lowest {self.said.components[0].lowest} {self.after.lowest}"
        return f"{self.pressed} of {', '.join(self.offered)}: {came}, {lowest}"


def order_of(told: Simulated) -> list[int]:
    """Return which replicas of the set a preview replaces, in their order."""
    moments = [moment for step in told.steps for moment in step.moments]
    return order_in([moment.component for moment in moments if moment.reason in REPLACED], told.name)


def order_in(components: list[str], name: str) -> list[int]:
    """Return the replicas of the set that these components belong to, in their order."""
    indices = (component.removeprefix(f"{name}-").partition("-")[0] for component in components)
    return [*dict.fromkeys(int(index) for index in indices if index.isdigit())]
