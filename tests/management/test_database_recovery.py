"""A database that is lost while the product runs is completed: migrated on SQLite only, with an account on both."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from django.conf import settings
from django.contrib.auth import authenticate
from django.core.management import call_command
from django.db import connection
from redis import Redis

from rollouts.accounts.tokens import find_token
from rollouts.management.database_recovery import DatabaseRecovery
from rollouts.models import User
from rollouts.runtime import database

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

TOKEN = "grove_the-token-of-the-settings-0123456789"


@pytest.fixture
def recovery(redis: Redis) -> DatabaseRecovery:
    """The check of an installation with a token for its first account."""
    return DatabaseRecovery(replace(settings.ENVIRONMENT, admin_token=TOKEN))


@pytest.fixture
def unmigrated() -> Iterator[None]:
    """A database that lacks the last migration."""
    call_command("migrate", "rollouts", "0022", verbosity=0)
    yield
    _migrate()


def _migrate() -> None:
    call_command("migrate", verbosity=0)


def test_a_complete_database_is_left_alone(recovery: DatabaseRecovery) -> None:
    User.objects.create_user("somebody")
    assert recovery.check() == ""
    assert User.objects.count() == 1


def test_an_empty_database_that_was_migrated_between_two_checks_gets_its_account(recovery: DatabaseRecovery) -> None:
    line = recovery.check()
    assert "history, overrides, accounts, tokens and audit are lost. Sign in as admin with the password " in line
    assert authenticate(username="admin", password=line.rpartition(" ")[2]) == User.objects.get()
    assert recovery.check() == ""


@pytest.mark.usefixtures("unmigrated")
def test_a_sqlite_database_that_lacks_migrations_gets_them_and_keeps_its_accounts(recovery: DatabaseRecovery) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("about SQLite only")
    User.objects.create_user("admin")
    assert recovery.check() == "lacked migrations; they are applied now"
    assert database.list_missing_migrations() == []
    assert _owner_of_the_token() == "admin"
    assert recovery.check() == ""


@pytest.mark.usefixtures("unmigrated")
def test_a_postgresql_database_waits_for_its_operator_and_then_gets_its_account(recovery: DatabaseRecovery) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("about PostgreSQL only")
    User.objects.create_user("admin")
    for _ in range(2):
        assert recovery.check().startswith("lacks migrations (rollouts.")
    assert database.list_missing_migrations()
    _migrate()
    assert recovery.check() == "lacked migrations; they are applied now"
    assert _owner_of_the_token() == "admin"
    assert recovery.check() == ""


@pytest.mark.usefixtures("unmigrated")
def test_nothing_is_written_to_a_postgresql_database_before_its_restore_has_added_the_keys(
    recovery: DatabaseRecovery,
) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("about PostgreSQL only")
    recovery.check()
    _migrate()
    _execute("ALTER TABLE django_session DROP CONSTRAINT django_session_pkey")
    assert "it is being restored" in recovery.check()
    assert not User.objects.exists()
    _execute("ALTER TABLE django_session ADD PRIMARY KEY (session_key)")
    assert "Sign in as admin" in recovery.check()


def _execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def _owner_of_the_token() -> str:
    token = find_token(TOKEN)
    assert token is not None
    return token.user.get_username()
