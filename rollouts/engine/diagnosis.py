"""Why it is not moving: for everything that waits a code, a sentence with names and numbers, and what would help.

Reads the steps of the pass (DESIGN 6.12), so what is told is what was decided. A wait is no fault: pods take time. It
is called a problem once it has lasted longer than such things do.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rollouts.engine.actions import Wait
from rollouts.engine.budget import Budget
from rollouts.engine.gangs import WantedGang
from rollouts.engine.observed import Group, Pod, Service
from rollouts.engine.roller import Unit
from rollouts.engine.steps import CliqueStep, GroupStep, ReplicaStep, SetStep
from rollouts.engine.update import Update
from rollouts.engine.views import CliqueView, Replica, Tree
from rollouts.engine.workload import Strategy, Workload


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


class Remedy(StrEnum):
    """What would help."""

    ADD_CAPACITY = "AddCapacity"
    SET_MAX_SURGE_TO_ZERO = "SetMaxSurgeToZero"
    DELETE_SURGE = "DeleteSurge"
    RAISE_MAX_UNAVAILABLE = "RaiseMaxUnavailable"
    LOOK_AT_PODS = "LookAtPods"
    ROLL_BACK = "RollBack"
    FORCE_DELETE_PODS = "ForceDeletePods"
    DELETE_OUTDATED_PODS = "DeleteOutdatedPods"


# Seconds after which a pod should have a node, and should be Ready, or gone.
SCHEDULED_WITHIN: Final = 60.0
READY_WITHIN: Final = 600.0

_FEW: Final = 3


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why nothing moves, and when more can be said."""

    waits: tuple[Wait, ...]
    look_again_at: float | None  # when a wait becomes a problem


