"""The row of a cluster, to which a test adds objects."""

import pytest

from rollouts import mirror, models


@pytest.fixture
def cluster() -> models.Cluster:
    """The row of a cluster without objects."""
    return mirror.ensure_cluster("east", "sandbox")
