"""The supervisor starts, restarts and stops programs; each test runs real ones."""

import asyncio
import io
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rollouts.runtime.supervisor import Log, Program, StartError, Supervisor
from tests.project.running import ROOT, wait_until

FOREVER = "import time\nwhile True: time.sleep(60)"


def _python(name: str, code: str, **options: object) -> Program:
    return Program(name, [sys.executable, "-c", code], **options)  # type: ignore[arg-type]


def _run(scenario: Callable[[Supervisor], Awaitable[None]]) -> str:
    """Run a scenario, stop the supervisor, and return what it logged."""
    stream = io.StringIO()

    async def main() -> None:
        supervisor = Supervisor(Log(stream))
        try:
            await asyncio.wait_for(scenario(supervisor), 60)
        finally:
            await supervisor.stop()

    asyncio.run(main())
    return stream.getvalue()


def _exists(path: Path) -> Callable[[], Awaitable[bool]]:
    async def answers() -> bool:
        return path.exists()

    return answers


async def _until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.02)


def _runs(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_program_counts_as_started_when_it_answers(tmp_path: Path) -> None:
    sign = tmp_path / "sign"

    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.start(_python("a", f"open({str(sign)!r}, 'w')\n{FOREVER}", is_ready=_exists(sign)))
        assert sign.exists()

    _run(scenario)


def test_lines_are_logged_under_the_name_of_the_program(tmp_path: Path) -> None:
    sign = tmp_path / "sign"

    async def scenario(supervisor: Supervisor) -> None:
        code = f"print('hello', flush=True); open({str(sign)!r}, 'w')\n{FOREVER}"
        await supervisor.start(_python("greeter", code, is_ready=_exists(sign)))

    assert "greeter  hello" in _run(scenario)


def test_a_quiet_program_is_heard_only_when_it_ends_by_itself(tmp_path: Path) -> None:
    sign = tmp_path / "sign"

    async def scenario(supervisor: Supervisor) -> None:
        code = f"print('chat', flush=True); open({str(sign)!r}, 'w')\n{FOREVER}"
        await supervisor.start(_python("a", code, is_ready=_exists(sign), quiet=True))

    assert "chat" not in _run(scenario)


def test_a_program_that_ends_before_it_answers_is_reported_with_its_last_words(tmp_path: Path) -> None:
    async def scenario(supervisor: Supervisor) -> None:
        code = "import sys; print('port is taken'); sys.exit(3)"
        await supervisor.start(_python("web", code, is_ready=_exists(tmp_path / "never")))

    with pytest.raises(StartError, match=r"web ended \(exit code 3\) before it was ready: port is taken"):
        _run(scenario)


def test_a_program_that_never_answers_is_given_up(tmp_path: Path) -> None:
    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.start(_python("web", FOREVER, is_ready=_exists(tmp_path / "never"), ready_timeout=0.2))

    with pytest.raises(StartError, match="web was not ready within 0 s"):
        _run(scenario)


def test_a_program_that_is_not_there_is_reported() -> None:
    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.start(Program("ghost", ["/nonexistent/program"]))

    with pytest.raises(StartError, match="ghost cannot be started"):
        _run(scenario)


def test_a_program_that_dies_is_started_again(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    code = f"open({str(runs)!r}, 'a').write('x')"

    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.start(_python("a", code))
        await _until(lambda: runs.exists() and len(runs.read_text()) >= 2)

    assert "ended (exit code 0); restarting" in _run(scenario)


def test_stopping_ends_what_a_program_itself_has_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = f"""
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {FOREVER!r}])
with open({str(pids)!r} + ".draft", "w") as file:
    file.write(f"{{os.getpid()}} {{child.pid}}")
os.rename({str(pids)!r} + ".draft", {str(pids)!r})
{FOREVER}
"""

    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.start(_python("parent", code, is_ready=_exists(pids)))

    _run(scenario)
    # When the supervisor returns, the files of the process are closed, but the kernel may need a moment more.
    wait_until(lambda: not any(_runs(int(pid)) for pid in pids.read_text().split()), 30)


def test_a_program_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollouts.runtime.supervisor._STOP_TIMEOUT_SECONDS", 0.2)
    sign = tmp_path / "sign"
    code = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); open({str(sign)!r}, 'w')\n{FOREVER}"

    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.start(_python("stubborn", code, is_ready=_exists(sign)))

    assert "did not stop within" in _run(scenario)


def test_a_program_that_ignores_sigterm_is_killed_with_its_supervisor_where_it_is_to_be(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    stubborn = f"""
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open({str(pid)!r} + ".draft", "w") as file:
    file.write(str(os.getpid()))
os.rename({str(pid)!r} + ".draft", {str(pid)!r})
{FOREVER}
"""
    supervising = f"""
import asyncio, signal, sys
from rollouts.runtime.supervisor import Log, Program, Supervisor

async def main():
    program = Program("stubborn", [sys.executable, "-c", {stubborn!r}], parent_death_signal=signal.SIGKILL)
    await Supervisor(Log(sys.stdout)).start(program)
    await asyncio.Event().wait()

asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", supervising], cwd=ROOT) as supervisor:
        try:
            wait_until(pid.exists, 60)
        finally:
            supervisor.kill()
    wait_until(lambda: not _runs(int(pid.read_text())), 30)
