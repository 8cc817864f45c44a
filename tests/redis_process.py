"""A real Redis server for tests, which can be killed and started again, with its data or without."""

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from redis import Redis, RedisError

from rollouts.runtime.embedded_redis import build_redis_command, find_redis_server

_SECONDS_TO_START = 60.0


class RedisProcess:
    """The server that listens on one socket."""

    def __init__(self, socket: Path, folder: Path) -> None:
        self.socket = socket
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"unix://{self.socket}"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        command = build_redis_command(find_redis_server(), socket=self.socket, folder=self._folder)
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + _SECONDS_TO_START
        with Redis.from_url(self.url) as client:
            while not _answers(client):
                assert time.monotonic() < deadline, "redis-server does not answer"
                time.sleep(0.02)

    def kill(self) -> None:
        """End the server as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=30)
            self._process = None

    def forget(self) -> None:
        """Delete the data of a stopped server."""
        shutil.rmtree(self._folder, ignore_errors=True)


@contextlib.contextmanager
def running_redis(socket: Path, folder: Path) -> Iterator[RedisProcess]:
    """Run a server until the block ends."""
    server = RedisProcess(socket, folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def _answers(client: Redis) -> bool:
    try:
        return bool(client.ping())
    except RedisError:
        return False
