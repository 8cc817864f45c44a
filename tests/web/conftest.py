"""Somebody who may see, and a cluster that has been listed."""

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.utils import timezone

from rollouts import models
from rollouts.models import User
from tests.accounts import conftest as accounts
from tests.api.read import fleet

make_person = accounts.make_person


@pytest.fixture(scope="session", autouse=True)
def _static_files(static_files: None) -> None:
    """Pages name static files by what is in them."""


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
