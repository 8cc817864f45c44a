"""With DEBUG on, only clients on this machine are answered, whatever the server listens on."""

from typing import Any

import pytest
from django.test import Client, override_settings

LOCAL = ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"]
REMOTE = ["192.0.2.7", "10.0.0.1", "2001:db8::7", "::ffff:192.0.2.7", "", "unknown"]
PATHS = ["/sign-in/", "/api/v1/nothing/"]


def get(path: str, peer: str, **headers: str) -> Any:
    """Send a request from an address."""
    return Client(raise_request_exception=False, REMOTE_ADDR=peer, headers=headers).get(path)


@pytest.fixture(autouse=True)
def _static_files(static_files: None) -> None:
    """The sign-in page names static files by what is in them."""


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("peer", REMOTE)
def test_other_machines_are_refused_while_debug_pages_are_on(db: None, redis: Any, peer: str, path: str) -> None:
    assert get(path, peer).status_code != 403
    with override_settings(DEBUG=True):
        refused = get(path, peer)
    assert (refused.status_code, refused["Content-Type"]) == (403, "text/plain; charset=utf-8")
    assert refused.content.decode() == (
        "DEBUG is 1, so Grove UI answers only clients on this machine. Set DEBUG to 0 to answer others.\n"
    )


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded"])
def test_so_is_what_a_proxy_on_this_machine_forwards(db: None, redis: Any, header: str) -> None:
    with override_settings(DEBUG=True):
        assert get("/sign-in/", "127.0.0.1").status_code == 200
        assert get("/sign-in/", "127.0.0.1", **{header: "127.0.0.1"}).status_code == 403


@pytest.mark.parametrize("peer", LOCAL)
def test_this_machine_is_answered(db: None, redis: Any, peer: str) -> None:
    with override_settings(DEBUG=True):
        assert get("/sign-in/", peer).status_code == 200
