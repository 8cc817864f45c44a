"""The account page: change the password, and end all sessions and tokens."""

from dataclasses import replace
from typing import Any

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from grove_ui.environment import Rate
from rollouts.live.sse import StreamViewer
from rollouts.models import AuditEntry, OidcIdentity, User
from tests.accounts.conftest import PASSWORD, MakePerson, bearing, give_token

pytestmark = [pytest.mark.database, pytest.mark.django_db, pytest.mark.usefixtures("redis")]
ANOTHER = "staple battery horse correct"


@pytest.fixture
def ana(make_person: MakePerson, settings: Settings) -> User:
    """A viewer with a password."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # quick, for many guesses
    return make_person("ana", "viewer", password=PASSWORD)


def browser_of(user: User, **options: Any) -> Client:
    client = Client(**options)
    client.force_login(user, "rollouts.accounts.permissions.AccountBackend")
    return client


def change(client: Client, old: str = PASSWORD, new: str = ANOTHER, **more: str) -> int:
    form = {"old_password": old, "new_password1": new, "new_password2": new, **more}
    return client.post("/account/password/", form).status_code


def on_record() -> list[tuple[str, str, str]]:
    return list(AuditEntry.objects.order_by("id").values_list("command", "actor", "result"))


@pytest.mark.parametrize("role", ["", "viewer", "operator", "admin"])
def test_everybody_changes_their_own_password(ana: User, make_person: MakePerson, role: str) -> None:
    person = make_person("bea", role, password=PASSWORD)
    here, elsewhere = browser_of(person), browser_of(person)
    assert elsewhere.get("/account/").status_code == 200
    assert change(here) == 302
    person.refresh_from_db()
    assert person.check_password(ANOTHER)
    assert here.get("/account/").status_code == 200
    assert elsewhere.get("/account/").status_code == 302, "other sessions end"
    assert on_record() == [("change_password", "bea", "Done")]
    assert ANOTHER not in str(list(AuditEntry.objects.values()))


def test_tokens_go_with_a_changed_password_only_if_one_says_so(ana: User) -> None:
    _, text = give_token(ana)
    client = browser_of(ana)
    assert change(client) == 302
    assert bearing(text).get("/api/v1/me/").status_code == 200
    assert change(client, ANOTHER, PASSWORD, tokens="on") == 302
    assert bearing(text).get("/api/v1/me/").status_code == 401
    assert AuditEntry.objects.latest("id").detail == "Changed their own password. 1 token revoked."


def test_wrong_old_passwords_are_on_record_and_soon_not_looked_at(ana: User, settings: Settings) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, sign_in_rate=Rate(3, 3600))
    client = browser_of(ana)
    assert [change(client, "wrong") for _ in range(4)] == [400, 400, 400, 429]
    assert on_record() == [("change_password", "ana", "Refused")] * 3
    refused = client.post(
        "/account/password/", {"old_password": PASSWORD, "new_password1": ANOTHER, "new_password2": ANOTHER}
    )
    assert refused.status_code == 429
    assert 0 < int(refused["Retry-After"]) <= 1200
    assert "wrong too often" in refused.content.decode()
    assert change(browser_of(ana, REMOTE_ADDR="198.51.100.9")) == 429, "from another address too"
    ana.refresh_from_db()
    assert ana.check_password(PASSWORD)


def test_right_old_passwords_are_not_counted(ana: User, settings: Settings) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, sign_in_rate=Rate(1, 3600))
    client = browser_of(ana)
    assert [change(client, PASSWORD, "short") for _ in range(3)] == [400] * 3
    assert change(client) == 302


@pytest.mark.parametrize(
    ("new", "again"), [("short", "short"), (ANOTHER, "other"), ("", ""), ("12345678901", "12345678901")]
)
def test_a_new_password_that_will_not_do_is_told_beside_its_field(ana: User, new: str, again: str) -> None:
    answer = browser_of(ana).post(
        "/account/password/", {"old_password": PASSWORD, "new_password1": new, "new_password2": again}
    )
    assert answer.status_code == 400
    assert 'class="help-text bad" role="alert"' in answer.content.decode()
    ana.refresh_from_db()
    assert ana.check_password(PASSWORD)


@pytest.mark.parametrize(("by_sso", "words"), [(True, "change your password there"), (False, "Ask an administrator")])
def test_an_account_without_a_password_is_told_so(make_person: MakePerson, by_sso: bool, words: str) -> None:
    person = make_person("olga", "viewer")
    if by_sso:
        OidcIdentity.objects.create(user=person, issuer="https://id.example", subject="1")
    client = browser_of(person)
    page = client.get("/account/").content.decode()
    assert words in page
    assert 'name="old_password"' not in page
    assert change(client) == 409
    person.refresh_from_db()
    assert not person.has_usable_password()


def test_the_admin_site_sends_people_to_that_page(make_person: MakePerson) -> None:
    client = browser_of(make_person("ada", "admin"))
    for answer in (
        client.get("/admin/password_change/"),
        client.post("/admin/password_change/", {"old_password": "x"}),
    ):
        assert (answer.status_code, answer["Location"]) == (302, "/account/")


def test_a_stranger_is_sent_to_sign_in(client: Client) -> None:
    answers = [client.get("/account/"), client.post("/account/password/"), client.post("/account/end/")]
    assert [answer["Location"].partition("?")[0] for answer in answers] == ["/sign-in/"] * 3


@pytest.mark.parametrize("path", ["/account/password/", "/account/end/"])
def test_another_site_cannot_make_a_browser_do_it(ana: User, path: str) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(ana, "rollouts.accounts.permissions.AccountBackend")
    assert client.post(path, {"sure": "on"}).status_code == 403
    assert on_record() == []


# ---- ending all sessions and tokens


def guest_of(client: Client) -> StreamViewer:
    return StreamViewer("", client.session.session_key or "")


def test_everything_that_was_open_ends_at_once_and_streams_when_they_ask_again(ana: User) -> None:
    (_, first), (_, second) = give_token(ana), give_token(ana)
    here, elsewhere = browser_of(ana), browser_of(ana)
    streams = [guest_of(elsewhere), StreamViewer(first, "")]
    assert [stream.may_still_view() for stream in streams] == [True, True]
    assert here.post("/account/end/", {"sure": "on"}).status_code == 302
    assert [client.get("/account/").status_code for client in (here, elsewhere)] == [302, 302]
    assert [bearing(text).get("/api/v1/me/").status_code for text in (first, second)] == [401, 401]
    assert [stream.may_still_view() for stream in streams] == [False, False]
    assert on_record() == [("end_sessions", "ana", "Done"), ("sign_out", "ana", "Done")]
    assert AuditEntry.objects.earliest("id").detail == "Ended all sessions of ana. 2 tokens revoked."
    ana.refresh_from_db()
    assert browser_of(ana).get("/account/").status_code == 200, "one signs in again"


def test_nobody_elses_sessions_end(ana: User, make_person: MakePerson) -> None:
    bea = make_person("bea", "viewer")
    _, text = give_token(bea)
    theirs = browser_of(bea)
    browser_of(ana).post("/account/end/", {"sure": "on"})
    assert theirs.get("/account/").status_code == 200
    assert bearing(text).get("/api/v1/me/").status_code == 200


def test_it_has_to_be_confirmed(ana: User) -> None:
    client = browser_of(ana)
    answer = client.post("/account/end/")
    assert (answer.status_code, "Tick the box" in answer.content.decode()) == (400, True)
    assert client.get("/account/").status_code == 200


def test_a_former_secret_key_does_not_bring_ended_sessions_back(ana: User, settings: Settings) -> None:
    ended, goes_on = browser_of(ana), None
    browser_of(ana).post("/account/end/", {"sure": "on"})
    ana.refresh_from_db()
    goes_on = browser_of(ana)
    settings.SECRET_KEY_FALLBACKS, settings.SECRET_KEY = [settings.SECRET_KEY], "another-key-from-now-on"
    assert (ended.get("/account/").status_code, goes_on.get("/account/").status_code) == (302, 200)