class Examiner:
    """Collects the waits of one pass."""

    def __init__(self, workload: Workload, update: Update, now: float) -> None:
        """Look at things as they are now."""
        self._workload = workload
        self._update = update
        self._now = now
        self._due: list[float] = []

    def diagnose(self, tree: Tree, steps: SetStep, bases: dict[int, WantedGang]) -> Diagnosis:
        """Return every wait of the pass, the set first; `bases` are the base gangs by replica."""
        waits = list(self._set_waits(tree, steps))
        for step in steps.replicas:
            if self._is_quiet(step):
                continue
            waits.extend(self._replica_waits(step, bases[step.replica.index]))
        return Diagnosis(tuple(waits), min(self._due, default=None))

    def _is_quiet(self, step: ReplicaStep) -> bool:
        return not step.is_at_work and step.replica.is_complete

    # The set

    def _set_waits(self, tree: Tree, steps: SetStep) -> Iterator[Wait]:
        if steps.is_rolling:
            yield from self._budget_wait(self._workload.name, "replicas", steps.units, steps)
        if self._update.selected is not None:
            others = [
                replica.name
                for replica in tree.replicas.values()
                if replica.index != self._update.selected and replica.is_outdated
            ]
            if others:
                selected = f"{self._workload.name}-{self._update.selected}"
                text = (
                    f"{_names(others)} {_wait(others)} until {selected} is updated: replicas are updated one at a time."
                )
                yield Wait(Code.WAITING_FOR_REPLICA, self._workload.name, tuple(others), text, (), is_problem=False)
        for unit in steps.units:
            if unit.leaving:
                yield from self._termination_wait(unit.key, _leftovers(tree.replicas[unit.index]))

    # A replica of the set

    def _replica_waits(self, step: ReplicaStep, base: WantedGang) -> Iterator[Wait]:
        surge = step.replica.index >= self._workload.replicas
        for clique in step.cliques:
            yield from self._clique_waits(clique, base, surge=surge)
        for group in step.groups:
            yield from self._group_waits(group, base, surge=surge)

    def _clique_waits(self, step: CliqueStep, base: WantedGang, *, surge: bool) -> Iterator[Wait]:
        view = step.view
        if self._workload.strategy is Strategy.ON_DELETE:
            yield from self._deletion_wait(view)
        elif step.is_rolling and view.outdated:
            units = [_pod_unit(pod, view) for pod in view.live]
            yield from self._budget_wait(view.name, "pods", units, step)
        if view.available < len(view.live) and not step.is_held:
            yield from self._pod_waits(view, surge=surge, extra_is_surge=step.is_rolling, base=base, scaled=False)
        if view.clique is not None and view.clique.leaving:
            yield from self._termination_wait(view.name, _remains([view]))
        elif len(view.live) < view.wanted or step.is_rolling:
            yield from self._termination_wait(view.name, [pod.name for pod in view.pods if pod.leaving])

    def _group_waits(self, step: GroupStep, base: WantedGang, *, surge: bool) -> Iterator[Wait]:
        view = step.view
        if step.is_rolling and any(unit.outdated for unit in step.units):
            yield from self._budget_wait(view.name, "replicas", step.units, step)
        for part, cliques in step.parts:
            is_surge = surge or part.index >= view.wanted
            scaled = part.index >= view.template.min_available
            for clique in cliques:
                if self._workload.strategy is Strategy.ON_DELETE:
                    yield from self._deletion_wait(clique.view)
                if not clique.view.is_live:
                    yield from self._termination_wait(clique.view.name, _remains([clique.view]))
                if clique.view.available < len(clique.view.live) and not clique.is_held:
                    yield from self._pod_waits(
                        clique.view, surge=is_surge, extra_is_surge=False, base=base, scaled=scaled
                    )
        staying = {part.index for part, _ in step.parts}
        for index, part in view.replicas.items():
            if index not in staying:
                yield from self._termination_wait(part.name, _remains(part.cliques))
        if view.group is not None and view.group.leaving:
            yield from self._termination_wait(view.name, [view.name])

    # One sentence each

    def _pod_waits(
        self, view: CliqueView, *, surge: bool, extra_is_surge: bool, base: WantedGang, scaled: bool
    ) -> Iterator[Wait]:
        """Say which pods are waited for, those of a kind together."""
        idle = [pod for pod in view.live if not pod.ready]
        by_code: dict[Code, list[Pod]] = {}
        for pod in idle:
            is_surge = surge or (extra_is_surge and pod.index >= view.wanted)
            by_code.setdefault(_pod_code(pod, is_surge=is_surge, scaled=scaled, base=base), []).append(pod)
        for code, pods in by_code.items():
            held_by = base if scaled and not base.is_scheduled and any(pod.gated for pod in pods) else None
            yield self._pod_wait(code, view, pods, held_by)

    def _pod_wait(self, code: Code, view: CliqueView, pods: list[Pod], held_by: WantedGang | None) -> Wait:
        limit = READY_WITHIN if code in (Code.WAITING_FOR_READY, Code.SURGE_NOT_READY) else SCHEDULED_WITHIN
        problem = self._is_overdue([pod.created for pod in pods], limit)
        told = next((pod.message for pod in pods if pod.message), "")
        text = f"{_pod_sentence(code, view, pods, held_by)}{f': {told}' if told else '.'}"
        return Wait(code, view.name, _keys(pods), text, _REMEDIES[code], is_problem=problem)

    def _termination_wait(self, component: str, remains: list[str]) -> Iterator[Wait]:
        if remains:
            text = f"{component} waits until {_names(remains)} {'is' if len(remains) == 1 else 'are'} gone."
            remedies = (Remedy.FORCE_DELETE_PODS,)
            yield Wait(Code.WAITING_FOR_TERMINATION, component, tuple(remains), text, remedies, is_problem=False)

    def _deletion_wait(self, view: CliqueView) -> Iterator[Wait]:
        if view.outdated:
            outdated = [pod for pod in view.live if pod.template_hash != view.template_hash]
            text = (
                f"{view.outdated} of {len(view.live)} pods of {view.name} run an older template;"
                " each comes back with the current one when it is deleted."
            )
            remedies = (Remedy.DELETE_OUTDATED_PODS,)
            yield Wait(Code.AWAITING_DELETION, view.name, _keys(outdated), text, remedies, is_problem=False)

    def _budget_wait(
        self, component: str, what: str, units: Iterable[Unit], step: CliqueStep | GroupStep | SetStep
    ) -> Iterator[Wait]:
        """Say that outdated units wait because as many are unavailable as may be."""
        live = [unit for unit in units if not unit.leaving]
        going = {removal.unit.key for removal in step.step.delete}
        waiting = [unit for unit in live if unit.outdated and unit.available and unit.key not in going]
        if not waiting:
            return
        budget, available = step.budget, sum(unit.available for unit in live) - len(going)
        text = (
            f"{len(waiting)} outdated {what} of {component} wait: {max(available, 0)} are available"
            f" and maxUnavailable is {budget.max_unavailable}{_surge_words(budget)}."
        )
        keys = tuple(unit.key for unit in waiting)
        yield Wait(Code.BUDGET_EXHAUSTED, component, keys, text, (Remedy.RAISE_MAX_UNAVAILABLE,), is_problem=False)

    def _is_overdue(self, since: list[float], limit: float) -> bool:
        """Whether the longest wait is over its limit; if not, note when it will be."""
        due = min(since) + limit
        if due <= self._now:
            return True
        self._due.append(due)
        return False


