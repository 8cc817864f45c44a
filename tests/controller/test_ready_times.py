"""How long pods took to become Ready stays known when an update has replaced all of them at once."""

import time
from typing import Any, Final

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from rollouts import mirror, models
from rollouts.cluster import ClusterClient
from rollouts.engine.model.actions import Plan
from rollouts.engine.model.observed import ReadyTime
from rollouts.engine.plan.deadlines import LATE_AFTER, LATE_FACTOR
from rollouts.engine.plan.planner import plan
from rollouts.engine.rollout.ready_times import measure_ready_times
from rollouts.queue.results import Done
from tests.controller.interruptions import Interrupted, Way
from tests.controller.loop import Loop
from tests.controller.small_set import change_image, images, make
from tests.engine.manifests import workload_of

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]

REPLACED_AT_ONCE: Final[dict[str, Any]] = {
    "spec.updateStrategy": {"type": "ReplicaRecreate", "rollingUpdate": {"maxUnavailable": 1}},
    "spec.template.cliques.0.spec.replicas": 2,
}


@pytest.fixture
def loop(cluster: ClusterClient, namespace: str) -> Loop:
    """A set of one replica that is deployed and settled; an update deletes all of its pods at once."""
    deployed = make(cluster, namespace, REPLACED_AT_ONCE)
    deployed.run(lambda: deployed.is_complete() and deployed.outcomes[-1] == Done())
    deployed.observe()
    return deployed


def seen(loop: Loop) -> mirror.MirroredWorkload:
    """Return the workload as the mirror has it."""
    found = mirror.fetch_workload(loop.row, loop.namespace, loop.name)
    assert found is not None
    return found


def noted(loop: Loop) -> dict[str, ReadyTime]:
    """Return what is stored on the workload's row, by clique."""
    return {one.clique: one for one in seen(loop).observed.ready_times}


def replace_all(loop: Loop) -> None:
    """Update to an image that never becomes Ready and has no fault, until all new pods have nodes."""
    change_image(loop, "app:broken")
    loop.run(lambda: images(loop) == ["app:broken"] * 2 and all(pod["spec"].get("nodeName") for pod in loop.pods()))
    loop.observe()


def planned(loop: Loop, after: float) -> Plan:
    """Return the plan of a pass some seconds from now."""
    found = seen(loop)
    return plan(workload_of(found.manifest), found.observed, time.time() + after)


def test_a_pod_that_is_late_is_a_problem_also_where_all_pods_were_replaced_at_once(loop: Loop) -> None:
    usual = measure_ready_times(seen(loop).observed).by_clique["frontend"]
    replace_all(loop)
    waits = planned(loop, after=max(LATE_AFTER, LATE_FACTOR * usual)).waits
    (late,) = [one for one in waits if one.component == "chat-0-frontend" and one.is_problem]
    assert (late.code, len(late.units)) == ("WaitingForReady", 2)
    assert late.usual_seconds == pytest.approx(usual, rel=0.1)


def test_times_are_noted_before_the_pods_are_deleted_that_they_were_measured_on(
    cluster: ClusterClient, namespace: str
) -> None:
    loop = make(cluster, namespace, REPLACED_AT_ONCE)
    loop.run(loop.is_complete)
    models.Workload.objects.update(ready_times=[])
    change_image(loop, "app:broken")
    watched = Interrupted(cluster, Way.CUT_BEFORE, lambda _number, call: call.startswith("delete"))
    loop.cluster = watched.as_cluster()
    loop.run(lambda: watched.interruptions > 0)
    assert noted(loop)["frontend"].pods == 2


def test_what_is_noted_already_is_not_written_again(loop: Loop) -> None:
    assert noted(loop)
    with CaptureQueriesContext(connection) as queries:
        assert loop.take_pass() == Done()
    assert [query["sql"] for query in queries if query["sql"].startswith("UPDATE")] == []
