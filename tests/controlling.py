"""The controller as separate processes, for tests that kill each of them.

`manage.py run` starts the same commands under one supervisor; here a test starts them itself: a Redis server, and any
number of workers, beats and watchers, on a data folder of their own and the cluster of any kubeconfig. The web process
is left out: the controller does not need it.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.data_folders import copy_database, database_of
from tests.redis_process import RedisProcess, running_redis

ROOT = Path(__file__).parents[1]
WORKER = "worker"
BEAT = "beat"
WATCHER = "watcher"
_COMMANDS = {
    WORKER: [
        *("-m", "celery", "-q", "-A", "grove_ui", "worker"),
        *("--without-gossip", "--without-mingle", "--without-heartbeat"),
    ],
    BEAT: ["-m", "celery", "-q", "-A", "grove_ui", "beat", "--scheduler", "celery.beat:Scheduler"],
    WATCHER: ["manage.py", "watch"],
}
_SECONDS_TO_STOP = 15.0
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


class Running:
    """One process of the controller with its children."""

    def __init__(self, role: str, environment: dict[str, str], log: Path) -> None:
        self.role = role
        self._environment = environment
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process that was started, not its children."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Return whether it runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, in a session of its own so that all of it can be killed at once."""
        with self.log.open("ab") as sink:
            self._process = subprocess.Popen(
                [sys.executable, *_COMMANDS[self.role]],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 (it takes no lock)
            )

    def kill(self) -> None:
        """End it and its children as a power cut would."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def kill_one_child(self) -> bool:
        """Kill one process of a worker's pool; return whether there was one."""
        children = _children(self.pid)
        if children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(children[0], signal.SIGKILL)
        return bool(children)

    def freeze(self) -> list[int]:
        """Freeze it and its children (SIGSTOP); return what was frozen."""
        return _freeze(self.processes())

    def stop(self) -> None:
        """Terminate it; kill it if that takes too long."""
        if not self.is_alive:
            return
        assert self._process is not None
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_SECONDS_TO_STOP)
        self.kill()

    def processes(self) -> list[int]:
        """The process and its children."""
        return [self.pid, *_children(self.pid)]


@dataclass
class Controller:
    """A running controller."""

    folder: Path
    redis: RedisProcess
    environment: dict[str, str]
    running: list[Running] = field(default_factory=list)

    def add(self, role: str) -> Running:
        """Start one more process."""
        one = Running(role, self.environment, self.folder / f"{role}.log")
        one.start()
        self.running.append(one)
        return one

    def of(self, role: str) -> list[Running]:
        """The processes with this role."""
        return [one for one in self.running if one.role == role]

    def manage(self, *arguments: str) -> str:
        """Run a management command and return what it prints."""
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def last_words(self) -> str:
        """The ends of the logs, to explain a failure."""
        return "\n".join(
            f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}" for log in sorted(self.folder.glob("*.log"))
        )


@contextlib.contextmanager
def running_controller(
    folder: Path, kubeconfig: Path, *, workers: int = 1, beats: int = 1, watchers: int = 1, **variables: str
) -> Iterator[Controller]:
    """Run a controller for the cluster of a kubeconfig; end all its processes afterwards."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ours = {"DATA_DIR": str(folder), "CLUSTER": "kubeconfig", "KUBECONFIG": str(kubeconfig), "PYTHONUNBUFFERED": "1"}
    with running_redis(folder / "redis.sock", folder / "redis") as redis:
        environment = {**os.environ, **ours, "REDIS_URL": redis.url, **database_of(folder), **variables}
        controller = Controller(folder, redis, environment)
        copy_database(folder)
        try:
            for role, number in ((WORKER, workers), (BEAT, beats), (WATCHER, watchers)):
                for _ in range(number):
                    controller.add(role)
            yield controller
        finally:
            for one in reversed(controller.running):
                one.stop()


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _freeze(pids: list[int]) -> list[int]:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    return pids


def thaw(pids: list[int]) -> None:
    """Continue processes that were frozen (SIGCONT)."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _end_with_parent() -> None:
    """Ask the kernel to stop this process when the tests are killed and cannot do it themselves (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)
