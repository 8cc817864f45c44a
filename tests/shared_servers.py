"""Servers that all processes of a test run share: one kube-apiserver instead of one for each process.

pytest-xdist runs the tests in several processes. The main process, which runs none of them, owns the shared servers: it
starts a server when a test first asks for it and stops all of them when the run ends. A test process asks by name over
a Unix socket and gets the server's address. Tests use namespaces of their own, and never stop or restart a shared
server; a test that must do so starts its own. `tests/servers.py` defines the servers.

Without pytest-xdist the main process runs the tests and asks itself in the same way; a benchmark owns the servers that
it asks for.
"""

import atexit
import importlib
import os
import tempfile
import threading
from concurrent.futures import Future
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, Final

ADDRESS_VARIABLE: Final = "GROVE_TEST_SERVERS"
_KEY: Final = b"grove-ui-tests"
_STOP: Final = ""  # the name that ends the accepting thread
# Imported when the first test asks: the engine's tests need neither servers nor what those are made of.
_SERVERS: Final = "tests.servers"


class SharedServerError(Exception):
    """A shared server did not start; the text says why."""


class SharedServers:
    """Starts each server once and answers test processes that ask for it."""

    def __init__(self) -> None:
        self._running: dict[str, Future[Any]] = {}
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._folder = tempfile.TemporaryDirectory(prefix="grove-ui-servers-")
        address = str(Path(self._folder.name) / "socket")
        self._listener = Listener(address, "AF_UNIX", authkey=_KEY)
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()
        os.environ[ADDRESS_VARIABLE] = address

    def close(self) -> None:
        """Stop every server that was started."""
        os.environ.pop(ADDRESS_VARIABLE, None)
        with Client(str(self._listener.address), "AF_UNIX", authkey=_KEY) as connection:
            connection.send(_STOP)
        self._accepting.join()
        self._listener.close()
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._folder.cleanup()

    def _accept(self) -> None:
        while True:
            connection = self._listener.accept()
            name = connection.recv()
            if name == _STOP:
                return
            threading.Thread(target=self._answer, args=(connection, name), daemon=True).start()

    def _answer(self, connection: Connection, name: str) -> None:
        with connection:
            try:
                answer: Any = self._find(name).result()
            except Exception as error:
                answer = SharedServerError(f"{name}: {error}")
            connection.send(answer)

    def _find(self, name: str) -> "Future[Any]":
        with self._lock:
            if name not in self._running:
                self._running[name] = Future()
                # The kernel ends a server with the thread that started it (PR_SET_PDEATHSIG): it needs one that stays.
                thread = threading.Thread(target=self._run, args=(name, self._running[name]), daemon=True)
                self._threads.append(thread)
                thread.start()
            return self._running[name]

    def _run(self, name: str, described: "Future[Any]") -> None:
        try:
            with getattr(importlib.import_module(_SERVERS), name)() as description:
                described.set_result(description)
                self._over.wait()
        except Exception as error:
            if described.done():
                raise
            described.set_exception(error)


def find_shared_server(name: str) -> Any:
    """Return the description of a shared server; the first call starts it."""
    if ADDRESS_VARIABLE not in os.environ:
        atexit.register(SharedServers().close)
    with Client(os.environ[ADDRESS_VARIABLE], "AF_UNIX", authkey=_KEY) as connection:
        connection.send(name)
        answer = connection.recv()
    if isinstance(answer, SharedServerError):
        raise answer
    return answer
