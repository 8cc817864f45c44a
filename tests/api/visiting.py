"""A visitor of the running product: with a token as automation comes, or signed in as a browser does."""

import json
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from email.message import Message
from http.cookiejar import CookieJar
from typing import Any
from urllib.parse import urlencode

_SECONDS = 60
_CSRF = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, whatever the status."""

    status: int
    headers: Message
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode(errors="replace")

    @property
    def json(self) -> Any:
        """The body as a value."""
        return json.loads(self.body)

    @property
    def everything(self) -> str:
        """Headers and body, as one text to search in."""
        return f"{self.status}\n{self.headers}\n{self.text}"


class Visitor:
    """Keeps its cookies, follows redirects, and takes an error for an answer."""

    def __init__(self, url: str, token: str = "") -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))

    def get(self, path: str, **headers: str) -> Answer:
        """Read a page or an endpoint."""
        return self._open(urllib.request.Request(self._url + path, headers={**self._headers, **headers}))

    def send(self, path: str, body: Any, method: str = "POST", **headers: str) -> Answer:
        """Send a value as JSON, or bytes as they are."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {"Content-Type": "application/json", **self._headers, **headers}
        return self._open(urllib.request.Request(self._url + path, data=data, method=method, headers=named))

    def submit(self, path: str, **fields: str) -> Answer:
        """Fill in the form of a page and send it."""
        found = _CSRF.search(self.get(path).text)
        token = {"csrfmiddlewaretoken": found[1]} if found else {}
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Referer": self._url + path}
        data = urlencode({**token, **fields}).encode()
        return self._open(urllib.request.Request(self._url + path, data=data, headers=headers))

    def sign_in(self, name: str, password: str) -> Answer:
        """Sign in as a browser does."""
        return self.submit("/sign-in/", username=name, password=password)

    def _open(self, request: urllib.request.Request) -> Answer:
        try:
            with self._opener.open(request, timeout=_SECONDS) as response:
                return Answer(response.status, response.headers, response.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.headers, error.read())
