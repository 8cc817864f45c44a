"""The rounds of one pass: plan, have the writes sent, overlay the answers, plan again, until nothing is left to write.

Before it: `reconciler`, with a workload as the mirror has it. `plan_rounds` is a generator: it yields the writes of a
round, and the reconciler sends them with `executor` and sends back the answers. To replace a pod takes a delete, a
create, a reference in the PodGang and a scheduling gate that is removed; each is possible once the one before is
answered. So one round follows another on the answers themselves, and the mirror is written once, at the end.

A round goes like this:

    plan        on what is observed and what this pass was answered so far
    statuses    are not sent yet: the next plan assumes them as if they were written
    writes      are sent; the answers replace what was observed
    statuses    are sent when nothing else is left to write, or when the pass ends early

Three statuses are written earlier. The start of an update of the set is written before anything is replaced for it. The
start of an update of a component is written in the round of its first writes. The status that names a pod or a replica
as being replaced is written before that pod or replica is deleted: afterwards no later pass can tell that it existed.

The invariants: a conflict ends the pass, so nothing is planned on a view that an answer has shown to be out of date;
after `MAX_SECONDS` no new plan is made, so the next pass soon sees what other clients have changed.
"""

import time
from collections.abc import Container, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from rollouts.controller.executor import (
    ExecutionContext,
    ExecutionResult,
    WriteRecord,
    WriteResult,
    is_truncated,
    kind_of,
    write_key_of,
)
from rollouts.controller.set_status import StatusFacts, compute_set_status
from rollouts.engine.model.actions import Action, Delete, Kind, Plan, TimelineEvent, WriteStatus
from rollouts.engine.model.observed import Clique, Gang, Group, Observed
from rollouts.engine.plan.planner import plan_tree
from rollouts.engine.rollout.ready_times import ReadyTimes
from rollouts.engine.tree.layout import Layout
from rollouts.engine.tree.tree_builder import build_tree
from rollouts.mirror.overlay import overlay_changes

Status = Mapping[str, Any]
StatusObject = TypeVar("StatusObject", Clique, Group, Gang)
Answers = Sequence[WriteRecord]
Result = TypeVar("Result")

MAX_ROUNDS: Final = 16
MAX_SECONDS: Final = 1.0  # after which no new plan is made


@dataclass(frozen=True, slots=True)
class PassContext:
    """What stays the same during a pass."""

    namespace: str
    set_name: str
    set_uid: str
    layout: Layout
    now: float
    ready_times: ReadyTimes
    facts: StatusFacts
    backed_off: Container[str]  # writes that must not be sent now, by `executor.write_key_of`

    def split(self, writes: Iterable[Action]) -> tuple[tuple[Action, ...], tuple[WriteRecord, ...]]:
        """Return the writes that may be sent, and a record for each that is backed off."""
        due, skipped = list[Action](), list[WriteRecord]()
        for write in writes:
            if write_key_of(write) in self.backed_off:
                skipped.append(WriteRecord(write, WriteResult.SKIPPED))
            else:
                due.append(write)
        return tuple(due), tuple(skipped)


@dataclass(frozen=True, slots=True)
class PassView:
    """What a pass knows so far."""

    observed: Observed  # with the answers of this pass, and with statuses as if they were written
    set_resource_version: str
    stored_statuses: Mapping[str, Status]  # by uid: what the cluster has where `observed` has a planned status
    planned_statuses: Mapping[str, WriteStatus] = field(default_factory=dict)  # by uid: not written yet
    has_unwritten_start: bool = False  # a planned status starts the update of a component
    records: tuple[WriteRecord, ...] = ()  # all of this pass


@dataclass(frozen=True, slots=True)
class Round:
    """Writes to be sent together; the caller of `plan_rounds` sends their answers back."""

    writes: tuple[Action, ...]  # in this order
    skipped: tuple[WriteRecord, ...]  # writes that were planned and are backed off
    context: ExecutionContext  # what the writes were planned on
    plan: Plan | None  # None: it came with an earlier round


@dataclass(frozen=True, slots=True)
class RoundsEnd:
    """How the rounds of a pass ended."""

    plan: Plan  # of the last round
    timeline_events: tuple[TimelineEvent, ...]  # of all plans
    is_unfinished: bool  # more could have been written
    observed: Observed


@dataclass(frozen=True, slots=True)
class _Turn:
    """What one plan led to."""

    plan: Plan
    view: PassView
    can_continue: bool  # another plan can be made on the answers
    is_unfinished: bool = False
    has_writes: bool = False  # other than statuses


Rounds = Generator[Round, Answers, Result]


def start_view(context: PassContext, observed: Observed, resource_version: str, records: Answers) -> PassView:
    """Return what a pass knows before its first round; `records` are of what it did before."""
    return PassView(observed, resource_version, {context.set_uid: observed.status}, records=tuple(records))


