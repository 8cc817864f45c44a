"""Accounts for the admin site, and filled tables."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from redis import Redis

from rollouts import mirror, models
from tests.overrides.conftest import AddWorkload, add_workload, cluster

__all__ = ["AddWorkload", "add_workload", "cluster"]

SignIn = Callable[..., Client]


@pytest.fixture(scope="session", autouse=True)
def _static_files(static_files: None) -> None:
    """Pages name static files by what is in them."""


@pytest.fixture
def sign_in(db: None, redis: Redis) -> SignIn:
    """Make an account and sign it in."""

    def made(name: str = "ada", role: str = "admin", **flags: Any) -> Client:
        user = models.User.objects.create_user(name, **flags)  # without a password: hashing one takes a while
        if role:
            user.groups.add(Group.objects.get(name=role))
        client = Client()
        client.force_login(user, "rollouts.accounts.permissions.AccountBackend")
        return client

    return made


@pytest.fixture
def ada(sign_in: SignIn) -> Client:
    """An account with the role admin."""
    return sign_in()


@pytest.fixture
def row(db: None) -> models.Cluster:
    """The row of the configured cluster."""
    return mirror.ensure_cluster("sandbox", "the sandbox")
