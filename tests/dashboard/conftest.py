"""Somebody who may see, and a cluster that has been listed."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.test import Client, override_settings
from django.utils import timezone

from rollouts import connections, models
from rollouts.models import User
from tests.api.read import fleet


@pytest.fixture(scope="session", autouse=True)
def _static_files() -> None:
    """Pages name static files by what is in them."""
    call_command("collectstatic", verbosity=0, interactive=False)


@pytest.fixture
def viewer(client: Client, redis: Any) -> Client:
    """Somebody who may see and nothing else."""
    account = User.objects.create_user("vera", password="correct horse battery")
    account.groups.add(Group.objects.get(name="viewer"))
    client.force_login(account)
    return client


@pytest.fixture
def row() -> models.Cluster:
    """The row of a cluster that was heard just now."""
    made = fleet.make_cluster()
    made.heard_at = timezone.now()
    made.save()
    return made


@pytest.fixture
def silent_cluster(tmp_path: Path, row: models.Cluster) -> Iterator[models.Cluster]:
    """A cluster that the settings name, with all that is known of it in the mirror; nobody answers there."""
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
