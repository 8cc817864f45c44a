"""Data folders in the state after a first start: database migrated, static files collected.

A product does both at its first start, where they take most of the time, and the tests start dozens of products. So the
main process of a run prepares one folder, and each product starts on a copy, unless its test needs an empty one.
"""

import atexit
import contextlib
import hashlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from tests.shared_servers import find_shared_server

ROOT = Path(__file__).parents[1]
_DATABASE = "grove.sqlite3"
_PREPARE = (
    "import os; os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'grove_ui.settings')\n"
    "import django; django.setup()\n"
    "from django.core.management import call_command\n"
    "from rollouts.runtime.static_files import collect_static_files\n"
    "call_command('migrate', verbosity=0, interactive=False)\n"
    "collect_static_files()\n"
)


@dataclass(frozen=True, slots=True)
class Prepared:
    """The prepared folder and database, which each product copies."""

    folder: Path
    template: str  # the database with all tables, where the tests run on PostgreSQL

    @property
    def static(self) -> Path:
        """The static files."""
        return self.folder / "static"


def find_prepared() -> Prepared:
    """Return the prepared folder of this run."""
    found: Prepared = find_shared_server("prepared_data_folder")
    return found


def fill(folder: Path) -> None:
    """Fill a data folder as a first start would."""
    prepared = find_prepared()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (folder / "static").exists():
        shutil.copytree(prepared.static, folder / "static", copy_function=_link)
        shutil.copy2(prepared.folder / "static.sha256", folder)
    copy_database(folder)


def copy_database(folder: Path) -> Path:
    """Put a database with all its tables and no rows into a data folder that has none, and return where it is."""
    if not os.environ.get("DATABASE_URL") and not (folder / _DATABASE).exists():
        shutil.copy(find_prepared().folder / _DATABASE, folder)
    return folder / _DATABASE


def database_of(folder: Path, *, is_empty: bool = False) -> dict[str, str]:
    """Return the URL of a PostgreSQL database for a data folder; the database is dropped when the tests end."""
    server = os.environ.get("DATABASE_URL")
    if not server:
        return {}
    name = _database_name(folder)
    with psycopg.connect(server, autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
            template = "template1" if is_empty else find_prepared().template
            create = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
            connection.execute(create.format(sql.Identifier(name), sql.Identifier(template)))
            atexit.register(_drop_database, server, name)
    return {"DATABASE_URL": _with_name(server, name)}


def empty_database(folder: Path) -> None:
    """Drop the PostgreSQL database of a data folder, whoever uses it, and create an empty one."""
    server = os.environ["DATABASE_URL"]
    name = sql.Identifier(_database_name(folder))
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
        connection.execute(sql.SQL("CREATE DATABASE {}").format(name))


def _database_name(folder: Path) -> str:
    return f"grove_{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"


@contextlib.contextmanager
def prepared_data_folder() -> Iterator[Prepared]:
    """Prepare the folder, and on PostgreSQL the database; the main process does so once."""
    server = os.environ.get("DATABASE_URL", "")
    template = f"grove_template_{secrets.token_hex(4)}" if server else ""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="grove-ui-prepared-")))
        environment = {**os.environ, "DATA_DIR": str(folder)}
        if server:
            with psycopg.connect(server, autocommit=True) as connection:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(template)))
            stack.callback(_drop_database, server, template)
            environment["DATABASE_URL"] = _with_name(server, template)
        subprocess.run([sys.executable, "-c", _PREPARE], cwd=ROOT, env=environment, check=True)
        yield Prepared(folder, template)


def _with_name(server: str, name: str) -> str:
    return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))


def _link(source: str, target: str) -> None:
    """Link a file, or copy it where the two are on different file systems."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _drop_database(server: str, name: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
