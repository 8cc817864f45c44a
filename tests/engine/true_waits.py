"""Whether what a wait blames is so, in a simulated world after a pass that wrote nothing.

Every code has a check. The checks count with `simulated.View` and `chance.counts`, independently of the planner, and
compare the numbers in the sentence with what they counted.
"""

import re
from collections.abc import Callable

from rollouts.engine.model.actions import Wait
from rollouts.engine.model.budget import resolve_budget
from rollouts.engine.model.observed import Clique, Group, Pod, Service
from rollouts.engine.model.workload import CliqueTemplate, GroupTemplate, Strategy, Workload
from rollouts.engine.plan.wait_codes import FAULT_CODES, WaitCode
from tests.engine.chance import Count, component_budget, counts, is_below_minimum, list_below_minimum
from tests.engine.simulated import Cluster, Unit

Check = Callable[[Cluster, Wait], None]

UNPLACED = {WaitCode.REPLICA_UNSCHEDULABLE, WaitCode.SURGE_UNSCHEDULABLE, WaitCode.SURGE_GATED}
UNREADY = {WaitCode.WAITING_FOR_READY, WaitCode.SURGE_NOT_READY}
BLOCKERS = {*UNPLACED, *UNREADY, *FAULT_CODES, WaitCode.SCALED_BELOW_MIN_AVAILABLE}
"""What can keep a world from its end for ever; everything else follows from one of these, or waits for a command."""

EXHAUSTED = re.compile(
    r"(\d+) outdated (?:pod|replica)s? of (\S+) waits?: (\d+) (?:is|are) available and maxUnavailable is (\d+)"
    r"(?:, and no more surge is available \(maxSurge (\d+)\))?\."
)
TOO_FEW = re.compile(
    r".* (?:is|are) not available\. An update may make at most (\d+) of (\d+) replicas unavailable at a time\."
)
OUTDATED = re.compile(r"(\d+) of (\d+) pods of (\S+) runs? an older template\..*")


def assert_true(cluster: Cluster, wait: Wait) -> None:
    """Assert that what a wait blames is so."""
    CHECKS[WaitCode(wait.code)](cluster, wait)


def pods_of(cluster: Cluster, wait: Wait) -> list[Pod]:
    """Return the pods that a wait names; each of them exists."""
    assert wait.units
    return [cluster.world.pods[name] for name in wait.units]


def assert_unplaced(cluster: Cluster, wait: Wait) -> None:
    assert all(pod.is_live and not pod.ready and not pod.node for pod in pods_of(cluster, wait)), wait


def assert_unready(cluster: Cluster, wait: Wait) -> None:
    assert all(pod.is_live and not pod.ready and pod.node and not pod.fault for pod in pods_of(cluster, wait)), wait


def assert_failing(cluster: Cluster, wait: Wait) -> None:
    assert wait.is_problem
    assert all(pod.is_live and not pod.ready and pod.fault == wait.code for pod in pods_of(cluster, wait)), wait


def assert_scaled_below(cluster: Cluster, wait: Wait) -> None:
    assert is_below_minimum(cluster, wait.component), wait


def assert_terminating(cluster: Cluster, wait: Wait) -> None:
    """Everything that is waited for exists, and is on its way out: it terminates, or will be garbage-collected."""
    seen, view = cluster.world.observed(), cluster.view
    there: list[Service | Group | Clique | Pod] = [*seen.services, *seen.groups, *seen.cliques, *seen.pods]
    found = {one.name: one for one in there}
    assert wait.units
    for name in wait.units:
        one = found[name]
        is_orphan = isinstance(one, Pod) and one.clique not in view.cliques
        is_orphan |= isinstance(one, Clique) and name not in view.cliques
        assert one.leaving or is_orphan, (wait, one)


def assert_exhausted(cluster: Cluster, wait: Wait) -> None:
    """The numbers are those of the component, and one more deletion would exceed its budget.

    A replica that is scaled below its minimum and has all pods of its scale takes nothing from the budget.
    """
    said = EXHAUSTED.fullmatch(wait.text)
    assert said, wait
    waiting, component, available, max_unavailable, max_surge = said.groups()
    count = count_of(cluster, wait.component)
    assert (component, int(waiting)) == (wait.component, len(wait.units)), wait
    units = units_of(cluster, wait.component)
    serving = {name for name, unit in units.items() if unit.available}
    scaled = list_scaled_below(cluster) - serving if wait.component == "w" else set()
    assert count.available <= int(available) <= count.available + len(scaled), (wait, count)
    assert (int(max_unavailable), int(max_surge or 0)) == (count.budget.max_unavailable, count.budget.max_surge), wait
    assert int(available) <= count.wanted - count.budget.max_unavailable, (wait, count)
    assert {*wait.units} == {name for name, unit in units.items() if unit.outdated and unit.available}, (wait, units)


