"""Tries remedies before they are offered: each is simulated to its end, and those that do not help are dropped.

The remedies come from `diagnosis`, which knows the rules alone; the simulated cluster also knows capacity, times, and
templates that never become Ready. The pages and the API offer what is left. Example: raising maxUnavailable for a
template that never becomes Ready would take down another healthy pod and end no wait, so it is not offered.

A remedy helps if everything wanted is available in the end, or if its wait is over and no more capacity is lost than
without it. A wait is not over if another code replaces it for the same reason: the simulation knows that a pod is not
Ready, and not whether its container crashes. A trial that ran out of time proves nothing; of those remedies only
rolling back is kept, because it takes nothing from what runs. Remedies that cannot be simulated (looking at pods,
adding nodes) are offered untried.

Rolling back comes first where it helps and the new template fails: its pods do not become Ready, or fit no node where
those of the former template do. There it is tried even if the rules do not name it. Rolling back ends every wait for
surge, also on cordoned nodes where no surge fits. So for surge without a node a further trial rolls out the former
template in the same way: if its surge fits, the new template is what fails.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Final, TypeAlias

from rollouts.engine.manifest.edits import RESTARTED_AT
from rollouts.engine.model.actions import BY_HAND, Delete, Kind, Wait
from rollouts.engine.model.observed import Observed
from rollouts.engine.model.workload import SET_BUDGET_STRATEGY, BudgetSpec, Strategy, Workload
from rollouts.engine.plan.remedies import Remedy, with_one_more_unavailable, without_surge
from rollouts.engine.plan.wait_codes import NOT_READY_CODES, UNSCHEDULED_CODES, WaitCode, find_common_code
from rollouts.engine.rollout.levels import is_part_of_component
from rollouts.engine.rollout.update import read_progress
from rollouts.engine.simulation.simulate import SimulationEnd, SimulationResult
from rollouts.engine.tree.surge import find_surge, plan_unit_deletions

Simulate: TypeAlias = Callable[[Workload, tuple[Delete, ...], int], SimulationResult]
"""Simulates a change: the changed workload, the deletions by hand before it, and the number of trials that share the
remaining time, this one included.
"""

TRIABLE: Final = frozenset(
    {
        Remedy.SET_MAX_SURGE_TO_ZERO,
        Remedy.DELETE_SURGE,
        Remedy.RAISE_MAX_UNAVAILABLE,
        Remedy.ROLL_BACK,
        Remedy.SCALE_IN,
        Remedy.DELETE_OUTDATED_PODS,
    }
)
"""The remedies that are tried; the others change nothing by themselves, or always end their wait."""

HARMLESS: Final = frozenset({Remedy.ROLL_BACK})
"""The tried remedies that take no capacity away, however they end."""

_SURGE_WITHOUT_NODE: Final = frozenset({WaitCode.SURGE_UNSCHEDULABLE, WaitCode.SURGE_GATED})

# The trial was not cut off.
_ENDS: Final = (SimulationEnd.DONE, SimulationEnd.STUCK)

_Key: TypeAlias = tuple[str, str]


class RemedyTrials:
    """Tries the remedies of one workload."""

    def __init__(self, workload: Workload, observed: Observed, former: Workload | None, simulate: Simulate) -> None:
        """`former` is the workload that rolling back leads to, if one is recorded."""
        self._workload, self._observed, self._former, self._simulate = workload, observed, former, simulate
        self._tried: dict[_Key, SimulationResult | None] = {}
        self._causes_before: set[_Key] = set()  # the waits by common code and component
        self._left = 1  # the number of trials still to come
        self._is_updating = is_updating(observed)

    def filter_remedies(self, waits: Iterable[Wait]) -> tuple[Wait, ...]:
        """Return the waits with the remedies that help."""
        waits = tuple(waits)
        self._causes_before = {(find_common_code(wait.code), wait.component) for wait in waits}
        wanted = [(wait, one) for wait in waits for one in self._list_candidates(wait)]
        # Rolling back comes first, because time may run out.
        wanted.sort(key=lambda one: one[1] != Remedy.ROLL_BACK)
        is_former_tried = any(one == Remedy.ROLL_BACK and wait.code in _SURGE_WITHOUT_NODE for wait, one in wanted)
        self._left = len({_make_key(wait, one) for wait, one in wanted}) + 1 + is_former_tried
        for wait, remedy in wanted:
            key = _make_key(wait, remedy)
            if key not in self._tried:
                self._tried[key] = self._try(wait, remedy)
        return tuple(map(self._filter_one, waits))

    def _list_candidates(self, wait: Wait) -> list[str]:
        found = [one for one in wait.remedies if one in TRIABLE]
        if may_fail_by_template(wait) and Remedy.ROLL_BACK not in found and self._is_updating:
            found.append(Remedy.ROLL_BACK)
        return found

    def _filter_one(self, wait: Wait) -> Wait:
        kept = [one for one in wait.remedies if one not in TRIABLE or self._helps(wait, one)]
        if Remedy.ROLL_BACK not in kept and self._is_last_resort(wait, kept):
            kept.append(Remedy.ROLL_BACK)
        if Remedy.ROLL_BACK in kept and (wait.code not in _SURGE_WITHOUT_NODE or self._is_former_placed(wait)):
            kept.sort(key=lambda one: one != Remedy.ROLL_BACK)
        return replace(wait, remedies=tuple(kept))

    def _is_last_resort(self, wait: Wait, kept: Iterable[str]) -> bool:
        """Whether rolling back, which the rules do not name here, ends all waits and is the only remedy."""
        outcome = self._tried.get((Remedy.ROLL_BACK, ""))
        is_alone = TRIABLE.isdisjoint(kept) and may_fail_by_template(wait)
        return is_alone and outcome is not None and outcome.end is SimulationEnd.DONE

    def _helps(self, wait: Wait, remedy: str) -> bool:
        outcome = self._tried[_make_key(wait, remedy)]
        if outcome is None:
            return False
        if outcome.end is SimulationEnd.DONE:
            return True
        if outcome.end not in _ENDS or self._baseline.end not in _ENDS:
            return remedy in HARMLESS
        if remedy == Remedy.DELETE_OUTDATED_PODS:
            return outcome.pods[-1].available >= self._baseline.pods[-1].available
        return self._is_over(wait, outcome) and self._lowest(outcome) >= self._lowest(self._baseline)

    def _is_over(self, wait: Wait, outcome: SimulationResult) -> bool:
        """Whether nothing waits for the same reason at the end of a trial."""
        # The next surge replica that waits for the same reason has another name.
        cause = find_common_code(wait.code)
        others = self._causes_before - {(cause, wait.component)}
        left = ((find_common_code(one.code), one.component) for one in outcome.waits)
        return not any(one[0] == cause and one not in others for one in left)

    def _is_former_placed(self, wait: Wait) -> bool:
        """Whether surge of the former template finds the node that this wait is about."""
        outcome = self._former_rolled_out
        return outcome is not None and outcome.end in _ENDS and self._is_over(wait, outcome)

    def _run(self, after: Workload, first: tuple[Delete, ...]) -> SimulationResult:
        outcome = self._simulate(after, first, max(1, self._left))
        self._left -= 1
        return outcome

    @cached_property
    def _baseline(self) -> SimulationResult:
        """The result without a remedy."""
        return self._run(self._workload, ())

    @cached_property
    def _former_rolled_out(self) -> SimulationResult | None:
        """The result of an update to the former template; None: no former template is recorded."""
        if self._former is None:
            return None
        # A restart replaces its pods by others that request and select the same.
        restart = {RESTARTED_AT: "trial"}
        cliques = (replace(one, annotations={**one.annotations, **restart}) for one in self._former.cliques)
        return self._run(replace(self._former, cliques=tuple(cliques)), ())

    def _lowest(self, outcome: SimulationResult) -> tuple[int, int]:
        """Return the lowest numbers of available set replicas and of available pods."""
        return outcome.lowest.get(self._workload.name, 0), min(one.available for one in outcome.pods)

    def _try(self, wait: Wait, remedy: str) -> SimulationResult | None:
        """Return the result of a remedy; None if it would change nothing."""
        first: tuple[Delete, ...] = ()
        after: Workload | None = self._workload
        if remedy == Remedy.ROLL_BACK:
            after = self._former
            first = tuple(_unready_deletions(self._workload, self._observed))
        elif remedy == Remedy.SET_MAX_SURGE_TO_ZERO:
            after = _with_budget(self._workload, wait.component, without_surge)
        elif remedy == Remedy.RAISE_MAX_UNAVAILABLE:
            after = _with_budget(self._workload, wait.component, with_one_more_unavailable)
        elif remedy == Remedy.SCALE_IN:
            after = replace(self._workload, replicas=_count_scheduled_replicas(self._workload, self._observed))
        elif remedy == Remedy.DELETE_OUTDATED_PODS:
            first = tuple(_pod_deletions(self._observed, wait.units))
        else:
            first = _surge_deletions(self._workload, self._observed, wait.component)
        if after is None or (after == self._workload and not first):
            return None
        return self._run(after, first)


def may_fail_by_template(wait: Wait) -> bool:
    """Whether the new template may cause a problem: its pods are not Ready, or have no node."""
    return wait.is_problem and (wait.code in NOT_READY_CODES or wait.code in UNSCHEDULED_CODES)


def is_updating(observed: Observed) -> bool:
    """Whether an update is open or pods are outdated, so that rolling back may be tried."""
    current = {clique.name: clique.template_hash for clique in observed.cliques}
    outdated = any(pod.template_hash != current.get(pod.clique, pod.template_hash) for pod in observed.pods)
    return outdated or read_progress(observed.status).is_open


def _make_key(wait: Wait, remedy: str) -> _Key:
    return remedy, "" if remedy == Remedy.ROLL_BACK else wait.component


_Change: TypeAlias = Callable[[BudgetSpec, int], BudgetSpec]


def _with_budget(workload: Workload, component: str, change: _Change) -> Workload:
    """Return the workload with another budget for the component that waits, or else for all components."""
    if workload.strategy is SET_BUDGET_STRATEGY:
        return replace(workload, budget=change(workload.budget, workload.replicas))
    meant = list_budget_owners(workload, component)
    return replace(
        workload,
        cliques=tuple(
            replace(one, budget=change(one.budget or BudgetSpec(), one.replicas)) if one.name in meant else one
            for one in workload.cliques
        ),
        groups=tuple(
            replace(one, budget=change(one.budget or BudgetSpec(), one.replicas)) if one.name in meant else one
            for one in workload.groups
        ),
    )


def list_budget_owners(workload: Workload, component: str) -> list[str]:
    """Return the owners of the budgets that a component uses: cliques and groups, or the set as an empty name."""
    if workload.strategy is SET_BUDGET_STRATEGY:
        return [""]
    grouped = {name for group in workload.groups for name in group.clique_names}
    names = [*(group.name for group in workload.groups), *(clique.name for clique in workload.cliques)]
    parts = [name for name in names if name not in grouped]
    return [name for name in parts if is_part_of_component(workload.name, component, name)] or parts


def _count_scheduled_replicas(workload: Workload, observed: Observed) -> int:
    """Return the replicas that are left without the highest ones that have no pod on a node; at least one is left."""
    replica_of = {clique.name: clique.replica for clique in observed.cliques}
    placed = {replica_of.get(pod.clique, -1) for pod in observed.pods if pod.scheduled}
    return max((index + 1 for index in range(workload.replicas) if index in placed), default=min(1, workload.replicas))


def _unready_deletions(workload: Workload, observed: Observed) -> Iterator[Delete]:
    """Yield deletions of the pods that are not Ready: under OnDelete nothing else replaces them after rolling back."""
    if workload.strategy is Strategy.ON_DELETE:
        yield from _pod_deletions(observed, {pod.name for pod in observed.pods if not pod.ready})


def _pod_deletions(observed: Observed, names: Collection[str]) -> Iterator[Delete]:
    pods = (pod for pod in observed.pods if pod.name in names and not pod.leaving)
    yield from (Delete(Kind.POD, pod.name, pod.uid, BY_HAND) for pod in pods)


def _surge_deletions(workload: Workload, observed: Observed, component: str) -> tuple[Delete, ...]:
    """Return deletions of the surge of the component that waits, or else of all surge, as the form of the remedy."""
    units = find_surge(workload, observed)
    own = [one for one in units if is_part_of_component(workload.name, component, one.waiting_component)]
    return plan_unit_deletions(own or units)
