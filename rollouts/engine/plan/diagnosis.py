"""Why a rollout waits: for each wait a code, a sentence with names and numbers, and remedies (`docs/semantics.md` 12).

It reads the steps of the pass, so it reports what was decided. `wait_codes` has the codes, `messages` the sentences,
`remedies` what ends a wait. A wait is normal, because pods take time. It is a problem once it lasts longer than usual
(`deadlines`), and at once where waiting does not help: a container fails, or fewer replicas are available than the
budget allows. One code of the pass is the cause. The invariant: while a pass has nothing to do and a wanted object is
missing or not available, a wait names what the pass waits for.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final

from rollouts.engine.model.actions import Wait
from rollouts.engine.model.container_faults import STABLE_AFTER, is_stable
from rollouts.engine.model.observed import Group, Pod, Service
from rollouts.engine.model.values import value
from rollouts.engine.model.workload import BUDGET_STRATEGIES
from rollouts.engine.plan import messages, remedies
from rollouts.engine.plan.deadlines import DELETED_WITHIN, compute_deadline, find_waiting_since
from rollouts.engine.plan.messages import Subject, count, name_all
from rollouts.engine.plan.remedies import NO_SURGE_STATE, Remedies, Remedy, SurgeState
from rollouts.engine.plan.wait_codes import FAULT_CODES, UNSCHEDULED_CODES, WaitCode, wait_sort_key
from rollouts.engine.rollout.gangs import WantedGang
from rollouts.engine.rollout.levels import LevelKind, list_levels
from rollouts.engine.rollout.ready_times import ReadyTimes
from rollouts.engine.rollout.roller import Unit
from rollouts.engine.rollout.steps import CliqueStep, GroupStep, ReplicaStep, SetStep
from rollouts.engine.rollout.update import Update
from rollouts.engine.tree.availability import CliqueView, GroupView, ReplicaView, Tree
from rollouts.engine.tree.layout import Layout
from rollouts.engine.tree.surge import (
    find_first_surge,
    list_surge_pods,
    list_surge_replicas,
    list_surge_set_replicas,
)

# Until a scheduler reports on a pod, that it has no node is not the cause.
_CODES_BEFORE_REPORT: Final[Mapping[str, str]] = {
    WaitCode.SURGE_UNSCHEDULABLE: WaitCode.SURGE_NOT_READY,
    WaitCode.REPLICA_UNSCHEDULABLE: WaitCode.WAITING_FOR_READY,
}

_SURGE_CODES: Final = frozenset({WaitCode.SURGE_GATED, WaitCode.SURGE_UNSCHEDULABLE, WaitCode.SURGE_NOT_READY})


@value
class WaitDiagnosis:
    """The waits of a pass."""

    waits: tuple[Wait, ...]
    cause: str  # the code that explains most; empty: nothing waits, or only for deletions by hand
    requeue_at: float | None  # when the next wait becomes a problem


NOTHING_WAITS: Final = WaitDiagnosis((), "", None)


@value
class _PodContext:
    """The surroundings of the pods of a clique."""

    base: WantedGang  # the base gang of their replica of the set
    is_surge: bool  # all of them are surge
    is_scaled: bool  # they are in a scaled gang, which waits for the base gang
    surge: SurgeState  # the surge of the level that replaces them

    def with_surge(self, surge: SurgeState) -> "_PodContext":
        return _PodContext(self.base, self.is_surge, self.is_scaled, surge)


@value
class _Remaining:
    """What still exists of an object that should be gone: its pods, or else their owners."""

    pods: tuple[Pod, ...] = ()
    owners: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return _list_pod_names(self.pods) or self.owners


class WaitCollector:
    """Collects the waits of one pass."""

    def __init__(self, layout: Layout, update: Update, now: float, ready_times: ReadyTimes) -> None:
        """`ready_times` says how long pods usually take to become Ready."""
        self._ready_times = ready_times
        self._layout = layout
        self._workload = layout.workload
        self._update = update
        self._now = now
        self._due: list[float] = []
        self._reported_codes: set[str] = set()  # of pods that a scheduler reports on
        self._unstable = {one.clique: one.replica for one in ready_times.list_unstable(now)}

    def collect(self, tree: Tree, steps: SetStep, bases: dict[int, WantedGang]) -> WaitDiagnosis:
        """Return every wait of the pass, the set first; `bases` are the base gangs by replica."""
        surge = self._find_set_surge(tree, steps)
        inside = {
            step.replica.index: self._replica_waits(step, bases[step.replica.index], surge)
            for step in steps.replicas
            if step.is_at_work
            or not (step.replica.is_complete and step.replica.is_available)
            or step.replica.index in self._unstable.values()
            or _is_scaled_below(step)
        }
        waits = [*self._set_waits(tree, steps, inside), *chain.from_iterable(inside.values())]
        return WaitDiagnosis(tuple(waits), self._find_cause(waits), min(self._due, default=None))

    def _find_cause(self, waits: Iterable[Wait]) -> str:
        codes = {wait.code for wait in waits}
        shown = {code if code in self._reported_codes else _CODES_BEFORE_REPORT.get(code, code) for code in codes}
        return next((code for code in messages.CAUSES if code in shown), "")

    # The set

    def _find_set_surge(self, tree: Tree, steps: SetStep) -> SurgeState:
        if not steps.is_rolling:
            return NO_SURGE_STATE
        extra = list_surge_set_replicas(tree, self._workload.replicas)
        holding = tuple(replica.name for replica in extra if replica.is_anything_scheduled)
        return SurgeState(holding, is_recreated=_is_original_outdated(steps.units, self._workload.replicas))

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
                waits += self._termination_wait(unit.key, _find_remaining_of_replica(tree.replicas[unit.index]))
        return waits

    def _turn_wait(self, tree: Tree, inside: Mapping[int, list[Wait]]) -> Sequence[Wait]:
        """Return which replicas wait for the selected replica, or for replicas that are down."""
        update = self._update
        # Replicas that are scaled in wait for nothing; without any, the set stays the one that is cached.
        beyond = tree.beyond(self._workload.replicas)
        outdated = tree.outdated - beyond if beyond else tree.outdated
        if not update.blocked_by:
            return () if update.selected is None else _selection_wait(self._layout, outdated, update.selected)
        others = _list_replica_names(self._layout, outdated.difference(update.blocked_by))
        if not others:
            return ()
        return [
            self._blocked_wait(tree, others, [wait for index in update.blocked_by for wait in inside.get(index, ())])
        ]

    def _blocked_wait(self, tree: Tree, others: tuple[str, ...], theirs: list[Wait]) -> Wait:
        name, blocking = self._workload.name, self._update.blocked_by
        down = [f"{name}-{index}" for index in blocking]
        # The first problem in them says more than their first wait.
        detail = next((wait.text for wait in sorted(theirs, key=wait_sort_key)), "")
        sentence = messages.REPLICA_DOWN_FIRST.format(replicas=name_all(others), down=name_all(down))
        text = f"{sentence}; {detail}" if detail else f"{sentence}."
        remedy_codes = dict.fromkeys(remedy for wait in theirs for remedy in wait.remedies)
        never_placed = not any(one.is_anything_scheduled for one in tree.replicas.values() if one.index in blocking)
        if never_placed and remedies.can_scale_in(blocking, self._workload.replicas):
            remedy_codes[Remedy.SCALE_IN] = None
        problem = any(wait.is_problem for wait in theirs)
        helps, blocked_by = tuple(remedy_codes), tuple(down)
        return Wait(WaitCode.WAITING_FOR_REPLICA, name, others, text, helps, is_problem=problem, blocked_by=blocked_by)

    def _shortage_wait(self, tree: Tree, steps: SetStep, inside: Mapping[int, list[Wait]]) -> list[Wait]:
        """Return that fewer replicas are available than the budget allows; only replicas that were complete count.

        If a wait inside one of them is a problem, that one is the cause, and this one would only repeat it.
        """
        if self._layout.is_on_delete or not tree.unavailable:
            return []
        wanted = self._workload.replicas
        down = [
            index for index in sorted(tree.unavailable) if index < wanted and _was_complete_before(tree.replicas[index])
        ]
        most = self._count_may_be_down(steps)
        surge = len(tree.beyond(wanted) - tree.unavailable)
        if len(down) - surge <= most or any(wait.is_problem for index in down for wait in inside.get(index, ())):
            return []
        names = tuple([self._layout.prefixes[index] for index in down])
        text = messages.TOO_FEW_AVAILABLE.format(replicas=name_all(names), wanted=wanted, max_unavailable=most)
        return [Wait(WaitCode.TOO_FEW_AVAILABLE, self._workload.name, names, text, (), is_problem=True)]

    def _count_may_be_down(self, steps: SetStep) -> int:
        """Return how many replicas of the set may be down: by the budget of the set, or by those of its components."""
        if self._layout.replaces_whole:
            return steps.budget.max_unavailable
        budgets = (level.budget for level in list_levels(self._workload) if level.kind is not LevelKind.SET)
        return min(1, max(budget.max_unavailable for budget in budgets if budget is not None))

    # A replica of the set

    def _replica_waits(self, step: ReplicaStep, base: WantedGang, surge: SurgeState) -> list[Wait]:
        context = _PodContext(base, is_surge=self._is_extra(step.replica.index), is_scaled=False, surge=surge)
        waits: list[Wait] = []
        for clique in step.cliques:
            waits += self._clique_waits(clique, context)
        for group in step.groups:
            waits += self._group_waits(group, context)
        return waits

    def _clique_waits(self, step: CliqueStep, context: _PodContext) -> list[Wait]:
        view = step.view
        waits = _scale_wait(view, "pod")
        if self._layout.is_on_delete:
            waits += _deletion_wait(view)
        elif step.is_rolling and view.outdated:
            waits += self._budget_wait(view.name, "pod", step.units, step, view.wanted)
        if step.is_rolling and view.scheduled < len(view.live):  # surge can only take the node of a pod without one
            context = context.with_surge(_find_pod_surge(step))
        if self._is_any_waited_for(view):
            first_surge = find_first_surge(view, is_extra=False) if step.is_rolling else None
            waits += self._pod_waits(step, context, first_surge)
        if view.clique is not None and view.clique.leaving:
            waits += self._termination_wait(view.name, _find_remaining_of_cliques([view]))
        elif len(view.live) < len(view.pods) and (len(view.live) < view.wanted or step.is_rolling):
            waits += self._termination_wait(view.name, _Remaining(tuple([pod for pod in view.pods if pod.leaving])))
        return waits

    def _group_waits(self, step: GroupStep, context: _PodContext) -> list[Wait]:
        view = step.view
        waits = _scale_wait(view, "replica")
        if step.is_rolling:
            context = context.with_surge(_find_group_surge(step))
            if any(unit.outdated for unit in step.units):
                waits += self._budget_wait(view.name, "replica", step.units, step, view.wanted)
        for part, cliques in step.replicas:
            is_surge = context.is_surge or part.index >= view.wanted
            there = _PodContext(context.base, is_surge, part.index >= view.template.min_available, context.surge)
            for clique in cliques:
                waits += self._member_waits(clique, there)
        staying = {part.index for part, _ in step.replicas}
        for index, part in view.replicas.items():
            if index not in staying:
                waits += self._termination_wait(part.name, _find_remaining_of_cliques(part.cliques))
        if view.group is not None and view.group.leaving:
            waits += self._termination_wait(view.name, _Remaining(owners=(view.name,)))
        return waits

    def _member_waits(self, step: CliqueStep, context: _PodContext) -> list[Wait]:
        view = step.view
        waits = _scale_wait(view, "pod")
        if self._layout.is_on_delete:
            waits += _deletion_wait(view)
        if not view.is_live:
            waits += self._termination_wait(view.name, _find_remaining_of_cliques([view]))
        if self._is_any_waited_for(view):
            waits += self._pod_waits(step, context, first_surge=None)
        return waits

    # One wait each

    def _is_any_waited_for(self, view: CliqueView) -> bool:
        return view.available < len(view.live) or view.name in self._unstable

    def _is_between_crashes(self, pod: Pod) -> bool:
        """Whether a pod is Ready only between two crashes; if so, the pass runs again when it would be stable."""
        since = pod.ready_since
        if since is None or is_stable(pod.restarts, self._now - since):
            return False
        self._due.append(since + STABLE_AFTER)
        return True

    def _pod_waits(self, step: CliqueStep, context: _PodContext, first_surge: int | None) -> list[Wait]:
        """Return a wait for the pods of each code; from the index `first_surge` on pods are surge.

        Outdated pods of what is replaced whole are not waited for: they only wait to be deleted.
        """
        view = step.view
        found: dict[tuple[WaitCode, bool], list[Pod]] = {}
        for pod in view.live:
            if step.blocks_creates and pod.template_hash != view.template_hash:
                continue
            if not pod.ready or self._is_between_crashes(pod):
                is_surge = context.is_surge or (first_surge is not None and pod.index >= first_surge)
                code = _find_fault(pod) or _pod_code(pod, context, is_surge=is_surge)
                found.setdefault((code, is_surge), []).append(pod)
        waits = [
            self._pod_wait(code, view, pods, context, is_surge=is_surge) for (code, is_surge), pods in found.items()
        ]
        return sorted(waits, key=wait_sort_key) if len(waits) > 1 else waits

    def _pod_wait(
        self, code: WaitCode, view: CliqueView, pods: list[Pod], context: _PodContext, *, is_surge: bool
    ) -> Wait:
        if code in FAULT_CODES:
            text, problem = _render_fault(code, view, pods, is_surge=is_surge), True
        else:
            problem = self._is_overdue([compute_deadline(code, pod, self._find_usual(view, pod)) for pod in pods])
            # About a pod with our scheduling gate, a scheduler only reports the gate.
            message = next((pod.message for pod in pods if pod.message and not pod.gated), "")
            if message:
                self._reported_codes.add(code)
            sentence = _render_pod_wait(code, view, pods, context)
            text = f"{sentence}: {message}" if message else f"{sentence}."
        longest = min(pods, key=find_waiting_since)
        return Wait(
            *(code, view.name, _list_pod_names(pods), text, self._pod_remedies(code, context.surge, is_surge=is_surge)),
            is_problem=problem,
            waited_seconds=round(max(0.0, self._now - find_waiting_since(longest)), 1),
            usual_seconds=self._find_usual(view, longest),
        )

    def _find_usual(self, view: CliqueView, pod: Pod) -> float | None:
        return self._ready_times.find(view.template.name, pod.template_hash) if pod.node else None

    def _pod_remedies(self, code: WaitCode, surge: SurgeState, *, is_surge: bool) -> Remedies:
        is_updating = self._update.is_under_way
        if code is WaitCode.REPLICA_UNSCHEDULABLE:
            return remedies.choose_for_unschedulable(surge)
        if code in (WaitCode.SURGE_UNSCHEDULABLE, WaitCode.SURGE_GATED):
            return remedies.choose_for_unschedulable_surge(surge)
        if is_surge:
            return remedies.choose_for_surge_not_ready(is_updating=is_updating)
        return remedies.choose_for_not_ready(is_updating=is_updating)

    def _termination_wait(self, component: str, remains: _Remaining) -> list[Wait]:
        names = remains.names
        if not names:
            return []
        text = messages.WAITING_FOR_TERMINATION.format(component=component, objects=name_all(names))
        helps = (Remedy.FORCE_DELETE_PODS,) if remains.pods else ()
        deadlines = [pod.gone_by + DELETED_WITHIN for pod in remains.pods if pod.gone_by is not None]
        problem = bool(deadlines) and self._is_overdue(deadlines)
        return [Wait(WaitCode.WAITING_FOR_TERMINATION, component, names, text, helps, is_problem=problem)]

    def _budget_wait(
        self, component: str, what: str, units: Iterable[Unit], step: CliqueStep | GroupStep | SetStep, wanted: int
    ) -> list[Wait]:
        """Return that outdated units wait because the budget permits no further deletion."""
        live = [unit for unit in units if not unit.leaving]
        going = {removal.unit.key for removal in step.step.delete}
        waiting = [unit for unit in live if unit.outdated and unit.available and unit.key not in going]
        if not waiting:
            return []
        budget, available = step.budget, sum(unit.available for unit in live) - len(going)
        surge = messages.BUDGET_EXHAUSTED_SURGE.format(max_surge=budget.max_surge) if budget.max_surge else ""
        text = messages.BUDGET_EXHAUSTED.format(
            units=count(len(waiting), f"outdated {what}"),
            component=component,
            available=count(max(available, 0)),
            max_unavailable=budget.max_unavailable,
            surge=surge,
        )
        keys = tuple(unit.key for unit in waiting)
        is_configurable = self._workload.strategy in BUDGET_STRATEGIES
        helps = remedies.choose_for_exhausted_budget(budget, wanted, is_configurable=is_configurable)
        return [Wait(WaitCode.BUDGET_EXHAUSTED, component, keys, text, helps, is_problem=False)]

    def _is_overdue(self, dues: list[float]) -> bool:
        """Whether the earliest deadline has passed; if not, the pass runs again at that time."""
        due = min(dues)
        if due <= self._now:
            return True
        self._due.append(due)
        return False


def _deletion_wait(view: CliqueView) -> list[Wait]:
    """Return that outdated pods run until they are deleted by hand."""
    if not view.outdated:
        return []
    outdated = [pod for pod in view.live if pod.template_hash != view.template_hash]
    text = messages.AWAITING_DELETION.format(outdated=count(view.outdated), live=len(view.live), clique=view.name)
    helps = (Remedy.DELETE_OUTDATED_PODS,)
    return [Wait(WaitCode.AWAITING_DELETION, view.name, _list_pod_names(outdated), text, helps, is_problem=False)]


def _is_scaled_below(step: ReplicaStep) -> bool:
    """Whether any component is scaled below its minimum, even one that the replica does not need to be available."""
    members = chain.from_iterable(cliques for group in step.groups for _, cliques in group.replicas)
    return any(clique.view.is_scaled_below_minimum for clique in chain(step.cliques, members))


def _scale_wait(view: CliqueView | GroupView, what: str) -> list[Wait]:
    """Return that a component is scaled below its minimum: only another scale makes it available again."""
    if not view.is_live or not view.is_scaled_below_minimum:
        return []
    text = messages.SCALED_BELOW_MINIMUM.format(
        component=view.name, units=count(view.wanted, what), minimum=view.needed
    )
    return [Wait(WaitCode.SCALED_BELOW_MIN_AVAILABLE, view.name, (), text, (), is_problem=True)]


def _find_pod_surge(step: CliqueStep) -> SurgeState:
    view = step.view
    holding = tuple(pod.name for pod in list_surge_pods(view, is_extra=False) if pod.node)
    return SurgeState(holding, _is_original_outdated(step.units, view.wanted))


def _find_group_surge(step: GroupStep) -> SurgeState:
    view = step.view
    extra = list_surge_replicas(view)
    holding = tuple(part.name for part in extra if any(clique.scheduled for clique in part.cliques))
    return SurgeState(holding, _is_original_outdated(step.units, view.wanted))


def _is_original_outdated(units: Iterable[Unit], wanted: int) -> bool:
    return any(unit.outdated and unit.index < wanted and not unit.leaving for unit in units)


def _find_fault(pod: Pod) -> WaitCode | None:
    """Return the fault of a waiting pod; a Ready pod waits only if it is between two crashes."""
    if pod.ready:
        return WaitCode.CRASH_LOOP
    return WaitCode(pod.fault) if pod.fault in FAULT_CODES else None


def _pod_code(pod: Pod, context: _PodContext, *, is_surge: bool) -> WaitCode:
    if pod.gated and context.is_scaled and is_surge and not context.base.is_scheduled:
        return WaitCode.SURGE_GATED
    if not pod.node:
        return WaitCode.SURGE_UNSCHEDULABLE if is_surge else WaitCode.REPLICA_UNSCHEDULABLE
    return WaitCode.SURGE_NOT_READY if is_surge else WaitCode.WAITING_FOR_READY


def _was_complete_before(replica: ReplicaView) -> bool:
    """Whether a set replica was complete at some time, as the status of each of its components records."""
    components = (*(view.clique for view in replica.cliques), *(view.group for view in replica.groups))
    return all(one is not None and "currentPodCliqueSetGenerationHash" in one.status for one in components)


def _render_fault(code: WaitCode, view: CliqueView, pods: list[Pod], *, is_surge: bool) -> str:
    sentence = messages.CONTAINER_FAULTS[code].format(pods=_name_pods(pods, is_surge=is_surge), clique=view.name)
    detail = next((pod.fault_detail for pod in pods if pod.fault_detail), "")
    return f"{sentence}: {detail}." if detail else f"{sentence}."


def _render_pod_wait(code: WaitCode, view: CliqueView, pods: list[Pod], context: _PodContext) -> str:
    names = _name_pods(pods, is_surge=code in _SURGE_CODES)
    base, clique = context.base, view.name
    if context.is_scaled and not base.is_scheduled and any(pod.gated for pod in pods):
        short = next(one for one in base.cliques if one.scheduled < one.attainable_minimum)
        return messages.PODS_BEHIND_BASE_GANG.format(
            pods=names,
            clique=clique,
            gang=base.name,
            short=short.name,
            scheduled=short.scheduled,
            minimum=short.attainable_minimum,
        )
    if all(pod.gated for pod in pods):
        return messages.PODS_NOT_IN_GANG.format(pods=names, clique=clique)
    if code is WaitCode.REPLICA_UNSCHEDULABLE and context.surge.scheduled:
        surge = name_all(context.surge.scheduled)
        return messages.PODS_UNSCHEDULED_BESIDE_SURGE.format(pods=names, clique=clique, surge=surge)
    if code in UNSCHEDULED_CODES:
        return messages.PODS_UNSCHEDULED.format(pods=names, clique=clique)
    return messages.PODS_NOT_READY.format(pods=names, clique=clique, available=view.available, wanted=view.wanted)


def _name_pods(pods: list[Pod], *, is_surge: bool) -> Subject:
    return name_all(_list_pod_names(pods), messages.SURGE_PREFIX if is_surge else "")


def _find_remaining_of_replica(replica: ReplicaView) -> _Remaining:
    """Return what still exists of a set replica."""
    owners: list[Group | Service | None] = [*(view.group for view in replica.groups), replica.service]
    remains = _find_remaining_of_cliques(replica.all_cliques)
    return remains if remains.names else _Remaining(owners=tuple(one.name for one in owners if one is not None))


def _find_remaining_of_cliques(cliques: Iterable[CliqueView]) -> _Remaining:
    """Return what still exists of some cliques."""
    views = list(cliques)
    return _Remaining(
        pods=tuple(pod for view in views for pod in view.pods),
        owners=tuple(view.name for view in views if view.clique is not None),
    )


@lru_cache(maxsize=2)
def _selection_wait(layout: Layout, outdated: frozenset[int], selected: int) -> tuple[Wait, ...]:
    """Return which replicas wait for the selected one; the answer is the same in every pass of its update."""
    others, name = _list_replica_names(layout, outdated - {selected}), layout.workload.name
    if not others:
        return ()
    first = f"{name}-{selected}"
    text = messages.REPLICA_UPDATED_FIRST.format(replicas=name_all(others), selected=first)
    return (Wait(WaitCode.WAITING_FOR_REPLICA, name, others, text, (), is_problem=False, blocked_by=(first,)),)


def _list_replica_names(layout: Layout, indices: frozenset[int]) -> tuple[str, ...]:
    """Return the names of these replicas, in order."""
    return tuple(map(layout.prefixes.__getitem__, sorted(indices)))


def _list_pod_names(pods: Iterable[Pod]) -> tuple[str, ...]:
    return tuple([pod.name for pod in pods])