def assert_too_few(cluster: Cluster, wait: Wait) -> None:
    """The named replicas are down, and these are more than may be, even with the surge that is up."""
    said = TOO_FEW.fullmatch(wait.text)
    assert said, wait
    workload, units, most = cluster.workload, units_of(cluster, wait.component), count_may_be_down(cluster.workload)
    assert [int(number) for number in said.groups()] == [most, workload.replicas], wait
    assert not any(units[name].available for name in wait.units if name in units), (wait, units)
    surge = sum(unit.available and unit.index >= workload.replicas for unit in units.values())
    assert len(wait.units) - surge > most, wait


def assert_turn(cluster: Cluster, wait: Wait) -> None:
    """What waits has anything outdated, be it on its way out, and what it waits for is being updated or down."""
    view, units = cluster.view, units_of(cluster, wait.component)
    hashes = {pod.clique: view.hashes[pod.clique.rpartition("-")[2]] for pod in cluster.world.pods.values()}
    old = {pod.clique for pod in cluster.world.pods.values() if pod.template_hash != hashes[pod.clique]}
    outdated = {name for name, unit in units.items() if unit.outdated} | {replica_of(clique) for clique in old}
    assert {*wait.units} <= outdated, (wait, units)
    assert wait.blocked_by
    assert not {*wait.blocked_by} & {*wait.units}, wait
    updating = {f"w-{entry['replicaIndex']}" for entry in cluster.progress.get("updatingReplicas") or ()}
    assert all(name in updating or name not in units or not units[name].available for name in wait.blocked_by), wait


def assert_awaits_deletion(cluster: Cluster, wait: Wait) -> None:
    assert cluster.workload.strategy is Strategy.ON_DELETE
    said = OUTDATED.fullmatch(wait.text)
    assert said, wait
    view = cluster.view
    units = view.pod_units(wait.component, view.cliques[wait.component].template)
    outdated = {pod.name for pod, unit in zip(view.pods[wait.component], units, strict=True) if unit.outdated}
    assert said.groups() == (str(len(outdated)), str(len(units)), wait.component), (wait, units)
    assert {*wait.units} == outdated, (wait, outdated)


CHECKS: dict[WaitCode, Check] = {
    **dict.fromkeys(UNPLACED, assert_unplaced),
    **dict.fromkeys(UNREADY, assert_unready),
    **dict.fromkeys(FAULT_CODES, assert_failing),
    WaitCode.SCALED_BELOW_MIN_AVAILABLE: assert_scaled_below,
    WaitCode.WAITING_FOR_TERMINATION: assert_terminating,
    WaitCode.BUDGET_EXHAUSTED: assert_exhausted,
    WaitCode.TOO_FEW_AVAILABLE: assert_too_few,
    WaitCode.WAITING_FOR_REPLICA: assert_turn,
    WaitCode.AWAITING_DELETION: assert_awaits_deletion,
}


# What is counted.


def count_may_be_down(workload: Workload) -> int:
    """Return how many replicas an update may take down: by the budget of the set, or by those of its components."""
    if workload.strategy is Strategy.REPLICA_RECREATE:
        return resolve_budget(workload.budget, workload.replicas).max_unavailable
    members = {name for group in workload.groups for name in group.clique_names}
    parts: list[CliqueTemplate | GroupTemplate] = [
        *workload.groups,
        *(one for one in workload.cliques if one.name not in members),
    ]
    budgets = (component_budget(workload, one.budget, one.replicas) for one in parts)
    return min(1, max(budget.max_unavailable for budget in budgets))


def count_of(cluster: Cluster, component: str) -> Count:
    return counts(cluster.workload, cluster.world.observed())[component]


def list_scaled_below(cluster: Cluster) -> set[str]:
    """Return the set replicas of which a component is scaled below its minimum."""
    return {replica_of(name) for name in list_below_minimum(cluster)}


def replica_of(component: str) -> str:
    """Return the set replica of a component.

    >>> replica_of("w-0-g-1-l")
    'w-0'
    """
    return "-".join(component.split("-")[:2])


def units_of(cluster: Cluster, component: str) -> dict[str, Unit]:
    """Return the units of the set, a scaling group or a clique, by name."""
    view = cluster.view
    if component == "w":
        return {f"w-{unit.index}": unit for unit in view.set_units()}
    if component in view.groups:
        template = next(one for one in cluster.workload.groups if one.name == view.groups[component].template)
        return {f"{component}-{unit.index}": unit for unit in view.group_units(component, template)}
    units = view.pod_units(component, view.cliques[component].template)
    return {pod.name: unit for pod, unit in zip(view.pods[component], units, strict=True)}
