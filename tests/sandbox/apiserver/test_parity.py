"""The sandbox and a real kube-apiserver answer the same conversations with the same words.

The comparison leaves out what must differ (uids, times, revisions) and how often a cause is repeated.
"""

import http.client
import json
import re
import ssl
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from rollouts.cluster import ClusterClient, kubeconfig
from rollouts.sandbox.apiserver.builtin.refresh import Converter, convert_kind
from rollouts.sandbox.apiserver.registry import Registry
from tests.apiserver import HOW_TO_GET_THEM, ApiServer, install_definitions, missing_binaries, running_apiserver
from tests.parts import missing
from tests.sandbox.apiserver.conftest import DEFINITIONS
from tests.sandbox.apiserver.exchanges import CONVERSATIONS, Exchange
from tests.sandbox.apiserver.serving import Answer, Server
from tests.sandbox.apiserver.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.apiserver

_DIFFERENT = ("uid", "creationTimestamp", "resourceVersion", "time", "deletionTimestamp", "lastTransitionTime")
_MASKS = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
    (r"current: \d+", "current: N"),
    (r"in record \(\d+\)", "in record (N)"),
    (r"^(\d+[smhd])+$", "AGE"),
    (r"accepted media types include: .*", "accepted media types include"),
)


@pytest.fixture(scope="session")
def real() -> Iterator[ApiServer]:
    lacking = missing_binaries()
    if lacking:
        missing(" and ".join(lacking), HOW_TO_GET_THEM)
    with running_apiserver() as server:
        install_definitions(ClusterClient(kubeconfig(server.kubeconfig)), DEFINITIONS)
        yield server


def _ask_real(server: ApiServer) -> Callable[[Exchange], Answer]:
    context = ssl.create_default_context(cafile=str(server.ca_file))
    place = urlsplit(server.url)

    def ask(exchange: Exchange) -> Answer:
        connection = http.client.HTTPSConnection(
            place.hostname or "", place.port, context=context, timeout=PATIENCE_SECONDS
        )
        body = exchange.raw if exchange.raw is not None else None
        if exchange.body is not None:
            body = json.dumps(exchange.body).encode()
        headers = {"Authorization": f"Bearer {server.admin_token}", "User-Agent": "tests/1", **exchange.headers}
        if body is not None:
            headers["Content-Type"] = exchange.media
        connection.request(exchange.method, exchange.path, body=body, headers=headers)
        response = connection.getresponse()
        found: dict[str, str] = {}
        for name, value in response.getheaders():
            found[name.lower()] = f"{found[name.lower()]}\n{value}" if name.lower() in found else value
        answer = Answer(response.status, found, response.read())
        connection.close()
        return answer

    return ask


def _ask_sandbox(server: Server) -> Callable[[Exchange], Answer]:
    def ask(exchange: Exchange) -> Answer:
        return server.call(
            exchange.method,
            exchange.path,
            exchange.body,
            exchange.media,
            raw=exchange.raw,
            headers=exchange.headers,
        )

    return ask


def _comparable(answer: Answer) -> Any:
    media = answer.headers.get("content-type")
    warnings = sorted(answer.headers.get("warning", "").splitlines())
    retry = answer.headers.get("retry-after")
    try:
        body = _masked(json.loads(answer.body))
    except ValueError:
        body = answer.body.decode()
    return {"code": answer.code, "media": media, "warnings": warnings, "retry-after": retry, "body": body}


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: _masked(one) for key, one in value.items() if key not in _DIFFERENT}
        if value.get("kind") == "Status":
            _sort_causes(kept)
        # They are sorted by time, and the times of two servers may differ.
        kept.get("managedFields", []).sort(key=lambda entry: json.dumps(entry, sort_keys=True))
        for column in kept["columnDefinitions"] if value.get("kind") == "Table" else ():
            del column["description"]
        return {key: one for key, one in kept.items() if (key, one) != ("continue", "")}
    if isinstance(value, list):
        return [_masked(one) for one in value]
    if isinstance(value, str):
        for pattern, mask in _MASKS:
            value = re.sub(pattern, mask, value)
    return value


def _sort_causes(status: dict[str, Any]) -> None:
    """Sort the causes and remove duplicates: the real server's order is random, and it repeats some."""
    causes = status.get("details", {}).get("causes", [])
    if status.get("reason") == "Invalid" and len(causes) > 1:
        told = {json.dumps(cause, sort_keys=True) for cause in causes}
        status["details"]["causes"] = sorted(told)
        status["message"] = status["message"].partition(" is invalid: ")[0]


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_sandbox_answers_as_a_real_server_does(server: Server, real: ApiServer, name: str) -> None:
    ask_real, ask_sandbox = _ask_real(real), _ask_sandbox(server)
    for number, exchange in enumerate(CONVERSATIONS[name]):
        expected, found = _comparable(ask_real(exchange)), _comparable(ask_sandbox(exchange))
        said = f"{name} {number}: {exchange.method} {exchange.path} {exchange.body or exchange.raw!r}"
        assert found == expected, said


def test_the_built_in_schemas_are_those_of_the_real_server(real: ApiServer, registry: Registry) -> None:
    ask = _ask_real(real)
    converters: dict[str, Converter] = {}
    for kind in registry:
        if not kind.builtin:
            continue
        place = f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}"
        if place not in converters:
            converters[place] = Converter(ask(Exchange("GET", f"/openapi/v3/{place}")).json)
        (version,) = kind.manifest["spec"]["versions"]
        expected = convert_kind(converters[place], kind.group, kind.version, kind.kind)
        assert version["schema"]["openAPIV3Schema"] == expected, kind.plural
