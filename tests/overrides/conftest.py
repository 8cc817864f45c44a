"""Workloads in the mirror for overrides to hit, and people who put them in force."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from redis import Redis

from rollouts import mirror, models
from rollouts.cluster.resources import PODCLIQUESETS
from rollouts.services.audit import Caller
from tests.deploy.manifests import Edits
from tests.engine.manifests import small

CLUSTER = "sandbox"

AddWorkload = Callable[..., str]


@pytest.fixture
def cluster(db: None) -> models.Cluster:
    """The row of the configured cluster."""
    return mirror.ensure_cluster(CLUSTER, "the sandbox")


@pytest.fixture
def add_workload(cluster: models.Cluster) -> AddWorkload:
    """Store a workload in the mirror and return its key: a clique `frontend` of 3, a group `decode` of 4."""

    def add(name: str = "chat", namespace: str = "web", edits: Edits | None = None, **labels: str) -> str:
        manifest: dict[str, Any] = small(edits or {})
        manifest["metadata"] = {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{name}",
            "resourceVersion": "1",
            "generation": 1,
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": labels,
        }
        mirror.store(cluster, PODCLIQUESETS, [manifest])
        return f"{cluster.name}/{namespace}/{name}"

    return add


def make_caller(name: str, role: str) -> Caller:
    """Make an account of a role and return it as somebody who calls."""
    user = models.User.objects.create_user(name, password=None)
    user.groups.add(Group.objects.get(name=role))
    return Caller(user=user, name=name, source_ip="192.0.2.7", request_id="req-1", source="api")


@pytest.fixture
def admin(db: None, redis: Redis) -> Caller:
    """Somebody of the role admin."""
    return make_caller("ada", "admin")


@pytest.fixture
def operator(db: None, redis: Redis) -> Caller:
    """Somebody of the role operator."""
    return make_caller("olga", "operator")
