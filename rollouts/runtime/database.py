"""The state of the database: whether it has the tables of this version, and whether it accepts writes.

`readiness` reports it, and `manage.py run` uses it to recreate a database that was deleted.
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

# Longer than any transaction of the product, and shorter than the timeout of a probe.
_LOCK_SECONDS: Final = 1.0
_PROBE_BYTES: Final = 64 * 1024


def list_missing_migrations() -> list[str]:
    """Return the newest migration of each app that is not applied; raises a database error if a table is missing.

    If the database is newer than this version of the product, nothing is missing.
    """
    with connection.cursor() as cursor:
        if not connection.introspection.table_names(cursor):
            return sorted(map(".".join, _list_latest_migrations()))
        cursor.execute("SELECT app, name FROM django_migrations")
        applied = set(cursor.fetchall())
    Workload.objects.exists()  # raises if the table is missing, whatever django_migrations says
    return sorted(".".join(one) for one in _list_latest_migrations() if one not in applied)


def is_restore_in_progress() -> bool:
    """Whether a table has no primary key yet: a restore adds the keys of a table after its rows.

    A row that is written earlier may take the key of a row of the backup, and the restore fails.
    """
    introspection = connection.introspection
    with connection.cursor() as cursor:
        tables = introspection.django_table_names(include_views=False)
        return any(introspection.get_primary_key_column(cursor, table) is None for table in tables)


def is_write_locked() -> bool:
    """Whether another process holds the write lock of SQLite for longer than a transaction takes."""
    if connection.vendor != "sqlite" or connection.in_atomic_block:  # this process holds it
        return False
    uri = f"{Path(connection.settings_dict['NAME']).as_uri()}?mode=rw"
    with closing(sqlite3.connect(uri, uri=True, timeout=_LOCK_SECONDS, isolation_level=None)) as probe:
        try:
            probe.execute("BEGIN IMMEDIATE")
            probe.execute("ROLLBACK")
        except sqlite3.OperationalError as error:
            return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
    return False


def find_disk_problem(folder: Path) -> str:
    """Return why a folder cannot be written, to complete "The disk of DATA_DIR …"; empty if it can."""
    try:
        _write_probe(folder)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return "is full"
        return f"cannot be written ({error.strerror})"
    return ""


def _write_probe(folder: Path) -> None:
    """Write some bytes to a temporary file."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
        written = probe.write(bytes(_PROBE_BYTES))
        if written < _PROBE_BYTES:  # the disk is full
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def list_processes_with_deleted_database() -> list[int]:
    """Return the processes that have a file of a deleted SQLite database open, as far as /proc shows.

    SQLite finds the write-ahead log by name: a connection to the deleted file deletes the log of the new file when it
    closes. So nothing may be written to a new database before all these connections are closed.
    """
    name = str(connection.settings_dict["NAME"])
    deleted = {f"{name}{end} (deleted)" for end in ("", "-wal", "-shm")}
    return [
        int(process.name)
        for process in Path("/proc").glob("[0-9]*")
        if not deleted.isdisjoint(_list_open_files(process))
    ]


def _list_open_files(process: Path) -> Iterator[str]:
    with suppress(OSError):  # the process has ended, or belongs to another user
        for handle in (process / "fd").iterdir():
            with suppress(OSError):
                yield str(handle.readlink())


@cache
def _list_latest_migrations() -> frozenset[tuple[str, str]]:
    """Return the last migration of each app as (app, name); cached, as they do not change while a process runs."""
    return frozenset(MigrationLoader(None, ignore_no_migrations=True).graph.leaf_nodes())
