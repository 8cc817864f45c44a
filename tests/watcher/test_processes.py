"""The watcher as a process: killed, doubled, on several clusters at once, on a database that is created again."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from redis import Redis

from rollouts.cluster import ClusterClient, kubeconfig
from rollouts.cluster.resources import PODCLIQUESETS
from tests.contract.manifests import pod_clique_set
from tests.contract.sandbox_process import SandboxProcess
from tests.controlling import WATCHER, Controller, running_controller
from tests.project.running import wait_until
from tests.watcher.watching import SECONDS, kubeconfig_to_nowhere

pytestmark = [pytest.mark.database, pytest.mark.slow]


@pytest.fixture
def sandboxes(tmp_path: Path) -> Iterator[tuple[SandboxProcess, SandboxProcess]]:
    """Two clusters."""
    with contextlib.ExitStack() as stack:
        folders = [tmp_path / name for name in ("east", "west")]
        for folder in folders:
            folder.mkdir(mode=0o700)
        east, west = (stack.enter_context(SandboxProcess(folder, SANDBOX_NODES="cpu=1,gpu=0")) for folder in folders)
        yield east, west


def renamed(process: SandboxProcess, name: str) -> Path:
    """Return a kubeconfig for a sandbox under another name."""
    loaded = yaml.safe_load(process.kubeconfig.read_text())
    (context,) = loaded["contexts"]
    context["name"] = name
    for section, field in (("clusters", "cluster"), ("users", "user")):
        (entry,) = loaded[section]
        entry["name"] = context["context"][field] = name
    path = process.kubeconfig.with_name(f"{name}.kubeconfig")
    path.write_text(yaml.safe_dump(loaded | {"current-context": name}))
    return path


def ask(controller: Controller, question: str) -> list[tuple[Any, ...]]:
    """Query the controller's database; return nothing while that fails."""
    url = controller.environment.get("DATABASE_URL")
    try:
        if url:
            with psycopg.connect(url, autocommit=True) as connection:
                cursor = connection.execute(question.encode())
                return cursor.fetchall() if cursor.description else []
        with contextlib.closing(sqlite3.connect(controller.folder / "grove.sqlite3", timeout=20)) as database:
            found = database.execute(question).fetchall()
            database.commit()
            return found
    except (sqlite3.OperationalError, psycopg.Error):
        return []


def workloads(controller: Controller) -> list[tuple[str, str]]:
    """Return cluster and name of all workloads."""
    return ask(
        controller,
        "SELECT cluster.name, workload.name FROM rollouts_workload workload JOIN rollouts_cluster cluster "
        "ON cluster.id = workload.cluster_id WHERE gone_at IS NULL ORDER BY 1, 2",
    )


def states(controller: Controller) -> dict[str, tuple[bool, str]]:
    """Return for each cluster whether it is complete, and its problem."""
    found = ask(controller, "SELECT name, complete, trouble_code FROM rollouts_cluster")
    return {name: (bool(complete), code) for name, complete, code in found}


def leader(controller: Controller, cluster: str) -> int:
    """Return the process that holds the lease; 0 if none does."""
    with Redis.from_url(controller.redis.url) as redis:
        holder = redis.get(f"grove:leader:{cluster}")
    return int(holder.split(b":")[1]) if holder else 0


def create_set(process: SandboxProcess, name: str) -> None:
    """Create a workload in a cluster."""
    ClusterClient(kubeconfig(process.kubeconfig)).create(PODCLIQUESETS, pod_clique_set("default", name))


def test_several_clusters_are_mirrored_side_by_side_and_one_that_is_away_harms_no_other(
    sandboxes: tuple[SandboxProcess, SandboxProcess], tmp_path: Path
) -> None:
    east, west = sandboxes
    away = tmp_path / "away.kubeconfig"
    away.write_text(kubeconfig_to_nowhere())
    paths = ":".join(map(str, (renamed(east, "east"), renamed(west, "west"), away)))
    create_set(east, "one")
    with running_controller(
        tmp_path / "c", Path(paths), workers=0, beats=0, KUBE_CONTEXT="east,west,away"
    ) as controller:
        wait_until(
            lambda: states(controller) == {"east": (True, ""), "west": (True, ""), "away": (False, "Unreachable")},
            SECONDS,
            controller.last_words,
        )
        create_set(west, "two")
        wait_until(lambda: workloads(controller) == [("east", "one"), ("west", "two")], SECONDS, controller.last_words)
        east.stop()
        wait_until(lambda: states(controller).get("east") == (True, "Unreachable"), SECONDS, controller.last_words)
        create_set(west, "three")
        wait_until(lambda: ("west", "three") in workloads(controller), SECONDS, controller.last_words)
        east.start()
        create_set(east, "four")
        wait_until(lambda: ("east", "four") in workloads(controller), SECONDS, controller.last_words)
        wait_until(lambda: states(controller).get("east") == (True, ""), SECONDS, controller.last_words)


