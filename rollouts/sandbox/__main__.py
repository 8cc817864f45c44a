"""`python -m rollouts.sandbox`: serve a simulated cluster on loopback until a signal ends it.

Opens the data directory, seeds the cluster when the directory is new, writes a kubeconfig for `kubectl`, and runs the
API server and the controllers on one event loop. Every option is an environment variable with a working default:

    SANDBOX_PORT                 port on 127.0.0.1 (8001)
    DATA_DIR                     where the state, the lock and sandbox.kubeconfig are (var)
    SANDBOX_NODES                nodes to have, e.g. cpu=3,gpu=8 (also as --nodes); more are added to an old cluster too
    SANDBOX_SAMPLES              directory of manifests a new cluster starts with, or none (deploy/samples)
    SANDBOX_READY_SECONDS        from binding to Ready, give or take a tenth (2); a pod's own
                                 annotation sandbox.grove.io/ready-seconds has precedence
    SANDBOX_TERMINATION_SECONDS  from delete to gone, never more than the grace period (1)
    SANDBOX_NICENESS             how far the process gives way to others, 0 to 19 (10)

When it cannot start — the port is in use, another sandbox runs on the directory, an option is no number — it prints one
sentence to standard error and exits with a code other than 0.
"""

import argparse
import asyncio
import contextlib
import errno
import fcntl
import json
import logging
import os
import signal
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

import uvicorn
import uvloop

from rollouts.runtime.gc_tuning import tune_garbage_collector
from rollouts.runtime.private_folder import UMASK, NotPrivateError, ensure_private
from rollouts.sandbox.admission_webhook import VALIDATORS, WARNERS
from rollouts.sandbox.apiserver.asgi import Application
from rollouts.sandbox.apiserver.registry import Registry
from rollouts.sandbox.apiserver.storage import Storage
from rollouts.sandbox.apiserver.verbs import Verbs
from rollouts.sandbox.cluster.controller_manager import ControllerManager
from rollouts.sandbox.cluster.pod_lifecycle import KubeletTimings
from rollouts.sandbox.seed import NodeCounts, ensure_seeded, parse_node_counts

log: Final = logging.getLogger("sandbox")

HOST: Final = "127.0.0.1"
DEPLOY_DIRECTORY: Final = Path(__file__).parents[2] / "deploy"
_HIGHEST_PORT: Final = 65535
# How long idle connections stay open, as long as an API server's. With a short time, a client that pauses about that
# long sends a write to a connection that is just closing, and cannot know whether the write took effect.
_KEEP_ALIVE_SECONDS: Final = 90
# A real cluster runs on other machines, so on a busy machine the simulated one gives way to the product.
_NICENESS: Final = 10
_HIGHEST_NICENESS: Final = 19


class StartupError(Exception):
    """The sandbox cannot start; the text tells the operator why."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to run, read once at start."""

    port: int
    data_dir: Path
    nodes: NodeCounts | None  # None: the default ones, and only in a new cluster
    samples: Path | None
    timings: KubeletTimings
    niceness: int  # how far it gives way to other processes, 0 to 19

    @property
    def kubeconfig(self) -> Path:
        """The file with which `kubectl` and the product connect to the sandbox."""
        return self.data_dir / "sandbox.kubeconfig"


def parse_options(variables: Mapping[str, str], arguments: list[str]) -> Options:
    """Read the options; a StartupError names the option that is wrong."""
    parser = argparse.ArgumentParser(prog="python -m rollouts.sandbox", description="Serve a simulated cluster.")
    parser.add_argument("--nodes", help="nodes to have, e.g. cpu=3,gpu=8", default=variables.get("SANDBOX_NODES"))
    nodes = parser.parse_args(arguments).nodes
    samples = variables.get("SANDBOX_SAMPLES") or str(DEPLOY_DIRECTORY / "samples")
    port = _parse_number(variables, "SANDBOX_PORT", 8001)
    if port != int(port) or port > _HIGHEST_PORT:
        raise StartupError(f"SANDBOX_PORT must be a port number, not {variables['SANDBOX_PORT']!r}")
    niceness = _parse_number(variables, "SANDBOX_NICENESS", _NICENESS)
    if niceness != int(niceness) or niceness > _HIGHEST_NICENESS:
        raise StartupError(
            f"SANDBOX_NICENESS must be a whole number from 0 to {_HIGHEST_NICENESS}, "
            f"not {variables['SANDBOX_NICENESS']!r}"
        )
    try:
        counts = parse_node_counts(nodes) if nodes else None
    except ValueError as error:
        raise StartupError(f"SANDBOX_NODES: {error}") from error
    return Options(
        port=int(port),
        data_dir=Path(variables.get("DATA_DIR") or "var"),
        nodes=counts,
        samples=None if samples == "none" else Path(samples),
        timings=KubeletTimings(
            ready=_parse_number(variables, "SANDBOX_READY_SECONDS", KubeletTimings().ready),
            termination=_parse_number(variables, "SANDBOX_TERMINATION_SECONDS", KubeletTimings().termination),
        ),
        niceness=int(niceness),
    )


