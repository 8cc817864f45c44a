"""The sandbox as a process: start, kubeconfig, restart after a kill, stop on a signal, errors at start."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rollouts.sandbox.__main__ import Options, StartupError, parse_options

Obj = dict[str, Any]
ROOT = Path(__file__).parents[2]
PATIENCE = 90.0


@dataclass
class Sandbox:
    """A running sandbox process."""

    process: subprocess.Popen[str]
    data_dir: Path

    @property
    def port(self) -> int:
        config = json.loads((self.data_dir / "sandbox.kubeconfig").read_text())
        return int(config["clusters"][0]["cluster"]["server"].rpartition(":")[2])

    def request(self, method: str, path: str, body: Obj | None = None) -> Obj:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
            answer: Obj = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return answer

    def is_ready(self) -> bool:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, ValueError):
            return False

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not happen in {PATIENCE:.0f} s"
        time.sleep(0.02)


def launch(data_dir: Path, **variables: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "SANDBOX_PORT": "0", "SANDBOX_SAMPLES": "none", "SANDBOX_NODES": "cpu=1,gpu=1"}
    environment |= {"DATA_DIR": str(data_dir), "SANDBOX_READY_SECONDS": "0.2", **variables}
    return subprocess.Popen(
        [sys.executable, "-m", "rollouts.sandbox"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Sandbox]]:
    """Starts sandboxes on one data directory, waits until they answer, and stops them at the end."""
    started: list[subprocess.Popen[str]] = []

    def run(**variables: str) -> Sandbox:
        (tmp_path / "sandbox.kubeconfig").unlink(missing_ok=True)
        sandbox = Sandbox(launch(tmp_path, **variables), tmp_path)
        started.append(sandbox.process)
        wait_until(lambda: sandbox.is_ready() or sandbox.process.poll() is not None, "the sandbox answering")
        assert sandbox.process.poll() is None, sandbox.process.communicate()
        return sandbox

    yield run
    for process in started:
        process.kill()
        process.communicate()


def pod_is_ready(sandbox: Sandbox, name: str) -> bool:
    pod = sandbox.request("GET", f"/api/v1/namespaces/default/pods/{name}")
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


def add_pod(sandbox: Sandbox, name: str) -> None:
    spec = {"containers": [{"name": "main", "image": "app:v1"}]}
    made = sandbox.request("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": spec})
    assert made["kind"] == "Pod", made


def test_a_pod_becomes_ready_and_is_still_there_after_a_kill(start: Callable[..., Sandbox]) -> None:
    sandbox = start()
    add_pod(sandbox, "first")
    wait_until(lambda: pod_is_ready(sandbox, "first"), "the pod becoming Ready")
    add_pod(sandbox, "second")
    before = sandbox.request("GET", "/api/v1/namespaces/default/pods/first")
    sandbox.process.kill()
    sandbox.process.wait(PATIENCE)
    again = start()
    assert again.request("GET", "/api/v1/namespaces/default/pods/first") == before
    wait_until(lambda: pod_is_ready(again, "second"), "the pod that was caught by the kill becoming Ready")


def test_it_stops_cleanly_with_watches_open(start: Callable[..., Sandbox]) -> None:
    sandbox = start()
    watching = socket.create_connection(("127.0.0.1", sandbox.port), timeout=PATIENCE)
    watching.sendall(b"GET /api/v1/nodes?watch=1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert b"ADDED" in _read_until(watching, b"ADDED")
    assert sandbox.stop() == 0
    while watching.recv(65536):
        pass
    watching.close()


def _read_until(stream: socket.socket, text: bytes) -> bytes:
    read = b""
    while text not in read:
        chunk = stream.recv(65536)
        assert chunk, "the watch ended early"
        read += chunk
    return read


def test_the_kubeconfig_is_private_and_leads_to_the_sandbox(start: Callable[..., Sandbox]) -> None:
    sandbox = start()
    path = sandbox.data_dir / "sandbox.kubeconfig"
    assert path.stat().st_mode & 0o777 == 0o600
    config = json.loads(path.read_text())
    assert config["current-context"] == "sandbox"
    assert sandbox.request("GET", "/api/v1/nodes")["kind"] == "NodeList"


def test_a_second_sandbox_on_the_same_directory_is_refused_in_one_sentence(start: Callable[..., Sandbox]) -> None:
    sandbox = start()
    second = launch(sandbox.data_dir)
    _, told = second.communicate(timeout=PATIENCE)
    assert second.returncode != 0
    assert told == f"sandbox: another sandbox is already running on DATA_DIR {sandbox.data_dir}\n"
    assert sandbox.is_ready()


def test_an_open_directory_of_other_programs_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "theirs").touch()
    tmp_path.chmod(0o755)
    refused = launch(tmp_path)
    _, told = refused.communicate(timeout=PATIENCE)
    assert refused.returncode != 0
    assert told.startswith(f"sandbox: DATA_DIR is {tmp_path}, which other accounts of this machine can open")
    assert told.count("\n") == 1


def test_what_the_sandbox_writes_is_private(start: Callable[..., Sandbox]) -> None:
    sandbox = start()
    written = [path for path in (sandbox.data_dir, *sandbox.data_dir.iterdir()) if path.name != "log"]
    assert "sandbox.sqlite3" in {path.name for path in written}
    assert [path for path in written if path.stat().st_mode & 0o077] == []


def test_a_busy_port_is_said_in_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused = launch(tmp_path, SANDBOX_PORT=str(port))
        _, told = refused.communicate(timeout=PATIENCE)
    assert refused.returncode != 0
    assert told == f"sandbox: port {port} on 127.0.0.1 is in use by another program; choose another with SANDBOX_PORT\n"


def test_state_that_cannot_be_read_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "sandbox.sqlite3").write_bytes(b"this is no database" * 100)
    refused = launch(tmp_path)
    _, told = refused.communicate(timeout=PATIENCE)
    assert refused.returncode != 0
    assert told.startswith(f"sandbox: cannot open the state in DATA_DIR {tmp_path}: ")
    assert told.count("\n") == 1


def options(*arguments: str, **variables: str) -> Options:
    return parse_options(variables, list(arguments))


def test_options_have_working_defaults() -> None:
    usual = options()
    assert (usual.port, usual.data_dir, usual.nodes) == (8001, Path("var"), None)
    assert usual.samples == ROOT / "deploy" / "samples"
    assert options(SANDBOX_SAMPLES="none").samples is None
    assert (usual.niceness, options(SANDBOX_NICENESS="0").niceness) == (10, 0)


def test_nodes_may_be_given_as_an_argument() -> None:
    counts = options("--nodes", "cpu=12", SANDBOX_NODES="cpu=1").nodes
    assert counts is not None
    assert (counts.cpu, counts.gpu) == (12, 8)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SANDBOX_PORT", "http"),
        ("SANDBOX_PORT", "70000"),
        ("SANDBOX_PORT", "80.5"),
        ("SANDBOX_READY_SECONDS", "-1"),
        ("SANDBOX_READY_SECONDS", "nan"),
        ("SANDBOX_TERMINATION_SECONDS", "soon"),
        ("SANDBOX_NODES", "many"),
        ("SANDBOX_NICENESS", "-5"),
        ("SANDBOX_NICENESS", "1.5"),
        ("SANDBOX_NICENESS", "20"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(StartupError, match=name):
        options(**{name: value})
