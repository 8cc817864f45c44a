"""Whole passes on a cluster: a workload deploys, is updated, is deleted, and settles."""

import pytest

from rollouts.cluster import Cluster
from rollouts.cluster.resources import PODCLIQUESETS
from rollouts.models import Rollout
from rollouts.outcomes import Done
from tests.control.loop import Loop
from tests.engine.manifests import small

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def loop(cluster: Cluster, namespace: str, redis: object) -> Loop:
    """A small set, created and nothing else."""
    cluster.create(
        PODCLIQUESETS, small({"metadata.namespace": namespace, "spec.template.podCliqueScalingGroups.0.replicas": 2})
    )
    return Loop(cluster, namespace, "chat")


def test_a_set_deploys_and_settles(loop: Loop) -> None:
    loop.run(loop.is_complete)
    assert len(loop.pods()) == 2 * (3 + 2 * 3)
    loop.observe()
    assert loop.take_pass() == Done()
    (rollout,) = Rollout.objects.all()
    assert (rollout.from_hash, rollout.outcome) == ("", "Complete")
