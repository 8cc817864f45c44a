"""The two clusters that passes run on: the sandbox, and a real kube-apiserver with the controllers that it needs."""

import pytest

from rollouts.cluster import ClusterClient
from tests import both_clusters
from tests.scenarios.running_clusters import TargetCluster

target, namespace = both_clusters.target, both_clusters.namespace


@pytest.fixture
def cluster(target: TargetCluster) -> ClusterClient:
    """The cluster's API."""
    return target.cluster
