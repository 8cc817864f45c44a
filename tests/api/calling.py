"""A client of the API with a token, for tests that look at answers."""

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import orjson
from django.test import Client
from django.utils import timezone

from rollouts.accounts.tokens import digest_of
from rollouts.models import ApiToken, User
from tests.api.scene import CLUSTER, NAME, NAMESPACE

HERE = f"/api/v1/workloads/{CLUSTER}/{NAMESPACE}/{NAME}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    body: Any
    headers: dict[str, str]

    @property
    def fields(self) -> list[str]:
        """The fields that a problem names."""
        return [finding["field"] for finding in self.body["findings"]]


@dataclass(slots=True)
class Api:
    """A caller with a token."""

    token: str
    client: Client = field(default_factory=lambda: Client(raise_request_exception=False))

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send a request; names of headers are written with underscores. Bytes are sent as they are."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        kind = sent.pop("Content-Type", "application/json")
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        address = path if path.startswith("/") else f"{HERE}/{path}"
        answer = self.client.generic(
            method, address, data, kind, headers={"Authorization": f"Bearer {self.token}", **sent}
        )
        is_json = "json" in answer.headers.get("Content-Type", "")
        return Answer(answer.status_code, orjson.loads(answer.content) if is_json else None, dict(answer.headers))

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        """Give a command."""
        return self.call("POST", path, body, **headers)


def make_api(username: str = "ada") -> Api:
    """Make an account that may do everything, with a token."""
    user = User.objects.create_superuser(username)
    token = f"grove_{username}-0123456789-0123456789"
    # Its use is noted once a minute, which would be a query more wherever a minute happens to be over.
    noted = timezone.now() + timedelta(days=1)
    ApiToken.objects.create(user=user, name="tests", digest=digest_of(token), last_used_at=noted)
    return Api(token)
