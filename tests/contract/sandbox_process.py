"""The sandbox as a process, started as a user starts it, on a free port and an empty folder."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from rollouts.cluster import ClusterClient, ClusterError, RetryPolicy, kubeconfig
from rollouts.cluster.resources import NAMESPACES
from tests.apiserver import die_with_parent, free_port

# Generous: only a broken sandbox reaches these.
START_SECONDS = 120.0
STOP_SECONDS = 60.0


class SandboxProcess:
    """A running sandbox without samples; `restart` keeps its port and its data."""

    def __init__(self, folder: Path, **environment: str) -> None:
        folder.chmod(0o700)  # the sandbox closes no folder in which others have something: there is a log in it
        self._folder = folder
        self._environment = environment
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def kubeconfig(self) -> Path:
        """The file that the sandbox writes for its clients."""
        return self._folder / "sandbox.kubeconfig"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def restart(self) -> None:
        """Stop the process with a signal and start it again."""
        self.stop()
        self.start()

    def start(self) -> None:
        """Start the process and wait until it answers."""
        settings = {"SANDBOX_PORT": str(self._port), "DATA_DIR": str(self._folder), "SANDBOX_SAMPLES": "none"}
        with self._log.open("ab") as sink:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rollouts.sandbox"],
                env=os.environ | settings | self._environment,
                stdout=sink,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                preexec_fn=die_with_parent,  # noqa: PLW1509 (it takes no lock)
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = self._log.read_text(errors="replace")[-3000:]
                self.stop()
                raise RuntimeError(f"the sandbox did not start; its last words:\n{said}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        if not self.kubeconfig.exists():
            return False
        try:
            ClusterClient(kubeconfig(self.kubeconfig), retry_policy=RetryPolicy(deadline=5)).list(NAMESPACES)
        except ClusterError:
            return False
        return True

    def stop(self) -> None:
        """Stop the process with a signal."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise

    def forget(self) -> None:
        """Delete the data of a stopped process: the next one is another cluster."""
        for path in self._folder.glob("sandbox.sqlite3*"):
            path.unlink()

    @property
    def _log(self) -> Path:
        return self._folder / "sandbox.log"