def _parse_number(variables: Mapping[str, str], name: str, default: float) -> float:
    text = variables.get(name) or str(default)
    try:
        number = float(text)
    except ValueError:
        number = -1
    if not 0 <= number < float("inf"):
        raise StartupError(f"{name} must be a number that is not negative, not {text!r}")
    return number


@contextlib.contextmanager
def lock_data_dir(data_dir: Path) -> Iterator[None]:
    """Lock the data directory; the operating system releases the lock when the process ends, however it ends."""
    try:
        ensure_private(data_dir)
        file = (data_dir / "sandbox.lock").open("w")
    except NotPrivateError as error:
        raise StartupError(str(error)) from error
    except OSError as error:
        raise StartupError(f"cannot write to DATA_DIR {data_dir}: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StartupError(f"another sandbox is already running on DATA_DIR {data_dir}") from error
        yield


def bind_port(port: int) -> socket.socket:
    """Bind the port; nothing has been written yet when that fails."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as error:
        listener.close()
        why = "is in use by another program" if error.errno == errno.EADDRINUSE else f"fails: {error.strerror}"
        raise StartupError(f"port {port} on {HOST} {why}; choose another with SANDBOX_PORT") from error
    return listener


def write_kubeconfig(path: Path, port: int) -> None:
    """Write a kubeconfig with the one context `sandbox`, atomically."""
    context = {"cluster": "sandbox", "user": "sandbox", "namespace": "default"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "sandbox",
        "clusters": [{"name": "sandbox", "cluster": {"server": f"http://{HOST}:{port}"}}],
        "users": [{"name": "sandbox", "user": {}}],
        "contexts": [{"name": "sandbox", "context": context}],
    }
    draft = path.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(config, file, indent=2)
    draft.replace(path)


class Server(uvicorn.Server):
    """A server that calls back once it answers requests, and that ends open watches when it stops."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], None], on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start, self._on_stop = on_start, on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to answer requests."""
        await super().startup(sockets)
        self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the watches first: the server waits for open responses."""
        self._on_stop()
        await super().shutdown(sockets)


async def serve(options: Options, store: Storage, listener: socket.socket) -> None:
    """Run the API server and the controllers until a signal arrives."""
    clock = partial(datetime.now, UTC)
    registry = Registry.load(DEPLOY_DIRECTORY / "crds", validators=VALIDATORS, warners=WARNERS)
    verbs = Verbs(store, registry, clock)
    controllers = ControllerManager(verbs, store, clock, options.timings)
    ensure_seeded(verbs, options.nodes, options.samples)
    controllers.start()
    application = Application(verbs, store, registry)
    config = uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=1,
    )
    port = listener.getsockname()[1]
    write_kubeconfig(options.kubeconfig, port)

    def announce() -> None:
        nodes, pods = (store.count(registry.kind(plural)) for plural in ("nodes", "pods"))
        log.info("a cluster of %d nodes and %d pods at http://%s:%d", nodes, pods, HOST, port)
        log.info("kubectl --kubeconfig %s get nodes,pcs,pods", options.kubeconfig)

    server = Server(config, announce, application.close)
    _stop_on_signals(server)
    task = asyncio.create_task(controllers.run())
    try:
        await server.serve(sockets=[listener])
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        controllers.stop()


def _stop_on_signals(server: Server) -> None:
    """Stop the server also on a signal that arrives before or after uvicorn's own handlers are installed.

    uvicorn raises the signal that ended it once more when it has shut down; by then there is nothing left to stop.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


def run(options: Options) -> None:
    """Acquire lock, port and store in this order, and release them in reverse."""
    with lock_data_dir(options.data_dir), contextlib.closing(bind_port(options.port)) as listener:
        try:
            store = Storage.open(options.data_dir / "sandbox.sqlite3")
        except sqlite3.Error as error:
            raise StartupError(f"cannot open the state in DATA_DIR {options.data_dir}: {error}") from error
        with contextlib.closing(store), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            tune_garbage_collector()
            os.nice(options.niceness)
            runner.run(serve(options, store, listener))
    log.info("stopped; the state is kept in %s", options.data_dir)


def main() -> int:
    """Run until stopped; return 0 when a signal asked for that."""
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
    os.umask(UMASK)
    try:
        run(parse_options(os.environ, sys.argv[1:]))
    except StartupError as refusal:
        sys.stderr.write(f"sandbox: {refusal}\n")
        return 1
    except KeyboardInterrupt:  # while it was still starting
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(main())
