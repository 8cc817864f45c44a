"""A workload in the sandbox, and people who fill in forms about it.

What the services do is tried on both clusters (`tests/services`); here it is the forms, and one cluster is enough.
What a form says while somebody types needs none: the mirror has the workload, of a cluster where nobody answers.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.contrib.auth.models import Group
from django.test import Client, override_settings
from django.utils import timezone

from rollouts import models
from rollouts.models import NamespaceGrant, User
from rollouts.runtime import connections
from tests import both_clusters
from tests.api.read import fleet
from tests.scenarios.running_clusters import TargetCluster
from tests.services import conftest as commands
from tests.services.stage import Stage
from tests.web.commands.filling import FormClient

namespace = both_clusters.namespace
cluster, stage, deployed, caller = commands.cluster, commands.stage, commands.deployed, commands.caller
outdated = commands.outdated


@pytest.fixture(scope="session", autouse=True)
def _static_files(static_files: None) -> None:
    """Pages name static files by what is in them."""


@pytest.fixture
def target(sandbox_with_nodes: TargetCluster) -> TargetCluster:
    """The sandbox, with nodes."""
    return sandbox_with_nodes


def sign_in(role: str, name: str) -> Client:
    """Return somebody of a role who has signed in."""
    account = User.objects.create_user(name, password="correct horse battery")
    account.groups.add(Group.objects.get(name=role))
    client = Client()
    client.force_login(account)
    return client


@pytest.fixture
def operator(stage: Stage, redis: Any) -> Client:
    """Somebody who may command in the namespace of the workload."""
    client = sign_in("operator", "olga")
    NamespaceGrant.objects.create(
        user=User.objects.get(username="olga"), cluster=stage.cluster_name, namespace=stage.namespace
    )
    return client


@pytest.fixture
def forms(operator: Client, stage: Stage) -> FormClient:
    """The forms of a workload, for an operator; there are no pods yet."""
    return FormClient(operator, stage)


@pytest.fixture
def running(forms: FormClient, deployed: Stage) -> FormClient:
    """The same once all pods run."""
    return forms


@pytest.fixture
def silent_cluster(tmp_path: Path, redis: Any) -> Iterator[models.Cluster]:
    """A cluster that the settings name and that was heard just now, all of it in the mirror; nobody answers there."""
    row = fleet.make_cluster()
    row.heard_at = timezone.now()
    row.save()
    file = tmp_path / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": row.name,
        "contexts": [{"name": row.name, "context": {"cluster": "nobody", "user": "nobody"}}],
        "clusters": [{"name": "nobody", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "nobody", "user": {}}],
    }
    file.write_text(yaml.safe_dump(config))
    environment = replace(settings.ENVIRONMENT, clusters=("kubeconfig",), kubeconfig=file, kube_contexts=())
    with override_settings(ENVIRONMENT=environment):
        connections._shared_cluster.cache_clear()
        yield row
    connections._shared_cluster.cache_clear()
