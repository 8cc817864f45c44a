"""The state of the database: does it have the tables that this version needs, and can it be written.

Before it: `readiness`, which says so to people, and `manage.py run`, which makes a database anew that was deleted.
After it: Django's migrations and SQLite itself.
"""

import errno
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Final

from django.db import connection
from django.db.migrations.loader import MigrationLoader

from rollouts.models import Workload

# Longer than any transaction of ours takes, and shorter than a probe waits for its answer.
_LOCK_SECONDS: Final = 1.0
_PROBE_BYTES: Final = 64 * 1024


def list_missing_migrations() -> list[str]:
    """Return the newest migrations of each app that were not applied; raises a database error where a table is missing.

    An older version of the product on a newer database misses nothing.
    """
    with connection.cursor() as cursor:
        if not connection.introspection.table_names(cursor):
            return sorted(map(".".join, _list_latest_migrations()))
        cursor.execute("SELECT app, name FROM django_migrations")
        applied = set(cursor.fetchall())
    Workload.objects.exists()  # a table of ours, whatever the migrations say
    return sorted(".".join(one) for one in _list_latest_migrations() if one not in applied)


def is_write_locked() -> bool:
    """Say whether another process holds SQLite's write lock, and goes on holding it."""
    if connection.vendor != "sqlite" or connection.in_atomic_block:  # then it is ours
        return False
    place = f"{Path(connection.settings_dict['NAME']).as_uri()}?mode=rw"
    with closing(sqlite3.connect(place, uri=True, timeout=_LOCK_SECONDS, isolation_level=None)) as probe:
        try:
            probe.execute("BEGIN IMMEDIATE")
            probe.execute("ROLLBACK")
        except sqlite3.OperationalError as error:
            return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
    return False


def find_disk_problem(folder: Path) -> str:
    """Return why nothing can be written to a folder, in words that follow "The disk of DATA_DIR"; nothing if it can."""
    try:
        _write_probe(folder)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return "is full"
        return f"cannot be written ({error.strerror})"
    return ""


def _write_probe(folder: Path) -> None:
    """Write some bytes into a file that is gone when it is closed."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
        written = probe.write(bytes(_PROBE_BYTES))
        if written < _PROBE_BYTES:  # the rest did not fit
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def list_processes_with_deleted_database() -> list[int]:
    """Return the processes that have a file of a deleted SQLite database open, as far as this system tells.

    A connection that outlived its database file deletes the write-ahead log of the new one when it closes: SQLite goes
    by the name. So nothing may be written to the new one before all of them are gone.
    """
    name = str(connection.settings_dict["NAME"])
    deleted = {f"{name}{end} (deleted)" for end in ("", "-wal", "-shm")}
    return [
        int(process.name)
        for process in Path("/proc").glob("[0-9]*")
        if not deleted.isdisjoint(_list_open_files(process))
    ]


def _list_open_files(process: Path) -> Iterator[str]:
    with suppress(OSError):  # it has ended, or is another user's
        for handle in (process / "fd").iterdir():
            with suppress(OSError):
                yield str(handle.readlink())


@cache
def _list_latest_migrations() -> frozenset[tuple[str, str]]:
    """Return the last migration of each app as (app, name), read once: they do not change while a process runs."""
    return frozenset(MigrationLoader(None, ignore_no_migrations=True).graph.leaf_nodes())
