"""Requests that the adapter cannot send: malformed, too large, of the wrong type, or in forms only kubectl uses.

The contract covers the responses to these as well.
"""

import http.client
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import urllib3
import yaml


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """A response of the server."""

    code: int
    body: bytes
    warnings: tuple[str, ...] = ()  # the texts of its Warning headers

    @property
    def status(self) -> dict[str, Any]:
        """The body as a Status object, which every error must be."""
        parsed: dict[str, Any] = orjson.loads(self.body)
        assert parsed["kind"] == "Status", parsed
        assert parsed["status"] == "Failure", parsed
        assert parsed["code"] == self.code, parsed
        return parsed

    @property
    def obj(self) -> dict[str, Any]:
        """The body as an object."""
        assert 200 <= self.code < 300, self.body
        parsed: dict[str, Any] = orjson.loads(self.body)
        return parsed


class Raw:
    """Plain HTTP to the server that a kubeconfig names."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        token = config["users"][0]["user"].get("token") if config.get("users") else None
        self._base = cluster["server"]
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._authority = cluster.get("certificate-authority")
        self._pool = urllib3.PoolManager(ca_certs=self._authority)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> RawAnswer:
        """Send a request; a body that is not bytes is sent as JSON."""
        data = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        answer = self._pool.request(
            method,
            self._base + path,
            body=data,
            headers={"Content-Type": content_type} | self._headers | (headers or {}),
            timeout=60,
            retries=False,
        )
        return RawAnswer(answer.status, answer.data, tuple(answer.headers.getlist("Warning")))

    @contextmanager
    def connection(self) -> Iterator[Callable[[str], int]]:
        """Open one connection for GET requests; it is not reopened if the server closes it."""
        address = urlsplit(self._base)
        connection = http.client.HTTPConnection(address.netloc, timeout=60)
        if address.scheme == "https":
            context = ssl.create_default_context(cafile=self._authority)
            connection = http.client.HTTPSConnection(address.netloc, timeout=60, context=context)

        def get(path: str) -> int:
            connection.request("GET", path, headers=self._headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status

        with closing(connection):
            connection.connect()
            connection.auto_open = 0
            yield get

    @contextmanager
    def watch(self, path: str) -> Iterator[Iterator[dict[str, Any]]]:
        """Open a watch and yield its events, until the server or the block ends it."""
        answer = self._pool.request(
            "GET",
            self._base + path,
            headers=self._headers,
            timeout=60,
            retries=False,
            preload_content=False,
        )
        try:
            assert answer.status == 200, answer.data
            yield _events(answer)
        finally:
            answer.close()


def _events(answer: urllib3.BaseHTTPResponse) -> Iterator[dict[str, Any]]:
    rest = b""
    while chunk := answer.read1(1 << 16):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (orjson.loads(line) for line in lines if line)
