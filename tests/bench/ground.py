"""An installation of its own for measurements inside this process: a Redis, a data folder and an empty database."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import django

from tests.redis_process import running_redis


@contextlib.contextmanager
def empty_installation() -> Iterator[None]:
    """Set Django up on an empty installation; remove it afterwards."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running_redis(Path(folder) / "r.sock", Path(folder) / "redis") as redis,
    ):
        os.environ |= {"DATA_DIR": folder, "REDIS_URL": redis.url, "DJANGO_SETTINGS_MODULE": "grove_ui.settings"}
        os.environ |= {"API_RATE": "off", "ALLOWED_HOSTS": "testserver"}
        django.setup()
        from django.core.management import call_command
        from django.test.utils import setup_databases, teardown_databases

        call_command("collectstatic", verbosity=0, interactive=False)
        databases = setup_databases(verbosity=0, interactive=False)
        try:
            yield
        finally:
            teardown_databases(databases, verbosity=0)
