"""Properties of random workloads, strategies and clusters, with interference between any two passes.

The tests assert `RULES` after every pass of every run; the other properties are about the end of a run.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollouts.engine.model.actions import Create, Delete, Kind, Plan, RemoveGate
from rollouts.engine.model.budget import Budget
from rollouts.engine.model.observed import Clique, Group, Observed, Pod
from rollouts.engine.model.workload import BudgetSpec, Strategy, Workload
from rollouts.engine.plan.planner import plan
from rollouts.engine.plan.wait_codes import WaitCode
from rollouts.engine.simulation.cluster import ClusterBehaviour
from rollouts.engine.simulation.scheduler import SimulatedNode
from rollouts.engine.tree.layout import make_layout
from tests.engine.chance import (
    AUTOMATIC,
    EVERYTHING,
    GENTLE,
    HARSH,
    Count,
    Disturbance,
    assert_all_there,
    assert_within_budget,
    break_pod,
    break_template,
    change_budget,
    change_template,
    clusters,
    counts,
    delete_pod,
    finish,
    scale_below_minimum,
    scale_component,
    scale_to_minimum,
    switch_to_automatic,
    workloads,
)
from tests.engine.simulated import Cluster, clique, hashes, settled, workload
from tests.engine.true_waits import BLOCKERS, CHECKS, assert_true
from tests.thoroughness import examples

UNHURRIED = [HealthCheck.too_slow, HealthCheck.data_too_large]
often = settings(max_examples=examples(10), deadline=None, suppress_health_check=UNHURRIED)
sometimes = settings(max_examples=examples(4), deadline=None, suppress_health_check=UNHURRIED)

LATER = 30  # passes after the last interference in which the rules are still looked at


@dataclass
class Run:
    """A cluster with interference; the rules check every pass."""

    cluster: Cluster
    templates: list[dict[str, str]] = field(default_factory=list)  # the hashes of every template there ever was
    strategies: set[Strategy] = field(default_factory=set)
    seen: Observed = field(default_factory=Observed)  # what the last plan was made from
    before: dict[str, Count] = field(default_factory=dict)
    ended_before: bool = False
    planned: Plan = field(default_factory=lambda: Plan((), (), (), (), None))

    def watch(self, passes: int) -> None:
        """Take some passes, with the rules checked after each."""
        cluster = self.cluster
        self.templates.append(hashes(cluster.workload))
        self.strategies.add(cluster.workload.strategy)
        for _ in range(passes):
            self.seen = cluster.world.observed()
            self.before = counts(cluster.workload, self.seen)
            self.ended_before = bool(cluster.progress.get("updateEndedAt"))
            self.planned = cluster.step()
            for rule in RULES:
                rule(self)
            if not self.planned.actions and not cluster.wait():
                return


# The rules.


def deletions_stay_within_the_budget_of_every_level(run: Run) -> None:
    after = counts(run.cluster.workload, run.cluster.world.observed())
    scaled_in = any(one.reason == "ScaledIn" for one in deletions(run.planned))
    assert_within_budget(run.cluster.workload, run.before, after, scaled_in=scaled_in)


def nothing_is_refused(run: Run) -> None:
    assert run.cluster.refused == []


def only_one_replica_is_taken_from_at_a_time(run: Run) -> None:
    if run.cluster.workload.strategy is not Strategy.REPLICA_RECREATE:
        spent = [one for one in deletions(run.planned) if one.reason in ("Outdated", "OutdatedSurge")]
        taken = {one.name.split("-")[1] for one in spent}
        assert len(taken) <= 1, taken


def no_pass_is_requested_in_the_past(run: Run) -> None:
    assert run.planned.requeue_at is None or run.planned.requeue_at > run.cluster.world.now


def versions_never_meet_inside_what_is_replaced_whole(run: Run) -> None:
    """Leaving pods count: they may still talk to the others."""
    if len(run.strategies) > 1 or run.strategies == {Strategy.ON_DELETE}:
        return
    whole = run.strategies == {Strategy.REPLICA_RECREATE}
    together: dict[str, list[Pod]] = {}
    for pod in run.cluster.world.pods.values():
        _, replica, *inner, _ = pod.clique.split("-")
        if whole or inner:
            together.setdefault("-".join([replica] if whole else [replica, *inner]), []).append(pod)
    for name, pods in together.items():
        assert any(all(pod.template_hash == of[template_of(pod)] for pod in pods) for of in run.templates), (name, pods)


def an_update_ends_only_when_all_of_it_is_there(run: Run) -> None:
    ended = bool(run.cluster.progress.get("updateEndedAt"))
    if ended and not run.ended_before and run.cluster.workload.strategy is not Strategy.ON_DELETE:
        assert all(not unit.outdated and unit.available for unit in run.cluster.view.set_units())
        assert all(count.live == count.available == count.wanted for count in run.before.values()), run.before


def a_gate_goes_only_when_the_pod_is_in_its_gang(run: Run) -> None:
    listed = {pod for gang in run.seen.gangs for _, pods in gang.pod_groups.values() for pod in pods}
    assert {one.pod for one in run.planned.actions if isinstance(one, RemoveGate)} <= listed


def every_pass_that_waits_says_for_what(run: Run) -> None:
    if not run.planned.actions and any(count.available < count.wanted for count in run.before.values()):
        assert run.planned.waits


def what_a_wait_blames_is_so(run: Run) -> None:
    """Checked when no write is left: a plan that writes describes what is there after its writes."""
    for wait in () if run.planned.actions else run.planned.waits:
        assert_true(run.cluster, wait)


def on_delete_nothing_is_deleted_for_an_update(run: Run) -> None:
    if run.cluster.workload.strategy is Strategy.ON_DELETE:
        assert not [one for one in deletions(run.planned) if one.reason.startswith("Outdated")]


def a_selected_replica_is_one_of_the_wanted(run: Run) -> None:
    updating = [entry["replicaIndex"] for entry in run.cluster.progress.get("updatingReplicas") or ()]
    assert sorted(set(updating)) == updating
    if run.cluster.workload.strategy is not Strategy.REPLICA_RECREATE:
        assert all(index < run.cluster.workload.replicas for index in updating)


def no_status_counts_more_than_its_replicas(run: Run) -> None:
    for status in (run.cluster.status, *(one.status for one in components(run))):
        for name in COUNTED & {*status}:
            assert 0 <= status[name] <= status["replicas"], (name, status)


def components(run: Run) -> list[Clique | Group]:
    seen = run.cluster.world.observed()
    return [*seen.cliques, *seen.groups]


def what_is_outdated_is_not_counted_as_updated(run: Run) -> None:
    """Checked when no write is left, so that the statuses are current."""
    cluster = run.cluster
    if run.planned.actions:
        return
    wanted, view = cluster.workload.replicas, cluster.view
    if any(unit.outdated and unit.index < wanted for unit in view.set_units()):
        assert cluster.status["updatedReplicas"] < cluster.status["replicas"], cluster.status
    templates = {one.name: one for one in cluster.workload.groups}
    for one in view.groups.values():
        units = view.group_units(one.name, templates[one.template]) if one.replica < wanted else []
        if any(unit.outdated and unit.index < one.replicas for unit in units):
            assert one.status["updatedReplicas"] < one.status["replicas"], (one.name, one.status)


def an_update_that_has_ended_selects_nothing(run: Run) -> None:
    for one in components(run):
        progress = one.status.get("updateProgress") or {}
        assert not progress.get("updateEndedAt") or not SELECTIONS & {*progress}, (one.name, progress)
    if run.cluster.progress.get("updateEndedAt"):
        assert not run.cluster.progress.get("updatingReplicas")


def a_progress_that_is_open_is_of_the_current_templates(run: Run) -> None:
    """Checked when no write is left: by then the traces of a lost write are gone."""
    if run.planned.actions:
        return
    current = make_layout(run.cluster.workload).generation_hash
    for one in components(run):
        progress = one.status.get("updateProgress") or {}
        if progress and not progress.get("updateEndedAt"):
            assert progress["podCliqueSetGenerationHash"] == current, (one.name, progress)


COUNTED = {"updatedReplicas", "availableReplicas", "readyReplicas", "scheduledReplicas", "scheduleGatedReplicas"}
SELECTIONS = {"readyPodsSelectedToUpdate", "readyReplicaIndicesSelectedToUpdate"}

RULES: list[Callable[[Run], None]] = [
    no_status_counts_more_than_its_replicas,
    what_is_outdated_is_not_counted_as_updated,
    an_update_that_has_ended_selects_nothing,
    a_progress_that_is_open_is_of_the_current_templates,
    deletions_stay_within_the_budget_of_every_level,
    nothing_is_refused,
    only_one_replica_is_taken_from_at_a_time,
    no_pass_is_requested_in_the_past,
    versions_never_meet_inside_what_is_replaced_whole,
    an_update_ends_only_when_all_of_it_is_there,
    a_gate_goes_only_when_the_pod_is_in_its_gang,
    every_pass_that_waits_says_for_what,
    what_a_wait_blames_is_so,
    on_delete_nothing_is_deleted_for_an_update,
    a_selected_replica_is_one_of_the_wanted,
]


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (Count(3, 3, 3, Budget(0, 1), False, 0), Count(3, 5, 3, Budget(0, 1), False, 2)),
        (Count(3, 2, 2, Budget(1, 0), True, 1), Count(3, 4, 2, Budget(1, 0), True, 2)),
        (Count(3, 3, 3, Budget(1, 0), False, 0), Count(3, 1, 1, Budget(1, 0), False, 0)),
    ],
    ids=["surge pods", "a replica beyond surplus", "availability"],
)
def test_a_pass_beyond_the_budget_breaks_the_rule(then: Count, now: Count) -> None:
    start = workload(clique("a", 3, 1), strategy=Strategy.ROLLING_UPDATE)
    with pytest.raises(AssertionError, match="w-0-a"):
        assert_within_budget(start, {"w-0-a": then}, {"w-0-a": now})


def test_surplus_that_may_not_go_takes_no_room_from_a_missing_original() -> None:
    start = workload(clique("a", 3, 1), strategy=Strategy.ROLLING_UPDATE)
    then, now = Count(3, 3, 2, Budget(1, 0), True, 1), Count(3, 4, 2, Budget(1, 0), True, 1)
    assert_within_budget(start, {"w-0-a": then}, {"w-0-a": now})


def deletions(planned: Plan) -> list[Delete]:
    return [action for action in planned.actions if isinstance(action, Delete)]


def template_of(pod: Pod) -> str:
    return pod.clique.rpartition("-")[2]


@often
@given(workloads(), clusters(), st.data())
def test_the_rules_hold_whatever_happens(start: Workload, behaviour: ClusterBehaviour, data: st.DataObject) -> None:
    run = Run(settled(start, behaviour))
    run.watch(0)
    for _ in range(data.draw(st.integers(1, 6))):
        data.draw(st.sampled_from(EVERYTHING))(run.cluster, data.draw)
        run.watch(data.draw(st.integers(0, 15)))
    run.watch(LATER)


@often
@given(workloads(AUTOMATIC), clusters(), st.data())
def test_the_rules_hold_while_one_strategy_is_kept(
    start: Workload, behaviour: ClusterBehaviour, data: st.DataObject
) -> None:
    run = Run(settled(start, behaviour))
    run.watch(0)
    for _ in range(data.draw(st.integers(1, 6))):
        data.draw(st.sampled_from([*GENTLE, change_template]))(run.cluster, data.draw)
        run.watch(data.draw(st.integers(0, 15)))
    run.watch(LATER)


def interfere(cluster: Cluster, data: st.DataObject, disturbances: list[Disturbance]) -> None:
    """Run a while, with interference between passes."""
    for _ in range(data.draw(st.integers(1, 6))):
        data.draw(st.sampled_from(disturbances))(cluster, data.draw)
        for _, _ in zip(range(data.draw(st.integers(0, 12))), cluster.passes(), strict=False):
            pass


@often
@given(workloads(AUTOMATIC), clusters(), st.sampled_from([4 * 3600.0, 15.0]), st.data())
def test_every_rollout_ends_with_exactly_what_is_wanted(
    start: Workload, behaviour: ClusterBehaviour, delay: float, data: st.DataObject
) -> None:
    cluster = settled(replace(start, termination_delay=delay), behaviour)
    interfere(cluster, data, HARSH)
    finish(cluster)
    assert_all_there(cluster)
    assert not any(unit.outdated for unit in cluster.view.set_units())
    assert_status_tells_the_truth(cluster)


@often
@given(workloads(), clusters(), st.sampled_from([4 * 3600.0, 15.0]), st.data())
def test_every_rollout_ends_after_on_delete_and_once_no_scale_is_below_its_minimum(
    start: Workload, behaviour: ClusterBehaviour, delay: float, data: st.DataObject
) -> None:
    cluster = settled(replace(start, termination_delay=delay), behaviour)
    interfere(cluster, data, [*EVERYTHING, scale_below_minimum])
    switch_to_automatic(cluster, data.draw)
    scale_to_minimum(cluster)
    finish(cluster)
    scale_to_minimum(cluster)  # what came back from its deletion may have kept a scale of before
    finish(cluster)
    assert_all_there(cluster)
    assert not any(unit.outdated for unit in cluster.view.set_units())
    assert_status_tells_the_truth(cluster)


def assert_status_tells_the_truth(cluster: Cluster) -> None:
    seen, wanted = cluster.world.observed(), cluster.workload.replicas
    status = cluster.status
    assert (status["replicas"], status["availableReplicas"], status["updatedReplicas"]) == (wanted, wanted, wanted)
    assert not cluster.progress or cluster.progress["updateEndedAt"]
    for one in seen.cliques:
        numbers = [one.status[name] for name in ("replicas", "readyReplicas", "scheduledReplicas", "updatedReplicas")]
        assert numbers == [one.replicas] * 4, one.name
    for held in seen.groups:
        numbers = [held.status[name] for name in ("replicas", "availableReplicas", "updatedReplicas")]
        assert numbers == [held.replicas] * 3, held.name


@sometimes
@given(workloads(AUTOMATIC), st.data())
def test_every_rollout_without_surge_ends_in_the_room_it_had_before(start: Workload, data: st.DataObject) -> None:
    start = replace(start, cliques=tuple(replace(one, budget=None) for one in start.cliques), budget=BudgetSpec())
    start = replace(start, groups=tuple(replace(one, budget=None) for one in start.groups))
    cluster = settled(start)
    room = len(cluster.world.pods) + data.draw(st.integers(0, 1))
    cluster.world.set_behaviour(replace(cluster.behaviour, nodes=(SimulatedNode("node", pods=room),)))
    cluster.update().settle()
    assert_all_there(cluster)
    assert not any(unit.outdated for unit in cluster.view.set_units())


@sometimes
@given(workloads([Strategy.ON_DELETE]), clusters(), st.data())
def test_on_delete_deletes_only_what_scaling_in_asks_for(
    start: Workload, behaviour: ClusterBehaviour, data: st.DataObject
) -> None:
    cluster = settled(start, behaviour)
    interfere(cluster, data, [change_template, delete_pod, break_pod, change_budget])
    assert not [one for one in cluster.actions if isinstance(one, Delete)]
    scale_component(cluster, data.draw)
    finish(cluster)
    reasons = {one.reason for one in cluster.actions if isinstance(one, Delete) and one.kind is not Kind.GANG}
    assert reasons <= {"ScaledIn"}
    assert_all_there(cluster)


@sometimes
@given(workloads(), clusters(), st.data())
def test_the_same_input_gives_the_same_plan_in_whatever_order_it_is_seen(
    start: Workload, behaviour: ClusterBehaviour, data: st.DataObject
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


@sometimes
@given(workloads(), clusters(), st.data())
def test_a_plan_carried_out_twice_does_no_more_than_once(
    start: Workload, behaviour: ClusterBehaviour, data: st.DataObject
) -> None:
    cluster = settled(start, behaviour)
    interfere(cluster, data, EVERYTHING)
    for _ in range(data.draw(st.integers(1, 8))):
        planned = cluster.step()
        once = objects(cluster)
        cluster.world.apply(planned.actions)
        assert objects(cluster) == once


def objects(cluster: Cluster) -> set[tuple[str, bool]]:
    seen = cluster.world.observed()
    kinds = (seen.cliques, seen.groups, seen.gangs, seen.services, seen.pods)
    return {(one.uid, one.leaving) for kind in kinds for one in kind}


@sometimes
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


@sometimes
@given(workloads(AUTOMATIC), st.data())
def test_a_rollout_that_cannot_move_says_what_it_waits_for(start: Workload, data: st.DataObject) -> None:
    cluster = settled(start).update()
    broken = data.draw(st.sampled_from(sorted(cluster.view.hashes)))
    cluster.world.set_behaviour(replace(cluster.behaviour, never_ready=frozenset({cluster.view.hashes[broken]})))
    cluster.settle()
    if any(unit.outdated for unit in cluster.view.set_units()):
        assert_blocker_is_named(cluster)


def assert_blocker_is_named(cluster: Cluster) -> None:
    problems = [wait for wait in cluster.waits if wait.is_problem]
    assert problems
    assert all(wait.text and wait.component and wait.remedies for wait in problems)
    unready = {pod.name for pod in cluster.live_pods() if not pod.ready}
    assert unready & {unit for wait in problems for unit in wait.units}


@often
@given(workloads(AUTOMATIC), clusters(), st.data())
def test_a_world_that_rests_unfinished_names_a_true_blocker(
    start: Workload, behaviour: ClusterBehaviour, data: st.DataObject
) -> None:
    """Nothing is repaired: nodes stay away, pods stay broken."""
    cluster = settled(start, behaviour)
    interfere(cluster, data, [*EVERYTHING, scale_below_minimum, break_template])
    cluster.settle()
    seen = counts(cluster.workload, cluster.world.observed())
    short = [name for name, count in seen.items() if not count.live == count.available == count.wanted]
    is_open = bool(cluster.progress) and not cluster.progress.get("updateEndedAt")
    if short or is_open:
        assert any(wait.code in BLOCKERS for wait in cluster.waits), (short, cluster.waits)
    for wait in cluster.waits:
        assert wait.code != WaitCode.WAITING_FOR_TERMINATION, "nothing leaves a world that rests"
        assert_true(cluster, wait)


def test_every_wait_is_checked() -> None:
    assert {*CHECKS} == {*WaitCode}


@sometimes
@given(workloads(), clusters(), st.data())
def test_a_settled_workload_is_left_alone(start: Workload, behaviour: ClusterBehaviour, data: st.DataObject) -> None:
    cluster = settled(start, behaviour)
    interfere(cluster, data, EVERYTHING)
    finish(cluster)
    assert cluster.plan().actions == ()
    cluster.world.advance(cluster.world.now + 1000)
    assert not [one for one in cluster.plan().actions if isinstance(one, Create | Delete)]
