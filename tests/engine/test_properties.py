"""What holds whatever happens: random workloads, strategies and clusters, and people who interfere at any step.

Between any two passes somebody may change the template, scale, delete, switch strategy or budget, or a pod may break.
The counts are read off the pods by `simulated.View`, which knows nothing of the planner.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollouts.engine.actions import Create, Delete, Kind, Plan
from rollouts.engine.budget import Budget, resolve_budget
from rollouts.engine.observed import Observed
from rollouts.engine.planner import plan
from rollouts.engine.workload import BudgetSpec, CliqueTemplate, GroupTemplate, Strategy, Workload
from rollouts.engine.world import Behaviour
from tests.engine.simulated import Cluster, Unit, View, clique, group, settled, workload

quickly = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)

ONE_AT_A_TIME = Budget(1, 0)
AUTOMATIC = [Strategy.ROLLING_RECREATE, Strategy.ROLLING_UPDATE, Strategy.REPLICA_RECREATE]


@st.composite
def budgets(draw: st.DrawFn, replicas: int) -> tuple[int, int]:
    surge = draw(st.integers(0, 2))
    return draw(st.integers(0 if surge else 1, max(1, replicas))), surge


@st.composite
def workloads(draw: st.DrawFn, strategies: list[Strategy] = list(Strategy)) -> Workload:  # noqa: B006
    strategy = draw(st.sampled_from(strategies))
    parts: list[CliqueTemplate | GroupTemplate] = [
        _clique(draw, name) for name in draw(st.sampled_from(["", "a", "ab"]))
    ]
    members = draw(st.sampled_from(["l", "lk"] if not parts else ["", "l", "lk"]))
    if members:
        parts += [
            clique(name, count, draw(st.integers(1, count))) for name in members for count in [draw(st.integers(1, 2))]
        ]
        parts.append(_group(draw, tuple(members)))
    replicas = draw(st.integers(1, 3))
    return workload(*parts, replicas=replicas, strategy=strategy, budget=draw(budgets(replicas)))


def _clique(draw: st.DrawFn, name: str) -> CliqueTemplate:
    replicas = draw(st.integers(1, 4))
    return clique(name, replicas, draw(st.integers(1, replicas)), draw(budgets(replicas)))


def _group(draw: st.DrawFn, members: tuple[str, ...]) -> GroupTemplate:
    replicas = draw(st.integers(1, 3))
    return group("g", members, replicas, draw(st.integers(1, replicas)), draw(budgets(replicas)))


@st.composite
def clusters(draw: st.DrawFn) -> Behaviour:
    return Behaviour(
        ready_seconds=draw(st.sampled_from([0.0, 3.0, 10.0])),
        gone_seconds=draw(st.sampled_from([1.0, 20.0])),
        collect_seconds=draw(st.sampled_from([0.0, 2.0])),
        owners_go_last=draw(st.booleans()),
    )


# What somebody does between two passes.


def change_template(cluster: Cluster, draw: Callable[..., Any]) -> None:
    image = draw(st.sampled_from(["app:v1", "app:v2", "app:v3"]))
    names = [one.name for one in cluster.workload.cliques]
    cluster.update(image, *draw(st.sampled_from([tuple(names), (names[0],), (names[-1],)])))


def scale_set(cluster: Cluster, draw: Callable[..., Any]) -> None:
    cluster.edit(replicas=draw(st.integers(0, 3)))


def scale_component(cluster: Cluster, draw: Callable[..., Any]) -> None:
    observed = cluster.world.observed()
    found = [(Kind.CLIQUE, one.name) for one in observed.cliques if not one.group and not one.leaving]
    found += [(Kind.GROUP, one.name) for one in observed.groups if not one.leaving]
    if found:
        kind, name = draw(st.sampled_from(found))
        cluster.world.scale(kind, name, draw(st.integers(1, 4)))


def delete_pod(cluster: Cluster, draw: Callable[..., Any]) -> None:
    if cluster.world.pods:
        cluster.world.delete(Kind.POD, draw(st.sampled_from(sorted(cluster.world.pods))))


def delete_clique(cluster: Cluster, draw: Callable[..., Any]) -> None:
    names = sorted(one.name for one in cluster.world.observed().cliques)
    if names:
        cluster.world.delete(Kind.CLIQUE, draw(st.sampled_from(names)))


def break_pod(cluster: Cluster, draw: Callable[..., Any]) -> None:
    running = sorted(pod.name for pod in cluster.world.pods.values() if pod.node)
    if running:
        cluster.world.set_ready(draw(st.sampled_from(running)), ready=False)


def switch_strategy(cluster: Cluster, draw: Callable[..., Any]) -> None:
    cluster.edit(strategy=draw(st.sampled_from(list(Strategy))))


def change_budget(cluster: Cluster, draw: Callable[..., Any]) -> None:
    cliques = tuple(replace(one, budget=BudgetSpec(*draw(budgets(one.replicas)))) for one in cluster.workload.cliques)
    cluster.edit(cliques=cliques, budget=BudgetSpec(*draw(budgets(cluster.workload.replicas))))


GENTLE = [change_template, scale_set, scale_component, delete_pod, break_pod, change_budget]
EVERYTHING = [*GENTLE, delete_clique, switch_strategy]


def interfere(cluster: Cluster, data: st.DataObject, deeds: list[Any], most: int = 6) -> None:
    """Run a while, with somebody interfering between passes."""
    for _ in range(data.draw(st.integers(1, most))):
        data.draw(st.sampled_from(deeds))(cluster, data.draw)
        for _, _ in zip(range(data.draw(st.integers(0, 12))), cluster.passes(), strict=False):
            pass


def heal(cluster: Cluster) -> None:
    for pod in list(cluster.world.pods.values()):
        if pod.node and not pod.ready:
            cluster.world.set_ready(pod.name, ready=True)


# What is counted.


@dataclass(frozen=True, slots=True)
class Count:
    """One component: what is there, and what its update may cost."""

    wanted: int
    live: int
    available: int
    budget: Budget


def counts(workload: Workload, observed: Observed) -> dict[str, Count]:
    view = View(workload, observed)
    found = {"w": _count(view.set_units(), workload.replicas, _set_budget(workload))}
    for one in view.cliques.values():
        if not one.group and one.replica < workload.replicas:
            units = view.pod_units(one.name, one.template)
            found[one.name] = _count(
                units, one.replicas, _budget(workload, view.templates[one.template].budget, one.replicas)
            )
    for template in workload.groups:
        for seen in view.groups.values():
            if seen.template == template.name and seen.replica < workload.replicas:
                units = view.group_units(seen.name, template)
                found[seen.name] = _count(units, seen.replicas, _budget(workload, template.budget, seen.replicas))
    return found


def _count(units: list[Unit], wanted: int, budget: Budget) -> Count:
    return Count(wanted, len(units), sum(unit.available for unit in units), budget)


def _set_budget(workload: Workload) -> Budget:
    if workload.strategy is Strategy.REPLICA_RECREATE:
        return resolve_budget(workload.budget, workload.replicas)
    return ONE_AT_A_TIME


def _budget(workload: Workload, spec: BudgetSpec | None, replicas: int) -> Budget:
    if workload.strategy is Strategy.ROLLING_UPDATE:
        return resolve_budget(spec, replicas)
    return ONE_AT_A_TIME


def assert_within_budget(workload: Workload, before: dict[str, Count], after: dict[str, Count]) -> None:
    whole = workload.strategy is Strategy.REPLICA_RECREATE  # its unit is the replica, whatever that does to components
    for name, then in before.items():
        now = after.get(name)
        if now is None or (whole and name != "w"):
            continue
        floor = now.wanted - now.budget.max_unavailable
        assert now.available >= min(then.available, floor), f"{name}: {then} → {now}"
        assert now.live <= max(then.live, now.wanted + now.budget.max_surge), f"{name}: {then} → {now}"


@quickly
@given(workloads(), clusters(), st.data())
def test_our_deletions_stay_within_the_budget_of_every_level(
    start: Workload, cluster: Behaviour, data: st.DataObject
) -> None:
    running = settled(start, cluster)
    for _ in range(data.draw(st.integers(1, 4))):
        data.draw(st.sampled_from(EVERYTHING))(running, data.draw)
        for _ in range(data.draw(st.integers(1, 15))):
            before = counts(running.workload, running.world.observed())
            planned = running.step()
            assert_within_budget(running.workload, before, counts(running.workload, running.world.observed()))
            if not planned.actions and not running.wait():
                break


@quickly
@given(workloads(AUTOMATIC), clusters(), st.data())
def test_every_rollout_ends_with_exactly_what_is_wanted(
    start: Workload, behaviour: Behaviour, data: st.DataObject
) -> None:
    cluster = settled(start, behaviour)
    interfere(cluster, data, [*GENTLE, delete_clique])
    finish(cluster)
    assert_all_there(cluster)
    assert not any(unit.outdated for unit in cluster.view.set_units())


def finish(cluster: Cluster) -> None:
    """Let everything that broke recover, again and again, until nothing happens any more."""
    for _ in range(20):
        cluster.settle()
        if all(pod.ready or not pod.node for pod in cluster.world.pods.values()):
            return
        heal(cluster)


def assert_all_there(cluster: Cluster) -> None:
    view, wanted = cluster.view, cluster.workload.replicas
    assert [unit.index for unit in view.set_units()] == list(range(wanted))
    assert all(unit.available for unit in view.set_units()), view.set_text()
    for name, count in counts(cluster.workload, cluster.world.observed()).items():
        assert count.live == count.wanted == count.available, f"{name}: {count}"
    for template in cluster.workload.groups:
        for seen in view.groups.values():
            units = view.group_units(seen.name, template)
            assert sorted(unit.index for unit in units) == list(range(seen.replicas)), "no holes"
    assert not [pod.name for pod in cluster.world.pods.values() if pod.leaving or pod.gated]
    assert {gang.replica for gang in cluster.world.observed().gangs} == set(range(wanted))


@quickly
@given(workloads(), clusters(), st.data())
def test_nothing_is_refused_that_nobody_raced_for(start: Workload, behaviour: Behaviour, data: st.DataObject) -> None:
    cluster = settled(start, behaviour)
    interfere(cluster, data, EVERYTHING)
    assert cluster.refused == []


@quickly
@given(workloads([Strategy.ON_DELETE]), clusters(), st.data())
def test_on_delete_deletes_only_what_scaling_in_asks_for(
    start: Workload, behaviour: Behaviour, data: st.DataObject
) -> None:
    cluster = settled(start, behaviour)
    interfere(cluster, data, [change_template, delete_pod, break_pod, change_budget])
    assert not [one for one in cluster.actions if isinstance(one, Delete)]
    scale_component(cluster, data.draw)
    finish(cluster)
    assert {one.reason for one in cluster.actions if isinstance(one, Delete) and one.kind is not Kind.GANG} <= {
        "ScaledIn"
    }
    assert_all_there(cluster)


@quickly
@given(workloads(), clusters(), st.data())
def test_the_same_input_gives_the_same_plan_in_whatever_order_it_is_seen(
    start: Workload, behaviour: Behaviour, data: st.DataObject
) -> None:
    cluster = settled(start, behaviour)
    interfere(cluster, data, EVERYTHING)
    seen = cluster.world.observed()
    first = plan(cluster.workload, seen, cluster.world.now)
    assert plan(cluster.workload, seen, cluster.world.now) == first
    assert plan(cluster.workload, backwards(seen), cluster.world.now) == first


def backwards(observed: Observed) -> Observed:
    return Observed(
        status=observed.status,
        cliques=observed.cliques[::-1],
        groups=observed.groups[::-1],
        gangs=observed.gangs[::-1],
        services=observed.services[::-1],
        pods=observed.pods[::-1],
    )


@quickly
@given(workloads(), clusters(), st.data())
def test_a_plan_carried_out_twice_does_no_more_than_once(
    start: Workload, behaviour: Behaviour, data: st.DataObject
) -> None:
    cluster = settled(start, behaviour)
    interfere(cluster, data, EVERYTHING)
    for _ in range(data.draw(st.integers(1, 8))):
        planned = cluster.step()
        once = objects(cluster)
        cluster.world.apply(planned.actions)
        again = objects(cluster)
        assert again == once


def objects(cluster: Cluster) -> set[tuple[str, bool]]:
    seen = cluster.world.observed()
    return {
        (one.uid, one.leaving)
        for kind in (seen.cliques, seen.groups, seen.gangs, seen.services, seen.pods)
        for one in kind
    }


@quickly
@given(workloads(AUTOMATIC), st.data())
def test_a_superseded_rollout_converges_to_the_newest_template(start: Workload, data: st.DataObject) -> None:
    cluster = settled(start)
    for image in ("app:v2", "app:v3", "app:v4"):
        cluster.update(image)
        for _, _ in zip(range(data.draw(st.integers(0, 40))), cluster.passes(), strict=False):
            pass
    cluster.settle()
    current = set(cluster.view.hashes.values())
    assert {pod.template_hash for pod in cluster.world.pods.values()} <= current
    assert cluster.progress["updateEndedAt"]
    assert_all_there(cluster)


@quickly
@given(workloads(AUTOMATIC), st.data())
def test_a_rollout_that_cannot_move_says_what_it_waits_for(start: Workload, data: st.DataObject) -> None:
    cluster = settled(start)
    cluster.update()
    broken = data.draw(st.sampled_from(sorted(cluster.view.hashes)))
    cluster.world.change(replace(cluster.behaviour, never_ready=frozenset({cluster.view.hashes[broken]})))
    cluster.settle()
    if any(unit.outdated for unit in cluster.view.set_units()):
        assert_blocker_is_named(cluster)


def assert_blocker_is_named(cluster: Cluster) -> None:
    problems = [wait for wait in cluster.waits if wait.is_problem]
    assert problems
    assert all(wait.text and wait.component for wait in problems)
    unready = {pod.clique for pod in cluster.live_pods() if not pod.ready}
    named = " ".join(f"{wait.component} {' '.join(wait.units)} {wait.text}" for wait in problems)
    assert any(name in named or name.rpartition("-")[0] in named for name in unready), named


@quickly
@given(workloads(), clusters(), st.data())
def test_a_gate_goes_only_when_the_pod_is_in_its_gang(
    start: Workload, behaviour: Behaviour, data: st.DataObject
) -> None:
    cluster = settled(start, behaviour)
    interfere(cluster, data, EVERYTHING)
    listed = {pod for gang in cluster.world.observed().gangs for _, pods in gang.pod_groups.values() for pod in pods}
    open_ones = {pod.name for pod in cluster.world.pods.values() if not pod.gated and not pod.leaving and not pod.node}
    assert open_ones <= listed


@quickly
@given(workloads(), clusters(), st.data())
def test_a_settled_workload_is_left_alone(start: Workload, behaviour: Behaviour, data: st.DataObject) -> None:
    cluster = settled(start, behaviour)
    interfere(cluster, data, EVERYTHING)
    finish(cluster)
    planned: Plan = cluster.plan()
    assert planned.actions == ()
    cluster.world.advance(cluster.world.now + 1000)
    assert not [one for one in cluster.plan().actions if isinstance(one, Create | Delete)]
