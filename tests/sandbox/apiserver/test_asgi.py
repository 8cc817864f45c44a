"""Requests over HTTP: which are served, which are rejected, and that a rejected one stores nothing."""

import json
import socket

import pytest

from tests.sandbox.apiserver.objects import PODS, WIDGETS, pod, widget
from tests.sandbox.apiserver.serving import APPLY, MERGE, Server
from tests.sandbox.apiserver.waiting import PATIENCE_SECONDS


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8001", "[::1]", "[::1]:80", "localhost"])
def test_this_machine_is_served(server: Server, host: str) -> None:
    assert server.call("GET", PODS, headers={"Host": host}).code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8001", "127.0.0.1.evil.example", "[::2]", ""])
def test_other_hosts_are_not(server: Server, host: str) -> None:
    answer = server.call("GET", PODS, headers={"Host": host})
    assert (answer.code, answer.json["reason"]) == (403, "Forbidden")


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_web_page_cannot_steer_the_sandbox(server: Server, method: str) -> None:
    headers = {"Origin": "http://localhost:8001"}
    assert server.call(method, PODS, pod() if method == "POST" else None, headers=headers).code == 403
    assert server.call("GET", PODS).json["items"] == []


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_of_another_site_cannot_steer_the_sandbox(server: Server, site: str) -> None:
    assert server.call("POST", PODS, pod(), headers={"Sec-Fetch-Site": site}).code == 403
    assert server.call("GET", PODS, headers={"Sec-Fetch-Site": "none"}).json["items"] == []


def test_a_body_without_a_type_is_refused_as_a_beacon_sends_one(server: Server) -> None:
    body = json.dumps(pod()).encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS) as raw:
        head = f"POST {PODS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        raw.sendall(head.encode() + body)
        assert raw.recv(12) == b"HTTP/1.1 415"
    assert server.call("GET", PODS).json["items"] == []


@pytest.mark.parametrize(
    "media", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml"]
)
def test_form_bodies_are_refused(server: Server, media: str) -> None:
    answer = server.call("POST", PODS, pod(), media)
    assert (answer.code, answer.json["reason"]) == (415, "UnsupportedMediaType")
    assert server.call("GET", PODS).json["items"] == []


def test_a_body_over_the_limit_is_refused_and_not_stored(server: Server) -> None:
    big = {**widget(), "spec": {"size": "small", "free": {"x": "y" * (3 * 1024 * 1024)}}}
    answer = server.call("POST", WIDGETS, big)
    assert (answer.code, answer.json["reason"]) == (413, "RequestEntityTooLarge")
    assert server.call("GET", WIDGETS).json["items"] == []
    fits = {**widget(), "spec": {"size": "small", "free": {"x": "y" * (3 * 1024 * 1024 - 1000)}}}
    assert server.call("POST", WIDGETS, fits).code == 201


def test_a_body_that_declares_too_much_is_refused_before_it_comes(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS) as raw:
        head = f"POST {WIDGETS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        raw.sendall(f"{head}Content-Length: 99999999\r\n\r\n".encode())
        assert raw.recv(12) == b"HTTP/1.1 413"


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"apiVersion":"test.grove.io/v1alpha1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":"small","free":'
        + b'{"a":' * 500
        + b"1"
        + b"}" * 502,
        b'{"kind":"Widget","apiVersion":"test.grove.io/v1alpha1","metadata":{"name":"w"},"spec":{"replicas":1'
        + b"0" * 400
        + b"}}",
        b"\xff\xfe{}",
        b'{"metadata":{"name":"\\ud800"}}',
        b"null",
        b"NaN",
    ],
)
def test_hostile_bodies_are_refused_and_leave_the_server_well(server: Server, body: bytes) -> None:
    answer = server.call("POST", WIDGETS, raw=body)
    assert answer.code in {400, 422}, answer
    assert answer.json["kind"] == "Status"
    assert server.call("GET", WIDGETS).json["items"] == []


@pytest.mark.parametrize("body", [b"a: [", b"a: &x [*x]", b"? {a: b}\n: c", b"!!python/object:os.system {}", b"- 1"])
def test_hostile_yaml_is_refused(server: Server, body: bytes) -> None:
    answer = server.call("PATCH", f"{WIDGETS}/w?fieldManager=m", raw=body, media=APPLY)
    assert answer.code == 400, answer
    assert answer.json["kind"] == "Status"


