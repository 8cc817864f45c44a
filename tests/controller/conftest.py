"""The sandbox and a real kube-apiserver with its controllers, on which passes run, and a small set there."""

import pytest

from rollouts.cluster import ClusterClient
from tests import both_clusters
from tests.controller import small_set
from tests.scenarios.running_clusters import TargetCluster

target, namespace = both_clusters.target, both_clusters.namespace
loop = small_set.loop


@pytest.fixture
def cluster(target: TargetCluster) -> ClusterClient:
    """The cluster's API."""
    return target.cluster
