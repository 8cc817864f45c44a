"""Signing in with a password: audited, rate-limited, and without revealing which accounts exist."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from django.db import connection
from django.test import Client
from pytest_django.fixtures import Settings

from grove_ui.environment import Rate
from rollouts.models import AuditEntry, User
from tests.accounts.conftest import PASSWORD

pytestmark = [pytest.mark.database, pytest.mark.django_db, pytest.mark.usefixtures("redis")]


@pytest.fixture
def ana(settings: Settings) -> User:
    """An account with a password."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # quick, for many guesses
    return User.objects.create_user("ana", password=PASSWORD)


def sign_in(client: Client, name: str, password: str, **headers: str) -> int:
    return client.post("/sign-in/", {"username": name, "password": password}, headers=headers).status_code


def on_record() -> list[tuple[str, str, str]]:
    return list(AuditEntry.objects.order_by("id").values_list("command", "actor", "result"))


def test_signing_in_and_out_and_failing_to_are_on_record(client: Client, ana: User) -> None:
    assert sign_in(client, "ana", "wrong") == 200
    assert sign_in(client, "ana", PASSWORD) == 302
    assert client.post("/sign-out/").status_code == 302
    assert on_record() == [("sign_in", "ana", "Refused"), ("sign_in", "ana", "Done"), ("sign_out", "ana", "Done")]
    entry = AuditEntry.objects.latest("id")
    assert (entry.source_ip, entry.via, len(entry.request_id)) == ("127.0.0.1", "page", 32)


def test_what_is_no_name_is_not_written_down(client: Client, ana: User) -> None:
    sign_in(client, PASSWORD, "x")
    assert on_record() == [("sign_in", "", "Refused")]
    assert PASSWORD not in str(list(AuditEntry.objects.values()))


def test_guessing_ends_soon_even_with_the_right_password(client: Client, ana: User, settings: Settings) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, sign_in_rate=Rate(3, 3600))
    assert [sign_in(client, "ana", "wrong") for _ in range(4)] == [200, 200, 200, 429]
    assert sign_in(client, "ana", PASSWORD) == 429
    page = client.post("/sign-in/", {"username": "ana", "password": PASSWORD}).content
    assert b"Too many failed attempts" in page
    again = client.post("/sign-in/", {"username": "ana", "password": PASSWORD})
    assert 0 < int(again["Retry-After"]) <= 1200
    assert len(on_record()) == 3
    elsewhere = Client(REMOTE_ADDR="198.51.100.9")
    assert sign_in(elsewhere, "ana", PASSWORD) == 302


@pytest.mark.django_db(transaction=True)
def test_guessing_many_at_once_gains_nothing(ana: User, settings: Settings) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, sign_in_rate=Rate(3, 3600))

    def guess(_: int) -> int:
        try:
            return sign_in(Client(), "ana", "wrong")
        finally:
            connection.close()

    with ThreadPoolExecutor(12) as pool:
        statuses = list(pool.map(guess, range(12)))
    assert sorted(statuses) == [200] * 3 + [429] * 9


def test_guessing_one_name_from_many_places_ends_too(ana: User, settings: Settings) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, sign_in_rate=Rate(2, 3600))
    statuses = [sign_in(Client(REMOTE_ADDR=f"198.51.100.{number}"), "ana", "wrong") for number in range(11)]
    assert statuses == [200] * 10 + [429]
    assert sign_in(Client(REMOTE_ADDR="203.0.113.5"), "ANA", PASSWORD) == 429


def test_signing_in_rightly_is_not_counted(ana: User, settings: Settings) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, sign_in_rate=Rate(1, 3600))
    assert [sign_in(Client(), "ana", PASSWORD) for _ in range(4)] == [302] * 4


def test_a_header_that_anybody_can_write_does_not_help_to_guess_on(ana: User, settings: Settings) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, sign_in_rate=Rate(1, 3600))
    forwarded = [{"X-Forwarded-For": f"198.51.100.{number}"} for number in range(3)]
    assert [sign_in(Client(), "ana", "wrong", **headers) for headers in forwarded] == [200, 429, 429]


def test_whether_there_is_an_account_is_not_told(client: Client, ana: User) -> None:
    User.objects.create_user("bea", password=PASSWORD, is_active=False)
    pages = []
    for name, password in (("ana", "wrong"), ("nobody", "wrong"), ("bea", PASSWORD)):
        response = client.post("/sign-in/", {"username": name, "password": password})
        page = response.content.decode().partition('<p class="problem"')[2].partition("</p>")[0]
        pages.append((response.status_code, page))
    assert len(set(pages)) == 1


@pytest.mark.parametrize("wanted", ["https://evil.example/", "//evil.example", "javascript:alert(1)"])
def test_nobody_is_sent_to_another_site(client: Client, ana: User, wanted: str) -> None:
    response = client.post("/sign-in/", {"username": "ana", "password": PASSWORD, "next": wanted})
    assert response["Location"] == "/"


def test_the_session_is_another_one_after_signing_in(client: Client, ana: User) -> None:
    session = client.session
    session["planted"] = True
    session.save()
    before = session.session_key
    sign_in(client, "ana", PASSWORD)
    assert client.session.session_key != before


def test_a_deactivated_account_is_signed_out_at_once(client: Client, ana: User) -> None:
    sign_in(client, "ana", PASSWORD)
    assert client.get("/api/v1/me/").status_code == 200
    User.objects.update(is_active=False)
    assert client.get("/api/v1/me/").status_code == 401
    assert client.get("/").status_code == 302


@pytest.mark.parametrize("name", ["\x00", "x" * 1000, ""])
def test_odd_names_are_just_wrong(client: Client, name: str) -> None:
    assert sign_in(client, name, "x") == 200
