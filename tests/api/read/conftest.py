"""A web server with a Redis of its own."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.read.watching import WebServer, make_database
from tests.redis_process import running_redis


@pytest.fixture(scope="session")
def database_with_account(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with one account and its token, to be copied."""
    return make_database(tmp_path_factory.mktemp("account"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, database_with_account: Path) -> Iterator[WebServer]:
    """The web process of the product and its Redis, for tests that leave both as they were."""
    with _running(tmp_path_factory.mktemp("web"), database_with_account) as web:
        yield web


@pytest.fixture
def own_server(tmp_path: Path, database_with_account: Path) -> Iterator[WebServer]:
    """The same for a test that does something to it."""
    with _running(tmp_path, database_with_account) as web:
        yield web


@contextlib.contextmanager
def _running(folder: Path, database: Path) -> Iterator[WebServer]:
    shutil.copy(database, folder)
    with running_redis(folder / "redis.sock", folder / "redis") as redis:
        web = WebServer(folder, redis)
        try:
            yield web
        finally:
            web.stop()
