"""What counts as surge where a person deletes it, and where a remedy is tried."""

from dataclasses import replace

from rollouts.engine.simulation.remedy_trials import _list_surge
from rollouts.services.surge import find_surge
from tests.engine.manifests import small, workload_of
from tests.engine.simulated import settled


def test_a_complete_clique_has_no_surge_to_delete_but_a_trial_deletes_its_last_pod() -> None:
    """Scaling in has left the pods 0, 1 and 3 of three: the page offers none of them, the trial takes pod 3."""
    workload = workload_of(small())
    observed = settled(workload).world.observed()
    last = max((pod for pod in observed.pods if pod.clique == "chat-0-frontend"), key=lambda pod: pod.index)
    gap = replace(observed, pods=tuple(replace(one, index=3) if one == last else one for one in observed.pods))
    assert find_surge(workload, gap) == ()
    assert [delete.name for _, delete in _list_surge(workload, gap)] == [last.name]
