"""Runs `manage.py run` as a person would, on free ports and a data folder of its own."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests import data_folders
from tests.apiserver import free_port

ROOT = Path(__file__).parents[2]
# Generous limits, for broken code only.
SECONDS_TO_START = 240
SECONDS_TO_STOP = 120


class Product:
    """A running product: its output, its address, its processes."""

    def __init__(
        self, data_dir: Path, port: int, sandbox_port: int, variables: Mapping[str, str], within: Sequence[str] = ()
    ) -> None:
        self.data_dir = data_dir
        self.port = port
        self.sandbox_port = sandbox_port
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
            "DATA_DIR": str(data_dir),
            "PORT": str(port),
            "SANDBOX_PORT": str(sandbox_port),
            "WORKERS": "1",  # a second one would make every product of the tests dearer
            **variables,
        }
        self.process = subprocess.Popen(
            [*within, sys.executable, "manage.py", "run"],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        """Everything printed so far."""
        return "".join(self._lines)

    @property
    def url(self) -> str:
        """The address of the pages."""
        return f"http://localhost:{self.port}"

    @property
    def kubeconfig(self) -> Path:
        """How kubectl finds the sandbox."""
        return self.data_dir / "sandbox.kubeconfig"

    @property
    def password(self) -> str:
        """The password printed for the first account."""
        found = re.search(r"Password +(\S+)", self.output)
        assert found, self.output
        return found[1]

    def wait_until_it_answers(self) -> None:
        """Wait for the greeting."""
        wait_until(
            lambda: "Grove UI runs at" in self.output or self.process.poll() is not None,
            SECONDS_TO_START,
            lambda: self.output,
        )
        assert self.process.poll() is None, self.output

    def wait_until_it_ends(self) -> int:
        """Wait for the end and return the exit code."""
        code = self.process.wait(timeout=SECONDS_TO_START)
        self._reader.join(timeout=SECONDS_TO_STOP)
        return code

    def interrupt(self) -> int:
        """Press Ctrl-C and return the exit code."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(timeout=SECONDS_TO_STOP)
        self._reader.join(timeout=SECONDS_TO_STOP)
        return code

    def wait_until_nothing_is_left(self) -> None:
        """Wait until no process is left; killed ones take a moment to end."""
        wait_until(lambda: not self.processes(), SECONDS_TO_STOP, lambda: str(self.processes()))

    def processes(self) -> dict[int, str]:
        """Return the command lines of all processes with this data folder, by process id."""
        return _processes_on(self.data_dir)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.append(line)


@contextlib.contextmanager
def product(data_dir: Path, **variables: str) -> Iterator[Product]:
    """Start the product, and stop all its processes at the end."""
    data_folders.fill(data_dir)
    with _started(data_dir, {**data_folders.database_of(data_dir), **variables}) as running:
        yield running


@contextlib.contextmanager
def product_from_nothing(data_dir: Path) -> Iterator[Product]:
    """Start the product for the first time: it creates its tables and collects its static files."""
    with _started(data_dir, data_folders.database_of(data_dir, is_empty=True)) as running:
        yield running


@contextlib.contextmanager
def product_on_a_disk_of_its_own(data_dir: Path, megabytes: int, **variables: str) -> Iterator[Product]:
    """Start the product for the first time, on a small file system that only its processes see."""
    mount = f'mount -t tmpfs -o size={megabytes}m,mode=0700 none "$DATA_DIR" && exec "$@"'
    with _started(
        data_dir, variables, within=["unshare", "--mount", "--map-root-user", "sh", "-c", mount, "sh"]
    ) as one:
        yield one


@contextlib.contextmanager
def _started(data_dir: Path, variables: Mapping[str, str], within: Sequence[str] = ()) -> Iterator[Product]:
    others = _processes_on(data_dir).keys()  # processes of another product on the same data keep running
    running = Product(data_dir, free_port(), free_port(), variables, within)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()
        for pid in running.processes().keys() - others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def wait_until(true: Callable[[], bool], seconds: float, otherwise: Callable[[], str] = lambda: "") -> None:
    """Wait until a condition holds, or fail with what was seen instead."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds} s; {otherwise()}"
        time.sleep(0.05)


def _processes_on(data_dir: Path) -> dict[int, str]:
    return {
        pid: line
        for pid, line in _processes()
        # Redis overwrites its environment with its title, which contains its socket.
        if _environment_names(pid, data_dir) or str(data_dir) in line
    }


def _processes() -> Iterator[tuple[int, str]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                if line:
                    yield int(folder.name), line


def _environment_names(pid: int, data_dir: Path) -> bool:
    with contextlib.suppress(OSError):
        return f"DATA_DIR={data_dir}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False
