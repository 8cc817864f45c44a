"""The product's web server with its own Redis and database, and a client of its feed."""

import contextlib
import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import Redis

from rollouts.live import change_feed
from rollouts.live.change_feed import Change
from rollouts.management.commands.run import WEB_OPTIONS
from tests.data_folders import ROOT, copy_database
from tests.project.running import wait_until
from tests.redis_process import RedisProcess

SECONDS = 60.0  # generous: only reached when something is broken
STREAM_LIMIT = 50  # of an account, unless told otherwise
TOKEN = "grove_only-for-the-feed-0123456789"
_ACCOUNT = f"""
from rollouts.models import ApiToken, User
from rollouts.accounts.tokens import digest_of
user = User.objects.create_superuser("ana", password="correct horse battery")
ApiToken.objects.create(user=user, name="feed", digest=digest_of({TOKEN!r}))
"""


def make_database(folder: Path) -> Path:
    """Make a database with an account and its token, to be copied."""
    database = copy_database(folder)
    environment = _environment(folder, f"unix://{folder}/none.sock")
    command = ["manage.py", "shell", "--verbosity", "0", "--command", _ACCOUNT]
    subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, check=True)
    return database


class WebServer:
    """A web process that listens on a socket in its data folder."""

    def __init__(self, folder: Path, redis: RedisProcess) -> None:
        self.redis_process = redis
        self.redis: Redis = Redis.from_url(redis.url)
        self._database = folder / "grove.sqlite3"
        self._socket = folder / "web.sock"
        # No limit to how long it may take to end: open answers must not hold it up.
        command = ["-m", "uvicorn", "grove_ui.asgi:application", "--uds", str(self._socket), *WEB_OPTIONS]
        self.process = subprocess.Popen([sys.executable, *command], cwd=ROOT, env=_environment(folder, redis.url))
        wait_until(self._answers, SECONDS)

    @property
    def threads(self) -> int:
        """How many it has."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("Threads:")[2].split()[0])

    def publish(self, *changes: Change) -> None:
        """Tell of changes, as watcher and worker do."""
        change_feed.publish(self.redis, changes)

    def execute(self, statement: str) -> None:
        """Change the database behind the server's back."""
        with sqlite3.connect(self._database, timeout=SECONDS) as connection:
            connection.execute(statement)

    def request(self, path: str, **headers: str) -> http.client.HTTPResponse:
        """Send a GET and return the answer, its body not read."""
        connection = _Connection(self._socket)
        connection.request(
            "GET", f"/api/v1/{path}", headers={name.replace("_", "-"): to for name, to in headers.items()}
        )
        return connection.getresponse()

    @contextlib.contextmanager
    def watch(self, parameters: str = "", last_id: str = "") -> Iterator["Watch"]:
        """Read the feed; after this begins, the server sends every published change."""
        headers = {"Authorization": f"Bearer {TOKEN}"} | ({"Last_Event_ID": last_id} if last_id else {})
        answer = self.request(f"feed/{parameters}", **headers)
        assert answer.status == 200, answer.read()
        watch = Watch(answer)
        try:
            watch.wait_for(lambda lines: any(line.startswith("retry:") for line in lines))
            yield watch
        finally:
            watch.leave()

    def stop(self) -> None:
        """End it, however it stands."""
        self.process.kill()
        self.process.wait()
        self.redis.close()

    def terminate(self) -> int:
        """Ask it to end, and return with what it does."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS)

    def _answers(self) -> bool:
        assert self.process.poll() is None, "the web server has ended"
        with contextlib.suppress(OSError):
            return self.request("feed/").status == 401
        return False


@dataclass(frozen=True, slots=True)
class Event:
    """A server-sent event."""

    name: str
    data: Any
    id: str


class Watch:
    """An open answer of the feed, read as it comes."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self._answer = answer
        self._lines: list[str] = []
        self.is_over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        """Everything that came."""
        return "\n".join(self._lines)

    @property
    def events(self) -> list[Event]:
        """What came, as browsers see it; without signs of life."""
        events, last_id = [], ""
        for block in self.text.split("\n\n")[:-1]:
            fields = dict(
                line.split(": ", 1) for line in block.split("\n") if ": " in line and not line.startswith(":")
            )
            last_id = fields.get("id", last_id)
            if "data" in fields and fields["event"] != "heartbeat":
                events.append(Event(fields["event"], json.loads(fields["data"]), last_id))
        return events

    @property
    def last_id(self) -> str:
        """What a browser would send when it connects again."""
        ids = [line.removeprefix("id: ") for line in self._lines if line.startswith("id: ")]
        return ids[-1] if ids else ""

    def wait_for(self, condition: Any) -> None:
        """Wait until it holds of the lines that came."""
        wait_until(lambda: condition(list(self._lines)), SECONDS, lambda: self.text)

    def wait_for_event(self, name: str, key: str = "") -> Event:
        """Wait for an event, and return the first of its name, and of its key if one is given."""
        wait_until(lambda: bool(self._find(name, key)), SECONDS, lambda: f"no {name} {key} in {self.text}")
        return self._find(name, key)[0]

    def wait_for_end(self) -> None:
        """Wait until the server ends it."""
        wait_until(lambda: self.is_over, SECONDS, lambda: self.text)

    def leave(self) -> None:
        """Break off."""
        with contextlib.suppress(OSError, AttributeError):  # it may be over already
            self._answer.fp.raw._sock.shutdown(socket.SHUT_RDWR)  # type: ignore[attr-defined]
        self._reader.join(SECONDS)
        self._answer.close()

    def _find(self, name: str, key: str) -> list[Event]:
        return [one for one in self.events if one.name == name and (not key or one.data["key"] == key)]

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError, http.client.HTTPException):
            while line := self._answer.readline():
                self._lines.append(line.decode().rstrip("\n"))
        self.is_over = True


class _Connection(http.client.HTTPConnection):
    """A connection by a socket in the file system."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(str(self._path))


def _environment(folder: Path, redis_url: str) -> dict[str, str]:
    return {
        **os.environ,
        "DATA_DIR": str(folder),
        "REDIS_URL": redis_url,
        "DATABASE_URL": "",
        "DJANGO_SETTINGS_MODULE": "tests.api.read.quick_settings",
        "STRANGER_RATE": "off",
        "API_RATE": "off",
    }
