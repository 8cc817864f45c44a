"""A real Kubernetes API server for tests: etcd and kube-apiserver, alone, in a temporary directory.

Nothing else of Kubernetes runs: no scheduler, no kubelet, no controller, no garbage collector. So a test sees here
what the API server alone does, and the sandbox must do the same. The binaries come from `KUBEBUILDER_ASSETS`, else from
`PATH`; both servers listen on free loopback ports and end with the block:

    with running_apiserver() as server:
        cluster = ClusterClient(kubeconfig(server.kubeconfig))
        install_definitions(cluster)

A test that needs the garbage collector, or another of Kubernetes' own controllers, starts it beside the server:

    with running_apiserver() as server, running_controller_manager(server):
        ...

The context `admin` may do everything; the context `restricted` is an authenticated user without any role.
"""

import base64
import contextlib
import http.client
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import orjson
import yaml

from rollouts.cluster import AlreadyExists, ClusterClient, Resource, Throttled, Unavailable, UnknownResource
from rollouts.cluster.resources import CUSTOMRESOURCEDEFINITIONS

DEFINITIONS = Path(__file__).parent.parent / "deploy" / "crds"
START_SECONDS = 150.0  # generous: only a broken server reaches it
STOP_SECONDS = 10.0
HOW_TO_GET_THEM = (
    "set KUBEBUILDER_ASSETS to a folder that holds kube-apiserver and etcd (.ci/run builds and installs them)"
)
GARBAGE_COLLECTOR = "garbage-collector-controller"
STATEFULSET_CONTROLLER = "statefulset-controller"


@dataclass(frozen=True, slots=True)
class ApiServer:
    """A running API server: where it listens, who may speak to it, and the etcd behind it."""

    url: str
    etcd_url: str
    ca_file: Path
    kubeconfig: Path
    admin_token: str
    restricted_token: str
    log: Path

    def compact(self) -> None:
        """Have etcd compact every revision but the current one, as an API server does every few minutes.

        Continue tokens and watches that go back further get 410 from then on.
        """
        header = _etcd(self.etcd_url, "kv/range", {"key": base64.b64encode(b"/").decode()})["header"]
        _etcd(self.etcd_url, "kv/compaction", {"revision": header["revision"], "physical": True})


@dataclass(frozen=True, slots=True)
class OwnApiServer(ApiServer):
    """An API server that this process started, and may kill."""

    process: "Restartable"

    def restart(self, *, seconds_away: float = 0.0) -> None:
        """Kill the server, keep it down for a time, and start it again with its data and port."""
        self.process.kill()
        time.sleep(seconds_away)
        self.process.start()
        _wait_until(lambda: _is_ready(self), self.process.current, self.log)

    def describe(self) -> ApiServer:
        """Return what other processes need to connect to it."""
        return ApiServer(*(getattr(self, one.name) for one in fields(ApiServer)))


class Restartable:
    """A server process that can be killed and started again with the same command."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command = command
        self._log = log
        self.current: subprocess.Popen[bytes]

    def start(self) -> None:
        """Start it; append to its log."""
        with self._log.open("ab") as sink:
            self.current = subprocess.Popen(
                self._command,
                stdout=sink,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                # Less garbage collection than by default, for twice the memory: a tenth of its processor time.
                env={**os.environ, "GOGC": "400"},
                preexec_fn=die_with_parent,  # noqa: PLW1509 (it takes no lock)
            )

    def kill(self) -> None:
        """Kill it."""
        self.current.kill()
        self.current.wait()

    def stop(self) -> None:
        """Terminate it; kill it if that takes too long."""
        self.current.terminate()
        try:
            self.current.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()


def missing_binaries(*more: str) -> list[str]:
    """Return the programs that this machine lacks."""
    return [name for name in ("etcd", "kube-apiserver", *more) if find_binary(name) is None]


def find_binary(name: str) -> str | None:
    """Return the path of a server binary, or nothing."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    return (shutil.which(name, path=assets) if assets else None) or shutil.which(name)