def test_a_timestamp_in_yaml_stays_text(server: Server) -> None:
    manifest = (
        b"apiVersion: test.grove.io/v1alpha1\nkind: Widget\nmetadata: {name: w}\n"
        b"spec: {size: small, when: 2026-01-01T00:00:00Z}\n"
    )
    answer = server.call("POST", WIDGETS, raw=manifest, media="application/yaml")
    assert answer.json["spec"]["when"] == "2026-01-01T00:00:00Z"


def test_lists_come_in_pages_of_one_moment(server: Server) -> None:
    for n in range(5):
        server.call("POST", PODS, pod(f"p{n}"))
    first = server.call("GET", f"{PODS}?limit=2").json
    assert first["metadata"]["remainingItemCount"] == 3
    server.call("DELETE", f"{PODS}/p3")
    server.call("POST", PODS, pod("p2b"))
    second = server.call("GET", f"{PODS}?limit=2&continue={first['metadata']['continue']}").json
    third = server.call("GET", f"{PODS}?limit=2&continue={second['metadata']['continue']}").json
    names = [one["metadata"]["name"] for page in (first, second, third) for one in page["items"]]
    assert names == ["p0", "p1", "p2", "p3", "p4"]
    assert "continue" not in third["metadata"]
    assert {page["metadata"]["resourceVersion"] for page in (first, second, third)} == {
        first["metadata"]["resourceVersion"]
    }


def test_a_page_of_a_forgotten_list_is_gone(server: Server) -> None:
    for n in range(3):
        server.call("POST", PODS, pod(f"p{n}"))
    token = server.call("GET", f"{PODS}?limit=1").json["metadata"]["continue"]
    other = server.call("GET", f"{PODS}?limit=1&labelSelector=x&continue={token}")
    assert (other.code, other.json["reason"]) == (410, "Expired")


def test_one_delete_clears_a_collection(server: Server) -> None:
    for n in range(3):
        server.call("POST", WIDGETS, widget(f"w{n}", labels={"odd": str(n % 2)}))
    assert len(server.call("DELETE", f"{WIDGETS}?labelSelector=odd%3D0").json["items"]) == 2
    assert [one["metadata"]["name"] for one in server.call("GET", WIDGETS).json["items"]] == ["w1"]
    assert server.call("DELETE", "/api/v1/namespaces").code == 405


def test_definitions_can_be_read_and_not_written(server: Server) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    names = {one["metadata"]["name"] for one in server.call("GET", path).json["items"]}
    assert {"widgets.test.grove.io", "podcliquesets.grove.io"} <= names
    one = f"{path}/widgets.test.grove.io"
    assert server.call("GET", one).json["status"]["conditions"][1]["type"] == "Established"
    assert server.call("DELETE", one).code == 405
    assert server.call("PATCH", one, {"spec": None}, MERGE).code == 405


def test_health_version_and_documents_are_served(server: Server) -> None:
    assert [server.call("GET", path).body for path in ("/healthz", "/livez", "/readyz")] == [b"ok"] * 3
    assert server.call("GET", "/version").json["major"] == "1"
    for path, place in server.call("GET", "/openapi/v3").json["paths"].items():
        document = server.call("GET", place["serverRelativeURL"]).json
        assert document["paths"], path
        assert all(key.startswith("/" + path.split("/")[0]) for key in document["paths"])
    assert server.call("GET", "/openapi/v3/apis/nope/v1").code == 404
    assert server.call("POST", "/version", {}).code in {200, 405}


def test_discovery_names_every_kind_in_both_forms(server: Server) -> None:
    accept = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
    found = set()
    for path in ("/api", "/apis"):
        for group in server.call("GET", path, headers=accept).json["items"]:
            for version in group["versions"]:
                name = group["metadata"].get("name", "")
                place = f"/apis/{name}/{version['version']}" if name else f"/api/{version['version']}"
                one_by_one = {one["name"] for one in server.call("GET", place).json["resources"]}
                together = {one["resource"] for one in version["resources"]}
                assert together == {name for name in one_by_one if "/" not in name}
                found |= together
    assert found == {kind.plural for kind in server.registry}
