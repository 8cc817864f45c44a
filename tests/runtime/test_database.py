"""The configured database is used, with options by which processes do not block each other."""

import os
import threading
from typing import Any

import pytest
from django.db import connection, transaction

from rollouts.models import User

pytestmark = pytest.mark.database


@pytest.mark.django_db
def test_the_tests_run_on_the_database_that_was_chosen() -> None:
    chosen = "postgresql" if os.environ.get("DATABASE_URL") else "sqlite"
    assert connection.vendor == chosen


@pytest.mark.django_db
def test_sqlite_writes_ahead_and_waits_for_its_turn() -> None:
    if connection.vendor != "sqlite":
        pytest.skip("about SQLite only")
    with connection.cursor() as cursor:
        assert cursor.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert cursor.execute("PRAGMA busy_timeout").fetchone() == (20000,)
        assert cursor.execute("PRAGMA foreign_keys").fetchone() == (1,)


@pytest.mark.django_db
def test_postgresql_is_tried_again_with_each_request_however_long_it_was_away() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("about PostgreSQL only")
    # An attempt to reconnect that lasts longer than its callers wait blocks new ones, and its pauses double.
    pool: Any = getattr(connection, "pool")  # noqa: B009 (of PostgreSQL alone)
    assert pool.reconnect_timeout < pool.timeout


@pytest.mark.django_db(transaction=True)
def test_writers_that_read_first_wait_for_each_other_instead_of_failing() -> None:
    User.objects.create(username="counter", first_name="0")
    failures: list[Exception] = []

    def add_ten() -> None:
        try:
            for _ in range(10):
                with transaction.atomic():
                    user = User.objects.select_for_update().get(username="counter")
                    user.first_name = str(int(user.first_name) + 1)
                    user.save()
        except Exception as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=add_ten) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert User.objects.get(username="counter").first_name == "40"
