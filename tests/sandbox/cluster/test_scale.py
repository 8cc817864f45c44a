"""Two thousand pods: the work grows linearly with the pods.

It is counted in writes and in nodes examined, not in seconds, so that the result is the same on every machine.
"""

from collections.abc import Callable
from datetime import timedelta

import pytest

from rollouts.sandbox.cluster.controllers import ITEMS_PER_TURN
from rollouts.sandbox.cluster.controllers.scheduler import MAX_BINDINGS_PER_PASS
from rollouts.sandbox.cluster.pod_lifecycle import KubeletTimings
from tests.sandbox.cluster.cluster import Cluster

PODS, NODES, GANG = 2000, 250, 10


@pytest.mark.slow
def test_two_thousand_pods_in_gangs_become_ready_with_a_handful_of_writes_each(
    make_cluster: Callable[[KubeletTimings], Cluster],
) -> None:
    cluster = make_cluster(KubeletTimings())
    for number in range(NODES):
        cluster.add_node(f"n{number:03}", gpus=8)
    for first in range(0, PODS, GANG):
        members = [f"p{number:04}" for number in range(first, first + GANG)]
        for name in members:
            cluster.add_pod(name, gpus=1, gang=f"g{first:04}")
        cluster.put_gang(f"g{first:04}", workers=(GANG, members))
    scheduling, before = cluster.simulation.scheduler, cluster.store.revision
    cluster.advance(10)
    assert len(cluster.ready()) == PODS
    # A pod: bound, creating, running, ready, and two events. A gang: three phases.
    assert cluster.store.revision - before <= 6 * PODS + 4 * PODS // GANG
    # The pods of all gangs share one template: each pass examines each node a few times at most.
    assert scheduling.nodes_examined <= 3 * NODES * scheduling.passes + PODS
    assert scheduling.passes <= PODS // MAX_BINDINGS_PER_PASS + 2
    assert cluster.simulation.client.write_counts["refused"] == 0
    settled = cluster.store.revision
    cluster.restart()
    cluster.advance(600)
    assert cluster.store.revision == settled, "after a restart there is nothing to be done"


@pytest.mark.slow
def test_pods_that_wait_cost_nothing_while_others_come_and_go(
    make_cluster: Callable[[KubeletTimings], Cluster],
) -> None:
    cluster = make_cluster(KubeletTimings())
    cluster.add_node("n1", gpus=8)
    for number in range(500):
        cluster.add_pod(f"waits{number:03}", gpus=8, labels={"kind": "waits"})
    cluster.advance(30)
    assert len(cluster.bound()) == 1
    before = cluster.store.revision
    for number in range(20):
        cluster.add_pod(f"passes{number}")
        cluster.advance(1)
        cluster.verbs.delete(cluster.pods, "default", f"passes{number}")
        cluster.advance(2)
    assert cluster.store.revision - before <= 20 * 10


@pytest.mark.slow
def test_one_step_of_the_simulation_is_short_however_much_is_due(
    make_cluster: Callable[[KubeletTimings], Cluster],
) -> None:
    cluster = make_cluster(KubeletTimings())
    for number in range(10):
        cluster.add_node(f"n{number}")
    for number in range(600):
        cluster.add_pod(f"p{number:03}")
    tally, most, end = cluster.simulation.client.write_counts, 0, cluster.now + timedelta(seconds=10)
    while (due := cluster.simulation.next_due()) is not None and due <= end:
        cluster.now = max(cluster.now, due)
        before = tally.total()
        cluster.simulation.step()
        most = max(most, tally.total() - before)
    assert len(cluster.ready()) == 600
    # A scheduler's batch and a slice of the kubelets', each write with its event.
    assert most <= 2 * MAX_BINDINGS_PER_PASS + 2 * ITEMS_PER_TURN
