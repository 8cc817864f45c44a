"""A stuck rollout names its obstacle, and ends once the obstacle is gone, for random workloads and clusters.

`plan.test_remedies` carries out each remedy in an arranged situation; the situations here are random.
"""

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollouts.engine.model.workload import Workload
from rollouts.engine.simulation.scheduler import SimulatedNode
from tests.engine.chance import AUTOMATIC, assert_all_there, counts, workloads
from tests.engine.plan.test_remedies import APPLY_REMEDY
from tests.engine.simulated import QUICK, Cluster, settled
from tests.thoroughness import examples

sometimes = settings(max_examples=examples(5), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def updated_in_room(start: Workload, spare: int) -> Cluster:
    """Update with room for the existing pods and some more."""
    cluster = settled(start)
    cluster.world.set_behaviour(replace(QUICK, nodes=(SimulatedNode("node", pods=len(cluster.world.pods) + spare),)))
    return cluster.update().settle()


def is_done(cluster: Cluster) -> bool:
    return bool(cluster.progress.get("updateEndedAt"))


def assert_blocker_is_named(cluster: Cluster) -> None:
    problems = [wait for wait in cluster.waits if wait.is_problem]
    assert problems
    assert all(wait.text and wait.component and wait.remedies for wait in problems)
    unready = {pod.name for pod in cluster.live_pods() if not pod.ready}
    assert unready & {unit for wait in problems for unit in wait.units}


@sometimes
@given(workloads(AUTOMATIC), st.integers(0, 4), st.data())
def test_a_rollout_without_room_names_its_blocker_and_ends_by_any_remedy(
    start: Workload, spare: int, data: st.DataObject
) -> None:
    cluster = updated_in_room(start, spare)
    if is_done(cluster):
        return assert_all_there(cluster)
    assert_blocker_is_named(cluster)
    for _ in range(8):  # each component may have surge of its own in the way
        wait = data.draw(st.sampled_from([wait for wait in cluster.waits if wait.is_problem]))
        APPLY_REMEDY[data.draw(st.sampled_from(wait.remedies))](cluster, wait)
        cluster.settle()
        if is_done(cluster):
            return assert_all_there(cluster)
    raise AssertionError([wait.text for wait in cluster.waits])


@sometimes
@given(workloads(AUTOMATIC), st.integers(0, 2), st.integers(1, 3), st.booleans())
def test_a_rollout_during_which_the_set_is_scaled_names_its_blocker_and_ends_with_more_room(
    start: Workload, spare: int, replicas: int, early: bool
) -> None:
    cluster = settled(start)
    cluster.world.set_behaviour(replace(QUICK, nodes=(SimulatedNode("node", pods=len(cluster.world.pods) + spare),)))
    cluster.update()
    if not early:
        for _, _ in zip(range(12), cluster.passes(), strict=False):
            pass
    cluster.edit(replicas=replicas).settle()
    counted = counts(cluster.workload, cluster.world.observed())
    if not is_done(cluster) or any(count.available < count.wanted for count in counted.values()):
        assert_blocker_is_named(cluster)
        cluster.world.set_behaviour(QUICK)
        cluster.settle()
    assert is_done(cluster)
    assert_all_there(cluster)
