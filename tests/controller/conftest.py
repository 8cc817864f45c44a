"""The two clusters that passes run on: the sandbox, and a real kube-apiserver with the controllers that it needs."""

import pytest

from rollouts.cluster import ClusterClient
from tests import both_sites
from tests.scenarios.sites import Site

site, namespace = both_sites.site, both_sites.namespace


@pytest.fixture
def cluster(site: Site) -> ClusterClient:
    """The cluster's API."""
    return site.cluster
