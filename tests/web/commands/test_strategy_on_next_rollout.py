"""A change of strategy judged by the next rollout: with it and without it, at the pace of the pods that run now."""

from typing import Any

import pytest

from rollouts import models
from rollouts.accounts.commands import WorkloadRef
from rollouts.engine.simulation.simulate import SimulationEnd
from rollouts.models import StrategyOverride, User
from rollouts.selectors.forecast import Assumptions
from rollouts.services.audit import Caller, Source
from rollouts.services.simulation import workload_simulate
from rollouts.services.simulation_report import Simulated
from rollouts.services.workloads import edit_strategy
from tests.api.read import fleet

pytestmark = pytest.mark.django_db

PLACE = WorkloadRef("sandbox", "default", "chat")
FASTER = {"type": "RollingUpdate", "components": {"web": {"maxUnavailable": 3}}}


@pytest.fixture
def caller(silent_cluster: models.Cluster) -> Caller:
    """Somebody who may do everything."""
    return Caller(User.objects.create_superuser("ada"), "ada", None, "test-request", Source.PAGE)


def store(row: models.Cluster, **fields: Any) -> None:
    """Put a workload of six pods into the mirror, of one template or of two, and a node."""
    fleet.store_nodes(row, 1)
    outdated = fields.pop("outdated", ())
    fleet.store_parts(row, fleet.podcliqueset("chat", cliques=[fleet.clique("web", 6)], **fields), outdated=outdated)


def rehearse(caller: Caller, changes: dict[str, Any], **belief: Any) -> Simulated:
    """Ask what a change of strategy would do to the next rollout."""
    return workload_simulate(caller, PLACE, edit_strategy(changes, rehearse=True), Assumptions(**belief))


def test_a_settled_workload_is_judged_by_its_next_rollout(caller: Caller, silent_cluster: models.Cluster) -> None:
    store(silent_cluster)
    told = rehearse(caller, FASTER)
    assert told.is_rehearsal
    assert not told.starts_update
    assert told.former is not None
    # Two times three pods, and six times one; a pod takes 30 s to become Ready.
    assert (told.rounds, told.seconds, told.pods.lowest) == (2, 60, 3)
    assert (told.former.rounds, told.former.seconds, told.former.lowest) == (6, 180, 5)
    assert (told.end, told.replaced) == (SimulationEnd.DONE, {"web": 6})
    # What is only rehearsed is no part of the change.
    assert {one.field for one in told.changed} == {"spec.updateStrategy", "spec.template.cliques[0].updateStrategy"}


def test_pods_are_counted_from_before_the_change_to_its_end(caller: Caller, silent_cluster: models.Cluster) -> None:
    store(silent_cluster)
    pods = rehearse(caller, FASTER).pods
    assert (pods.desired, pods.floor, pods.most, pods.left_out) == (6, 3, 6, 0)
    told = [(one.at, one.available, one.updated, one.live) for one in pods.counts]
    assert told == [(0, 6, 0, 6), (0, 3, 0, 6), (30, 3, 3, 6), (60, 6, 6, 6)]


def test_an_update_at_work_is_judged_by_its_own_end(caller: Caller, silent_cluster: models.Cluster) -> None:
    store(silent_cluster, outdated=[0])
    told = rehearse(caller, FASTER)
    assert not told.is_rehearsal
    assert told.former is not None
    assert (told.rounds, told.former.rounds) == (2, 6)


def test_what_an_update_at_work_brings_may_never_get_ready(caller: Caller, silent_cluster: models.Cluster) -> None:
    store(silent_cluster, outdated=[0])
    assert rehearse(caller, FASTER, never_ready=("web",)).end is SimulationEnd.STUCK


def test_an_override_counts_in_both_rollouts(caller: Caller, silent_cluster: models.Cluster) -> None:
    store(silent_cluster)
    StrategyOverride.objects.create(name="chat", strategy="RollingRecreate", reason="an incident")
    told = rehearse(caller, FASTER)
    assert told.former is not None
    assert told.rounds == told.former.rounds == 6


def test_a_rollout_that_never_gets_ready_is_stuck_with_the_change_and_without(
    caller: Caller, silent_cluster: models.Cluster
) -> None:
    store(silent_cluster)
    told = rehearse(caller, FASTER, never_ready=("web",))
    assert told.former is not None
    assert (told.end, told.former.end) == (SimulationEnd.STUCK, SimulationEnd.STUCK)
    assert (told.pods.lowest, told.former.lowest) == (3, 5)


def test_pods_take_as_long_as_those_that_run_now_took(caller: Caller, silent_cluster: models.Cluster) -> None:
    store(silent_cluster)
    pods = models.Pod.objects.order_by("id")
    for pod, seconds in zip(pods, (10, 12, 14, 16, 600, 700), strict=True):
        pod.ready_since, pod.restarts = pod.created + seconds, int(seconds >= 600)
        pod.save()
    measured = rehearse(caller, FASTER, seconds_to_ready=None)
    assert (measured.pace.seconds_to_ready, measured.pace.is_measured) == (13, True)
    assert measured.seconds == 26
    pods.update(ready_since=None)
    believed = rehearse(caller, FASTER, seconds_to_ready=None)
    assert (believed.pace.seconds_to_ready, believed.pace.is_measured) == (30, False)