_REMEDIES: Final = {
    Code.SURGE_GATED: (Remedy.ADD_CAPACITY, Remedy.SET_MAX_SURGE_TO_ZERO, Remedy.DELETE_SURGE),
    Code.SURGE_UNSCHEDULABLE: (Remedy.ADD_CAPACITY, Remedy.SET_MAX_SURGE_TO_ZERO, Remedy.DELETE_SURGE),
    Code.SURGE_NOT_READY: (Remedy.LOOK_AT_PODS, Remedy.ROLL_BACK, Remedy.SET_MAX_SURGE_TO_ZERO, Remedy.DELETE_SURGE),
    Code.REPLICA_UNSCHEDULABLE: (Remedy.ADD_CAPACITY,),
    Code.WAITING_FOR_READY: (Remedy.LOOK_AT_PODS, Remedy.ROLL_BACK),
}


def _pod_code(pod: Pod, *, is_surge: bool, scaled: bool, base: WantedGang) -> Code:
    if pod.gated and scaled and is_surge and not base.is_scheduled:
        return Code.SURGE_GATED
    if not pod.node:
        return Code.SURGE_UNSCHEDULABLE if is_surge else Code.REPLICA_UNSCHEDULABLE
    return Code.SURGE_NOT_READY if is_surge else Code.WAITING_FOR_READY


def _pod_sentence(code: Code, view: CliqueView, pods: list[Pod], held_by: WantedGang | None) -> str:
    surge = "Surge " if code in (Code.SURGE_GATED, Code.SURGE_UNSCHEDULABLE, Code.SURGE_NOT_READY) else ""
    who, one = f"{surge}{_names(_keys(pods))} of {view.name}", len(pods) == 1
    if held_by is not None:
        short = next(clique for clique in held_by.cliques if clique.scheduled < clique.needed)
        return (
            f"{who} {'is' if one else 'are'} held back until the base gang {held_by.name} is scheduled, of which"
            f" {short.name} has {short.scheduled} of {short.needed} pods on nodes"
        )
    if code in (Code.SURGE_UNSCHEDULABLE, Code.REPLICA_UNSCHEDULABLE):
        return f"{who} {'has' if one else 'have'} no node"
    return f"{who} {'is' if one else 'are'} not Ready ({view.available} of {view.wanted} are)"


def _surge_words(budget: Budget) -> str:
    return f", and no more surge is available (maxSurge {budget.max_surge})" if budget.max_surge else ""


def _pod_unit(pod: Pod, view: CliqueView) -> Unit:
    outdated = pod.template_hash != view.template_hash
    return Unit(pod.name, pod.index, outdated, pod.available, leaving=False, update_order=(), scale_in_order=())


def _leftovers(replica: Replica) -> list[str]:
    """Return the names of what is still there of a set replica: its pods, then what held them."""
    held_by: list[Group | Service | None] = [*(view.group for view in replica.groups), replica.service]
    return _remains(replica.all_cliques) or [one.name for one in held_by if one is not None]


def _remains(cliques: Iterable[CliqueView]) -> list[str]:
    """Return the names of what is still there of some cliques: their pods, or else the PodCliques."""
    views = list(cliques)
    pods = [pod.name for view in views for pod in view.pods]
    return pods or [view.name for view in views if view.clique is not None]


def _keys(pods: Iterable[Pod]) -> tuple[str, ...]:
    return tuple(pod.name for pod in pods)


def _names(names: Iterable[str]) -> str:
    """Return names as a list in words; of many only the first few."""
    all_names = list(names)
    if len(all_names) > _FEW + 1:
        return f"{', '.join(all_names[:_FEW])} and {len(all_names) - _FEW} more"
    return " and ".join([", ".join(all_names[:-1]), all_names[-1]]) if len(all_names) > 1 else all_names[0]


def _wait(names: list[str]) -> str:
    return "waits" if len(names) == 1 else "wait"
