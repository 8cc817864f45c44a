"""`make run`: all programs start, survive kills and stop without a trace; a failed start prints one sentence."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollouts.runtime.embedded_redis import data_folder_name, find_redis_server
from tests.data_folders import fill
from tests.project.running import ROOT, SECONDS_TO_START, Product, product, product_from_nothing, wait_until

pytestmark = pytest.mark.slow

REDIS = find_redis_server()
PROGRAMS = {
    "redis": REDIS.name,
    "sandbox": "rollouts.sandbox",
    "web": "uvicorn",
    "worker": "worker",
    "beat": "beat",
    "watcher": "watch",
}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def running(data_dir: Path) -> Iterator[Product]:
    fill(data_dir)
    for path in (data_dir, *data_dir.iterdir()):  # like an earlier version
        path.chmod(path.stat().st_mode | 0o055)
    with product(data_dir, GROVE_ADMIN_PASSWORD="correct horse battery", WORKERS="") as started:  # the default
        started.wait_until_it_answers()
        yield started


def _get(running: Product, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("localhost", running.port, timeout=30)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _pids(running: Product, program: str) -> set[int]:
    return {pid for pid, line in running.processes().items() if PROGRAMS[program] in line.split("make")[0]}


def test_every_program_runs_and_the_product_is_ready(running: Product) -> None:
    status, body = _get(running, "/readyz")
    assert status == 200, body
    assert json.loads(body)["ready"] is True
    for program in PROGRAMS:
        assert _pids(running, program), running.output


def test_two_workers_share_the_processes_so_that_one_that_is_killed_leaves_another(running: Product) -> None:
    workers = _pids(running, "worker")
    parents = {pid: parent for pid in workers if (parent := _parent(pid)) not in workers}
    children = [_parent(pid) for pid in workers - parents.keys()]
    assert len(parents) == 2
    assert set(parents.values()) == {running.process.pid}
    assert sorted(children) == sorted(parents)  # one process each
    assert {"worker-1", "worker-2"} <= {line.split()[1] for line in running.output.splitlines() if " worker-" in line}


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_no_program_makes_a_file_that_another_account_can_read(running: Product) -> None:
    masks = {pid: Path(f"/proc/{pid}/status").read_text().partition("Umask:\t")[2][:4] for pid in running.processes()}
    assert set(masks.values()) == {"0077"}, (masks, running.processes())
    written = [path for path in running.data_dir.rglob("*") if path.relative_to(running.data_dir).parts[0] != "static"]
    expected = {"grove.sqlite3", "sandbox.sqlite3", data_folder_name(REDIS)}
    assert expected <= {path.name for path in written} | {_no_sqlite()}
    open_to_others = [path for path in (running.data_dir, *written) if path.lstat().st_mode & 0o077]
    assert [path for path in open_to_others if not path.is_symlink()] == []


def _no_sqlite() -> str:
    """With PostgreSQL there is no such file."""
    return "grove.sqlite3" if os.environ.get("DATABASE_URL") else ""


def test_a_stranger_is_sent_to_sign_in(running: Product) -> None:
    status, _ = _get(running, "/")
    assert status == 302


def test_static_files_are_served(running: Product) -> None:
    _, page = _get(running, "/sign-in/")
    start = page.index(b"/static/tokens.")
    path = page[start : page.index(b'"', start)].decode()
    assert _get(running, path)[0] == 200


@pytest.mark.parametrize("program", ["worker", "watcher", "sandbox", "web", "redis"])
def test_a_killed_program_comes_back_and_the_product_is_ready_again(running: Product, program: str) -> None:
    killed = _pids(running, program)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: bool(_pids(running, program) - killed), SECONDS_TO_START, lambda: running.output)
    wait_until(lambda: _ready(running), SECONDS_TO_START, lambda: running.output)


def test_a_second_product_on_the_same_data_is_refused_in_one_sentence(running: Product) -> None:
    with product(running.data_dir) as second:
        assert second.wait_until_it_ends() != 0
        assert "Grove UI is already running on" in second.output
        assert len(second.output.strip().splitlines()) == 1


@pytest.mark.database
def test_ctrl_c_stops_everything_with_nothing_left_behind_and_a_second_run_keeps_the_data(
    tmp_path: Path,
) -> None:
    with product_from_nothing(tmp_path) as first:
        first.wait_until_it_answers()
        assert len(first.password) >= 16
        assert "live pages get no updates" not in first.output
        assert first.interrupt() == 0, first.output
        first.wait_until_nothing_is_left()
    with product(tmp_path) as second:
        second.wait_until_it_answers()
        assert "as printed on the first start" in second.output
        assert "live pages get no updates" not in second.output
        assert second.interrupt() == 0
        second.wait_until_nothing_is_left()


def test_killing_the_supervisor_outright_leaves_nothing_behind(tmp_path: Path) -> None:
    with product(tmp_path) as running:
        running.wait_until_it_answers()
        running.process.kill()
        running.process.wait()
        running.wait_until_nothing_is_left()


def test_ctrl_c_during_the_start_stops_everything(tmp_path: Path) -> None:
    with product(tmp_path) as running:
        wait_until(lambda: bool(_pids(running, "sandbox")), SECONDS_TO_START, lambda: running.output)
        running.interrupt()
        running.wait_until_nothing_is_left()


def _ready(running: Product) -> bool:
    try:
        return _get(running, "/readyz")[0] == 200
    except OSError:
        return False


def _refusal(tmp_path: Path, **variables: str) -> str:
    with product(tmp_path, **variables) as running:
        assert running.wait_until_it_ends() != 0
        running.wait_until_nothing_is_left()
        lines = running.output.strip().splitlines()
        assert len(lines) == 1, running.output
        return lines[0]


@pytest.mark.parametrize("variable", ["PORT", "SANDBOX_PORT"])
def test_a_busy_port_is_said_in_one_sentence(tmp_path: Path, variable: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        sentence = _refusal(tmp_path, **{variable: str(port)})
    assert f"Port {port} on 127.0.0.1 is not available" in sentence
    assert f"{variable}={port + 10} make run" in sentence


def test_a_missing_redis_is_said_in_one_sentence_without_its_password(tmp_path: Path) -> None:
    sentence = _refusal(tmp_path, REDIS_URL="redis://:secret-word@127.0.0.1:1/0")
    assert "The Redis of REDIS_URL does not answer" in sentence
    assert "secret-word" not in sentence


def test_an_unreachable_cluster_is_said_in_one_sentence(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "away",
                "contexts": [{"name": "away", "context": {"cluster": "away", "user": "me"}}],
                "clusters": [{"name": "away", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "me", "user": {"token": "secret-word"}}],
            }
        )
    )
    sentence = _refusal(tmp_path / "data", CLUSTER="kubeconfig", KUBECONFIG=str(kubeconfig))
    assert "127.0.0.1:1" in sentence
    assert "secret-word" not in sentence


def test_a_missing_kubeconfig_is_said_in_one_sentence(tmp_path: Path) -> None:
    sentence = _refusal(tmp_path / "data", CLUSTER="kubeconfig", KUBECONFIG=str(tmp_path / "none"))
    assert "does not exist" in sentence


def test_a_wrong_setting_is_said_in_one_sentence(tmp_path: Path) -> None:
    assert "CLUSTER is 'prod'; set it to one of" in _refusal(tmp_path, CLUSTER="prod")


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"DATABASE_URL": "mysql2://me:secret-word@127.0.0.1/grove"}, "DATABASE_URL begins with 'mysql2'; set it to"),
        ({"DEBUG": "1", "HOST": "0.0.0.0"}, "DEBUG is 1 and HOST is '0.0.0.0', so other machines could read"),
    ],
)
def test_a_setting_that_would_give_secrets_away_is_said_in_one_sentence(
    tmp_path: Path, variables: dict[str, str], sentence: str
) -> None:
    said = _refusal(tmp_path, **variables)
    assert sentence in said
    assert "secret-word" not in said


def test_a_data_folder_of_other_programs_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "certificate.pem").write_text("theirs")
    (tmp_path / "shared").chmod(0o755)
    done = subprocess.run(
        [sys.executable, "manage.py", "run"],
        cwd=ROOT,
        env={**os.environ, "DATA_DIR": str(tmp_path / "shared")},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert "files of other programs; set DATA_DIR to a folder of its own" in line


def test_an_unreachable_database_is_said_in_one_sentence_without_its_password(tmp_path: Path) -> None:
    sentence = _refusal(tmp_path, DATABASE_URL="postgresql://me:secret-word@127.0.0.1:1/grove")
    assert "The database of DATABASE_URL cannot be used" in sentence
    assert "secret-word" not in sentence
