"""Checks the database while the programs of `manage.py run` are running, and completes one that was lost.

Before it: `run`, which prepared the database at its start and now calls `check` every second. After it: the database
has its tables and roles, and somebody can sign in.

A SQLite database belongs to `run` alone, which holds the lock on the data folder: it is created again and migrated. A
PostgreSQL database may be in the middle of a restore, so it is never migrated here: the operator does that, as /readyz
asks. The invariant: nothing is written to a database before all of its tables exist (docs/adr/0027).
"""

import threading
from collections.abc import Callable
from typing import Final

from django.core.management import call_command
from django.db import Error as DatabaseError
from django.db import connection

from grove_ui.environment import Environment
from rollouts.models import User
from rollouts.runtime import database
from rollouts.runtime.supervisor import StartError
from rollouts.services.first_account import FirstAccount, account_ensure_first

_CHECK_SECONDS: Final = 1.0
_MIGRATED: Final = "lacked migrations; they are applied now"
_WHAT_IS_LOST: Final = "the watcher fills the mirror again; history, overrides, accounts, tokens and audit are lost"


def keep_complete(environment: Environment, report: Callable[[str], None], stopped: threading.Event) -> None:
    """Check the database every second until the event is set; report each new line."""
    recovery, last_line = DatabaseRecovery(environment), ""
    while not stopped.wait(_CHECK_SECONDS):
        line = recovery.check()
        if line and line != last_line:
            report(line)
        last_line = line


def ensure_account(environment: Environment) -> FirstAccount:
    """Ensure that there is an account. The audit records its creation and publishes it, so Redis must run by now."""
    try:
        return account_ensure_first(environment.admin_user, environment.admin_password, environment.admin_token)
    except DatabaseError as error:
        raise StartError(f"The database cannot be used: {first_line(error)}") from error
    finally:
        connection.close()  # of the thread in which this runs


def first_line(error: Exception) -> str:
    """Return the first line of the message of an error, as the log has lines."""
    return str(error).strip().partition("\n")[0]


class DatabaseRecovery:
    """The repeated check of the database."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        # Whether migrations were missing since the account was last ensured.
        self._lacked_migrations = False

    def check(self) -> str:
        """Complete the database if it was lost; return a line for the log, or nothing."""
        try:
            if missing := database.list_missing_migrations():
                self._lacked_migrations = True
                if line := _migrate(missing):
                    return line
            return self._ensure_account()
        except (DatabaseError, StartError, OSError) as error:
            return f"cannot be used: {first_line(error)}"
        finally:
            connection.close()

    def _ensure_account(self) -> str:
        """Ensure the first account if migrations were missing, or if there is no account at all.

        There is none if an empty database was created and migrated between two checks.
        """
        is_empty = not User.objects.exists()
        if not (is_empty or self._lacked_migrations):
            return ""
        if database.is_restore_in_progress():
            return "lacks primary keys: it is being restored, and the first account is ensured afterwards"
        account = ensure_account(self._environment)
        self._lacked_migrations = False
        if not is_empty:
            return _MIGRATED
        happened = "was deleted and is recreated" if connection.vendor == "sqlite" else "was replaced by an empty one"
        password = f" with the password {account.new_password}" if account.new_password else ""
        return f"{happened}: {_WHAT_IS_LOST}. Sign in as {account.username}{password}"


def _migrate(missing: list[str]) -> str:
    """Apply the missing migrations to a SQLite database; return a line if they are not applied yet."""
    if connection.vendor != "sqlite":
        return f"lacks migrations ({', '.join(missing)}): run manage.py migrate"
    if holders := database.list_processes_with_deleted_database():
        return f"deleted; recreating it as soon as its last connections close (process {holders[0]})"
    call_command("migrate", verbosity=0, interactive=False)
    return ""
