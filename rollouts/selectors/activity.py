"""What a workload is doing now, for the page of a workload: its progress, its remaining budget, what it waits for.

Before it: `pod_counts` with the numbers, the engine's plan with waits and remedies, the mirror with the state. This
module groups and orders them: first a card for each fault, then one for each cause of a problem, with its remedies, and
one line for the waits that need no action.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from rollouts.accounts.commands import WorkloadRef
from rollouts.controller.pod_counts import Counts, count_pods
from rollouts.engine.model.actions import Wait
from rollouts.engine.model.conditions import VALID
from rollouts.engine.plan.messages import PROBLEM_TITLES, REMEDY_LABELS, WAIT_TITLES
from rollouts.engine.plan.wait_codes import CONSEQUENCE_CODES, WaitCode, is_consequence, wait_sort_key
from rollouts.mirror.other_operator import find_grove_management
from rollouts.selectors.diagnosis import Diagnosis, snapshot_diagnosis
from rollouts.selectors.pod_grid import ComponentProgress, compute_progress
from rollouts.selectors.set_conditions import ConditionNote, list_faults
from rollouts.selectors.strategy_detail import StrategyDetail
from rollouts.selectors.tree import WorkloadTree
from rollouts.selectors.workload_detail import WorkloadDetail
from rollouts.selectors.workload_snapshot import WorkloadSnapshot
from rollouts.selectors.workload_state import State

# How many waits are shown at first, and at most; the others are counted.
WAITS_SHOWN: Final = 4
MAX_WAITS: Final = 40
# How many sentences one card has; equal waits share a card.
SENTENCES_SHOWN: Final = 3
_INVALID_AND_RECONCILED: Final = (
    "The controller still acts on this workload. Only new workloads are left alone until their manifest is valid."
)
# By the number of desired pods.
_SETTLED: Final = {
    0: "The workload is scaled to 0.",
    1: "The only pod is available and runs the current template.",
}


@dataclass(frozen=True, slots=True)
class WaitSummary:
    """A wait; equal waits of several components are one."""

    code: str
    title: str
    sentences: tuple[str, ...]
    omitted: int  # how many further sentences there are
    component: str  # empty: several components wait
    unit: str  # the first unit that it waits for; empty: none has a name
    is_problem: bool
    # Code, label, and component (empty: several). Only for problems, and for waits that need an action of
    # a person.
    remedies: tuple[tuple[str, str, str], ...]
    since: datetime | None = None  # the start of the longest wait; None: unknown
    usual_seconds: float | None = None  # how long such pods usually take to become Ready; None: not measured

    @property
    def is_calm(self) -> bool:
        """Whether it needs no action."""
        return not self.is_problem and self.code != WaitCode.AWAITING_DELETION


@dataclass(frozen=True, slots=True)
class Activity:
    """What a workload is doing now."""

    state: State
    sentence: str
    strategy: StrategyDetail
    diagnosis: Diagnosis
    counts: Counts | None  # in pods; None when the manifest cannot be parsed
    meters: tuple[ComponentProgress, ...]
    faults: tuple[WaitSummary, ...]  # one card each, before those of the waits
    waits: tuple[WaitSummary, ...]  # one card each
    calm: WaitSummary | None  # shown as one line when there is no card; also in `more`
    more: tuple[WaitSummary, ...]  # folded
    omitted: int  # how many waits are in neither
    is_kept_by_grove: bool = False  # Grove's own operator manages it, so it can be taken over

    @property
    def margin(self) -> int:
        """How many pods more than the floor are available."""
        return 0 if self.counts is None else max(0, self.counts.available - self.counts.floor)


def snapshot_activity(
    place: WorkloadRef, snapshot: WorkloadSnapshot, detail: WorkloadDetail, tree: WorkloadTree, strategy: StrategyDetail
) -> Activity:
    """Return what a workload is doing, from its snapshot."""
    diagnosis = snapshot_diagnosis(place, snapshot)
    counts = None if snapshot.workload is None else count_pods(snapshot.workload, snapshot.mirrored.observed)
    notes = summarize_waits(diagnosis.waits, diagnosis.at)
    shown = min(WAITS_SHOWN, sum(not note.is_calm for note in notes))
    return Activity(
        state=detail.state,
        sentence=_render_sentence(detail, diagnosis, counts, tree.pods.outdated),
        strategy=strategy,
        diagnosis=diagnosis,
        counts=counts,
        meters=compute_progress(tree),
        faults=tuple(_summarize_fault(fault, diagnosis) for fault in diagnosis.faults if _has_card(fault, diagnosis)),
        waits=notes[:shown],
        calm=notes[0] if notes and not shown else None,
        more=notes[shown:MAX_WAITS],
        omitted=max(0, len(notes) - MAX_WAITS),
        is_kept_by_grove=bool(find_grove_management(snapshot.mirrored.manifest, snapshot.mirrored.written_by_grove)),
    )


def summarize_waits(waits: Iterable[Wait], at: datetime | None = None) -> tuple[WaitSummary, ...]:
    """Return the waits, the most urgent first, equal waits as one; `at` is the time of the snapshot."""
    groups = [*_group_alike(sorted(waits, key=wait_sort_key))]
    causes = [alike for alike in groups if alike[0].is_problem and alike[0].code not in CONSEQUENCE_CODES]
    others = [alike for alike in groups if alike not in causes]
    cards = _make_cards(causes, [wait for alike in others for wait in alike if wait.is_problem], at)
    notes = [_summarize_alike(alike, at) for alike in others]
    if causes:
        notes = [replace(note, is_problem=False, remedies=()) if note.is_problem else note for note in notes]
    return (*cards, *sorted(notes, key=lambda note: note.is_calm))


def _make_cards(
    causes: Sequence[Sequence[Wait]], followers: Iterable[Wait], at: datetime | None
) -> Iterator[WaitSummary]:
    """Yield a card for each cause, with its remedies and those of the waits that follow from it."""
    known = {code for alike in causes for wait in alike for code in wait.remedies}
    theirs: dict[int, list[Wait]] = {}
    for wait in followers:
        more = tuple(code for code in wait.remedies if code not in known)
        theirs.setdefault(_find_own_cause(wait, causes), []).append(replace(wait, remedies=more))
    for number, alike in enumerate(causes):
        card = _summarize_alike(alike, at)
        yield replace(card, remedies=(*card.remedies, *_list_remedies(theirs.get(number, ()))))


def _find_own_cause(wait: Wait, causes: Sequence[Sequence[Wait]]) -> int:
    """Return the number of the cause that a wait follows from; of several, and if none is known, the first."""
    own = (number for number, alike in enumerate(causes) if any(is_consequence(wait, one) for one in alike))
    return next(own, 0)


def render_title(detail: WorkloadDetail) -> str:
    """Return the state of a workload as a title."""
    if detail.leaving:
        return "Being deleted"
    if faults := list_faults(detail.conditions):
        return PROBLEM_TITLES[faults[0].type]
    if detail.state is State.NEEDS_ATTENTION:
        return PROBLEM_TITLES.get(detail.reason, "Needs attention")
    if detail.state is State.PROGRESSING:
        return "Rolling" if detail.rollout is not None and detail.rollout.from_hash else "Deploying"
    return "Waiting for you" if detail.state is State.WAITING else "Settled"


def _render_sentence(detail: WorkloadDetail, diagnosis: Diagnosis, counts: Counts | None, outdated: int) -> str:
    if diagnosis.obstacle or counts is None:
        return diagnosis.obstacle
    if detail.state is State.SETTLED:
        return _SETTLED.get(counts.desired, f"All {counts.desired} pods are available and run the current template.")
    if detail.state is State.WAITING:
        verb = "is" if outdated == 1 else "are"
        return f"{outdated} of {counts.desired} pods {verb} outdated. Delete a pod to replace it by an updated one."
    extra = f"; {counts.surge} {'is' if counts.surge == 1 else 'are'} surge" if counts.surge else ""
    updated, available = ("is" if number == 1 else "are" for number in (counts.updated, counts.available))
    return (
        f"{counts.updated} of {counts.desired} pods {updated} updated, {counts.available} {available} available{extra}."
    )


def _has_card(fault: ConditionNote, diagnosis: Diagnosis) -> bool:
    """Return whether a fault has a card: the findings of a manifest that cannot be parsed have cards of their own."""
    return fault.type != VALID or not diagnosis.findings


def _summarize_fault(fault: ConditionNote, diagnosis: Diagnosis) -> WaitSummary:
    is_reconciled = fault.type == VALID and not diagnosis.obstacle
    return WaitSummary(
        code=fault.type,
        title=PROBLEM_TITLES[fault.type],
        sentences=(fault.message, _INVALID_AND_RECONCILED) if is_reconciled else (fault.message,),
        omitted=0,
        component="",
        unit="",
        is_problem=True,
        remedies=(),
        since=fault.since,
    )


def _group_alike(waits: Iterable[Wait]) -> Iterable[Sequence[Wait]]:
    """Group equal waits."""
    found: dict[tuple[str, bool], list[Wait]] = {}
    for wait in waits:
        found.setdefault((wait.code, wait.is_problem), []).append(wait)
    return found.values()


def _list_remedies(waits: Sequence[Wait]) -> tuple[tuple[str, str, str], ...]:
    """Return the remedies, each with its component if it is offered for only one."""
    found: dict[str, list[str]] = {}
    for wait in waits:
        for code in wait.remedies:
            found.setdefault(code, []).append(wait.component)
    components = {wait.component for wait in waits}
    is_for_all = {code: len(components) > 1 and components == {*theirs} for code, theirs in found.items()}
    return tuple((code, REMEDY_LABELS.get(code, code), "" if is_for_all[code] else found[code][0]) for code in found)


def _summarize_alike(waits: Sequence[Wait], at: datetime | None) -> WaitSummary:
    first = waits[0]
    component = first.component if len({wait.component for wait in waits}) == 1 else ""
    longest = max(waits, key=lambda wait: wait.waited_seconds or 0.0)
    note = WaitSummary(
        code=first.code,
        title=(PROBLEM_TITLES if first.is_problem else WAIT_TITLES).get(first.code, first.code),
        sentences=tuple(wait.text for wait in waits[:SENTENCES_SHOWN]),
        omitted=max(0, len(waits) - SENTENCES_SHOWN),
        component=component,
        unit=next((unit for wait in waits for unit in wait.units), ""),
        is_problem=first.is_problem,
        remedies=_list_remedies(waits),
        since=_since(longest, at),
        usual_seconds=longest.usual_seconds,
    )
    return replace(note, sentences=note.sentences[:1], omitted=len(waits) - 1, remedies=()) if note.is_calm else note


def _since(wait: Wait, at: datetime | None) -> datetime | None:
    if at is None or wait.waited_seconds is None:
        return None
    return at - timedelta(seconds=wait.waited_seconds)
