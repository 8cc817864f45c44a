"""`manage.py run`: the whole product on this machine, in one terminal.

First everything that can be wrong is looked at (ports, data folder, database, Redis, cluster), each with one sentence
when it is; then the programs are started in the order in which they need each other. The address and the first
account are printed once /readyz says yes. Ctrl-C stops everything.

While they run, a SQLite database that is deleted is made anew, with its tables, roles and first account: this process
made it at the start, holds the data folder alone, and nobody else can. A PostgreSQL database may be in the middle of
being restored, so there /readyz asks for `manage.py migrate`.
"""

import asyncio
import contextlib
import fcntl
import http.client
import os
import signal
import socket
import sys
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
from rollouts.cluster import ClusterError, RetryPolicy
from rollouts.runtime import database
from rollouts.runtime.connections import cluster_entries, connect_cluster, redis_client
from rollouts.runtime.embedded_redis import RedisMissingError, build_redis_command, data_folder_name, find_redis_server
from rollouts.runtime.private_folder import UMASK, NotPrivateError, ensure_private, remove_socket_folder
from rollouts.runtime.static_files import collect_static_files
from rollouts.runtime.supervisor import Log, Program, StartError, Supervisor
from rollouts.services.accounts import FirstAccount, account_ensure_first
from rollouts.telemetry import heartbeats

_DATABASE_CHECK_SECONDS: Final = 1.0

# How uvicorn serves the pages and the API, wherever it runs.
WEB_OPTIONS: Final = (
    # Who is believed about where a request comes from is a setting of ours: TRUSTED_PROXIES.
    *("--no-proxy-headers", "--no-access-log", "--log-level", "warning", "--lifespan", "off"),
    # Bounds what clients may send and keep open; there are no web sockets.
    *("--http", "grove_ui.http_protocol:BoundedProtocol", "--ws", "none"),
    # Longer than proxies keep theirs, so that none sends a command to a connection that is just being closed.
    *("--timeout-keep-alive", "90"),
)


