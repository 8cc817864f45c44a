"""The writes of one pass, round by round: plan, write, go on from the answers, until nothing is left to write.

Before it: the reconciler, with a workload as the mirror has it. After it: `executor`, which carries out what a round
decides. A pod is replaced by a delete, a create, a reference in its gang and an open gate, each possible once the one
before is answered; so a round follows the other on the answers themselves, and the mirror is told once, at the end.

Statuses tell what is found, and nobody acts on them sooner than on the next pass. So they are planned on with as if
they were written, and written once, in the end. The exception is the beginning of an update: that of the set must stand
in the cluster before anything is replaced for it, that of a component as soon as its first units are. And a pass writes
the status of a component that names a pod or a replica as being replaced before it deletes that pod or replica:
afterwards no later pass can tell that it existed.

The invariants: `note` has heard of a round before anything of it is sent; nothing is decided on a view that an answer
has shown to be out of date; what others do meanwhile is seen soon, since after a moment no new round is begun.
"""

import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from rollouts.cluster import ClusterClient
from rollouts.controller.executor import (
    ExecutionContext,
    ExecutionResult,
    WriteRecord,
    WriteResult,
    apply_plan,
    kind_of,
    write_key_of,
)
from rollouts.engine.model.actions import Action, Delete, Kind, Plan, TimelineEvent, WriteStatus
from rollouts.engine.model.observed import Clique, Gang, Group, Observed
from rollouts.engine.model.workload import Workload
from rollouts.engine.plan.planner import plan_tree
from rollouts.engine.rollout.ready_times import measure_ready_times
from rollouts.engine.tree.layout import make_layout
from rollouts.engine.tree.tree_builder import build_tree
from rollouts.mirror import MirroredWorkload
from rollouts.mirror.overlay import overlay_changes

Status = Mapping[str, Any]
StatusObject = TypeVar("StatusObject", Clique, Group, Gang)

MAX_ROUNDS: Final = 16
MAX_SECONDS: Final = 1.0  # after which no new round is begun


@dataclass(frozen=True, slots=True)
class PassContext:
    """What a course is steered by."""

    workload: Workload
    now: float
    # Hears of each round before it is sent: the plan, its writes without statuses, the set's status as it will be.
    note: Callable[[Plan, Sequence[Action], Status], None]
    # Puts into the set's status what is to be said besides the plan, given all answers so far, and whether these are
    # all that the pass will have.
    judge: Callable[[Status, ExecutionResult, bool], Status]
    # The writes that the cluster has refused too often to be sent now, by `executor.write_key_of`.
    backed_off: Container[str] = frozenset()