@contextlib.contextmanager
def running_apiserver(*flags: str) -> Iterator[OwnApiServer]:
    """Start etcd and kube-apiserver, wait until they answer, stop both at the end."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="apiserver-", ignore_cleanup_errors=True)))
        etcd_url = stack.enter_context(_running_etcd(folder))
        port = free_port()
        log = folder / "kube-apiserver.log"
        process = Restartable([_binary("kube-apiserver"), *_apiserver_flags(folder, etcd_url, port), *flags], log)
        server = OwnApiServer(
            url=f"https://127.0.0.1:{port}",
            etcd_url=etcd_url,
            ca_file=folder / "certs" / "apiserver.crt",
            kubeconfig=folder / "kubeconfig",
            admin_token=secrets.token_hex(16),
            restricted_token=secrets.token_hex(16),
            log=log,
            process=process,
        )
        _write_credentials(folder, server)
        stack.enter_context(_running(process))
        _wait_until(lambda: _is_ready(server), process.current, log)
        yield server


@contextlib.contextmanager
def running_controller_manager(
    server: ApiServer, *controllers: str, kubeconfig: Path | None = None
) -> Iterator[Restartable]:
    """Run some of Kubernetes' own controllers, the garbage collector if none is named, until the block ends.

    They connect to the server itself, or to the address in another kubeconfig, such as a proxy.
    """
    folder = server.kubeconfig.parent
    log = folder / "kube-controller-manager.log"
    command = [
        _binary("kube-controller-manager"),
        f"--kubeconfig={kubeconfig or server.kubeconfig}",
        f"--controllers={','.join(controllers or (GARBAGE_COLLECTOR,))}",
        "--leader-elect=false",
        "--use-service-account-credentials=false",
        # The default limits it to 20 calls a second, which is meant for shared clusters.
        "--kube-api-qps=2000",
        "--kube-api-burst=4000",
        "--concurrent-gc-syncs=10",
        "--secure-port=0",
        "--profiling=false",
    ]
    with _running(Restartable(command, log)) as process:
        yield process


def install_definitions(cluster: ClusterClient, folder: Path = DEFINITIONS) -> None:
    """Create the CustomResourceDefinitions of a folder and wait until their kinds are served."""
    definitions = [yaml.safe_load(path.read_text()) for path in sorted(folder.glob("*.yaml"))]
    deadline = time.monotonic() + START_SECONDS
    for definition in definitions:
        _ensure_definition(cluster, definition, deadline)
    for definition in definitions:
        while not _is_served(cluster, definition):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{definition['metadata']['name']} was not established in time")
            time.sleep(0.05)


def _ensure_definition(cluster: ClusterClient, definition: dict[str, Any], deadline: float) -> None:
    """Create a definition; retry while a server that has just started is too busy to answer."""
    while True:
        try:
            cluster.create(CUSTOMRESOURCEDEFINITIONS, definition)
        except AlreadyExists:
            return
        except (Throttled, Unavailable):
            if time.monotonic() > deadline:
                raise
        else:
            return


def _is_served(cluster: ClusterClient, definition: dict[str, Any]) -> bool:
    """Return whether objects of a definition can be listed: a moment after it is established."""
    spec = definition["spec"]
    version = spec["versions"][0]["name"]
    try:
        cluster.list(Resource(spec["group"], version, spec["names"]["plural"], spec["names"]["kind"]))
    except UnknownResource:
        return False
    return True


@contextlib.contextmanager
def _running_etcd(folder: Path) -> Iterator[str]:
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    command = [
        _binary("etcd"),
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
    ]
    log = folder / "etcd.log"
    with _running(Restartable(command, log)) as process:
        _wait_until(lambda: _answers(f"{client}/health"), process.current, log)
        yield client


def _apiserver_flags(folder: Path, etcd_url: str, port: int) -> list[str]:
    return [
        f"--etcd-servers={etcd_url}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder / 'certs'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder / 'service-account.key'}",
        f"--service-account-signing-key-file={folder / 'service-account.key'}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--allow-privileged=true",
        # No controller creates each namespace's default service account, so pods need none.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        "--endpoint-reconciler-type=none",
        "--profiling=false",
    ]


def _write_credentials(folder: Path, server: ApiServer) -> None:
    tokens = [
        f'{server.admin_token},admin,admin,"system:masters"',
        f"{server.restricted_token},restricted,restricted",
    ]
    _write_private(folder / "tokens.csv", "\n".join(tokens) + "\n")
    _write_private(folder / "service-account.key", _new_private_key())
    _write_private(server.kubeconfig, yaml.safe_dump(_kubeconfig(server)))


def _kubeconfig(server: ApiServer) -> dict[str, Any]:
    users = {"admin": server.admin_token, "restricted": server.restricted_token}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": server.url, "certificate-authority": str(server.ca_file)}}],
        "users": [{"name": name, "user": {"token": token}} for name, token in users.items()],
        "contexts": [{"name": name, "context": {"cluster": "test", "user": name}} for name in users],
        "current-context": "admin",
    }


def _new_private_key() -> str:
    """Return a new P-256 private key as PEM.

    In the SEC 1 form the public half is optional, so the key is a random number with a fixed frame around it
    and needs no cryptography package. (A number beyond the order of the curve has a chance of one in 2**32.)
    """
    frame = bytes.fromhex("30310201010420"), bytes.fromhex("a00a06082a8648ce3d030107")
    der = frame[0] + secrets.token_bytes(32) + frame[1]
    return f"-----BEGIN EC PRIVATE KEY-----\n{base64.encodebytes(der).decode()}-----END EC PRIVATE KEY-----\n"


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


@contextlib.contextmanager
def _running(process: Restartable) -> Iterator[Restartable]:
    process.start()
    try:
        yield process
    finally:
        process.stop()


def die_with_parent() -> None:
    """Have the kernel end the server when the test process is killed and cannot do it itself (Linux only)."""
    if sys.platform == "linux":
        import ctypes

        parent_death_signal = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)


def _wait_until(is_there: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_there():
        if process.poll() is not None or time.monotonic() > deadline:
            said = log.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"{log.stem} did not start (exit code {process.poll()}); its last words:\n{said}")
        time.sleep(0.1)


def _is_ready(server: ApiServer) -> bool:
    """Return whether the server is ready and has its first namespace, which it creates only after it reports ready."""
    trust = _find_trust(server.ca_file)
    return trust is not None and all(
        _answers(f"{server.url}{path}", trust, server.admin_token) for path in ("/readyz", "/api/v1/namespaces/default")
    )


def _find_trust(ca_file: Path) -> ssl.SSLContext | None:
    """Return an SSL context that trusts the server; None until the server has written its certificate."""
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except OSError:
        return None


def _answers(url: str, context: ssl.SSLContext | None = None, token: str = "") -> bool:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with _opener(context).open(request, timeout=10) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, http.client.HTTPException, OSError):
        return False


def _etcd(url: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    with _opener().open(urllib.request.Request(f"{url}/v3/{path}", orjson.dumps(body)), timeout=30) as answer:
        parsed: dict[str, Any] = orjson.loads(answer.read())
        return parsed


def _opener(context: ssl.SSLContext | None = None) -> urllib.request.OpenerDirector:
    """Return an opener that ignores the proxies of the environment: all our servers are on loopback."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))


def _binary(name: str) -> str:
    found = find_binary(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not on this machine; {HOW_TO_GET_THEM}")
    return found


# Below the ephemeral ports: no outgoing connection can take the port before the server binds it.
_PORTS = range(20_000, 32_000)
_given_ports: set[int] = set()


def free_port() -> int:
    """Return a free loopback port that was not returned before."""
    while True:
        port = _PORTS[secrets.randbelow(len(_PORTS))]
        if port not in _given_ports and _can_be_bound(port):
            _given_ports.add(port)
            return port


def _can_be_bound(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
