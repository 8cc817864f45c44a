"""Which pods are surge, and where the answer differs by purpose.

`CliqueView.first_surge` has the rule: the pods with an index from the wanted number up, unless the clique is complete.
A complete clique may keep a gap since it was scaled in. The tests below pin who counts in another way.
"""

from rollouts.engine.model.actions import Delete, Kind, Wait
from rollouts.engine.model.workload import Workload
from rollouts.engine.plan.remedies import Remedy
from rollouts.engine.plan.wait_codes import WaitCode
from rollouts.engine.simulation.remedy_trials import RemedyTrials
from rollouts.engine.simulation.simulate import SimulationResult, simulate
from rollouts.engine.tree.availability import CliqueView
from rollouts.engine.tree.layout import make_layout
from rollouts.engine.tree.tree_builder import build_tree
from tests.engine.simulated import QUICK, Cluster, clique, settled, workload


def with_a_gap() -> Cluster:
    """Return two pods with the indices 0 and 2: pod 1 was not Ready when the clique was scaled in."""
    cluster = settled(workload(clique("a", 3, 1)))
    cluster.world.set_ready(cluster.live_pods()[1].name, ready=False)
    cluster.world.scale(Kind.CLIQUE, "w-0-a", 2)
    cluster.settle()
    assert [pod.index for pod in cluster.live_pods()] == [0, 2]
    return cluster


def with_a_gap_and_one_pod_down() -> Cluster:
    """Return the same with a pod that is not Ready, so that the clique is not complete."""
    cluster = with_a_gap()
    cluster.world.set_ready(cluster.live_pods()[0].name, ready=False)
    cluster.settle()
    return cluster


def view_of(cluster: Cluster) -> CliqueView:
    tree = build_tree(make_layout(cluster.workload), cluster.world.observed())
    return tree.replicas[0].cliques[0]


def names(view: CliqueView) -> list[str]:
    return [pod.name for pod in view.list_surge(is_extra=False)]


def test_a_complete_clique_has_no_surge_whatever_the_indices_of_its_pods() -> None:
    view = view_of(with_a_gap())
    assert view.is_complete
    assert (names(view), view.count_surge(is_extra=False)) == ([], 0)


def test_in_a_clique_that_is_not_complete_the_pods_from_the_wanted_number_up_are_surge() -> None:
    view = view_of(with_a_gap_and_one_pod_down())
    assert names(view) == [view.live[-1].name]
    assert view.count_surge(is_extra=False) == 1


def test_in_a_replica_that_is_surge_every_pod_is() -> None:
    view = view_of(with_a_gap())
    assert view.count_surge(is_extra=True) == 2


def test_a_status_counts_by_number_while_its_clique_is_not_updated() -> None:
    cluster = with_a_gap_and_one_pod_down()
    (found,) = cluster.world.observed().cliques
    assert view_of(cluster).count_surge(is_extra=False) == 1
    assert "surgeReplicas" not in found.status


def test_the_counts_of_a_simulation_go_by_the_index_alone() -> None:
    cluster = with_a_gap()
    result = simulate(cluster.workload, cluster.world.observed(), cluster.workload, QUICK)
    counted = result.start["w-0-a"]
    assert (counted.wanted, counted.surge) == (2, 1)
    assert result.pods[-1].surge == 0


def test_a_trial_of_deleting_surge_deletes_by_the_index_alone() -> None:
    cluster = with_a_gap()
    deleted: list[Delete] = []

    def run(after: Workload, first: tuple[Delete, ...], _share: int) -> SimulationResult:
        deleted.extend(first)
        return simulate(cluster.workload, cluster.world.observed(), after, QUICK)

    wait = Wait(WaitCode.SURGE_NOT_READY, "w-0-a", (), "", (Remedy.DELETE_SURGE,), is_problem=True)
    RemedyTrials(cluster.workload, cluster.world.observed(), None, run).filter_remedies([wait])
    assert [one.name for one in deleted] == [cluster.live_pods()[-1].name]
