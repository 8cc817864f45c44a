"""The API behind TLS: no answer goes out in the clear, and what holds for pages holds for it.

That Django finds nothing to warn of under production settings is `make deploy-check`.
"""

from collections.abc import Iterator

import pytest
from django.test import Client, override_settings

pytestmark = pytest.mark.django_db

A_YEAR = 365 * 24 * 3600
BEHIND_TLS = {
    "SECURE_SSL_REDIRECT": True,
    "SECURE_PROXY_SSL_HEADER": ("HTTP_X_FORWARDED_PROTO", "https"),
    "SECURE_HSTS_SECONDS": A_YEAR,
    "SECURE_HSTS_INCLUDE_SUBDOMAINS": True,
    "SECURE_HSTS_PRELOAD": True,
    "SESSION_COOKIE_SECURE": True,
    "CSRF_COOKIE_SECURE": True,
    "ALLOWED_HOSTS": ["grove.example.com"],
}
HOST = {"Host": "grove.example.com"}
BY_PROXY = {**HOST, "X-Forwarded-Proto": "https"}


@pytest.fixture
def client() -> Iterator[Client]:
    """A client of an installation that users reach by HTTPS, as the settings are with HTTPS=1."""
    with override_settings(**BEHIND_TLS):
        yield Client()


def test_the_api_answers_behind_a_proxy_with_tls_and_tells_browsers_to_stay_there(client: Client) -> None:
    answer = client.get("/api/v1/workloads/", headers=BY_PROXY)
    assert answer.status_code == 401
    assert answer["Content-Type"] == "application/problem+json"
    assert answer["Strict-Transport-Security"] == f"max-age={A_YEAR}; includeSubDomains; preload"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in answer["Content-Security-Policy"]


def test_the_api_says_nothing_in_the_clear(client: Client) -> None:
    answer = client.get("/api/v1/workloads/?page=2", headers=HOST)
    assert answer.status_code == 301
    assert answer["Location"] == "https://grove.example.com/api/v1/workloads/?page=2"


def test_a_command_in_the_clear_is_not_carried_out(client: Client) -> None:
    path = "/api/v1/workloads/sandbox/default/chat/images/"
    answer = client.post(path, data={}, content_type="application/json", headers=HOST)
    assert answer.status_code == 301
    assert answer["Location"].startswith("https://")


def test_another_host_is_a_problem_and_no_page(client: Client) -> None:
    answer = client.get("/api/v1/workloads/", headers={**BY_PROXY, "Host": "elsewhere.example.com"})
    assert answer.status_code == 400
    assert answer["Content-Type"] == "application/problem+json"
