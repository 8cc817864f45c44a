"""The stand-in as a process that a test runs beside its API server."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.apiserver import die_with_parent

LISTENING = "listening"


@contextlib.contextmanager
def running_standin(path: Path, *, ready: float = 0.1, termination: float = 0.0) -> Iterator[subprocess.Popen[str]]:
    """Run the stand-in for the cluster of a kubeconfig until the block ends; enter the block once it watches."""
    command = [sys.executable, "-m", "tests.standin", str(path), f"--ready={ready}", f"--termination={termination}"]
    process = subprocess.Popen(
        command,
        cwd=Path(__file__).parents[2],
        env={name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 (it takes no lock)
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        if said.strip() != LISTENING:
            raise RuntimeError(f"the stand-in did not start: {said!r}, exit code {process.poll()}")
        yield process
    finally:
        process.kill()
        process.wait()
