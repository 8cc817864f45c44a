"""Why it is not moving: every code with its sentence, its remedies, and when it becomes a problem."""

from dataclasses import replace

from rollouts.engine.model.actions import Kind, Wait, WriteStatus
from rollouts.engine.model.workload import Strategy
from rollouts.engine.plan.deadlines import SCHEDULED_WITHIN
from rollouts.engine.plan.planner import plan
from rollouts.engine.rollout.ready_times import READY_WITHIN
from rollouts.engine.simulation.scheduler import SimulatedNode
from tests.engine.simulated import QUICK, Cluster, clique, conditions, group, settled, workload

NO_ROOM = replace(QUICK, nodes=(SimulatedNode("full", pods=0),))
GROUP = (clique("l", 1), clique("k", 2), group("g", ("l", "k"), 2, 1, (0, 1)))


def waits(cluster: Cluster, code: str) -> list[Wait]:
    return [wait for wait in cluster.plan().waits if wait.code == code]


def only(cluster: Cluster, code: str) -> Wait:
    (wait,) = waits(cluster, code)
    return wait


def surging() -> Cluster:
    return settled(workload(clique("a", 3, budget=(0, 1)), strategy=Strategy.ROLLING_UPDATE))


def test_a_settled_set_waits_for_nothing() -> None:
    planned = surging().plan()
    assert (planned.waits, planned.requeue_at) == ((), None)


def test_surge_without_a_node_says_so_and_becomes_a_problem_in_time() -> None:
    cluster = surging()
    cluster.world.set_behaviour(NO_ROOM)
    cluster.update().run_for(10.0)
    wait = only(cluster, "SurgeUnschedulable")
    (surge,) = wait.units
    assert wait.text.startswith(f"Surge {surge} of w-0-a has no node: ")
    assert wait.remedies == ("AddCapacity", "SetMaxSurgeToZero")
    assert not wait.is_problem
    due = cluster.plan().requeue_at
    assert due is not None
    assert cluster.world.pods[surge].created + SCHEDULED_WITHIN == due
    cluster.run_for(SCHEDULED_WITHIN)
    assert only(cluster, "SurgeUnschedulable").is_problem
    assert conditions(cluster.status)["UpdateStuck"] == ("True", "SurgeUnschedulable")


def test_an_update_that_is_not_stuck_tells_what_it_waits_for_and_writes_no_more_for_it() -> None:
    cluster = settled(workload(clique("a", 5))).update()
    told = []
    while not cluster.progress or "updateEndedAt" not in cluster.progress:
        cluster.run_for(QUICK.ready_seconds / 2)
        told.append(conditions(cluster.status)["UpdateStuck"])
    # The same for every pod that is replaced, so the status is not written for it again and again.
    assert set(told[:-1]) == {("False", "WaitingForReady")}
    assert told[-1] == ("False", "NothingInTheWay")


def test_that_surge_has_no_node_is_worth_telling_once_a_scheduler_says_so() -> None:
    cluster = surging()
    cluster.world.set_behaviour(NO_ROOM)
    cluster.update().run_for(10.0)
    seen = cluster.world.observed()
    for message, expected in (("", "SurgeNotReady"), ("0/3 nodes: no GPU", "SurgeUnschedulable")):
        told = tuple(pod if pod.node else replace(pod, message=message) for pod in seen.pods)
        planned = plan(cluster.workload, replace(seen, pods=told), cluster.world.now)
        written = (one.status for one in planned.actions if isinstance(one, WriteStatus) and one.kind is Kind.SET)
        assert conditions(next(written, seen.status))["UpdateStuck"] == ("False", expected)


def test_the_words_of_the_scheduler_are_passed_on() -> None:
    cluster = surging()
    cluster.world.set_behaviour(NO_ROOM)
    cluster.update().run_for(10.0)
    seen = cluster.world.observed()
    told = tuple(pod if pod.node else replace(pod, message="0/3 nodes: no GPU") for pod in seen.pods)
    assert any(pod.message for pod in told)
    texts = [wait.text for wait in plan(cluster.workload, replace(seen, pods=told), cluster.world.now).waits]
    assert any(text.endswith(" of w-0-a has no node: 0/3 nodes: no GPU") for text in texts)


def test_of_a_pod_that_is_held_back_it_is_said_for_what_and_not_that_it_has_no_node() -> None:
    cluster = surging()
    cluster.world.set_behaviour(NO_ROOM)
    cluster.update().run_for(10.0)
    seen = cluster.world.observed()
    words = "Scheduling is blocked due to non-empty scheduling gates"
    held = tuple(pod if pod.node else replace(pod, gated=True, message=words) for pod in seen.pods)
    texts = [wait.text for wait in plan(cluster.workload, replace(seen, pods=held), cluster.world.now).waits]
    assert any(text.endswith(" of w-0-a keeps its scheduling gate until its PodGang lists it.") for text in texts)
    assert not any("no node" in text or words in text for text in texts)


def test_surge_that_is_not_ready_says_so() -> None:
    cluster = surging().update()
    cluster.world.set_behaviour(replace(QUICK, never_ready=frozenset(cluster.view.hashes.values())))
    cluster.run_for(READY_WITHIN + 60.0)
    wait = only(cluster, "SurgeNotReady")
    assert wait.text == f"Surge {wait.units[0]} of w-0-a is not Ready (3 of 3 are)."
    assert wait.remedies == ("LookAtPods", "RollBack", "SetMaxSurgeToZero", "DeleteSurge")
    assert wait.is_problem
    budget = only(cluster, "BudgetExhausted")
    assert budget.text == (
        "3 outdated pods of w-0-a wait: 3 are available and maxUnavailable is 0, and no more surge is available"
        " (maxSurge 1)."
    )


