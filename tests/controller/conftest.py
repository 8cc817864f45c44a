"""The sandbox and a real kube-apiserver with its controllers, on which passes run, and a small set there."""

import pytest

from rollouts.cluster import ClusterClient
from tests import both_sites
from tests.controller import small_set
from tests.scenarios.sites import Site

site, namespace = both_sites.site, both_sites.namespace
loop = small_set.loop


@pytest.fixture
def cluster(site: Site) -> ClusterClient:
    """The cluster's API."""
    return site.cluster
