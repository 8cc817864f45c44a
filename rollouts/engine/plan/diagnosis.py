"""Why it is not moving: for everything that waits a code, a sentence with names and numbers, and what would help.

Reads the steps of the pass (DESIGN 6.12), so what is told is what was decided; `remedies` says what would help. A wait
is no fault: pods take time. It is called a problem once it has lasted longer than such things do, by the measured times
(`ready_times`), and at once where waiting does not help: a container that fails (`container_faults`), or fewer available replicas
than the budget allows. One code of a pass is told to be the cause. The invariant: while a pass has nothing to do and
something wanted is not there, a wait names what it is waiting for.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import chain
from typing import Final

from rollouts.engine.model.actions import Wait
from rollouts.engine.model.budget import Budget
from rollouts.engine.model.conditions import SCALED_BELOW
from rollouts.engine.model.container_faults import SENTENCES, STEADY_AFTER, Fault, is_steady
from rollouts.engine.model.observed import Group, Pod, Service
from rollouts.engine.model.values import value
from rollouts.engine.model.workload import Strategy
from rollouts.engine.plan import remedies
from rollouts.engine.plan.remedies import NO_SURGE, Remedies, Remedy, Surge
from rollouts.engine.rollout.gangs import WantedGang
from rollouts.engine.rollout.levels import LevelKind, list_levels
from rollouts.engine.rollout.ready_times import READY_WITHIN, ReadyTimes
from rollouts.engine.rollout.roller import Unit
from rollouts.engine.rollout.steps import CliqueStep, GroupStep, ReplicaStep, SetStep
from rollouts.engine.rollout.update import Update
from rollouts.engine.tree.layout import Shape
from rollouts.engine.tree.views import CliqueView, GroupView, Replica, Tree


class Code(StrEnum):
    """What is waited for."""

    WAITING_FOR_READY = "WaitingForReady"
    WAITING_FOR_TERMINATION = "WaitingForTermination"
    BUDGET_EXHAUSTED = "BudgetExhausted"
    SURGE_UNSCHEDULABLE = "SurgeUnschedulable"
    SURGE_NOT_READY = "SurgeNotReady"
    SURGE_GATED = "SurgeGated"
    REPLICA_UNSCHEDULABLE = "ReplicaUnschedulable"
    WAITING_FOR_REPLICA = "WaitingForReplica"
    AWAITING_DELETION = "AwaitingDeletion"
    SCALED_BELOW_MIN_AVAILABLE = SCALED_BELOW
    # What a container fails with, and what is missing of the replicas: problems as soon as they are seen.
    IMAGE_NOT_PULLED = str(Fault.IMAGE)
    CONTAINER_NOT_CREATED = str(Fault.CONFIG)
    OUT_OF_MEMORY = str(Fault.MEMORY)
    CRASH_LOOP = str(Fault.CRASH)
    TOO_FEW_AVAILABLE = "TooFewAvailable"


CAUSES: Final[Mapping[str, str]] = {
    Code.SURGE_UNSCHEDULABLE: "Surge has no node yet.",
    Code.REPLICA_UNSCHEDULABLE: "Pods have no node yet.",
    Code.SURGE_GATED: "Surge is held back until its base gang is scheduled.",
    Code.SURGE_NOT_READY: "Surge is not Ready yet.",
    Code.WAITING_FOR_READY: "Pods are not Ready yet.",
    Code.WAITING_FOR_TERMINATION: "Pods that were deleted are not gone yet.",
    Code.WAITING_FOR_REPLICA: "Another replica goes first.",
    Code.BUDGET_EXHAUSTED: "As many are unavailable as may be.",
}
"""What an update can wait for, said of all of it: what explains most comes first, what follows from others last."""

NOT_READY: Final = frozenset({Code.WAITING_FOR_READY, Code.SURGE_NOT_READY, *(Code(str(fault)) for fault in Fault)})
"""Pods that have a node and are not Ready, told by what is known of it."""

UNPLACED: Final = frozenset({Code.SURGE_UNSCHEDULABLE, Code.SURGE_GATED, Code.REPLICA_UNSCHEDULABLE})
"""Pods without a node."""

CONSEQUENCES: Final = (Code.TOO_FEW_AVAILABLE, Code.WAITING_FOR_REPLICA, Code.BUDGET_EXHAUSTED)
"""What only follows from something else, from the least to the most."""

# Of a pod of which no scheduler has said anything, it is not yet worth telling that it has no node.
_UNSAID: Final[Mapping[str, str]] = {
    Code.SURGE_UNSCHEDULABLE: Code.SURGE_NOT_READY,
    Code.REPLICA_UNSCHEDULABLE: Code.WAITING_FOR_READY,
}

# Seconds after which a pod should have a node.
SCHEDULED_WITHIN: Final = 60.0
# A pod should be Ready in so many times the usual time, and is given so many seconds where that is little.
LATE_FACTOR: Final = 3.0
LATE_AFTER: Final = 30.0
# The kubelet says soon after a pod got its node that it is not Ready. Where it says so later, the pod was Ready before.
FIRST_WORD_WITHIN: Final = 10.0
# Seconds that a pod may take to go beyond those it asked for.
GONE_WITHIN: Final = 60.0

_FEW: Final = 3


@value
class Diagnosis:
    """Why nothing moves, and when more can be said."""

    waits: tuple[Wait, ...]
    cause: str  # the code that explains them; empty: nothing waits, or only for somebody who deletes pods
    look_again_at: float | None  # when a wait becomes a problem


NOTHING_WAITS: Final = Diagnosis((), "", None)


@value
class _Stand:
    """Where the pods of a clique stand."""

    base: WantedGang  # of their replica of the set
    is_surge: bool  # all of them are surge
    is_scaled: bool  # their gang is a scaled one, which waits for the base gang
    surge: Surge  # beside the unit that they are replaced with

    def beside(self, surge: Surge) -> "_Stand":
        return _Stand(self.base, self.is_surge, self.is_scaled, surge)


@value
class _Remains:
    """What is still there of something that is to go: its pods, or else what held them."""

    pods: tuple[Pod, ...] = ()
    holders: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return _keys(self.pods) or self.holders


class Examiner:
    """Collects the waits of one pass."""

    def __init__(self, shape: Shape, update: Update, now: float, ready_times: ReadyTimes) -> None:
        """Look at things as they are now."""
        self._ready_times = ready_times
        self._shape = shape
        self._workload = shape.workload
        self._update = update
        self._now = now
        self._due: list[float] = []
        self._said: set[str] = set()  # what schedulers have spoken of
        self._unsteady = {one.clique: one.replica for one in ready_times.list_unsteady(now)}

    def diagnose(self, tree: Tree, steps: SetStep, bases: dict[int, WantedGang]) -> Diagnosis:
        """Return every wait of the pass, the set first; `bases` are the base gangs by replica."""
        surge = self._find_set_surge(tree, steps)
        inside = {
            step.replica.index: self._replica_waits(step, bases[step.replica.index], surge)
            for step in steps.replicas
            if step.is_at_work
            or not (step.replica.is_complete and step.replica.is_available)
            or step.replica.index in self._unsteady.values()
            or _is_scaled_below(step)
        }
        waits = [*self._set_waits(tree, steps, inside), *chain.from_iterable(inside.values())]
        return Diagnosis(tuple(waits), self._find_cause(waits), min(self._due, default=None))

    def _find_cause(self, waits: Iterable[Wait]) -> str:
        codes = {wait.code for wait in waits}
        told = {code if code in self._said else _UNSAID.get(code, code) for code in codes}
        return next((code for code in CAUSES if code in told), "")

    # The set

    def _find_set_surge(self, tree: Tree, steps: SetStep) -> Surge:
        if not steps.is_rolling:
            return NO_SURGE
        extra = (tree.replicas[unit.index] for unit in steps.units if self._is_extra(unit.index) and not unit.leaving)
        holding = tuple(replica.name for replica in extra if replica.is_anything_scheduled)
        return Surge(holding, returns=_is_original_outdated(steps.units, self._workload.replicas))

    def _is_extra(self, index: int) -> bool:
        return index >= self._workload.replicas

    def _set_waits(self, tree: Tree, steps: SetStep, inside: Mapping[int, list[Wait]]) -> list[Wait]:
        waits: list[Wait] = []
        if steps.is_rolling:
            waits += self._budget_wait(self._workload.name, "replica", steps.units, steps, self._workload.replicas)
        waits += self._turn_wait(tree, inside)
        waits += self._shortage_wait(tree, steps, inside)
        for unit in steps.units:
            if unit.leaving:
                waits += self._termination_wait(unit.key, _leftovers(tree.replicas[unit.index]))
        return waits

    def _turn_wait(self, tree: Tree, inside: Mapping[int, list[Wait]]) -> Sequence[Wait]:
        """Say which replicas wait for the one that is updated, or for those that are down."""
        update = self._update
        if not update.held_by:
            return () if update.selected is None else _selection_wait(self._shape, tree.outdated, update.selected)
        others = _list_names(self._shape, tree.outdated)
        if not others:
            return ()
        return [self._held_wait(tree, others, [wait for index in update.held_by for wait in inside.get(index, ())])]

    def _held_wait(self, tree: Tree, others: tuple[str, ...], theirs: list[Wait]) -> Wait:
        name, held_by = self._workload.name, self._update.held_by
        down = [f"{name}-{index}" for index in held_by]
        # What is the matter with them: the first problem says more than the first wait.
        told = next((wait.text for wait in sorted(theirs, key=pressure)), "")
        text = (
            f"{_names(others)} {_wait(others)} until {_names(down)} {_are(down)} available: no second replica is taken"
            f" down meanwhile{f'; {told}' if told else '.'}"
        )
        helps = dict.fromkeys(remedy for wait in theirs for remedy in wait.remedies)
        never_placed = not any(one.is_anything_scheduled for one in tree.replicas.values() if one.index in held_by)
        if never_placed and remedies.can_scale_in(held_by, self._workload.replicas):
            helps[Remedy.SCALE_IN] = None
        problem = any(wait.is_problem for wait in theirs)
        return Wait(Code.WAITING_FOR_REPLICA, name, others, text, tuple(helps), is_problem=problem)

    def _shortage_wait(self, tree: Tree, steps: SetStep, inside: Mapping[int, list[Wait]]) -> list[Wait]:
        """Say that fewer replicas are available than the budget allows; those that never were up do not count.

        Where a wait in one of them is a problem, that is the cause and this would only repeat it.
        """
        if self._shape.is_on_delete or not tree.unavailable:
            return []
        wanted = self._workload.replicas
        down = [
            index for index in sorted(tree.unavailable) if index < wanted and _was_complete_once(tree.replicas[index])
        ]
        most = self._count_may_be_down(steps)
        surge = len(tree.beyond(wanted) - tree.unavailable)
        if len(down) - surge <= most or any(wait.is_problem for index in down for wait in inside.get(index, ())):
            return []
        names = [self._shape.prefixes[index] for index in down]
        missing = f"{len(down)} of {wanted} replicas are not available, and maxUnavailable is {most}"
        text = f"{_names(names)} {_are(names)} down: {missing}."
        return [Wait(Code.TOO_FEW_AVAILABLE, self._workload.name, tuple(names), text, (), is_problem=True)]

    def _count_may_be_down(self, steps: SetStep) -> int:
        """Return how many replicas of the set may be down; where components move, as many as their budgets let."""
        if self._shape.replaces_whole:
            return steps.budget.max_unavailable
        budgets = (level.budget for level in list_levels(self._workload) if level.kind is not LevelKind.SET)
        return min(1, max(budget.max_unavailable for budget in budgets if budget is not None))

    # A replica of the set

    def _replica_waits(self, step: ReplicaStep, base: WantedGang, surge: Surge) -> list[Wait]:
        stand = _Stand(base, is_surge=self._is_extra(step.replica.index), is_scaled=False, surge=surge)
        waits: list[Wait] = []
        for clique in step.cliques:
            waits += self._clique_waits(clique, stand)
        for group in step.groups:
            waits += self._group_waits(group, stand)
        return waits

    def _clique_waits(self, step: CliqueStep, stand: _Stand) -> list[Wait]:
        view = step.view
        waits = _scale_wait(view, "pod")
        if self._shape.is_on_delete:
            waits += _deletion_wait(view)
        elif step.is_rolling and view.outdated:
            waits += self._budget_wait(view.name, "pod", step.units, step, view.wanted)
        if step.is_rolling and view.scheduled < len(view.live):  # only a pod without a node is in the way of surge
            stand = stand.beside(_find_pod_surge(step))
        if self._is_any_waited_for(view) and not step.is_held:
            waits += self._pod_waits(view, stand, first_surge=view.wanted if step.is_rolling else None)
        if view.clique is not None and view.clique.leaving:
            waits += self._termination_wait(view.name, _remains([view]))
        elif len(view.live) < len(view.pods) and (len(view.live) < view.wanted or step.is_rolling):
            waits += self._termination_wait(view.name, _Remains(tuple([pod for pod in view.pods if pod.leaving])))
        return waits

    def _group_waits(self, step: GroupStep, stand: _Stand) -> list[Wait]:
        view = step.view
        waits = _scale_wait(view, "replica")
        if step.is_rolling:
            stand = stand.beside(_find_group_surge(step))
            if any(unit.outdated for unit in step.units):
                waits += self._budget_wait(view.name, "replica", step.units, step, view.wanted)
        for part, cliques in step.parts:
            is_surge = stand.is_surge or part.index >= view.wanted
            there = _Stand(stand.base, is_surge, part.index >= view.template.min_available, stand.surge)
            for clique in cliques:
                waits += self._member_waits(clique, there)
        staying = {part.index for part, _ in step.parts}
        for index, part in view.replicas.items():
            if index not in staying:
                waits += self._termination_wait(part.name, _remains(part.cliques))
        if view.group is not None and view.group.leaving:
            waits += self._termination_wait(view.name, _Remains(holders=(view.name,)))
        return waits

    def _member_waits(self, step: CliqueStep, stand: _Stand) -> list[Wait]:
        view = step.view
        waits = _scale_wait(view, "pod")
        if self._shape.is_on_delete:
            waits += _deletion_wait(view)
        if not view.is_live:
            waits += self._termination_wait(view.name, _remains([view]))
        if self._is_any_waited_for(view) and not step.is_held:
            waits += self._pod_waits(view, stand, first_surge=None)
        return waits

    # One sentence each

    def _is_any_waited_for(self, view: CliqueView) -> bool:
        return view.available < len(view.live) or view.name in self._unsteady

    def _is_between_crashes(self, pod: Pod) -> bool:
        """Whether a pod is Ready for a moment; if so, note when it will have been for long enough."""
        since = pod.ready_since
        if since is None or is_steady(pod.restarts, self._now - since):
            return False
        self._due.append(since + STEADY_AFTER)
        return True

    def _pod_waits(self, view: CliqueView, stand: _Stand, first_surge: int | None) -> list[Wait]:
        """Say which pods are waited for, those of a kind together; from `first_surge` on they are surge."""
        found: dict[tuple[Code, bool], list[Pod]] = {}
        for pod in view.live:
            if not pod.ready or self._is_between_crashes(pod):
                is_surge = stand.is_surge or (first_surge is not None and pod.index >= first_surge)
                code = _find_fault(pod) or _pod_code(pod, stand, is_surge=is_surge)
                found.setdefault((code, is_surge), []).append(pod)
        waits = [self._pod_wait(code, view, pods, stand, is_surge=is_surge) for (code, is_surge), pods in found.items()]
        return sorted(waits, key=pressure) if len(waits) > 1 else waits

    def _pod_wait(self, code: Code, view: CliqueView, pods: list[Pod], stand: _Stand, *, is_surge: bool) -> Wait:
        if code in SENTENCES:
            text, problem = _fault_sentence(code, view, pods, is_surge=is_surge), True
        else:
            problem = self._is_overdue([self._find_due(code, view, pod) for pod in pods])
            # Of a pod that we hold back ourselves, a scheduler has only to say that it is held back.
            told = next((pod.message for pod in pods if pod.message and not pod.gated), "")
            if told:
                self._said.add(code)
            text = f"{_pod_sentence(code, view, pods, stand)}{f': {told}' if told else '.'}"
        longest = min(pods, key=_waiting_since)
        return Wait(
            *(code, view.name, _keys(pods), text, self._pod_remedies(code, stand.surge, is_surge=is_surge)),
            is_problem=problem,
            waited_seconds=round(max(0.0, self._now - _waiting_since(longest)), 1),
            usual_seconds=self._find_usual(view, longest),
        )

    def _find_due(self, code: Code, view: CliqueView, pod: Pod) -> float:
        """Return when it is a problem that a pod has no node, or is not Ready."""
        if code not in (Code.WAITING_FOR_READY, Code.SURGE_NOT_READY):
            return pod.created + SCHEDULED_WITHIN
        usual = self._find_usual(view, pod)
        if usual is None:
            return _waiting_since(pod) + (LATE_AFTER if _was_ready(pod) else READY_WITHIN)
        return _waiting_since(pod) + max(LATE_AFTER, LATE_FACTOR * usual)

    def _find_usual(self, view: CliqueView, pod: Pod) -> float | None:
        return self._ready_times.find(view.template.name, pod.template_hash) if pod.node else None

    def _pod_remedies(self, code: Code, surge: Surge, *, is_surge: bool) -> Remedies:
        is_updating = self._update.is_under_way
        if code is Code.REPLICA_UNSCHEDULABLE:
            return remedies.against_unschedulable(surge)
        if code in (Code.SURGE_UNSCHEDULABLE, Code.SURGE_GATED):
            return remedies.against_unschedulable_surge(surge)
        if is_surge:
            return remedies.against_surge_not_ready(is_updating=is_updating)
        return remedies.against_not_ready(is_updating=is_updating)

    def _termination_wait(self, component: str, remains: _Remains) -> list[Wait]:
        names = remains.names
        if not names:
            return []
        text = f"{component} waits until {_names(names)} {_are(names)} gone."
        helps = (Remedy.FORCE_DELETE_PODS,) if remains.pods else ()
        told = [pod.gone_by + GONE_WITHIN for pod in remains.pods if pod.gone_by is not None]
        problem = bool(told) and self._is_overdue(told)
        return [Wait(Code.WAITING_FOR_TERMINATION, component, names, text, helps, is_problem=problem)]

    def _budget_wait(
        self, component: str, what: str, units: Iterable[Unit], step: CliqueStep | GroupStep | SetStep, wanted: int
    ) -> list[Wait]:
        """Say that outdated units wait because as many are unavailable as may be."""
        live = [unit for unit in units if not unit.leaving]
        going = {removal.unit.key for removal in step.step.delete}
        waiting = [unit for unit in live if unit.outdated and unit.available and unit.key not in going]
        if not waiting:
            return []
        budget, available = step.budget, sum(unit.available for unit in live) - len(going)
        counted, waits = (
            (f"1 outdated {what}", "waits") if len(waiting) == 1 else (f"{len(waiting)} outdated {what}s", "wait")
        )
        text = (
            f"{counted} of {component} {waits}: {max(available, 0)} {'is' if available == 1 else 'are'} available"
            f" and maxUnavailable is {budget.max_unavailable}{_surge_words(budget)}."
        )
        keys = tuple(unit.key for unit in waiting)
        is_ours_to_set = self._workload.strategy is not Strategy.ROLLING_RECREATE
        helps = remedies.against_spent_budget(budget, wanted, is_ours_to_set=is_ours_to_set)
        return [Wait(Code.BUDGET_EXHAUSTED, component, keys, text, helps, is_problem=False)]

    def _is_overdue(self, dues: list[float]) -> bool:
        """Whether the first of these moments has passed; if not, note when it will have."""
        due = min(dues)
        if due <= self._now:
            return True
        self._due.append(due)
        return False


def pressure(wait: Wait) -> tuple[bool, int]:
    """Order waits: problems first, causes before what only follows from them."""
    rank = CONSEQUENCES.index(Code(wait.code)) + 1 if wait.code in CONSEQUENCES else 0
    return not wait.is_problem, rank


def find_cause(code: str) -> str:
    """Return one code for all that mean the same: a pod that is not Ready may be told to crash, or not."""
    return next((str(min(alike)) for alike in (NOT_READY, UNPLACED) if code in alike), code)


def find_problem(waits: Iterable[Wait]) -> Wait | None:
    """Return the problem that explains most; None: no wait is a problem."""
    return min((wait for wait in waits if wait.is_problem), key=pressure, default=None)


def _deletion_wait(view: CliqueView) -> list[Wait]:
    """Say that outdated pods stay until somebody deletes them."""
    if not view.outdated:
        return []
    outdated = [pod for pod in view.live if pod.template_hash != view.template_hash]
    text = (
        f"{view.outdated} of {len(view.live)} pods of {view.name} run an older template;"
        " each comes back with the current one when it is deleted."
    )
    helps = (Remedy.DELETE_OUTDATED_PODS,)
    return [Wait(Code.AWAITING_DELETION, view.name, _keys(outdated), text, helps, is_problem=False)]


def _is_scaled_below(step: ReplicaStep) -> bool:
    """Whether any component is scaled below its minimum, be it one that the replica can do without."""
    members = chain.from_iterable(cliques for group in step.groups for _, cliques in group.parts)
    return any(clique.view.is_scaled_below for clique in chain(step.cliques, members))


def _scale_wait(view: CliqueView | GroupView, what: str) -> list[Wait]:
    """Say that somebody has scaled a component below its minimum: nothing else makes it available again."""
    if not view.is_live or not view.is_scaled_below:
        return []
    text = (
        f"{view.name} is scaled to {view.wanted} {what if view.wanted == 1 else f'{what}s'} and its minAvailable is"
        f" {view.needed}: scale it to {view.needed} or more."
    )
    return [Wait(Code.SCALED_BELOW_MIN_AVAILABLE, view.name, (), text, (), is_problem=True)]


def _find_pod_surge(step: CliqueStep) -> Surge:
    view = step.view
    holding = tuple(pod.name for pod in view.live if pod.index >= view.wanted and pod.node)
    return Surge(holding, _is_original_outdated(step.units, view.wanted))


def _find_group_surge(step: GroupStep) -> Surge:
    view = step.view
    extra = (part for index, part in view.replicas.items() if index >= view.wanted and not part.is_leaving)
    holding = tuple(part.name for part in extra if any(clique.scheduled for clique in part.cliques))
    return Surge(holding, _is_original_outdated(step.units, view.wanted))


def _is_original_outdated(units: Iterable[Unit], wanted: int) -> bool:
    return any(unit.outdated and unit.index < wanted and not unit.leaving for unit in units)


def _find_fault(pod: Pod) -> Code | None:
    """Return what a container of a pod fails with; one that is Ready is so between two crashes."""
    if pod.ready:
        return Code.CRASH_LOOP
    return Code(pod.fault) if pod.fault in SENTENCES else None


def _pod_code(pod: Pod, stand: _Stand, *, is_surge: bool) -> Code:
    if pod.gated and stand.is_scaled and is_surge and not stand.base.is_scheduled:
        return Code.SURGE_GATED
    if not pod.node:
        return Code.SURGE_UNSCHEDULABLE if is_surge else Code.REPLICA_UNSCHEDULABLE
    return Code.SURGE_NOT_READY if is_surge else Code.WAITING_FOR_READY


def _was_ready(pod: Pod) -> bool:
    """Whether a pod that is not Ready was so before."""
    return pod.ready_since is not None and pod.ready_since > pod.started + FIRST_WORD_WITHIN


def _waiting_since(pod: Pod) -> float:
    """Return since when a pod is waited for; one that is Ready for a moment, since its start."""
    if not pod.ready and pod.ready_since is not None and _was_ready(pod):
        return pod.ready_since
    return pod.started if pod.node else pod.created


def _was_complete_once(replica: Replica) -> bool:
    """Whether all of a set replica was there and available at some time: each component has noted it since then."""
    components = (*(view.clique for view in replica.cliques), *(view.group for view in replica.groups))
    return all(one is not None and "currentPodCliqueSetGenerationHash" in one.status for one in components)


def _fault_sentence(code: Code, view: CliqueView, pods: list[Pod], *, is_surge: bool) -> str:
    keys = _keys(pods)
    one, several = SENTENCES[code]
    detail = next((pod.fault_detail for pod in pods if pod.fault_detail), "")
    who = f"{'Surge ' if is_surge else ''}{_names(keys)} of {view.name}"
    return f"{who} {one if len(keys) == 1 else several}{f': {detail}' if detail else ''}."


def _pod_sentence(code: Code, view: CliqueView, pods: list[Pod], stand: _Stand) -> str:
    surge = "Surge " if code in (Code.SURGE_GATED, Code.SURGE_UNSCHEDULABLE, Code.SURGE_NOT_READY) else ""
    keys = _keys(pods)
    who, is_one = f"{surge}{_names(keys)} of {view.name}", len(keys) == 1
    if stand.is_scaled and not stand.base.is_scheduled and any(pod.gated for pod in pods):
        short = next(clique for clique in stand.base.cliques if clique.scheduled < clique.least)
        return (
            f"{who} {_are(keys)} held back until the base gang {stand.base.name} is scheduled, of which"
            f" {short.name} has {short.scheduled} of {short.least} pods on nodes"
        )
    if all(pod.gated for pod in pods):
        return f"{who} {_are(keys)} held back until {'its PodGang lists it' if is_one else 'their PodGang lists them'}"
    if code is Code.REPLICA_UNSCHEDULABLE and stand.surge.holding:
        beside = _names(stand.surge.holding)
        return f"{who} {'has' if is_one else 'have'} no node while surge {beside} keeps its own until all are available"
    if code in (Code.SURGE_UNSCHEDULABLE, Code.REPLICA_UNSCHEDULABLE):
        return f"{who} {'has' if is_one else 'have'} no node"
    return f"{who} {_are(keys)} not Ready ({view.available} of {view.wanted} are)"


def _surge_words(budget: Budget) -> str:
    return f", and no more surge is available (maxSurge {budget.max_surge})" if budget.max_surge else ""


def _leftovers(replica: Replica) -> _Remains:
    """Return what is still there of a set replica."""
    held_by: list[Group | Service | None] = [*(view.group for view in replica.groups), replica.service]
    remains = _remains(replica.all_cliques)
    return remains if remains.names else _Remains(holders=tuple(one.name for one in held_by if one is not None))


def _remains(cliques: Iterable[CliqueView]) -> _Remains:
    """Return what is still there of some cliques."""
    views = list(cliques)
    return _Remains(
        pods=tuple(pod for view in views for pod in view.pods),
        holders=tuple(view.name for view in views if view.clique is not None),
    )


@lru_cache(maxsize=2)
def _selection_wait(shape: Shape, outdated: frozenset[int], selected: int) -> tuple[Wait, ...]:
    """Say who waits until the selected replica is updated; while it is, the same do in every pass."""
    others, name = _list_names(shape, outdated - {selected}), shape.workload.name
    if not others:
        return ()
    text = f"{_names(others)} {_wait(others)} until {name}-{selected} is updated: replicas are updated one at a time."
    return (Wait(Code.WAITING_FOR_REPLICA, name, others, text, (), is_problem=False),)


def _list_names(shape: Shape, indices: frozenset[int]) -> tuple[str, ...]:
    """Return the names of these replicas, in order."""
    return tuple(map(shape.prefixes.__getitem__, sorted(indices)))


def _keys(pods: Iterable[Pod]) -> tuple[str, ...]:
    return tuple([pod.name for pod in pods])


def _names(names: Sequence[str]) -> str:
    """Return names as a list in words; of many only the first few."""
    if len(names) > _FEW + 1:
        return f"{', '.join(names[:_FEW])} and {len(names) - _FEW} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _wait(names: Sequence[str]) -> str:
    return "waits" if len(names) == 1 else "wait"
