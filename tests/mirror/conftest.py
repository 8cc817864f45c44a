"""A cluster's row to hang objects on."""

import pytest

from rollouts import mirror, models


@pytest.fixture
def cluster() -> models.Cluster:
    """The row of a cluster of which nothing is known yet."""
    return mirror.ensure_cluster("east", "sandbox")