def plan_rounds(context: PassContext, view: PassView) -> Generator[Round | RoundsEnd, Answers, None]:
    """Yield rounds, each to be sent and answered, and last how they ended."""
    deadline, timeline_events = time.monotonic() + MAX_SECONDS, list[TimelineEvent]()
    for _ in range(MAX_ROUNDS):
        turn = yield from _take_turn(context, view)
        view = turn.view
        timeline_events += turn.plan.timeline_events
        if not turn.can_continue or time.monotonic() > deadline:
            break
    if turn.can_continue:
        # If there was nothing else to write, planning alone took so long, and the next pass would not get further.
        view, _ = yield from _write_statuses(context, view, only_set=turn.has_writes, is_unfinished=True)
    is_unfinished = turn.can_continue or turn.is_unfinished
    yield RoundsEnd(turn.plan, tuple(timeline_events), is_unfinished, view.observed)


def _take_turn(context: PassContext, view: PassView) -> Rounds[_Turn]:
    """Make one plan and yield its writes."""
    tree = build_tree(context.layout, view.observed)
    plan = plan_tree(context.layout, tree, view.observed.status, context.now, context.ready_times)
    statuses = [action for action in plan.actions if isinstance(action, WriteStatus)]
    writes, skipped = context.split(action for action in plan.actions if not isinstance(action, WriteStatus))
    view = _assume_statuses(replace(view, records=(*view.records, *skipped)), context.set_uid, statuses)
    first = Round(writes, skipped, _execution_context(context, view), plan)
    if any(event.reason == "UpdateStarted" for event in plan.timeline_events):
        view, is_written = yield from _write_statuses(context, view, first, can_continue=True)
        return _Turn(plan, view, is_written, has_writes=bool(writes))
    if writes:
        return (yield from _write_objects(context, view, first, plan))
    if statuses:
        yield first
        return _Turn(plan, view, can_continue=True)
    view, _ = yield from _write_statuses(context, view, first)
    return _Turn(plan, view, can_continue=False)


def _write_objects(context: PassContext, view: PassView, first: Round, plan: Plan) -> Rounds[_Turn]:
    """Yield the writes of a plan, and the statuses that must not wait for the end of the pass."""
    current = first
    selections = _list_changed_selections(view) if any(isinstance(one, Delete) for one in first.writes) else []
    if selections:
        view, can_continue = yield from _write_selections(context, view, first, selections)
        if not can_continue:
            return _Turn(plan, view, can_continue=False, has_writes=True)
        current = Round(first.writes, (), _execution_context(context, view), None)
    answers = yield current
    view = replace(view, records=(*view.records, *answers))
    results = {answer.result for answer in answers}
    if WriteResult.UNKNOWN in results:
        return _Turn(plan, view, can_continue=False, has_writes=True)
    view = _overlay_answers(context, view, answers)
    is_unfinished = is_truncated(current.writes, answers)
    can_continue = not (is_unfinished or results & {WriteResult.CONFLICT, WriteResult.REJECTED})
    if view.has_unwritten_start or WriteResult.REJECTED in results:
        view, is_written = yield from _write_statuses(
            context, view, can_continue=can_continue, is_unfinished=is_unfinished
        )
        can_continue = can_continue and is_written
    elif not can_continue:
        view, _ = yield from _write_statuses(context, view, only_set=True, is_unfinished=is_unfinished)
    return _Turn(plan, view, can_continue, is_unfinished, has_writes=True)


# ---- statuses


def _write_selections(
    context: PassContext, view: PassView, first: Round, selections: Sequence[WriteStatus]
) -> Rounds[tuple[PassView, bool]]:
    """Yield the statuses that name what is about to be deleted; return whether it may be deleted now.

    It may also if the cluster rejects them: the condition `WriteDenied` shows the rejection.
    """
    due, skipped = context.split(selections)
    answers = yield replace(first, writes=due, skipped=(*first.skipped, *skipped))
    view = _overlay_answers(context, replace(view, records=(*view.records, *skipped, *answers)), answers)
    written = {write_key_of(answer.action) for answer in answers if answer.result is WriteResult.APPLIED}
    written_statuses = {one.uid: one.status for one in selections if write_key_of(one) in written}
    stored = {**view.stored_statuses, **written_statuses}
    has_start = any(_is_start(one.status, stored.get(one.uid)) for one in _list_planned_statuses(view))
    results = {answer.result for answer in answers}
    return (
        replace(view, stored_statuses=stored, has_unwritten_start=has_start),
        results.isdisjoint({WriteResult.CONFLICT, WriteResult.UNKNOWN}),
    )


