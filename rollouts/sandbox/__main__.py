"""`python -m rollouts.sandbox`: serve a simulated cluster on loopback until told to stop.

Opens the data directory, makes the starting cluster when it is new, writes a kubeconfig for `kubectl`, and serves the
API and the simulation on one event loop. Everything is an environment variable with a working default:

    SANDBOX_PORT                 port on 127.0.0.1 (8001)
    DATA_DIR                     where the state, the lock and sandbox.kubeconfig are (var)
    SANDBOX_NODES                nodes to have, e.g. cpu=3,gpu=8 (also as --nodes); more are added to an old cluster too
    SANDBOX_SAMPLES              directory of manifests a new cluster starts with, or none (deploy/samples)
    SANDBOX_READY_SECONDS        from binding to Ready, give or take a tenth (2); a pod's own
                                 annotation sandbox.grove.io/ready-seconds goes before
    SANDBOX_TERMINATION_SECONDS  from delete to gone, never more than the grace period (1)

What cannot work — a busy port, a second sandbox on the same directory, an option that is no number — is said in one
sentence on standard error, and the exit code is not 0.
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
# How long connections stay open between requests, as an API server's do. With little, clients that pause that long send
# what changes things to a connection that is just being closed, and cannot know what became of it.
_KEEP_ALIVE_SECONDS: Final = 90
# A real cluster runs elsewhere: on a busy machine the simulated one takes what the product leaves.
_NICENESS: Final = 10
_HIGHEST_NICENESS: Final = 19


class StartupError(Exception):
    """The sandbox cannot start; the text is the sentence for the operator."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to run, read once at start."""

    port: int
    data_dir: Path
    nodes: NodeCounts | None  # None: the usual ones, and only in a new cluster
    samples: Path | None
    timings: KubeletTimings
    niceness: int  # how far it gives way to other processes, 0 to 19

    @property
    def kubeconfig(self) -> Path:
        """The file that `kubectl` and the product find the sandbox by."""
        return self.data_dir / "sandbox.kubeconfig"


def parse_options(variables: Mapping[str, str], arguments: list[str]) -> Options:
    """Read the options, or refuse with the name of the one that is wrong."""
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
    """Hold the data directory; the lock goes with the process, however it ends."""
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
    """Take the port before anything else is touched."""
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
    """Write a kubeconfig with the one context `sandbox`; a reader sees the old file or the new one, never half."""
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
    """A server that says when it truly answers, and whose open watches end when it is told to stop."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], None], on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start, self._on_stop = on_start, on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the watches first: they would hold the server up."""
        self._on_stop()
        await super().shutdown(sockets)


async def serve(options: Options, store: Storage, listener: socket.socket) -> None:
    """Run the API and the simulation until a signal comes."""
    clock = partial(datetime.now, UTC)
    registry = Registry.load(DEPLOY_DIRECTORY / "crds", validators=VALIDATORS, warners=WARNERS)
    verbs = Verbs(store, registry, clock)
    simulation = ControllerManager(verbs, store, clock, options.timings)
    ensure_seeded(verbs, options.nodes, options.samples)
    simulation.start()
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
    controllers_task = asyncio.create_task(simulation.run())
    try:
        await server.serve(sockets=[listener])
    finally:
        controllers_task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await controllers_task
        simulation.stop()


def _stop_on_signals(server: Server) -> None:
    """Make a signal that comes before the server listens to signals itself, or after, end it just as well.

    It raises the signal that ended it once more when it is done; by then there is nothing left to stop.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


def run(options: Options) -> None:
    """Take lock, port and store in this order, and give them back in the other."""
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
    """Run until stopped; 0 when that was asked for."""
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
