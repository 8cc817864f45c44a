"""The state of each part, as /readyz reports it; `tests/project/test_probes.py` tests the probe itself."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from pytest_django.fixtures import Settings
from redis import Redis, ResponseError

from rollouts.runtime import database, readiness
from rollouts.telemetry import heartbeats
from tests.data_folders import ROOT
from tests.parts import missing

pytestmark = pytest.mark.database


READY = {"database": True, "disk": True, "redis": True, "sweep": True, "cluster": True}


def _detail(name: str) -> str:
    """Return the detail of a failing part."""
    part = next(part for part in readiness.readiness_detail() if part.name == name)
    assert part.ok is False
    return part.detail


def _parts() -> tuple[bool, dict[str, bool]]:
    """Return whether the product is ready, and which parts work."""
    parts = readiness.readiness_detail()
    return readiness.is_ready(parts), {part.name: part.ok for part in parts}


@pytest.fixture
def alive(redis: Redis, db: None) -> Redis:
    """All components are healthy."""
    heartbeats.record_sweep(redis)
    heartbeats.record_cluster_heartbeat(redis, "sandbox", {"pods": 3})
    return redis


def test_ready_when_every_part_answers(alive: Redis) -> None:
    assert _parts() == (True, READY)


def test_not_ready_before_the_first_sweep(alive: Redis) -> None:
    heartbeats.delete_all(alive)
    assert _parts() == (False, {**READY, "sweep": False, "cluster": False})


def test_not_ready_when_the_last_sweep_is_old(alive: Redis, settings: Settings) -> None:
    settings.SWEEP_MAX_AGE_SECONDS = -1
    assert _parts() == (False, {**READY, "sweep": False})


def test_not_ready_when_the_cluster_was_silent_too_long(alive: Redis, settings: Settings) -> None:
    settings.CLUSTER_MAX_AGE_SECONDS = -1
    assert _parts() == (False, {**READY, "cluster": False})


def test_a_cluster_out_of_reach_is_said_until_it_speaks_again(alive: Redis) -> None:
    heartbeats.record_cluster_trouble(alive, "sandbox", "connection refused")
    assert "connection refused" in _detail("cluster")
    heartbeats.record_cluster_heartbeat(alive, "sandbox", {})
    assert _parts() == (True, READY)


@pytest.mark.django_db
def test_a_redis_that_is_away_is_said_and_does_not_hide_the_database(monkeypatch: Any) -> None:
    nowhere: Redis = Redis.from_url("unix:///nonexistent/redis.sock")
    monkeypatch.setattr(readiness, "redis_client", lambda: nowhere)
    assert _parts() == (False, {**READY, "redis": False, "sweep": False, "cluster": False})


def test_a_database_that_lacks_migrations_is_said_by_their_names_until_they_are_applied(alive: Redis) -> None:
    (newest,) = (name for app, name in database._list_latest_migrations() if app == "rollouts")
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'rollouts' AND name = %s", [newest])
        assert f"lacks migrations (rollouts.{newest}): run manage.py migrate" in _detail("database")
        cursor.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('rollouts', %s, '2026-01-01')", [newest]
        )
    assert _parts() == (True, READY)


def test_a_database_without_any_table_is_said_to_lack_all_migrations(
    alive: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection.introspection, "table_names", lambda _cursor: [])
    assert "lacks migrations (admin." in _detail("database")


def test_a_database_that_lost_a_table_of_ours_is_said(alive: Redis) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE rollouts_workload RENAME TO elsewhere")
    assert "lacks tables that its migrations created" in _detail("database")


@pytest.mark.django_db(transaction=True)
def test_a_write_lock_that_somebody_holds_is_said_until_they_let_go(redis: Redis) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("about SQLite only")
    with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        assert "Another process holds the write lock" in _detail("database")
        holder.execute("ROLLBACK")
    assert _parts()[1]["database"] is True


@pytest.fixture
def full_redis(alive: Redis) -> Iterator[Redis]:
    """A Redis at its memory limit."""
    alive.config_set("maxmemory", 1)
    try:
        yield alive
    finally:
        alive.config_set("maxmemory", 0)


def test_a_redis_at_its_memory_limit_is_said_until_it_takes_writes_again(full_redis: Redis) -> None:
    assert "at its memory limit" in _detail("redis")
    assert "until Redis accepts writes" in _detail("sweep")
    full_redis.config_set("maxmemory", 0)
    assert _parts() == (True, READY)


def test_a_redis_that_cannot_save_is_said(alive: Redis, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    error = ResponseError("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist")
    monkeypatch.setattr(heartbeats, "record_probe", lambda _redis: _raise(error))
    assert "cannot save to its disk" in _detail("redis")


def _raise(error: Exception) -> None:
    raise error


def test_a_disk_that_can_be_written_is_no_trouble_and_keeps_nothing(tmp_path: Path) -> None:
    assert database.find_disk_problem(tmp_path) == ""
    assert [*tmp_path.iterdir()] == []


def test_a_data_folder_that_is_gone_is_said(alive: Redis, settings: Settings, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path / "gone"
    assert "cannot be written (No such file or directory)" in _detail("disk")


def test_a_full_disk_is_said_until_there_is_room_again(tmp_path: Path) -> None:
    """Fill and free a disk of 128 KiB, which only one process sees."""
    look = "from rollouts.runtime.database import find_disk_problem as find; print(find(Path('disk')) or 'well')"
    steps = [
        "import django; from pathlib import Path; django.setup()",
        look,
        "Path('disk/full').write_bytes(bytes(100 * 1024))",
        look,
        "Path('disk/full').unlink()",
        look,
    ]
    (tmp_path / "disk").mkdir()
    (tmp_path / "steps.py").write_text("\n".join(steps))
    mount = "mount -t tmpfs -o size=128k none disk"
    if shutil.which("unshare") is None or _unshare(mount, tmp_path).returncode:
        missing("a file system of one's own", "allow unprivileged user namespaces")
    done = _unshare(f"{mount} && PYTHONPATH={ROOT} {sys.executable} steps.py", tmp_path)
    assert done.stdout.split("\n")[:3] == ["well", "is full", "well"], done


def _unshare(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a mount namespace of its own, which ends with it."""
    unshared = ["unshare", "--mount", "--map-root-user", "sh", "-c", command]
    return subprocess.run(unshared, cwd=folder, capture_output=True, text=True, check=False)
