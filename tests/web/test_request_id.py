"""Each request has an id and a client address; only trusted proxies may set X-Forwarded-For."""

from dataclasses import replace
from ipaddress import ip_network

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st
from pytest_django.fixtures import Settings
from redis import Redis

from rollouts.models import AuditEntry
from rollouts.web.request_id import choose_request_id, find_source_ip
from tests.accounts.conftest import MakePerson, bearing, give_token

PROXIES = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))


@pytest.mark.parametrize(
    ("peer", "forwarded", "source"),
    [
        ("203.0.113.5", "", "203.0.113.5"),
        ("203.0.113.5", "1.1.1.1", "203.0.113.5"),  # not a trusted proxy
        ("10.0.0.1", "203.0.113.5", "203.0.113.5"),
        ("10.0.0.1", "1.1.1.1, 203.0.113.5", "203.0.113.5"),  # the client wrote the first address itself
        ("10.0.0.1", "203.0.113.5, 10.0.0.2", "203.0.113.5"),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "unknown", "10.0.0.1"),
        ("10.0.0.1", "203.0.113.5, nonsense", "10.0.0.1"),
        ("fd00::1", "2001:db8::5", "2001:db8::5"),
        ("::ffff:10.0.0.1", "203.0.113.5", "203.0.113.5"),
        ("fe80::1%eth0", "", "fe80::1"),
        ("", "203.0.113.5", None),
        ("unix:", "203.0.113.5", None),
    ],
)
def test_the_source_is_the_last_hop_that_no_proxy_of_ours_stands_behind(
    peer: str, forwarded: str, source: str | None
) -> None:
    assert find_source_ip(peer, forwarded, PROXIES) == source


@given(st.text(), st.text())
def test_no_header_breaks_anything(peer: str, forwarded: str) -> None:
    find_source_ip(peer, forwarded, PROXIES)
    find_source_ip("10.0.0.1", forwarded, PROXIES)
    assert len(choose_request_id(forwarded)) <= 64


def test_by_default_nobody_is_believed() -> None:
    assert find_source_ip("10.0.0.1", "203.0.113.5", ()) == "10.0.0.1"


def test_every_answer_tells_its_request_id(client: Client) -> None:
    ids = [client.get(path)["X-Request-Id"] for path in ("/sign-in/", "/nowhere/", "/api/v1/nowhere/")]
    assert len({*ids}) == 3


def test_the_request_id_of_a_proxy_is_kept_and_that_of_anybody_else_is_not(client: Client, settings: Settings) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, trusted_proxies=PROXIES)

    def tell_id(peer: str) -> str:
        answer = client.get("/api/v1/nowhere/", headers={"X-Request-Id": "from-a-proxy-1"}, REMOTE_ADDR=peer)
        assert answer["X-Request-Id"] == answer.json()["request_id"]
        return str(answer["X-Request-Id"])

    assert tell_id("10.0.0.1") == "from-a-proxy-1"
    assert tell_id("203.0.113.5") != "from-a-proxy-1"


@pytest.mark.parametrize("given_id", ["short", "x" * 65, "with blanks in it", "line\nbreak-and-more", "ümlaut-id-1"])
def test_an_id_that_could_do_harm_is_not_kept(given_id: str) -> None:
    assert choose_request_id(given_id) != given_id


@pytest.mark.database
@pytest.mark.django_db
def test_the_audit_has_the_id_and_the_source(make_person: MakePerson, settings: Settings, redis: Redis) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, trusted_proxies=PROXIES)
    client = bearing(give_token(make_person("ana", "viewer"))[1], REMOTE_ADDR="10.0.0.1")
    headers = {"X-Forwarded-For": "203.0.113.5", "X-Request-Id": "request-4711"}
    client.post("/api/v1/tokens/", {"name": "ci"}, content_type="application/json", headers=headers)
    entry = AuditEntry.objects.get()
    assert (entry.source_ip, entry.request_id, entry.via) == ("203.0.113.5", "request-4711", "api")