class Rounds:
    """A workload on its way through one pass."""

    def __init__(self, cluster: ClusterClient, seen: MirroredWorkload, bearings: PassContext) -> None:
        metadata = seen.manifest["metadata"]
        self.result = ExecutionResult()  # everything that was sent, and what became of it
        self.observed = seen.observed  # as it is by now
        self.timeline_events: list[TimelineEvent] = []
        self.plan = Plan((), (), (), (), None)  # by the last round
        self.is_unfinished = False  # more could have been written
        self.ready_times = measure_ready_times(seen.observed)
        self._cluster = cluster
        self._namespace: str = metadata["namespace"]
        self._name: str = metadata["name"]
        self._uid = seen.uid
        self._version = seen.resource_version
        self._context = bearings
        self._layout = make_layout(bearings.workload)
        self._skipped: set[str] = set()  # writes that were wanted and not sent
        # By uid: the statuses that are planned on with, and what is stored in their place.
        self._planned_statuses: dict[str, WriteStatus] = {}
        self._stored_statuses: dict[str, Status] = {seen.uid: seen.observed.status}
        self._has_unwritten_start = False  # the update of a component, of which the cluster has not been told yet

    def run(self) -> None:
        """Go on until nothing is left to write, or somebody has to look anew."""
        deadline = time.monotonic() + MAX_SECONDS
        for _ in range(MAX_ROUNDS):
            self.plan = self._compute_plan()
            moves = self._skip_backed_off(one for one in self.plan.actions if not isinstance(one, WriteStatus))
            is_told = self._plan_with_statuses(
                action for action in self.plan.actions if isinstance(action, WriteStatus)
            )
            self.timeline_events += self.plan.timeline_events
            self._context.note(self.plan, moves, self.observed.status)
            if any(moment.reason == "UpdateStarted" for moment in self.plan.timeline_events):
                if not self._write_statuses(goes_on=True):
                    return
            elif moves:
                if not (self._write_selections(moves) and self._write(moves)):
                    return
            elif not is_told:
                self._write_statuses()
                return
            if time.monotonic() > deadline:
                break
        self.is_unfinished = True
        # Where nothing else was to be written, planning alone has taken so long, and would the next time as well.
        self._write_statuses(only_set=bool(moves))

    def _compute_plan(self) -> Plan:
        tree = build_tree(self._layout, self.observed)
        return plan_tree(self._layout, tree, self.observed.status, self._context.now, self.ready_times)

    def _write(self, moves: Sequence[Action]) -> bool:
        """Carry out what a round decided; return whether the next one can be planned on the answers."""
        answers, self.is_unfinished = self._send(moves)
        fates = {answer.result for answer in answers}
        if WriteResult.UNKNOWN in fates:
            return False
        self._overlay_answers(answers)
        goes_on = not (self.is_unfinished or fates & {WriteResult.CONFLICT, WriteResult.REJECTED})
        if self._has_unwritten_start or WriteResult.REJECTED in fates:
            return self._write_statuses(goes_on=goes_on) and goes_on
        if not goes_on:
            self._write_statuses(only_set=True)
        return goes_on

    def _send(self, actions: Sequence[Action]) -> tuple[list[WriteRecord], bool]:
        sent = ExecutionResult()
        try:
            apply_plan(self._cluster, actions, ExecutionContext(self._namespace, self.observed, self._version), sent)
        finally:
            self.result.writes += sent.writes
        return sent.writes, sent.is_truncated

    def _skip_backed_off(self, actions: Iterable[Action]) -> list[Action]:
        """Return what may be sent; the rest is answered as not sent, once."""
        sent: list[Action] = []
        for action in actions:
            key = write_key_of(action)
            if key not in self._context.backed_off:
                sent.append(action)
            elif key not in self._skipped:
                self._skipped.add(key)
                self.result.writes.append(WriteRecord(action, WriteResult.SKIPPED))
        return sent

    def _overlay_answers(self, answers: Sequence[WriteRecord]) -> None:
        """Go on from what was answered."""
        self.observed = overlay_changes(self.observed, self._uid, ExecutionResult([*answers]).changes())
        for answer in answers:
            if kind_of(answer.action) is Kind.SET and answer.current is not None:
                self._version = answer.current["metadata"]["resourceVersion"]
                self.observed = replace(self.observed, status=answer.current.get("status") or {})
        # An answer brings the status that is stored, not the one that is planned on with.
        self.observed = _with_statuses(self.observed, self._uid, self._planned_statuses)

    def _components(self) -> list[Clique | Group | Gang]:
        return [*self.observed.cliques, *self.observed.groups, *self.observed.gangs]

    # Statuses.

    def _plan_with_statuses(self, writes: Iterable[WriteStatus]) -> bool:
        """Plan on with statuses as if they were written."""
        news = {write.uid: write for write in writes}
        if not news:
            return False
        for one in self._components():
            if one.uid in news:
                self._stored_statuses.setdefault(one.uid, one.status)
        self._planned_statuses |= news
        self._has_unwritten_start |= any(
            _update_started_at(write.status) != _update_started_at(self._stored_statuses.get(uid))
            for uid, write in news.items()
        )
        self.observed = _with_statuses(self.observed, self._uid, news)
        return True

    def _write_selections(self, moves: Sequence[Action]) -> bool:
        """Write the statuses that name what is about to be deleted; return whether the pass can go on.

        The update goes on if the cluster rejects them: the condition `WriteDenied` shows the rejection.
        """
        if not any(isinstance(move, Delete) for move in moves):
            return True
        planned = self._planned_component_statuses()
        writes = [
            one
            for one in planned
            if _selected_to_update(one.status) != _selected_to_update(self._stored_statuses.get(one.uid))
        ]
        due = [one for one in writes if self._skip_backed_off([one])]
        answers = self._send(due)[0] if due else []
        self._overlay_answers(answers)
        failed = {write_key_of(one.action) for one in answers if one.result is not WriteResult.APPLIED}
        self._stored_statuses |= {one.uid: one.status for one in due if write_key_of(one) not in failed}
        self._has_unwritten_start = any(
            _update_started_at(one.status) != _update_started_at(self._stored_statuses.get(one.uid)) for one in planned
        )
        return not {answer.result for answer in answers} & {WriteResult.CONFLICT, WriteResult.UNKNOWN}

    def _write_statuses(self, *, only_set: bool = False, goes_on: bool = False) -> bool:
        """Write the statuses that differ from what is stored; return whether all of them were taken."""
        planned = [] if only_set else self._planned_component_statuses()
        writes = [one for one in planned if one.status != self._stored_statuses.get(one.uid)]
        status = self._context.judge(self.observed.status, self.result, not goes_on and not self.is_unfinished)
        if status != self._stored_statuses[self._uid]:
            writes.append(WriteStatus(Kind.SET, self._name, self._uid, status))
        due = self._skip_backed_off(writes)
        answers = self._send(due)[0] if due else []
        self._has_unwritten_start &= only_set
        if goes_on:
            self._planned_statuses.clear()
            self._overlay_answers(answers)
            self._stored_statuses = {self._uid: self.observed.status}
        return len(due) == len(writes) and all(answer.result is WriteResult.APPLIED for answer in answers)

    def _planned_component_statuses(self) -> list[WriteStatus]:
        return [self._planned_statuses[one.uid] for one in self._components() if one.uid in self._planned_statuses]


def _update_started_at(status: Status | None) -> object:
    """Return when the update of a component began, as its status tells."""
    return ((status or {}).get("updateProgress") or {}).get("updateStartedAt")


def _selected_to_update(status: Status | None) -> object:
    """Return what the status of a component names as being replaced."""
    progress: Status = (status or {}).get("updateProgress") or {}
    return progress.get("readyPodsSelectedToUpdate"), progress.get("readyReplicaIndicesSelectedToUpdate")


def _with_statuses(observed: Observed, set_uid: str, told: Mapping[str, WriteStatus]) -> Observed:
    """Return what is observed with other statuses."""
    if not told:
        return observed
    return replace(
        observed,
        status=told[set_uid].status if set_uid in told else observed.status,
        cliques=_replace_statuses(observed.cliques, told),
        groups=_replace_statuses(observed.groups, told),
        gangs=_replace_statuses(observed.gangs, told),
    )


def _replace_statuses(objects: tuple[StatusObject, ...], told: Mapping[str, WriteStatus]) -> tuple[StatusObject, ...]:
    return tuple(replace(one, status=told[one.uid].status) if one.uid in told else one for one in objects)