def test_a_killed_watcher_is_replaced_by_the_one_that_stands_by(
    sandboxes: tuple[SandboxProcess, SandboxProcess], tmp_path: Path
) -> None:
    east, _ = sandboxes
    config = renamed(east, "east")
    with running_controller(tmp_path / "c", config, workers=0, beats=0, watchers=2) as controller:
        wait_until(lambda: states(controller) == {"east": (True, "")}, SECONDS, controller.last_words)
        for number in range(2):
            replace_the_leader(controller, east, number)


def replace_the_leader(controller: Controller, east: SandboxProcess, number: int) -> None:
    """Kill the watcher that leads; the other one mirrors what happens meanwhile and afterwards."""
    wait_until(lambda: leader(controller, "east") != 0, SECONDS, controller.last_words)
    first = leader(controller, "east")
    (active,) = [one for one in controller.of(WATCHER) if one.pid == first]
    active.kill()
    create_set(east, f"meanwhile-{number}")
    wait_until(lambda: leader(controller, "east") not in (0, first), SECONDS, controller.last_words)
    wait_until(lambda: ("east", f"meanwhile-{number}") in workloads(controller), SECONDS, controller.last_words)
    create_set(east, f"afterwards-{number}")
    wait_until(lambda: ("east", f"afterwards-{number}") in workloads(controller), SECONDS, controller.last_words)
    ClusterClient(kubeconfig(east.kubeconfig)).delete(PODCLIQUESETS, f"meanwhile-{number}", namespace="default")
    wait_until(lambda: ("east", f"meanwhile-{number}") not in workloads(controller), SECONDS, controller.last_words)
    active.start()


def test_a_database_made_anew_is_complete_again_by_itself(
    sandboxes: tuple[SandboxProcess, SandboxProcess], tmp_path: Path
) -> None:
    east, _ = sandboxes
    for name in ("one", "two"):
        create_set(east, name)
    with running_controller(tmp_path / "c", renamed(east, "east"), workers=0, beats=0) as controller:
        complete = [("east", "one"), ("east", "two")]
        wait_until(lambda: workloads(controller) == complete, SECONDS, controller.last_words)
        wait_until(lambda: states(controller) == {"east": (True, "")}, SECONDS, controller.last_words)
        watcher = controller.of(WATCHER)[0].pid
        drop_database(controller)
        assert workloads(controller) == []
        controller.manage("migrate", "--verbosity", "0", "--no-input")
        wait_until(lambda: workloads(controller) == complete, SECONDS, controller.last_words)
        wait_until(lambda: states(controller) == {"east": (True, "")}, SECONDS, controller.last_words)
        create_set(east, "three")
        wait_until(lambda: len(workloads(controller)) == 3, SECONDS, controller.last_words)
        assert controller.of(WATCHER)[0].pid == watcher


def test_a_database_that_breaks_every_connection_loses_nothing(
    sandboxes: tuple[SandboxProcess, SandboxProcess], tmp_path: Path
) -> None:
    if not os.environ.get("DATABASE_URL"):
        pytest.skip("about PostgreSQL only")
    east, _ = sandboxes
    with running_controller(tmp_path / "c", renamed(east, "east"), workers=0, beats=0) as controller:
        wait_until(lambda: states(controller) == {"east": (True, "")}, SECONDS, controller.last_words)
        for number in range(20):
            create_set(east, f"set-{number}")
            ask(
                controller,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()",
            )
        wait_until(lambda: len(workloads(controller)) == 20, SECONDS, controller.last_words)


def drop_database(controller: Controller) -> None:
    """Delete everything: the file of SQLite, all tables of PostgreSQL."""
    if controller.environment.get("DATABASE_URL"):
        wait_until(lambda: is_dropped(controller), SECONDS)
        ask(controller, "CREATE SCHEMA public")
        return
    for path in controller.folder.glob("grove.sqlite3*"):
        path.unlink(missing_ok=True)  # the last process to close the database deletes two of its files


def is_dropped(controller: Controller) -> bool:
    """Try to drop all tables: if the watcher is using them, the database rolls one of the two back."""
    ask(controller, "DROP SCHEMA IF EXISTS public CASCADE")
    return ask(controller, "SELECT count(*) FROM pg_namespace WHERE nspname = 'public'") == [(0,)]
