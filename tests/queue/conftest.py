"""A worker and a beat of the product as real processes, with their own Redis and database."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery
from redis import Redis, RedisError

from rollouts.queue.dispatch import RECONCILE_TASK
from rollouts.queue.workqueue import WorkQueue
from tests.data_folders import ROOT, copy_database
from tests.queue.toy_names import BEGUN, CLASHED, ENDED, FENCED, RELEASED, WORKERS, WROTE
from tests.redis_process import RedisProcess, running_redis

SHORT_LEASE_SECONDS = 6
SECONDS_TO_ANSWER = 60.0
_QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat")


class Installation:
    """Redis, worker and beat; each can be killed and started again."""

    def __init__(self, folder: Path, server: RedisProcess) -> None:
        self.server = server
        self.redis: Redis = Redis.from_url(server.url)
        self.queue = WorkQueue(self.redis, lease_ms=60_000)
        self._environment = {
            **os.environ,
            "DATA_DIR": str(folder),
            "REDIS_URL": server.url,
            "DATABASE_URL": "",
        }
        # Not the current app: tests of this process that come later send by that of the product.
        self._app = Celery(broker=f"redis+socket://{server.socket}", set_as_current=False)
        self._processes: list[subprocess.Popen[bytes]] = []

    def manage(self, *words: str) -> None:
        """Run a management command."""
        subprocess.run([sys.executable, "manage.py", *words], cwd=ROOT, env=self._environment, check=True)

    def start_worker(self, lease_seconds: int = SHORT_LEASE_SECONDS, processes: int = 2) -> subprocess.Popen[bytes]:
        """Start a worker."""
        variables = {"RECONCILE_LEASE_SECONDS": str(lease_seconds), "WORKER_PROCESSES": str(processes)}
        return self._celery("tests.queue.toy_worker", "worker", *_QUIET, **variables)

    def start_beat(self) -> subprocess.Popen[bytes]:
        """Start the product's beat."""
        return self._celery("grove_ui", "beat", "--scheduler", "celery.beat:Scheduler")

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """End a process and everything it started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        """End all processes."""
        for process in self._processes:
            self.kill(process)
        self._app.close()
        self.redis.close()

    def send(self, *keys: str) -> None:
        """Send messages for keys, due or not."""
        for key in keys:
            self._app.send_task(RECONCILE_TASK, (key,), queue="reconcile")

    def begun(self, key: str) -> int:
        """How many passes over a workload have begun."""
        return self._number(BEGUN, key)

    def ended(self, key: str) -> int:
        """How many of them have ended."""
        return self._number(ENDED, key)

    def clashed(self, key: str) -> int:
        """How often two passes ran at once."""
        return self._number(CLASHED, key)

    def worker_of(self, key: str) -> int:
        """The process of the last pass over a workload."""
        return self._pids(WORKERS, key)[0]

    def wrote(self, key: str) -> list[int]:
        """The processes that the fence let write."""
        return self._pids(WROTE, key)

    def fenced(self, key: str) -> list[int]:
        """The processes that the fence stopped."""
        return self._pids(FENCED, key)

    def release(self, key: str) -> None:
        """Let the waiting passes over a workload continue."""
        self.redis.set(RELEASED.format(key), 1)

    def _celery(self, app: str, *words: str, **variables: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "celery", "-q", "-A", app, *words]
        process = subprocess.Popen(command, cwd=ROOT, env={**self._environment, **variables}, start_new_session=True)
        self._processes.append(process)
        return process

    def _pids(self, name: str, key: str) -> list[int]:
        return [int(pid) for pid in self.redis.lrange(name.format(key), 0, -1)]

    def _number(self, name: str, key: str) -> int:
        try:
            return int(self.redis.get(name.format(key)) or 0)
        except RedisError:
            return 0


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    """Everything runs except worker and beat."""
    copy_database(tmp_path)
    with running_redis(tmp_path / "redis.sock", tmp_path / "redis") as server:
        installation = Installation(tmp_path, server)
        try:
            yield installation
        finally:
            installation.stop()