def test_surge_of_a_group_behind_a_base_gang_that_is_not_placed_says_who_is_missing() -> None:
    cluster = settled(workload(clique("a", 1), *GROUP, strategy=Strategy.ROLLING_UPDATE))
    cluster.world.set_behaviour(NO_ROOM)
    cluster.update().run_for(30.0)
    gated = waits(cluster, "SurgeGated")
    assert {wait.component for wait in gated} == {"w-0-g-2-l", "w-0-g-2-k"}
    assert "gate until the base gang w-0 is scheduled (w-0-a has 0 of 1 pods on nodes)" in gated[0].text
    assert "SetMaxSurgeToZero" in gated[0].remedies


def test_a_replacement_without_a_node_and_one_that_is_not_ready_are_told_apart() -> None:
    cluster = settled(workload(clique("a", 3, 1)))
    cluster.world.set_behaviour(NO_ROOM)
    cluster.update().run_for(10.0)
    wait = only(cluster, "ReplicaUnschedulable")
    assert wait.text.startswith(f"{wait.units[0]} of w-0-a has no node: ")
    cluster.world.set_behaviour(replace(QUICK, never_ready=frozenset(cluster.view.hashes.values())))
    cluster.run_for(10.0)
    wait = only(cluster, "WaitingForReady")
    assert wait.text == f"{wait.units[0]} of w-0-a is not Ready (2 of 3 are)."
    assert wait.remedies == ("LookAtPods", "RollBack")


def test_what_is_leaving_is_waited_for_by_name() -> None:
    cluster = settled(workload(*GROUP)).update()
    cluster.run_until(lambda cluster: any(pod.leaving for pod in cluster.world.pods.values()))
    wait = only(cluster, "WaitingForTermination")
    assert wait.component == "w-0-g-0"
    assert wait.text == (f"w-0-g-0 waits until {wait.units[0]}, {wait.units[1]} and {wait.units[2]} are gone.")


def test_pods_whose_podclique_is_gone_before_them_are_waited_for_too() -> None:
    cluster = settled(workload(*GROUP))
    seen = cluster.world.observed()
    gone = tuple(one for one in seen.cliques if one.group_replica != 1)
    planned = plan(cluster.workload, replace(seen, cliques=gone), cluster.world.now)
    (wait,) = [wait for wait in planned.waits if wait.code == "WaitingForTermination"]
    assert (wait.component, len(wait.units)) == ("w-0-g-1", 3)


def test_replicas_wait_for_the_one_that_is_updated() -> None:
    cluster = settled(workload(clique("a", 1), replicas=3)).update()
    cluster.step()
    cluster.step()
    wait = only(cluster, "WaitingForReplica")
    assert wait.units == ("w-1", "w-2")
    assert wait.text == "w-1 and w-2 wait until w-0 is updated: replicas are updated one at a time."
    assert not wait.is_problem


def test_replicas_recreated_whole_wait_for_the_budget() -> None:
    recreate = workload(clique("a", 1), replicas=4, strategy=Strategy.REPLICA_RECREATE, budget=(1, 0))
    cluster = settled(recreate).update()
    cluster.step()
    cluster.step()
    wait = only(cluster, "BudgetExhausted")
    assert (wait.component, wait.units) == ("w", ("w-1", "w-2", "w-3"))
    assert wait.text == "3 outdated replicas of w wait: 3 are available and maxUnavailable is 1."
    assert wait.remedies == ("RaiseMaxUnavailable",)


def test_one_that_waits_is_not_told_as_many() -> None:
    cluster = settled(workload(clique("a", 1), replicas=2, strategy=Strategy.REPLICA_RECREATE, budget=(1, 0))).update()
    cluster.step()
    cluster.step()
    wait = only(cluster, "BudgetExhausted")
    assert wait.text == "1 outdated replica of w waits: 1 is available and maxUnavailable is 1."


def test_under_on_delete_outdated_pods_await_deletion_and_that_is_no_problem() -> None:
    cluster = settled(workload(clique("a", 3), strategy=Strategy.ON_DELETE)).update().settle()
    wait = only(cluster, "AwaitingDeletion")
    assert wait.text == (
        "3 of 3 pods of w-0-a run an older template. The replacement of a deleted pod gets the current one."
    )
    assert wait.remedies == ("DeleteOutdatedPods",)
    assert not wait.is_problem
    assert len(wait.units) == 3


def test_a_set_that_cannot_come_up_says_so_without_any_update() -> None:
    cluster = Cluster(workload(clique("a", 5)), NO_ROOM).settle()
    wait = only(cluster, "ReplicaUnschedulable")
    assert wait.is_problem
    assert " and 2 more of w-0-a have no node: " in wait.text
    told = conditions(cluster.status)
    assert told["Progressing"] == ("False", "ReplicaUnschedulable")
    assert told["UpdateStuck"] == ("False", "NothingInTheWay")


def test_new_pods_beside_old_ones_that_terminate_are_waited_for_when_replicas_are_replaced_whole_from_now_on() -> None:
    slow = replace(QUICK, termination_seconds=20.0)
    cluster = settled(workload(clique("a", 1), replicas=2), slow).update()
    cluster.run_until(lambda cluster: cluster.view.set_text() == "0? 1*")
    assert any(pod.leaving for pod in cluster.world.pods.values())
    cluster.edit(strategy=Strategy.REPLICA_RECREATE).run_for(0.5)
    assert cluster.view.set_text() == "0? 1*"
    (pod,) = cluster.live_pods("w-0-a")
    assert only(cluster, "WaitingForReady").units == (pod.name,)