class Command(BaseCommand):
    """Start Redis, sandbox, web, worker, watcher and beat; stop them on Ctrl-C."""

    help = "Start the whole product on this machine; Ctrl-C stops it."
    requires_system_checks = ()

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Prepare, run, and turn what went wrong into one sentence and a non-zero exit."""
        environment: Environment = settings.ENVIRONMENT
        os.umask(UMASK)  # the programs that are started inherit it
        try:
            ensure_private(environment.data_dir)
            with _lock_data_dir(environment.data_dir):
                _prepare(environment)
                asyncio.run(_run(environment, self.stdout))
        except (StartError, NotPrivateError, RedisMissingError, ClusterError) as error:
            sys.exit(f"grove-ui: {error}")


def _prepare(environment: Environment) -> None:
    """Look at everything that must be in place, and bring the database and static files up to date."""
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
        raise StartError(f"The database cannot be used: {_first_line(error)}") from error
    finally:
        connection.close()  # this process stays, and must not keep a database open that is deleted
    collect_static_files()


def _ensure_account(environment: Environment) -> FirstAccount:
    """Make sure that somebody can sign in. It is on record, and so on live pages: Redis must be there by now."""
    try:
        return account_ensure_first(environment.admin_user, environment.admin_password, environment.admin_token)
    except DatabaseError as error:
        raise StartError(f"The database cannot be used: {_first_line(error)}") from error
    finally:
        connection.close()  # that of the thread which this runs in


def find_warning(environment: Environment) -> str:
    """Return what to warn of before the start: passwords that cross a network unencrypted. Empty: nothing."""
    if environment.is_loopback or environment.https:
        return ""
    return (
        f"HOST is {environment.host} and HTTPS is 0: passwords, tokens and manifests cross the network unencrypted. "
        "Put a proxy that ends TLS in front and set HTTPS=1, or set HOST to 127.0.0.1."
    )


async def _run(environment: Environment, out: Any) -> None:
    """Start the programs one after the other, say where the product is, and wait for the end."""
    log = Log(sys.stdout)
    supervisor = Supervisor(log)
    loop = asyncio.get_running_loop()
    if warning := find_warning(environment):
        out.write(f"grove-ui: {warning}")
        out.flush()
    starting = asyncio.create_task(_start(supervisor, environment))
    keeping: asyncio.Task[None] | None = None
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop, supervisor, starting)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            out.write(_render_greeting(environment, await starting))
            out.flush()  # into a pipe it would wait for the buffer to fill
            if connection.vendor == "sqlite":
                keeping = asyncio.create_task(_keep_database_migrated(environment, log))
            await supervisor.wait()
    finally:
        if keeping is not None:
            keeping.cancel()
        await supervisor.stop()


async def _keep_database_migrated(environment: Environment, log: Log) -> None:
    """Make the database anew whenever it was deleted, and say so."""
    last_line = ""
    while True:
        await asyncio.sleep(_DATABASE_CHECK_SECONDS)
        line = await asyncio.to_thread(_repair_database, environment)
        if line and line != last_line:
            log.write("database", line)
        last_line = line


def _repair_database(environment: Environment) -> str:
    """Make a database anew that has no tables, or lacks migrations; return what there is to say about it."""
    try:
        if not database.list_missing_migrations():
            return ""
        if holders := database.list_processes_with_deleted_database():
            return f"deleted; made anew as soon as its last connections are closed (process {holders[0]})"
        was_empty = not connection.introspection.table_names()
        call_command("migrate", verbosity=0, interactive=False)
        account = _ensure_account(environment)
    except (DatabaseError, StartError, OSError) as error:
        return f"cannot be used: {_first_line(error)}"
    finally:
        connection.close()
    if not was_empty:
        return "lacked migrations, which are applied now"
    password = f", whose password is now {account.new_password}" if account.new_password else ""
    return (
        "was deleted and is made anew: the mirror fills by itself; history, overrides, accounts, tokens and audit are "
        f"lost. Sign in as {account.username}{password}"
    )


def _stop(supervisor: Supervisor, starting: "asyncio.Task[FirstAccount]") -> None:
    supervisor.request_stop()
    starting.cancel()


async def _start(supervisor: Supervisor, environment: Environment) -> FirstAccount:
    if not environment.redis_url:
        await supervisor.start(_redis(environment))
        await asyncio.to_thread(heartbeats.delete_all, redis_client())
    account = await asyncio.to_thread(_ensure_account, environment)
    if "sandbox" in environment.clusters:
        await supervisor.start(_sandbox(environment))
    for program in (_worker(), _beat(), _watcher(), _web(environment)):
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


def _worker() -> Program:
    # Gossip, mingle and heartbeat are for workers that watch each other; ours meet in the queue only.
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    return Program("worker", [sys.executable, "-m", "celery", "-q", "-A", "grove_ui", "worker", *quiet])


def _beat() -> Program:
    # The plain scheduler keeps no file: both tasks may run at any time, so there is nothing to remember.
    plain = ("--scheduler", "celery.beat:Scheduler")
    command = [sys.executable, "-m", "celery", "-q", "-A", "grove_ui", "beat", *plain]
    # It has nothing to bring to an end, and was once seen to go on after SIGTERM: Celery answers that by an exception
    # wherever beat happens to be, where it can get lost.
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
    # It answers once the worker has swept and the watcher has listed the cluster: three programs start meanwhile.
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
    """Connect once without the pool, which would try for long and keep the reason to itself."""
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.Error as error:
        raise StartError(
            f"The database of DATABASE_URL cannot be used ({_first_line(error)}); start it, correct DATABASE_URL, "
            "or unset DATABASE_URL to use SQLite"
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _check_clusters() -> None:
    """Refuse to start when none of the clusters can be used: with one that can there is work to do."""
    entries = cluster_entries()
    real = [entry.name for entry in entries if entry.kind != "sandbox"]
    troubles = [trouble for name in real if (trouble := _find_cluster_problem(name))]
    if real and len(troubles) == len(entries):
        raise StartError(
            f"{' '.join(troubles)} Start it, correct KUBECONFIG and KUBE_CONTEXT, or unset CLUSTER to use the sandbox"
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
                f"Port {port} on {host} cannot be had ({error.strerror}); stop the program that uses it, "
                f"or choose another port: {variable}={port + 10} make run"
            ) from error


@contextlib.contextmanager
def _lock_data_dir(data_dir: Path) -> Iterator[IO[str]]:
    """Hold the data folder: two supervisors on one database would start everything twice."""
    with (data_dir / "run.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            raise StartError(
                f"Grove UI is running already on {data_dir} (process {lock.read().strip() or 'unknown'}); "
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


def _render_greeting(environment: Environment, account: FirstAccount) -> str:
    shown = "localhost" if environment.host in ("127.0.0.1", "0.0.0.0", "::", "::1") else environment.host  # noqa: S104
    password = account.new_password or (
        "as you set it"
        if environment.admin_password
        else "as printed on the first run; GROVE_ADMIN_PASSWORD=… sets one"
    )
    lines = [
        "",
        f"  Grove UI answers at  http://{shown}:{environment.port}/",
        f"  Sign in as           {account.username}",
        f"  Password             {password}",
    ]
    if "sandbox" in environment.clusters:
        kubeconfig = environment.data_dir / "sandbox.kubeconfig"
        lines.append(f"  kubectl              KUBECONFIG={kubeconfig} kubectl get nodes,pcs,pods")
    return "\n".join([*lines, "  Ctrl-C stops everything; the data stays.", ""])
