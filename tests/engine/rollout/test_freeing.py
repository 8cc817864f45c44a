"""An outdated unit that serves nobody is replaced at once in every replica, and selects none."""

from collections.abc import Callable

from rollouts.engine.model.actions import Kind
from rollouts.engine.model.workload import Strategy
from tests.engine.rollout.test_selection import updating
from tests.engine.simulated import Cluster, clique, group, settled, workload


def lose_a_pod(cluster: Cluster, clique: str) -> None:
    cluster.world.remove(cluster.live_pods(clique)[0].name)


def begun(cluster: Cluster) -> Cluster:
    """Update until replica 0 is half-way."""
    cluster.update().run_until(lambda cluster: updating(cluster) == [0])
    return cluster.run_until(lambda cluster: any(one.name.startswith("w-0-") for one in cluster.deleted()))


def run_while_selected(cluster: Cluster, index: int, reached: Callable[[Cluster], bool]) -> None:
    for _ in cluster.passes():
        assert updating(cluster) == [index]
        if reached(cluster):
            return


def test_an_outdated_group_replica_that_lost_a_pod_is_recreated_before_its_turn() -> None:
    parts = (clique("a", 4), clique("l", 2), group("g", ("l",), 2, 1))
    cluster = begun(settled(workload(*parts, replicas=3)))
    lose_a_pod(cluster, "w-2-g-1-l")
    run_while_selected(cluster, 0, lambda cluster: cluster.view.group_text("w-2-g", "g") == "0* 1")
    assert cluster.settle().progress["updateEndedAt"]


def test_an_outdated_pod_that_is_not_ready_is_recreated_before_its_turn() -> None:
    cluster = begun(settled(workload(clique("a", 3, 1), replicas=2)))
    broken = cluster.live_pods("w-1-a")[1]
    cluster.world.set_ready(broken.name, ready=False)
    run_while_selected(cluster, 0, lambda cluster: cluster.view.pods_text("w-1-a", "a") == "0* 1 2*")
    assert [one.reason for one in cluster.deleted() if one.name == broken.name] == ["OutdatedUnavailable"]
    assert cluster.settle().progress["updateEndedAt"]


def test_a_replica_that_was_begun_stays_selected_though_others_break() -> None:
    cluster = begun(settled(workload(clique("a", 4, 2), replicas=3)))
    seen: list[list[int]] = []
    for number, _ in enumerate(cluster.passes()):
        if number == 1:
            for pod in cluster.live_pods("w-2-a")[:3]:
                cluster.world.set_ready(pod.name, ready=False)
        now = updating(cluster)
        if now and (not seen or seen[-1] != now):
            seen.append(now)
    assert seen[0] == [0]
    assert len(seen) == 3, seen
    assert cluster.progress["updateEndedAt"]


def test_what_is_freed_elsewhere_costs_the_replica_in_work_nothing_more_meanwhile() -> None:
    """A replica that serves is not taken from while another is down."""
    cluster = begun(settled(workload(clique("a", 3, 1), replicas=2)))
    for pod in cluster.live_pods("w-1-a"):
        cluster.world.set_ready(pod.name, ready=False)
    before = [one for one in cluster.deleted() if one.name.startswith("w-0-")]
    cluster.run_until(lambda cluster: cluster.view.pods_text("w-1-a", "a") == "0? 1? 2?")
    assert [one for one in cluster.deleted() if one.name.startswith("w-0-")] == before
    assert cluster.settle().progress["updateEndedAt"]


def test_on_delete_frees_nothing() -> None:
    cluster = settled(workload(clique("a", 2), replicas=2, strategy=Strategy.ON_DELETE)).update()
    cluster.world.set_ready(cluster.live_pods("w-1-a")[0].name, ready=False)
    cluster.settle()
    assert cluster.deleted() == []


def test_what_is_freed_while_it_is_scaled_in_is_deleted_once() -> None:
    cluster = begun(settled(workload(clique("a", 3, 2), replicas=2)))
    cluster.world.set_ready(cluster.live_pods("w-1-a")[1].name, ready=False)
    cluster.world.scale(Kind.CLIQUE, "w-1-a", 2)
    cluster.settle()
    names = [one.name for one in cluster.deleted()]
    assert len(names) == len(set(names))
    assert cluster.progress["updateEndedAt"]
