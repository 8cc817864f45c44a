"""One HTTP exchange with an API server: a request, and an answer or a stream.

Before it: `client` and `watch`, which know verbs and objects; this module knows neither. After it: urllib3, whose pool
keeps connections open and is safe for many threads.

The invariants: every exchange has a timeout; every failure below HTTP is raised as `Unavailable`; nothing is sent
twice, except after a 401 (the server has done nothing) if new credentials are found. The configuration is loaded again
after a 401 and when the server cannot be reached.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from typing import Self
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies

import urllib3
from kubernetes.client import Configuration
from kubernetes.client.rest import RESTClientObject
from urllib3.connection import HTTPConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    InsecureRequestWarning,
    NewConnectionError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)

from rollouts.cluster.config import ConfigurationLoader, current_authorization
from rollouts.cluster.errors import Misconfigured, Unavailable
from rollouts.cluster.retry_policy import RetryPolicy

logger = logging.getLogger(__name__)

USER_AGENT = "grove-ui"
_CHUNK = 1 << 16
# Errors without a connection: the server has received nothing.
_CONNECT_ERRORS = (NewConnectionError, ConnectTimeoutError, SSLError, ProxyError)
# A wrong token gets a 401 at every call; its source, which may be a slow plugin, is not called each time.
_RELOAD_INTERVAL = 10.0


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request."""

    call: str  # the request in words, verb and resource first, for error messages and metrics
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"

    @property
    def target(self) -> str:
        """Path and query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


@dataclass(frozen=True, slots=True)
class Response:
    """A complete answer."""

    code: int
    body: bytes
    retry_after: str | None


class Connection:
    """The connections to one API server. Safe to share between threads, not across a fork."""

    def __init__(self, source: ConfigurationLoader, *, pool_size: int) -> None:
        self._load_configuration = source
        self._pool_size = pool_size
        self._lock = threading.Lock()
        self._session = _Session(source(), pool_size)
        self._reloaded_at = float("-inf")

    @property
    def url(self) -> str:
        """The URL of the server without credentials."""
        parts = urlsplit(self._session.base)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def is_verified(self) -> bool:
        """Whether the server's certificate is verified; True for plain HTTP, which has none."""
        return self._session.is_verified

    def send(self, request: Request, retry_policy: RetryPolicy) -> Response:
        """Send a request and read the whole answer, whatever its status."""
        return _read_response(request, self._open(request, retry_policy), retry_policy)

    def stream(self, request: Request, retry_policy: RetryPolicy) -> "Stream | Response":
        """Send a request and return the answer as a stream of lines, or as a whole if it is not a success."""
        response = self._open(request, retry_policy)
        if response.status == HTTPStatus.OK:
            return Stream(request, response, retry_policy.watch_idle_timeout)
        return _read_response(request, response, retry_policy)

    def close(self) -> None:
        """Close the idle connections."""
        self._session.pool.clear()

    def _open(self, request: Request, retry_policy: RetryPolicy) -> urllib3.BaseHTTPResponse:
        session = self._session
        try:
            response = session.open(request, retry_policy)
        except Unavailable as error:
            if isinstance(error.__cause__, _CONNECT_ERRORS):
                # A cluster that was created again may have a new address; the next call uses it.
                self._reload(session)
            raise
        if response.status == HTTPStatus.UNAUTHORIZED:
            reloaded = self._reload(session)
            if reloaded is not session:
                response.close()
                return reloaded.open(request, retry_policy)
        return response

    def _reload(self, rejected: "_Session") -> "_Session":
        """Return a session of a new configuration, or the rejected session if the configuration has not changed."""
        with self._lock:
            if self._session is not rejected or time.monotonic() - self._reloaded_at < _RELOAD_INTERVAL:
                return self._session
            self._reloaded_at = time.monotonic()
            try:
                reloaded = _Session(self._load_configuration(), self._pool_size)
            except Misconfigured as error:
                logger.warning("The cluster configuration could not be reloaded: %s", error)
                return rejected
            if reloaded.fingerprint != rejected.fingerprint:
                self._session = reloaded
                rejected.pool.clear()
            return self._session


