"""A simulation of deletions by hand: the pods are counted before, missing for a while, and back in the end."""

from rollouts.engine.model.actions import BY_HAND, Delete, Kind
from rollouts.engine.model.workload import Strategy
from rollouts.engine.simulation.simulate import SimulationEnd, simulate
from tests.engine.simulated import QUICK, clique, settled, workload


def test_pods_deleted_by_hand_are_missing_until_others_have_their_places() -> None:
    cluster = settled(workload(clique("a", 3, 1), strategy=Strategy.ON_DELETE)).update().settle()
    observed = cluster.world.observed()
    outdated = [pod for pod in observed.pods if pod.index < 2]
    first = tuple(Delete(Kind.POD, pod.name, pod.uid, BY_HAND) for pod in outdated)
    outcome = simulate(cluster.workload, observed, cluster.workload, QUICK, cluster.world.now, first=first)
    assert outcome.end is SimulationEnd.DONE
    assert (outcome.start["w-0-a"].available, outcome.lowest["w-0-a"]) == (3, 1)
    assert (outcome.pods_deleted, outcome.pods_created) == (2, 2)
    assert outcome.steps[0].actions == first
    assert outcome.steps[-1].counts[0].outdated == 1


def test_without_anybody_deleting_nothing_happens_under_on_delete() -> None:
    cluster = settled(workload(clique("a", 3, 1), strategy=Strategy.ON_DELETE)).update().settle()
    outcome = simulate(cluster.workload, cluster.world.observed(), cluster.workload, QUICK, cluster.world.now)
    assert (outcome.pods_deleted, outcome.pods_created) == (0, 0)
