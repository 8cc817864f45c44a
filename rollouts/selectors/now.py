"""What a workload is doing now, for the card beside its picture: how far it is, what may still go, what it waits for.

Everything is said by others: the numbers by `headcount`, the waits and their remedies by the engine's plan, the state
by the mirror. Here they are put into the order in which somebody wants to know them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rollouts.commands import Place
from rollouts.engine.actions import Wait
from rollouts.engine.diagnosis import Code
from rollouts.engine.remedies import Remedy
from rollouts.headcount import Counts, count_pods
from rollouts.selectors.details import WorkloadDetail
from rollouts.selectors.diagnosis import Diagnosis, diagnosis_in
from rollouts.selectors.picture import Meter, measure
from rollouts.selectors.places import Look
from rollouts.selectors.standing import State
from rollouts.selectors.strategies import StrategyDetail
from rollouts.selectors.tree import WorkloadTree

# So many notes are told at once, so many when somebody asks for more; of the rest there is a number.
NOTES_TOLD: Final = 4
MOST_NOTES: Final = 40
# Of waits that are alike, as many are told in words.
SENTENCES_TOLD: Final = 3

TITLES: Final[Mapping[str, str]] = {
    Code.WAITING_FOR_READY: "Waiting for pods to become ready",
    Code.WAITING_FOR_TERMINATION: "Waiting for pods to go",
    Code.BUDGET_EXHAUSTED: "Nothing more may be missing now",
    Code.SURGE_UNSCHEDULABLE: "Surge cannot be scheduled",
    Code.SURGE_NOT_READY: "Waiting for surge to become ready",
    Code.SURGE_GATED: "Surge waits for its base gang",
    Code.REPLICA_UNSCHEDULABLE: "Pods cannot be scheduled",
    Code.WAITING_FOR_REPLICA: "Another replica goes first",
    Code.AWAITING_DELETION: "Outdated pods wait for you",
}
"""What is waited for, in few words."""

REMEDIES: Final[Mapping[str, str]] = {
    Remedy.ADD_CAPACITY: "Look at the nodes",
    Remedy.SET_MAX_SURGE_TO_ZERO: "Set maxSurge to 0",
    Remedy.DELETE_SURGE: "Delete the surge",
    Remedy.RAISE_MAX_UNAVAILABLE: "Raise maxUnavailable",
    Remedy.LOOK_AT_PODS: "Look at the pods",
    Remedy.ROLL_BACK: "Roll back",
    Remedy.FORCE_DELETE_PODS: "Delete the pods by force",
    Remedy.DELETE_OUTDATED_PODS: "Delete outdated pods",
    Remedy.SCALE_IN: "Scale in",
}
"""What would help, as buttons say it."""

# These look the same whichever component waits.
_ELSEWHERE: Final = frozenset({Remedy.ADD_CAPACITY, Remedy.LOOK_AT_PODS, Remedy.ROLL_BACK, Remedy.DELETE_OUTDATED_PODS})


@dataclass(frozen=True, slots=True)
class WaitNote:
    """Something that is waited for; waits that are alike are one."""

    code: str
    title: str
    sentences: tuple[str, ...]
    untold: int  # how many alike there are besides
    component: str  # empty when several wait alike
    unit: str  # the first of what is waited for; empty when nothing has a name
    is_problem: bool
    remedies: tuple[tuple[str, str], ...]  # code and label


@dataclass(frozen=True, slots=True)
class Now:
    """What a workload is doing."""

    state: State
    sentence: str
    strategy: StrategyDetail
    diagnosis: Diagnosis
    counts: Counts | None  # in pods; None when it cannot be read
    meters: tuple[Meter, ...]
    waits: tuple[WaitNote, ...]  # the most pressing ones
    more: tuple[WaitNote, ...]
    untold: int  # how many there are besides

    @property
    def margin(self) -> int:
        """How many pods more than the floor are available."""
        return 0 if self.counts is None else max(0, self.counts.available - self.counts.floor)


def now_in(place: Place, look: Look, detail: WorkloadDetail, tree: WorkloadTree, strategy: StrategyDetail) -> Now:
    """Return what a workload that was looked at is doing."""
    diagnosis = diagnosis_in(place, look)
    counts = None if look.workload is None else count_pods(look.workload, look.seen.observed)
    notes = note_waits(diagnosis.waits)
    return Now(
        state=detail.state,
        sentence=_sentence(detail, diagnosis, counts, tree.pods.outdated),
        strategy=strategy,
        diagnosis=diagnosis,
        counts=counts,
        meters=measure(tree),
        waits=notes[:NOTES_TOLD],
        more=notes[NOTES_TOLD:MOST_NOTES],
        untold=max(0, len(notes) - MOST_NOTES),
    )


def note_waits(waits: Iterable[Wait]) -> tuple[WaitNote, ...]:
    """Return what is waited for, the most pressing first, with what is alike told once."""
    return tuple(map(_note, _alike(sorted(waits, key=_pressure))))


def _pressure(wait: Wait) -> tuple[bool, bool, bool]:
    """Put problems first, and what follows from another wait last."""
    return not wait.is_problem, wait.code == Code.WAITING_FOR_REPLICA, wait.code == Code.BUDGET_EXHAUSTED


def title_of(detail: WorkloadDetail) -> str:
    """Return how a workload stands, in a word or two."""
    if detail.leaving:
        return "Being deleted"
    if detail.state is State.NEEDS_ATTENTION:
        return TITLES.get(detail.reason, "Needs attention")
    if detail.state is State.PROGRESSING:
        return "Rolling" if detail.rollout is not None and detail.rollout.from_hash else "Deploying"
    return "Waiting for you" if detail.state is State.WAITING else "Settled"


def _sentence(detail: WorkloadDetail, diagnosis: Diagnosis, counts: Counts | None, outdated: int) -> str:
    if diagnosis.obstacle:
        return diagnosis.obstacle
    if counts is None:
        return "Its manifest cannot be read, so nothing is done about it."
    if detail.state is State.SETTLED:
        return f"All {counts.desired} pods are available and of the current template."
    if detail.state is State.WAITING:
        return f"{outdated} of {counts.desired} pods are outdated. Whichever is deleted comes back up to date."
    extra = f"; {counts.surge} {'is' if counts.surge == 1 else 'are'} surge" if counts.surge else ""
    return f"{counts.updated} of {counts.desired} pods are updated, {counts.available} are available{extra}."


def _alike(waits: Iterable[Wait]) -> Iterable[Sequence[Wait]]:
    """Put waits for the same thing together, but for problems with a remedy that is the component's own."""
    found: dict[tuple[str, bool, str], list[Wait]] = {}
    for wait in waits:
        is_own = wait.is_problem and not _ELSEWHERE.issuperset(wait.remedies)
        found.setdefault((wait.code, wait.is_problem, wait.component if is_own else ""), []).append(wait)
    return found.values()


def _note(waits: Sequence[Wait]) -> WaitNote:
    first = waits[0]
    remedies = dict.fromkeys(code for wait in waits for code in wait.remedies)
    return WaitNote(
        code=first.code,
        title=TITLES.get(first.code, first.code),
        sentences=tuple(wait.text for wait in waits[:SENTENCES_TOLD]),
        untold=max(0, len(waits) - SENTENCES_TOLD),
        component=first.component if len({wait.component for wait in waits}) == 1 else "",
        unit=next((unit for wait in waits for unit in wait.units), ""),
        is_problem=first.is_problem,
        remedies=tuple((code, REMEDIES.get(code, code)) for code in remedies),
    )
