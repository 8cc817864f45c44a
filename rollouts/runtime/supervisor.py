"""Runs the programs of the product side by side in one terminal, with one log and one Ctrl-C.

The supervisor starts a program when those before it are ready, restarts it with a growing pause when it ends, and stops
all programs in the opposite order. Each program runs in a session of its own, so that Ctrl-C reaches only the
supervisor. If the supervisor is killed, the kernel signals each program to stop. So nothing is left behind in either
case. The `run` command decides which programs there are.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final, TextIO

_STOP_TIMEOUT_SECONDS: Final = 10.0
_FIRST_RESTART_SECONDS: Final = 0.5
_MAX_RESTART_SECONDS: Final = 15.0
# A program that ran this long has recovered: its next restart is quick again.
_RECOVERED_AFTER_SECONDS: Final = 30.0
_MAX_LAST_LINES: Final = 20
_SET_PARENT_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG of prctl(2)


class StartError(Exception):
    """The product cannot start; the message is the sentence to show."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program to keep running."""

    name: str
    command: Sequence[str]
    # Added to the environment of this process.
    environment: Mapping[str, str] = field(default_factory=dict)
    # Whether the program is ready; None: it is ready as soon as it runs.
    is_ready: Callable[[], Awaitable[bool]] | None = None
    # For programs that hang, as one that ends is reported at once. Long, so that a busy machine does not trigger it.
    ready_timeout: float = 60.0
    # Its last lines are shown only when it ends by itself: for verbose programs.
    quiet: bool = False
    # The signal that the kernel sends when the supervisor dies.
    parent_death_signal: signal.Signals = signal.SIGTERM


class Log:
    """Writes the lines of all programs, each with time and name."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._colours = stream.isatty() and "NO_COLOR" not in os.environ

    def write(self, name: str, line: str) -> None:
        """Write a line of a program."""
        head = f"{datetime.now().astimezone():%H:%M:%S} {name:<8}"
        if self._colours:
            head = f"\033[2m{head}\033[0m"
        with contextlib.suppress(OSError, ValueError):  # a closed terminal must not stop the shutdown
            print(head, line, file=self._stream, flush=True)


class _Child:
    """The process of a program."""

    def __init__(self, program: Program, process: asyncio.subprocess.Process, log: Log) -> None:
        self.program = program
        self.process = process
        self.last_lines: list[str] = []
        self.copying = asyncio.create_task(self._copy_output(log))

    async def _copy_output(self, log: Log) -> None:
        assert self.process.stdout is not None  # noqa: S101 (it was started with a pipe)
        async for raw in _lines(self.process.stdout):
            line = raw.decode(errors="replace").rstrip()
            if line:
                self.last_lines = [*self.last_lines, line][-_MAX_LAST_LINES:]
                if not self.program.quiet:
                    log.write(self.program.name, line)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program and everything it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


class Supervisor:
    """Keeps programs running until a stop is requested."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._restart_tasks: list[asyncio.Task[None]] = []
        self._children: dict[str, _Child] = {}
        self._stopping = asyncio.Event()

    def request_stop(self) -> None:
        """Request a stop; returns at once."""
        self._stopping.set()

    async def start(self, program: Program) -> None:
        """Start a program and wait until it is ready; raises StartError with its last line of output."""
        child = await self._spawn(program)
        await self._wait_until_ready(child)
        self._restart_tasks.append(asyncio.create_task(self._restart_when_it_ends(child)))

    async def wait(self) -> None:
        """Wait until a stop is requested."""
        await self._stopping.wait()

    async def stop(self) -> None:
        """Stop all programs, the last started first; kill those that do not stop in time."""
        self._stopping.set()
        for keeper in self._restart_tasks:
            keeper.cancel()
        for child in reversed(list(self._children.values())):
            await self._stop_child(child)

    async def _spawn(self, program: Program) -> _Child:
        try:
            process = await asyncio.create_subprocess_exec(
                *program.command,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **program.environment},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=partial(_set_parent_death_signal, os.getpid(), program.parent_death_signal)
                if sys.platform == "linux"
                else None,
            )
        except OSError as error:
            raise StartError(f"{program.name} cannot be started: {error.strerror} ({program.command[0]})") from error
        child = _Child(program, process, self._log)
        self._children[program.name] = child
        return child

    async def _wait_until_ready(self, child: _Child) -> None:
        program = child.program
        if program.is_ready is None:
            return
        deadline = time.monotonic() + program.ready_timeout
        while not await program.is_ready():
            if self._stopping.is_set():
                raise asyncio.CancelledError
            if child.process.returncode is not None:
                await child.copying
                raise StartError(_render_failed_start(child))
            if time.monotonic() > deadline:
                raise StartError(f"{program.name} was not ready within {program.ready_timeout:.0f} s")
            await asyncio.sleep(0.05)

    async def _restart_when_it_ends(self, child: _Child) -> None:
        """Restart the program whenever it ends, with a pause that doubles each time."""
        pause = _FIRST_RESTART_SECONDS
        while True:
            started = time.monotonic()
            code = await child.process.wait()
            child.signal(signal.SIGKILL)  # processes that it started and left behind
            if time.monotonic() - started > _RECOVERED_AFTER_SECONDS:
                pause = _FIRST_RESTART_SECONDS
            for line in child.last_lines if child.program.quiet else []:
                self._log.write(child.program.name, line)
            self._log.write(child.program.name, f"ended ({_render_exit_code(code)}); restarting in {pause:g} s")
            await asyncio.sleep(pause)
            pause = min(pause * 2, _MAX_RESTART_SECONDS)
            child = await self._spawn(child.program)

    async def _stop_child(self, child: _Child) -> None:
        if child.process.returncode is None:
            child.signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(child.process.wait(), _STOP_TIMEOUT_SECONDS)
            except TimeoutError:
                self._log.write(child.program.name, f"did not stop within {_STOP_TIMEOUT_SECONDS:.0f} s; killing it")
        child.signal(signal.SIGKILL)
        await child.process.wait()
        await child.copying


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield lines of any length; a line longer than the buffer of the reader comes in pieces."""
    while True:
        try:
            line = await stream.readline()
        except ValueError:
            line = await stream.read(1 << 16)
        if not line:
            return
        yield line


def _set_parent_death_signal(supervisor: int, last_signal: signal.Signals) -> None:
    """Have the kernel stop this child when the supervisor dies. Runs between fork and exec."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, last_signal)
    if os.getppid() != supervisor:  # the supervisor died before prctl
        os.kill(os.getpid(), signal.SIGKILL)


def _render_failed_start(child: _Child) -> str:
    words = child.last_lines[-1] if child.last_lines else "no output"
    return f"{child.program.name} ended ({_render_exit_code(child.process.returncode)}) before it was ready: {words}"


def _render_exit_code(code: int | None) -> str:
    if code is not None and code < 0:
        return f"by signal {signal.Signals(-code).name}"
    return f"exit code {code}"
