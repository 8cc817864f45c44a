"""Accounts of each role, their tokens, and clients for the API."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client

from rollouts.accounts.tokens import digest_of, generate_secret, shown_prefix_of
from rollouts.models import ApiToken, User
from rollouts.services.audit import Caller


@pytest.fixture(scope="session", autouse=True)
def _static_files(static_files: None) -> None:
    """Collect the static files, whose names contain hashes."""


PASSWORD = "correct horse battery"

MakePerson = Callable[..., User]


@pytest.fixture
def make_person(db: None) -> MakePerson:
    """Return a function that creates an account with roles."""

    def make(name: str, *roles: str, **fields: Any) -> User:
        user = User.objects.create_user(name, **fields)  # without a password, because hashing is slow
        user.groups.set(Group.objects.filter(name__in=roles))
        return user

    return make


def give_token(user: User, **fields: Any) -> tuple[ApiToken, str]:
    """Create a token for a user; return it with its text."""
    text = generate_secret()
    fields = {"name": "test", "digest": digest_of(text), "prefix": shown_prefix_of(text), **fields}
    return ApiToken.objects.create(user=user, **fields), text


def bearing(text: str, **options: Any) -> Client:
    """Return a client that authenticates with a token."""
    return Client(headers={"authorization": f"Bearer {text}"}, **options)


def call_as(user: User | None, **fields: Any) -> Caller:
    """Return the caller that services get for a user."""
    name = user.get_username() if user else ""
    values = {"source_ip": "192.0.2.7", "request_id": "request-1", "source": "api", **fields}
    return Caller(user=user, name=name, **values)
