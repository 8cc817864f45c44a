"""`manage.py run`: the whole product on this machine, in one terminal.

The command first checks ports, data folder, database, Redis and clusters, and exits with one sentence if a check fails.
Then it starts the programs in the order of their dependencies, and prints the address and the first account when
/readyz answers 200. Ctrl-C stops everything.

If the database is lost while the programs run, `database_recovery` completes it.
"""

import asyncio
import contextlib
import fcntl
import http.client
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.db import Error as DatabaseError
from django.db import connection
from redis import Redis, RedisError

from grove_ui.environment import BASE_DIR, Environment
from rollouts.accounts.permissions import CONTROLLER_CONTINUES
from rollouts.cluster import ClusterError, RetryPolicy
from rollouts.management.database_recovery import ensure_account, first_line, keep_complete
from rollouts.runtime.connections import cluster_entries, connect_cluster, redis_client
from rollouts.runtime.embedded_redis import RedisMissingError, build_redis_command, data_folder_name, find_redis_server
from rollouts.runtime.private_folder import UMASK, NotPrivateError, ensure_private, remove_socket_folder
from rollouts.runtime.static_files import collect_static_files
from rollouts.runtime.supervisor import Log, Program, StartError, Supervisor
from rollouts.services.first_account import FirstAccount
from rollouts.telemetry import heartbeats

# Options of uvicorn for pages and API, in every deployment.
WEB_OPTIONS: Final = (
    # Off, as TRUSTED_PROXIES decides which proxies may name the client address.
    *("--no-proxy-headers", "--no-access-log", "--log-level", "warning", "--lifespan", "off"),
    # Limits what clients may send and keep open; the product has no WebSockets.
    *("--http", "grove_ui.http_protocol:BoundedProtocol", "--ws", "none"),
    # Longer than the timeout of proxies, so that none sends a command on a connection that the server closes.
    *("--timeout-keep-alive", "90"),
)


