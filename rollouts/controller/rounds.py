"""The writes of one pass, round by round: plan, write, go on from the answers, until nothing is left to write.

Before it: the reconciler, with a workload as the mirror has it. After it: `executor`, which carries out what a round
decides. A pod is replaced by a delete, a create, a reference in its gang and an open gate, each possible once the one
before is answered; so a round follows the other on the answers themselves, and the mirror is told once, at the end.

Statuses tell what is found, and nobody acts on them sooner than on the next pass. So they are planned on with as if
they were written, and written once, in the end. The exception is the beginning of an update: that of the set must stand
in the cluster before anything is replaced for it, that of a component as soon as its first units are. However early a
pass ends, it writes the statuses that name what it has replaced.

The invariants: `note` has heard of a round before anything of it is sent; nothing is decided on a view that an answer
has shown to be out of date; what others do meanwhile is seen soon, since after a moment no new round is begun.
"""

import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from rollouts.cluster import Cluster
from rollouts.controller.executor import Answer, Applied, Fate, Scene, apply_plan, key_of, kind_of
from rollouts.engine.model.actions import Action, Kind, Moment, Plan, WriteStatus
from rollouts.engine.model.observed import Clique, Gang, Group, Observed
from rollouts.engine.model.workload import Workload
from rollouts.engine.plan.planner import plan_tree
from rollouts.engine.rollout.ready_times import measure_ready_times
from rollouts.engine.tree.layout import make_shape
from rollouts.engine.tree.tree_builder import arrange
from rollouts.mirror import Seen
from rollouts.mirror.overlay import fold

Status = Mapping[str, Any]
T = TypeVar("T", Clique, Group, Gang)

ROUNDS: Final = 16
SECONDS: Final = 1.0  # after which no new round is begun


@dataclass(frozen=True, slots=True)
class Bearings:
    """What a course is steered by."""

    workload: Workload
    now: float
    # Hears of each round before it is sent: the plan, its writes without statuses, the set's status as it will be.
    note: Callable[[Plan, Sequence[Action], Status], None]
    # Puts into the set's status what is to be said besides the plan, given all answers so far, and whether these are
    # all that the pass will have.
    judge: Callable[[Status, Applied, bool], Status]
    # The writes that the cluster has refused too often to be sent now, by `executor.key_of`.
    held: Container[str] = frozenset()


