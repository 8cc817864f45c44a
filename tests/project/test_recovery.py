"""What the product does when its database is deleted, its disk or its Redis is full, or its database is locked.

No program is started again: /readyz names the trouble, and once it is over every workload is looked after as before.
"""

import contextlib
import http.client
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from rollouts.cluster import ClusterClient, kubeconfig
from rollouts.cluster.resources import PODCLIQUESETS
from tests.data_folders import database_of, empty_database
from tests.parts import missing
from tests.project.running import (
    ROOT,
    SECONDS_TO_START,
    Product,
    product,
    product_on_a_disk_of_its_own,
    wait_until,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TOKEN = "grove_the-token-of-the-settings-0123456789"


def _get(running: Product, path: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("localhost", running.port, timeout=60)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
        response = connection.getresponse()
        body = response.read()
        return response.status, json.loads(body) if body.startswith(b"{") else body
    except OSError:
        return 0, None
    finally:
        connection.close()


def _workloads(running: Product) -> list[tuple[str, str, int]]:
    """Return name, state and available replicas of every workload; nothing while they cannot be read."""
    status, body = _get(running, "/api/v1/workloads/?page_size=500")
    if status != 200:
        return []
    return sorted((one["name"], one["state"], one["available_replicas"]) for one in body["results"])


def _is_settled(running: Product) -> bool:
    found = _workloads(running)
    return len(found) > 1 and all(state == "settled" for _, state, _ in found)


def _delete_the_database(running: Product) -> None:
    """Delete it, and wait until the product says that it has made a new one."""
    told = running.output.count("is recreated: ")
    for path in running.data_dir.glob("grove.sqlite3*"):
        path.unlink()
    wait_until(lambda: running.output.count("is recreated: ") > told, SECONDS_TO_START, lambda: running.output)


def test_a_deleted_database_is_made_anew_and_the_mirror_is_complete_again_without_a_restart(tmp_path: Path) -> None:
    with product(tmp_path, DATABASE_URL="", GROVE_ADMIN_TOKEN=TOKEN) as running:
        running.wait_until_it_answers()
        wait_until(lambda: _is_settled(running), SECONDS_TO_START, lambda: running.output)
        before = _workloads(running)
        programs = running.processes().keys()
        first_password = running.password
        for _ in range(2):  # and once more, when all of it is new
            _delete_the_database(running)
            wait_until(lambda: _workloads(running) == before, SECONDS_TO_START, lambda: running.output)
            wait_until(lambda: _get(running, "/readyz")[0] == 200, SECONDS_TO_START, lambda: running.output)
        assert programs <= running.processes().keys(), running.output  # no program was started again
        passwords = re.findall(r"with the password (\S+)", running.output)
        assert len({first_password, *passwords}) == 3
        assert "history, overrides, accounts, tokens and audit are lost" in running.output


@pytest.mark.database
def test_a_dropped_postgresql_database_is_complete_again_without_a_restart_once_it_is_migrated(tmp_path: Path) -> None:
    if not os.environ.get("DATABASE_URL"):
        pytest.skip("about PostgreSQL only")
    with product(tmp_path, GROVE_ADMIN_TOKEN=TOKEN) as running:
        running.wait_until_it_answers()
        wait_until(lambda: _is_settled(running), SECONDS_TO_START, lambda: running.output)
        before = _workloads(running)
        programs = running.processes().keys()
        empty_database(tmp_path)
        wait_until(lambda: "lacks migrations" in _trouble(running, "database"), SECONDS_TO_START)
        _migrate(tmp_path)
        wait_until(lambda: _workloads(running) == before, SECONDS_TO_START, lambda: running.output)
        wait_until(lambda: _get(running, "/readyz")[0] == 200, SECONDS_TO_START, lambda: running.output)
        assert programs <= running.processes().keys(), running.output  # no program was started again
        assert re.search(r"Sign in as admin with the password \S+", running.output), running.output


def _migrate(data_dir: Path) -> None:
    """Migrate the database as an operator does."""
    environment = {**os.environ, "DATA_DIR": str(data_dir), **database_of(data_dir)}
    subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity", "0"], cwd=ROOT, env=environment, check=True)


# ---- troubles that pass


def _data_dir(running: Product) -> Path:
    """Return the data folder as the product sees it, which may have a file system of its own."""
    return Path(f"/proc/{running.process.pid}/root{running.data_dir}")


@contextlib.contextmanager
def _full_redis(running: Product) -> Iterator[None]:
    redis: Redis = Redis(unix_socket_path=str(_redis_socket(running)))
    redis.config_set("maxmemory", 1)
    try:
        yield
    finally:
        redis.config_set("maxmemory", 0)


def _redis_socket(running: Product) -> Path:
    titles = " ".join(running.processes().values())
    found = re.search(r"unixsocket:(\S+)", titles)
    assert found, titles
    return Path(found[1])


@contextlib.contextmanager
def _locked_database(running: Product) -> Iterator[None]:
    path = _data_dir(running) / "grove.sqlite3"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield
        holder.execute("ROLLBACK")


@contextlib.contextmanager
def _full_disk(running: Product) -> Iterator[None]:
    filler = _data_dir(running) / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(64 * 1024))
    try:
        yield
    finally:
        filler.unlink()


def _trouble(running: Product, part: str) -> str:
    """Return what /readyz says of a part that does not work; nothing while it works."""
    _, body = _get(running, "/readyz")
    parts = {one["name"]: one for one in body["parts"]} if body else {}
    return "" if part not in parts or parts[part]["ok"] else str(parts[part]["detail"])


def _scale(running: Product, name: str) -> int:
    """Ask for one more replica of a workload, and return how many are wanted now."""
    cluster = ClusterClient(kubeconfig(_data_dir(running) / "sandbox.kubeconfig"))
    replicas = int(cluster.get(PODCLIQUESETS, name, namespace="default")["spec"]["replicas"]) + 1
    cluster.patch_merge(PODCLIQUESETS, name, {"spec": {"replicas": replicas}}, namespace="default")
    return replicas


def _can_mount() -> bool:
    command = ["unshare", "--mount", "--map-root-user", "true"]
    return shutil.which("unshare") is not None and subprocess.run(command, check=False).returncode == 0


@pytest.mark.parametrize(
    ("part", "sentence", "trouble"),
    [
        ("redis", "at its memory limit", _full_redis),
        ("database", "holds the write lock", _locked_database),
        ("disk", "is full", _full_disk),
    ],
)
def test_a_trouble_is_named_and_the_product_goes_on_by_itself_when_it_is_over(
    tmp_path: Path, part: str, sentence: str, trouble: Callable[[Product], AbstractContextManager[None]]
) -> None:
    if part == "disk" and not _can_mount():
        missing("a file system of one's own", "allow unprivileged user namespaces")
    start = product_on_a_disk_of_its_own(tmp_path, 96, DATABASE_URL="", GROVE_ADMIN_TOKEN=TOKEN, METRICS_TOKEN=TOKEN)
    with start if part == "disk" else product(tmp_path, DATABASE_URL="", GROVE_ADMIN_TOKEN=TOKEN) as running:
        running.wait_until_it_answers()
        wait_until(lambda: _is_settled(running), SECONDS_TO_START, lambda: running.output)
        programs = running.processes().keys()
        with trouble(running):
            wait_until(lambda: sentence in _trouble(running, part), SECONDS_TO_START, lambda: running.output)
        wait_until(lambda: _get(running, "/readyz")[0] == 200, SECONDS_TO_START, lambda: running.output)
        wanted = ("chat-single", "settled", _scale(running, "chat-single"))
        wait_until(lambda: wanted in _workloads(running), SECONDS_TO_START, lambda: running.output)
        assert programs <= running.processes().keys(), running.output  # no program was started again
