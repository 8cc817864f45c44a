"""PodGangs of an earlier version lack the label with the name of their scheduler: a pass sets it, once."""

import pytest

from rollouts.cluster import ClusterClient
from rollouts.cluster.resources import PODCLIQUESETS, PODGANGS
from rollouts.engine.model.names import SCHEDULER
from rollouts.queue.results import Done
from tests.controller.interruptions import Interrupted, Way
from tests.controller.loop import Loop
from tests.engine.manifests import small

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]


def test_gangs_without_the_name_of_their_scheduler_get_it_and_are_then_left_alone(
    cluster: ClusterClient, namespace: str
) -> None:
    cluster.create(PODCLIQUESETS, small({"metadata.namespace": namespace, "spec.replicas": 1}))
    loop = Loop(cluster, namespace, "chat")
    loop.run(loop.is_complete)
    for gang in cluster.list(PODGANGS, namespace=namespace).items:
        nameless = {"metadata": {"labels": {SCHEDULER: None}}}
        cluster.patch_merge(PODGANGS, gang["metadata"]["name"], nameless, namespace=namespace)
    loop.run(lambda: list_schedulers(cluster, namespace) == {"default-scheduler"})
    loop.run(lambda: loop.outcomes[-1] == Done())
    loop.observe()
    watched = Interrupted(cluster, Way.CUT_BEFORE, lambda _number, _call: False)
    loop.cluster = watched.as_cluster()
    assert loop.take_pass() == Done()
    assert watched.writes == []


def list_schedulers(cluster: ClusterClient, namespace: str) -> set[str | None]:
    """Return the labels of all PodGangs; None for one without."""
    return {one["metadata"]["labels"].get(SCHEDULER) for one in cluster.list(PODGANGS, namespace=namespace).items}