class Course:
    """A workload on its way through one pass."""

    def __init__(self, cluster: Cluster, seen: Seen, bearings: Bearings) -> None:
        metadata = seen.manifest["metadata"]
        self.applied = Applied()  # everything that was sent, and what became of it
        self.observed = seen.observed  # as it is by now
        self.moments: list[Moment] = []
        self.decided = Plan((), (), (), (), None)  # by the last round
        self.is_unfinished = False  # more could have been written
        self.ready_times = measure_ready_times(seen.observed)
        self._cluster = cluster
        self._namespace: str = metadata["namespace"]
        self._name: str = metadata["name"]
        self._uid = seen.uid
        self._version = seen.resource_version
        self._bearings = bearings
        self._shape = make_shape(bearings.workload)
        self._held_back: set[str] = set()  # writes that were wanted and not sent
        # By uid: the statuses that are planned on with, and what is stored in their place.
        self._told: dict[str, WriteStatus] = {}
        self._stored: dict[str, Status] = {seen.uid: seen.observed.status}
        self._has_begun = False  # the update of a component, of which the cluster has not been told yet

    def run(self) -> None:
        """Go on until nothing is left to write, or somebody has to look anew."""
        deadline = time.monotonic() + SECONDS
        for _ in range(ROUNDS):
            self.decided = self._plan()
            moves = self._without_held(one for one in self.decided.actions if not isinstance(one, WriteStatus))
            is_told = self._tell(action for action in self.decided.actions if isinstance(action, WriteStatus))
            self.moments += self.decided.moments
            self._bearings.note(self.decided, moves, self.observed.status)
            if any(moment.reason == "UpdateStarted" for moment in self.decided.moments):
                if not self._write_statuses(goes_on=True):
                    return
            elif moves:
                if not self._write(moves):
                    return
            elif not is_told:
                self._write_statuses()
                return
            if time.monotonic() > deadline:
                break
        self.is_unfinished = True
        # Where nothing else was to be written, planning alone has taken so long, and would the next time as well.
        self._write_statuses(in_brief=bool(moves))

    def _plan(self) -> Plan:
        tree = arrange(self._shape, self.observed)
        return plan_tree(self._shape, tree, self.observed.status, self._bearings.now, self.ready_times)

    def _write(self, moves: Sequence[Action]) -> bool:
        """Carry out what a round decided; return whether the next one can be planned on the answers."""
        answers, self.is_unfinished = self._send(moves)
        fates = {answer.fate for answer in answers}
        if Fate.UNKNOWN in fates:
            return False
        self._take_in(answers)
        goes_on = not (self.is_unfinished or fates & {Fate.OUTRUN, Fate.DENIED})
        if self._has_begun or Fate.DENIED in fates:
            return self._write_statuses(goes_on=goes_on) and goes_on
        if not goes_on:
            self._write_statuses(in_brief=True)
        return goes_on

    def _send(self, actions: Sequence[Action]) -> tuple[list[Answer], bool]:
        sent = Applied()
        try:
            apply_plan(self._cluster, actions, Scene(self._namespace, self.observed, self._version), sent)
        finally:
            self.applied.answers += sent.answers
        return sent.answers, sent.is_cut_short

    def _without_held(self, actions: Iterable[Action]) -> list[Action]:
        """Return what may be sent; the rest is answered as not sent, once."""
        sent: list[Action] = []
        for action in actions:
            key = key_of(action)
            if key not in self._bearings.held:
                sent.append(action)
            elif key not in self._held_back:
                self._held_back.add(key)
                self.applied.answers.append(Answer(action, Fate.UNSENT))
        return sent

    def _take_in(self, answers: Sequence[Answer]) -> None:
        """Go on from what was answered."""
        self.observed = fold(self.observed, self._uid, Applied([*answers]).changes())
        for answer in answers:
            if kind_of(answer.action) is Kind.SET and answer.found is not None:
                self._version = answer.found["metadata"]["resourceVersion"]
                self.observed = replace(self.observed, status=answer.found.get("status") or {})
        # An answer brings the status that is stored, not the one that is planned on with.
        self.observed = _with_statuses(self.observed, self._uid, self._told)

    def _components(self) -> list[Clique | Group | Gang]:
        return [*self.observed.cliques, *self.observed.groups, *self.observed.gangs]

    # Statuses.

    def _tell(self, writes: Iterable[WriteStatus]) -> bool:
        """Plan on with statuses as if they were written."""
        news = {write.uid: write for write in writes}
        if not news:
            return False
        for one in self._components():
            if one.uid in news:
                self._stored.setdefault(one.uid, one.status)
        self._told |= news
        self._has_begun |= any(_start(write.status) != _start(self._stored.get(uid)) for uid, write in news.items())
        self.observed = _with_statuses(self.observed, self._uid, news)
        return True

    def _write_statuses(self, *, in_brief: bool = False, goes_on: bool = False) -> bool:
        """Write the statuses that differ from what is stored; return whether all of them were taken.

        `in_brief` writes that of the set, and of its components only those that name other pods or replicas as being
        replaced: once these are gone, no later pass can tell that they were there.
        """
        told = {one.uid: self._told[one.uid] for one in self._components() if one.uid in self._told}
        compare = _selected if in_brief else dict
        writes = [one for uid, one in told.items() if compare(one.status) != compare(self._stored.get(uid) or {})]
        status = self._bearings.judge(self.observed.status, self.applied, not goes_on and not self.is_unfinished)
        if status != self._stored[self._uid]:
            writes.append(WriteStatus(Kind.SET, self._name, self._uid, status))
        due = self._without_held(writes)
        answers = self._send(due)[0] if due else []
        self._has_begun &= in_brief
        if goes_on:
            self._told.clear()
            self._take_in(answers)
            self._stored = {self._uid: self.observed.status}
        return len(due) == len(writes) and all(answer.fate is Fate.DONE for answer in answers)


def _start(status: Status | None) -> object:
    """Return when the update of a component began, as its status tells."""
    return ((status or {}).get("updateProgress") or {}).get("updateStartedAt")


def _selected(status: Status) -> object:
    """Return what the status of a component names as being replaced."""
    progress: Status = status.get("updateProgress") or {}
    return progress.get("readyPodsSelectedToUpdate"), progress.get("readyReplicaIndicesSelectedToUpdate")


def _with_statuses(observed: Observed, set_uid: str, told: Mapping[str, WriteStatus]) -> Observed:
    """Return what is observed with other statuses."""
    if not told:
        return observed
    return replace(
        observed,
        status=told[set_uid].status if set_uid in told else observed.status,
        cliques=_put_statuses(observed.cliques, told),
        groups=_put_statuses(observed.groups, told),
        gangs=_put_statuses(observed.gangs, told),
    )


def _put_statuses(objects: tuple[T, ...], told: Mapping[str, WriteStatus]) -> tuple[T, ...]:
    return tuple(replace(one, status=told[one.uid].status) if one.uid in told else one for one in objects)