def _write_statuses(
    context: PassContext,
    view: PassView,
    first: Round | None = None,
    *,
    only_set: bool = False,
    can_continue: bool = False,
    is_unfinished: bool = False,
) -> Rounds[tuple[PassView, bool]]:
    """Yield the statuses that differ from what is stored; return whether the cluster has accepted all of them.

    `first` is the first round of its plan, if the plan has not been yielded yet. Its statuses are sent in place of its
    writes, which are planned again once these are stored.
    """
    planned = [] if only_set else _list_planned_statuses(view)
    writes = [one for one in planned if one.status != view.stored_statuses.get(one.uid)]
    is_whole = not (can_continue or is_unfinished)
    status = compute_set_status(view.observed.status, context.facts, view.records, is_whole=is_whole)
    if status != view.stored_statuses[context.set_uid]:
        writes.append(WriteStatus(Kind.SET, context.set_name, context.set_uid, status))
    due, skipped = context.split(writes)
    before = first.skipped if first is not None else ()
    plan = first.plan if first is not None else None
    answers = yield Round(due, (*before, *skipped), _execution_context(context, view), plan)
    view = replace(view, records=(*view.records, *skipped, *answers))
    if can_continue:
        view = _overlay_answers(context, replace(view, planned_statuses={}, has_unwritten_start=False), answers)
        view = replace(view, stored_statuses={context.set_uid: view.observed.status})
    return view, not skipped and all(answer.result is WriteResult.APPLIED for answer in answers)


def _assume_statuses(view: PassView, set_uid: str, writes: Sequence[WriteStatus]) -> PassView:
    """Return the view as if the statuses were written."""
    if not writes:
        return view
    planned = {write.uid: write for write in writes}
    before = {one.uid: one.status for one in _components(view.observed) if one.uid in planned}
    stored = {**before, **view.stored_statuses}
    has_start = any(_is_start(write.status, stored.get(uid)) for uid, write in planned.items())
    return replace(
        view,
        observed=_with_statuses(view.observed, set_uid, planned),
        stored_statuses=stored,
        planned_statuses={**view.planned_statuses, **planned},
        has_unwritten_start=view.has_unwritten_start or has_start,
    )


def _list_planned_statuses(view: PassView) -> list[WriteStatus]:
    """Return the planned statuses of components that still exist."""
    planned = view.planned_statuses
    return [planned[one.uid] for one in _components(view.observed) if one.uid in planned]


def _list_changed_selections(view: PassView) -> list[WriteStatus]:
    """Return the planned statuses that name other pods or replicas as being replaced than the stored ones."""
    return [
        one
        for one in _list_planned_statuses(view)
        if _selected_to_update(one.status) != _selected_to_update(view.stored_statuses.get(one.uid))
    ]


def _is_start(planned: Status, stored: Status | None) -> bool:
    """Return whether a planned status starts an update that the stored one does not show."""
    return _update_started_at(planned) != _update_started_at(stored)


def _update_started_at(status: Status | None) -> object:
    return ((status or {}).get("updateProgress") or {}).get("updateStartedAt")


def _selected_to_update(status: Status | None) -> object:
    """Return what the status of a component names as being replaced."""
    progress: Status = (status or {}).get("updateProgress") or {}
    return progress.get("readyPodsSelectedToUpdate"), progress.get("readyReplicaIndicesSelectedToUpdate")


# ---- the view


def _execution_context(context: PassContext, view: PassView) -> ExecutionContext:
    return ExecutionContext(context.namespace, view.observed, view.set_resource_version)


def _overlay_answers(context: PassContext, view: PassView, answers: Answers) -> PassView:
    """Return the view with the answers in place of what was observed."""
    observed = overlay_changes(view.observed, context.set_uid, ExecutionResult(answers).changes())
    version = view.set_resource_version
    for answer in answers:
        if kind_of(answer.action) is Kind.SET and answer.current is not None:
            version = answer.current["metadata"]["resourceVersion"]
            observed = replace(observed, status=answer.current.get("status") or {})
    # An answer brings the stored status, not the one that the next plan assumes.
    observed = _with_statuses(observed, context.set_uid, view.planned_statuses)
    return replace(view, observed=observed, set_resource_version=version)


def _components(observed: Observed) -> list[Clique | Group | Gang]:
    return [*observed.cliques, *observed.groups, *observed.gangs]


def _with_statuses(observed: Observed, set_uid: str, planned: Mapping[str, WriteStatus]) -> Observed:
    """Return what is observed with planned statuses in place of its own."""
    if not planned:
        return observed
    return replace(
        observed,
        status=planned[set_uid].status if set_uid in planned else observed.status,
        cliques=_replace_statuses(observed.cliques, planned),
        groups=_replace_statuses(observed.groups, planned),
        gangs=_replace_statuses(observed.gangs, planned),
    )


def _replace_statuses(
    objects: tuple[StatusObject, ...], planned: Mapping[str, WriteStatus]
) -> tuple[StatusObject, ...]:
    return tuple(replace(one, status=planned[one.uid].status) if one.uid in planned else one for one in objects)