class _Session:
    """One loaded configuration: an address, a connection pool, credentials.

    A server that rejects one session also rejects every other session with the same fingerprint.
    """

    def __init__(self, configuration: Configuration, pool_size: int) -> None:
        configuration.connection_pool_maxsize = pool_size
        configuration.keep_alive = True
        # Always assigned: otherwise the package searches the environment for proxies at every request.
        configuration.proxy = _choose_proxy(configuration)
        self.base: str = configuration.host.rstrip("/")
        self.pool: urllib3.PoolManager = RESTClientObject(configuration).pool_manager
        self.is_verified: bool = bool(configuration.verify_ssl) or not self.base.startswith("https:")
        if not self.is_verified:
            # urllib3 would warn at every request; the watcher logs it once.
            urllib3.disable_warnings(InsecureRequestWarning)
        self._configuration = configuration
        # One thread fetches expired credentials; the others wait for the result.
        self._lock = threading.Lock()
        certificates = (
            *_identify_certificate(configuration.cert_file),
            *_identify_certificate(configuration.ssl_ca_cert),
        )
        self.fingerprint = (self.base, self._authorization(), *certificates)

    def open(self, request: Request, retry_policy: RetryPolicy) -> urllib3.BaseHTTPResponse:
        """Send the request and return as soon as the headers of the answer have arrived."""
        try:
            return self.pool.urlopen(
                request.method,
                self.base + request.target,
                body=request.body,
                headers=self._headers(request),
                timeout=urllib3.Timeout(connect=retry_policy.connect_timeout, read=retry_policy.read_timeout),
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except (HTTPError, OSError) as error:
            raise Unavailable(f"{request.call}: {_describe(error, retry_policy)}") from error

    def _headers(self, request: Request) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": USER_AGENT}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        authorization = self._authorization()
        if authorization:
            headers["Authorization"] = authorization
        return headers

    def _authorization(self) -> str | None:
        with self._lock:
            return current_authorization(self._configuration)


class Stream:
    """An answer that arrives line by line. Any thread may interrupt it."""

    def __init__(self, request: Request, response: urllib3.BaseHTTPResponse, idle_timeout: float) -> None:
        self._request = request
        self._response = response
        self._set_idle_timeout(idle_timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def lines(self) -> Iterator[bytes]:
        """Yield the lines until the server ends the stream, nothing arrives for too long, or it is interrupted."""
        buffer = bytearray()
        while chunk := self._read():
            buffer += chunk
            if b"\n" in chunk:
                *whole, rest = buffer.split(b"\n")
                buffer = bytearray(rest)
                yield from (bytes(line) for line in whole if line)

    def interrupt(self) -> None:
        """End the stream: a thread that waits in it returns at once."""
        # Raised if the stream has just ended by itself.
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            self._response.shutdown()

    def close(self) -> None:
        """Close the connection; only for the thread that reads."""
        self._response.close()

    def _read(self) -> bytes:
        try:
            return self._response.read1(_CHUNK)
        except ReadTimeoutError:
            # Silence is not a failure: the caller opens the stream again, which shows whether the server answers.
            return b""
        except (HTTPError, OSError) as error:
            raise Unavailable(f"{self._request.call}: the stream broke off") from error

    def _set_idle_timeout(self, seconds: float) -> None:
        connection = self._response.connection
        if isinstance(connection, HTTPConnection) and connection.sock is not None:
            connection.sock.settimeout(seconds)


def _read_response(request: Request, response: urllib3.BaseHTTPResponse, retry_policy: RetryPolicy) -> Response:
    """Read an answer to its end, however slowly it arrives, up to the deadline."""
    deadline = time.monotonic() + retry_policy.deadline
    chunks = []
    try:
        while chunk := response.read1(_CHUNK):
            chunks.append(chunk)
            if time.monotonic() > deadline:
                # The rest of it would be read as the next answer.
                response.close()
                raise Unavailable(f"{request.call}: the answer was not complete after {retry_policy.deadline:g} s")
    except (HTTPError, OSError) as error:
        raise Unavailable(f"{request.call}: {_describe(error, retry_policy)}") from error
    return Response(response.status, b"".join(chunks), response.headers.get("Retry-After"))


def _describe(error: Exception, retry_policy: RetryPolicy) -> str:
    """Return what failed below HTTP; the messages of the libraries are in the chained cause."""
    match error:
        case NewConnectionError():
            return "the API server cannot be reached"
        case ConnectTimeoutError():
            return f"no connection within {retry_policy.connect_timeout:g} s"
        case ReadTimeoutError():
            return f"no answer within {retry_policy.read_timeout:g} s"
        case SSLError():
            return "the TLS handshake failed"
        case ProxyError():
            return "the proxy cannot be reached"
        case _:
            return "the connection broke off"


def _choose_proxy(configuration: Configuration) -> str | None:
    """Return the proxy; none if only the environment names it and the server is on this machine."""
    proxy: str | None = configuration.proxy
    return None if _is_loopback(configuration.host) and proxy in getproxies().values() else proxy


def _identify_certificate(path: str | None) -> tuple[str | None, int]:
    """Return what changes when a certificate file is replaced."""
    try:
        return path, Path(path).stat().st_mtime_ns if path else 0
    except OSError:
        return path, 0  # the error appears when the file is used


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