class Command(BaseCommand):
    """Start Redis, sandbox, web, worker, watcher and beat; stop them on Ctrl-C."""

    help = "Start the whole product on this machine; Ctrl-C stops it."
    requires_system_checks = ()

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Prepare and run; print an expected error as one sentence and exit with 1."""
        environment: Environment = settings.ENVIRONMENT
        os.umask(UMASK)  # the programs inherit it
        try:
            ensure_private(environment.data_dir)
            with _lock_data_dir(environment.data_dir):
                _prepare(environment)
                asyncio.run(_run(environment, self.stdout))
        except (StartError, NotPrivateError, RedisMissingError, ClusterError) as error:
            sys.exit(f"grove-ui: {error}")


def _prepare(environment: Environment) -> None:
    """Check the preconditions, migrate the database and collect the static files."""
    _check_port(environment.host, environment.port, "PORT")
    if "sandbox" in environment.clusters:
        _check_port("127.0.0.1", environment.sandbox_port, "SANDBOX_PORT")
    _check_clusters()
    if environment.redis_url:
        _check_redis()
    if environment.database_url and connection.vendor == "postgresql":
        _check_database(environment.database_url)
    try:
        call_command("migrate", verbosity=0, interactive=False)
    except DatabaseError as error:
        raise StartError(f"The database cannot be used: {first_line(error)}") from error
    finally:
        connection.close()  # this process runs on, and must not keep a deleted database open
    collect_static_files()


def find_warning(environment: Environment) -> str:
    """Return the warning that passwords cross the network unencrypted; empty if they do not."""
    if environment.is_loopback or environment.https:
        return ""
    return (
        f"HOST is {environment.host} and HTTPS is 0: passwords, tokens and manifests cross the network unencrypted. "
        "Run it behind a proxy that terminates TLS and set HTTPS=1, or set HOST to 127.0.0.1."
    )


async def _run(environment: Environment, out: Any) -> None:
    """Start the programs one after the other, print the address, and wait until a stop is requested."""
    log = Log(sys.stdout)
    supervisor = Supervisor(log)
    loop = asyncio.get_running_loop()
    if warning := find_warning(environment):
        out.write(f"grove-ui: {warning}")
        out.flush()
    starting = asyncio.create_task(_start(supervisor, environment))
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop, supervisor, starting)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            out.write(render_greeting(environment, await starting))
            out.flush()  # a pipe is buffered
            _start_database_recovery(environment, log, stopped)
            await supervisor.wait()
    finally:
        stopped.set()
        await supervisor.stop()


def _start_database_recovery(environment: Environment, log: Log, stopped: threading.Event) -> None:
    """Start the thread that watches the database. A daemon, so that a hanging database does not delay Ctrl-C."""
    loop = asyncio.get_running_loop()

    def report(line: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(log.write, "database", line)

    threading.Thread(target=keep_complete, args=(environment, report, stopped), daemon=True).start()


def _stop(supervisor: Supervisor, starting: "asyncio.Task[FirstAccount]") -> None:
    supervisor.request_stop()
    starting.cancel()


async def _start(supervisor: Supervisor, environment: Environment) -> FirstAccount:
    if not environment.redis_url:
        await supervisor.start(_redis(environment))
        await asyncio.to_thread(heartbeats.delete_all, redis_client())
    account = await asyncio.to_thread(ensure_account, environment)
    if "sandbox" in environment.clusters:
        await supervisor.start(_sandbox(environment))
    for program in (*_workers(environment), _beat(), _watcher(), _web(environment)):
        await supervisor.start(program)
    return account


def _redis(environment: Environment) -> Program:
    server = find_redis_server()
    folder = environment.data_dir / data_folder_name(server)
    folder.mkdir(parents=True, exist_ok=True)
    command = build_redis_command(server, socket=settings.REDIS_SOCKET, folder=folder)
    return Program("redis", command, is_ready=_redis_answers, quiet=True)


def _sandbox(environment: Environment) -> Program:
    async def answers() -> bool:
        return await asyncio.to_thread(_http_ok, "127.0.0.1", environment.sandbox_port, "/readyz")

    variables = {"SANDBOX_PORT": str(environment.sandbox_port), "DATA_DIR": str(environment.data_dir)}
    return Program("sandbox", [sys.executable, "-m", "rollouts.sandbox"], variables, answers)


def _workers(environment: Environment) -> Iterator[Program]:
    """Return the workers, which share the processes as evenly as possible; each has at least one."""
    # Gossip, mingle and heartbeat let workers watch each other, which these do not need: they share only the queue.
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    count = min(environment.workers, environment.worker_processes)
    for index in range(count):
        name = "worker" if count == 1 else f"worker-{index + 1}"
        processes = (environment.worker_processes + index) // count
        own = ("--hostname", f"{name}@%h", "--concurrency", str(processes))
        yield Program(name, [sys.executable, "-m", "celery", "-q", "-A", "grove_ui", "worker", *quiet, *own])


def _beat() -> Program:
    # This scheduler keeps no file: both tasks may run at any time, so there is no state to keep.
    plain = ("--scheduler", "celery.beat:Scheduler")
    command = [sys.executable, "-m", "celery", "-q", "-A", "grove_ui", "beat", *plain]
    # SIGKILL is safe, as beat has no state. SIGTERM is not reliable: Celery handles it by raising an exception wherever
    # beat happens to be, where it can get lost; beat was once seen to run on.
    return Program("beat", command, parent_death_signal=signal.SIGKILL)


def _watcher() -> Program:
    return Program("watcher", [sys.executable, str(BASE_DIR / "manage.py"), "watch"])


def _web(environment: Environment) -> Program:
    async def answers() -> bool:
        return await asyncio.to_thread(_http_ok, environment.host, environment.port, "/readyz")

    command = [
        *(sys.executable, "-m", "uvicorn", "grove_ui.asgi:application"),
        *("--host", environment.host, "--port", str(environment.port)),
        *WEB_OPTIONS,
        *("--timeout-graceful-shutdown", "3"),
    ]
    # /readyz answers 200 after the first sweep of the worker and the first list of the watcher, which start meanwhile.
    return Program("web", command, is_ready=answers, ready_timeout=120)


async def _redis_answers() -> bool:
    with contextlib.suppress(RedisError, OSError):
        return await asyncio.to_thread(_ping_redis)
    return False


def _ping_redis() -> bool:
    with Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2) as redis:
        return bool(redis.ping())


def _check_redis() -> None:
    try:
        _ping_redis()
    except (RedisError, ValueError) as error:
        raise StartError(
            f"The Redis of REDIS_URL does not answer ({type(error).__name__}); start it, correct REDIS_URL, "
            "or unset REDIS_URL to use a local one"
        ) from error


def _check_database(url: str) -> None:
    """Connect once without the pool, which would retry for long and hide the reason."""
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.Error as error:
        raise StartError(
            f"The database of DATABASE_URL cannot be used ({first_line(error)}); start it, correct DATABASE_URL, "
            "or unset DATABASE_URL to use SQLite"
        ) from error


def _check_clusters() -> None:
    """Refuse to start if no cluster can be used; one is enough."""
    entries = cluster_entries()
    real = [entry.name for entry in entries if entry.kind != "sandbox"]
    problems = [problem for name in real if (problem := _find_cluster_problem(name))]
    if real and len(problems) == len(entries):
        raise StartError(
            f"{' '.join(problems)} Start it, correct KUBECONFIG and KUBE_CONTEXT, or unset CLUSTER to use the sandbox"
        )


def _find_cluster_problem(name: str) -> str | None:
    """Return why a cluster cannot be used, as a sentence."""
    try:
        cluster = connect_cluster(name, RetryPolicy(connect_timeout=3, read_timeout=5, deadline=6))
    except ClusterError as error:
        return f"The cluster {name} cannot be used: {error}"
    try:
        cluster.version()
    except ClusterError as error:
        return f"The cluster {name} at {cluster.url} cannot be used ({error})."
    return None


def _check_port(host: str, port: int, variable: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise StartError(
                f"Port {port} on {host} is not available ({error.strerror}); stop the program that uses it, "
                f"or choose another port: {variable}={port + 10} make run"
            ) from error


@contextlib.contextmanager
def _lock_data_dir(data_dir: Path) -> Iterator[IO[str]]:
    """Lock the data folder: a second supervisor on it would start every program twice."""
    with (data_dir / "run.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            raise StartError(
                f"Grove UI is already running on {data_dir} (process {lock.read().strip() or 'unknown'}); "
                "stop it, or choose another folder and ports with DATA_DIR, PORT and SANDBOX_PORT"
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        try:
            yield lock
        finally:
            remove_socket_folder(data_dir)


def _http_ok(host: str, port: int, path: str) -> bool:
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (compared, not bound)
    probe = http.client.HTTPConnection(reachable, port, timeout=3)
    try:
        probe.request("GET", path, headers={"Host": "localhost"})
        return probe.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        probe.close()


def render_greeting(environment: Environment, account: FirstAccount) -> str:
    """Return the address and the first account, and which writes the settings stop."""
    shown = "localhost" if environment.host in ("127.0.0.1", "0.0.0.0", "::", "::1") else environment.host  # noqa: S104
    password = account.new_password or (
        "as you set it"
        if environment.admin_password
        else "as printed on the first start; to set another, start with GROVE_ADMIN_PASSWORD=…"
    )
    lines = [
        "",
        f"  Grove UI runs at     http://{shown}:{environment.port}/",
        f"  Sign in as           {account.username}",
        f"  Password             {password}",
    ]
    if "sandbox" in environment.clusters:
        kubeconfig = environment.data_dir / "sandbox.kubeconfig"
        lines.append(f"  kubectl              KUBECONFIG={kubeconfig} kubectl get nodes,pcs,pods")
    if environment.observe:
        lines.append("  OBSERVE is set       Grove UI writes nothing to any cluster.")
    elif environment.read_only:
        lines.append(f"  READ_ONLY is set     Commands of users are refused. {CONTROLLER_CONTINUES}")
    return "\n".join([*lines, "  Ctrl-C stops everything; the data stays.", ""])
