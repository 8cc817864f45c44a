"""Tokens: shown once, found by digest, valid until they expire, are revoked or their owner is deactivated."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from django.utils.crypto import get_random_string
from pytest_django.fixtures import Settings

from rollouts.accounts.tokens import digest_of
from rollouts.models import ApiToken, AuditEntry, User
from rollouts.services.first_account import account_ensure_first
from rollouts.services.tokens import MAX_TOKENS
from tests.accounts.conftest import MakePerson, bearing, give_token

pytestmark = [pytest.mark.database, pytest.mark.django_db, pytest.mark.usefixtures("redis")]
JSON = "application/json"


@pytest.fixture
def ana(make_person: MakePerson) -> User:
    """A viewer."""
    return make_person("ana", "viewer")


def answers(text: str) -> int:
    """Return how the API answers a request with this token."""
    return bearing(text).get("/api/v1/me/").status_code


def test_a_token_opens_the_api_and_nothing_does_not(ana: User) -> None:
    _, text = give_token(ana)
    assert answers(text) == 200
    assert Client().get("/api/v1/me/").status_code == 401


@pytest.mark.parametrize("text", ["", "grove_", "x", "grove_" + "A" * 43, "a b", "\x00", "ü", "A" * 100_000])
def test_what_is_no_token_is_refused(text: str) -> None:
    response = bearing(text).get("/api/v1/me/")
    assert (response.status_code, response["WWW-Authenticate"]) == (401, "Bearer")


def test_a_digest_is_no_token(ana: User) -> None:
    token, text = give_token(ana)
    assert (answers(text), answers(token.digest)) == (200, 401)


@pytest.mark.parametrize(
    "change",
    [
        {"expires_at": timezone.now() - timedelta(seconds=1)},
        {"revoked_at": timezone.now()},
    ],
)
def test_a_token_that_is_over_opens_nothing(ana: User, change: dict[str, Any]) -> None:
    token, text = give_token(ana, expires_at=timezone.now() + timedelta(days=1))
    assert answers(text) == 200
    ApiToken.objects.filter(pk=token.pk).update(**change)
    assert answers(text) == 401


def test_the_token_of_a_deactivated_account_opens_nothing(ana: User) -> None:
    _, text = give_token(ana)
    assert answers(text) == 200
    User.objects.filter(pk=ana.pk).update(is_active=False)
    assert answers(text) == 401


def test_why_a_token_is_of_no_use_is_not_told(ana: User) -> None:
    _, revoked = give_token(ana, revoked_at=timezone.now())
    bodies = [bearing(text).get("/api/v1/me/").json()["detail"] for text in (revoked, "grove_never-was")]
    assert bodies[0] == bodies[1]


def test_the_time_of_use_is_noted_at_most_once_a_minute(ana: User, django_assert_num_queries: Any) -> None:
    token, text = give_token(ana)
    assert answers(text) == 200
    token.refresh_from_db()
    noted = token.last_used_at
    assert noted is not None
    with django_assert_num_queries(4):  # the token with its owner, permissions, groups, grants; and no write
        assert answers(text) == 200
    token.refresh_from_db()
    assert token.last_used_at == noted
    ApiToken.objects.update(last_used_at=noted - timedelta(minutes=2))
    assert answers(text) == 200
    token.refresh_from_db()
    assert token.last_used_at is not None
    assert token.last_used_at >= noted


def test_a_new_token_is_shown_once_and_kept_as_a_digest(ana: User) -> None:
    _, text = give_token(ana, name="first")
    client = bearing(text)
    made = client.post("/api/v1/tokens/", {"name": "ci"}, content_type=JSON)
    assert made.status_code == 201
    new = made.json()["token"]
    assert answers(new) == 200
    listed = client.get("/api/v1/tokens/")
    assert [row["name"] for row in listed.json()] == ["ci", "first"]
    assert new not in listed.content.decode()
    row = ApiToken.objects.get(name="ci")
    assert row.digest == digest_of(new)
    assert new.startswith(row.prefix)
    assert len(row.prefix) < len(new) / 3


def test_a_token_lives_for_90_days_unless_told_otherwise(ana: User) -> None:
    client = bearing(give_token(ana)[1])
    made = client.post("/api/v1/tokens/", {"name": "ci"}, content_type=JSON)
    assert made.status_code == 201
    days = ApiToken.objects.get(name="ci").expires_at - timezone.now()  # type: ignore[operator]
    assert timedelta(days=89) < days <= timedelta(days=90)


def test_a_token_made_with_a_token_does_not_outlive_it(ana: User, settings: Settings) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, token_max_days=None)
    end = timezone.now() + timedelta(days=3)
    client = bearing(give_token(ana, expires_at=end)[1])
    for wish in ({}, {"expires_at": None}, {"expires_at": (end + timedelta(days=9)).isoformat()}):
        made = client.post("/api/v1/tokens/", {"name": "ci", **wish}, content_type=JSON)
        assert ApiToken.objects.get(pk=made.json()["id"]).expires_at == end


def test_a_read_only_token_makes_no_token(ana: User) -> None:
    for read_only, status in ((False, 201), (True, 403)):
        client = bearing(give_token(ana, read_only=read_only)[1])
        assert client.post("/api/v1/tokens/", {"name": "ci"}, content_type=JSON).status_code == status


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "ci", "expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
        ({"name": "ci", "expires_at": "soon"}, "expires_at"),
        ({"name": "ci", "read_only": "maybe"}, "read_only"),
        ({"name": "ci", "read_only": None}, "read_only"),
        ({"name": 7}, "name"),
        ({"name": "ci", "readonly": True}, "readonly"),
        ({"name": "ci", "expires_at": "0001-01-01T00:00:00+14:00"}, "expires_at"),
        ({"name": "ci", "expires_at": "9999-12-31T23:59:59-14:00"}, "expires_at"),
    ],
)
def test_a_wish_that_cannot_be_met_names_the_field(ana: User, wish: dict[str, Any], field: str) -> None:
    client = bearing(give_token(ana)[1])
    response = client.post("/api/v1/tokens/", wish, content_type=JSON)
    assert response.status_code == 422
    assert [finding["field"] for finding in response.json()["findings"]] == [field]


def test_there_is_an_end_to_tokens(ana: User) -> None:
    client = bearing(give_token(ana)[1])
    rows = [ApiToken(user=ana, name="x", digest=digest_of(str(number))) for number in range(MAX_TOKENS)]
    ApiToken.objects.bulk_create(rows)
    assert client.post("/api/v1/tokens/", {"name": "ci"}, content_type=JSON).status_code == 409
    ApiToken.objects.filter(name="x").update(revoked_at=timezone.now())
    assert client.post("/api/v1/tokens/", {"name": "ci"}, content_type=JSON).status_code == 201


def test_a_revoked_token_opens_nothing_and_stays_in_the_list(ana: User) -> None:
    client = bearing(give_token(ana)[1])
    token, text = give_token(ana, name="lost")
    assert answers(text) == 200
    assert client.delete(f"/api/v1/tokens/{token.pk}/").status_code == 204
    assert answers(text) == 401
    assert client.delete(f"/api/v1/tokens/{token.pk}/").status_code == 204
    assert client.get("/api/v1/tokens/").json()[0]["revoked_at"] is not None


def make_with(text: str, name: str = "made with another") -> str:
    """Create a token by the API with another token, and return its text."""
    response = bearing(text).post("/api/v1/tokens/", {"name": name}, JSON)
    made: str = response.json()["token"]
    return made


def test_a_revoked_token_takes_those_along_that_were_made_with_it(ana: User) -> None:
    (_, other), (first, text) = give_token(ana), give_token(ana)
    made, kept = make_with(text), make_with(other)
    made_in_turn = make_with(made)
    assert bearing(other).delete(f"/api/v1/tokens/{first.pk}/").status_code == 204
    assert [answers(one) for one in (text, made, made_in_turn)] == [401, 401, 401]
    assert [answers(one) for one in (other, kept)] == [200, 200]
    entry = AuditEntry.objects.get(command="revoke_token")
    assert entry.detail == "Token of ana. 2 tokens created with it were revoked too."


def test_a_body_that_nests_without_end_is_refused(ana: User) -> None:
    _, text = give_token(ana)
    for body in ('{"name":' * 100_000, "[" * 100_000):
        assert bearing(text).post("/api/v1/tokens/", body, JSON).status_code == 400


def test_somebody_elses_token_is_as_if_it_were_not_there(ana: User, make_person: MakePerson) -> None:
    token, text = give_token(ana)
    theirs = bearing(give_token(make_person("bea", "operator"))[1])
    for number in (token.pk, 4711, 10**30):
        assert theirs.delete(f"/api/v1/tokens/{number}/").status_code == 404
    assert answers(text) == 200
    assert all(row["name"] != "ci" for row in theirs.get("/api/v1/tokens/").json())
    admin = bearing(give_token(make_person("root", "admin"))[1])
    assert admin.delete(f"/api/v1/tokens/{token.pk}/").status_code == 204
    assert answers(text) == 401


def test_making_and_revoking_is_on_record_without_the_text(ana: User) -> None:
    client = bearing(give_token(ana, name="first")[1])
    made = client.post("/api/v1/tokens/", {"name": "ci"}, content_type=JSON).json()
    client.delete(f"/api/v1/tokens/{made['id']}/")
    created, revoked = AuditEntry.objects.order_by("id")
    assert (created.command, created.actor, created.token) == ("create_token", "ana", "first")
    assert (revoked.command, revoked.result) == ("revoke_token", "Done")
    assert made["token"] not in str(created.__dict__) + str(revoked.__dict__)
    assert created.after["name"] == "ci"  # type: ignore[index]


def test_the_session_of_a_browser_needs_the_csrf_token_to_change_something(ana: User) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(ana)
    assert browser.get("/api/v1/me/").status_code == 200
    refused = browser.post("/api/v1/tokens/", {"name": "ci"}, content_type=JSON)
    assert (refused.status_code, refused["Content-Type"]) == (403, "application/problem+json")
    browser.cookies["csrftoken"] = csrf = get_random_string(32)
    allowed = browser.post("/api/v1/tokens/", {"name": "ci"}, content_type=JSON, headers={"X-CSRFToken": csrf})
    assert allowed.status_code == 201


def test_a_token_needs_no_csrf_token(ana: User) -> None:
    client = bearing(give_token(ana)[1], enforce_csrf_checks=True)
    assert client.post("/api/v1/tokens/", {"name": "ci"}, content_type=JSON).status_code == 201


# --- GROVE_ADMIN_TOKEN ------------------------------------------------------------------------------------------------

FIRST, SECOND = "first-token-of-the-setting", "second-token-of-the-setting"


def test_the_token_of_the_settings_opens_the_api_as_the_first_account() -> None:
    account_ensure_first("admin", "given password", FIRST)
    assert bearing(FIRST).get("/api/v1/me/").json()["username"] == "admin"


@pytest.mark.parametrize("observe", [False, True])
def test_an_account_is_told_whether_the_installation_only_observes(settings: Settings, *, observe: bool) -> None:
    account_ensure_first("admin", "given password", FIRST)
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, observe=observe)
    assert bearing(FIRST).get("/api/v1/me/").json()["observe"] is observe


def test_another_token_in_the_settings_replaces_it() -> None:
    account_ensure_first("admin", "given password", FIRST)
    account_ensure_first("admin", "given password", SECOND)
    assert (answers(FIRST), answers(SECOND)) == (401, 200)
    account_ensure_first("admin", "given password", FIRST)
    assert (answers(FIRST), answers(SECOND)) == (200, 401)


def test_a_token_that_leaves_the_settings_is_revoked() -> None:
    account_ensure_first("admin", "given password", FIRST)
    account_ensure_first("admin", "given password", None)
    assert answers(FIRST) == 401


def test_another_first_account_takes_the_token_over() -> None:
    account_ensure_first("admin", "given password", FIRST)
    account_ensure_first("root", "given password", FIRST)
    assert bearing(FIRST).get("/api/v1/me/").json()["username"] == "root"


def test_what_was_made_with_the_token_of_the_settings_ends_with_it() -> None:
    account_ensure_first("admin", "given password", FIRST)
    made = make_with(FIRST)
    account_ensure_first("admin", "given password", FIRST)
    assert answers(made) == 200
    account_ensure_first("admin", "given password", SECOND)
    assert answers(made) == 401


def test_starting_again_with_the_same_token_changes_nothing() -> None:
    account_ensure_first("admin", "given password", FIRST)
    before = AuditEntry.objects.count()
    account_ensure_first("admin", "given password", FIRST)
    assert (AuditEntry.objects.count(), ApiToken.objects.count()) == (before, 1)


def test_tokens_that_people_made_stay_when_the_setting_changes() -> None:
    account_ensure_first("admin", "given password", FIRST)
    _, own = give_token(User.objects.get(username="admin"))
    account_ensure_first("admin", "given password", None)
    assert answers(own) == 200


def test_the_record_of_a_start_names_no_secret() -> None:
    account_ensure_first("admin", "given password", FIRST)
    account_ensure_first("admin", "other password", SECOND)
    rows = list(AuditEntry.objects.values())
    assert {row["via"] for row in rows} == {"start"}
    assert not any(secret in str(rows) for secret in (FIRST, SECOND, "given password", "other password"))


def test_tokens_are_listed_with_a_constant_number_of_queries(ana: User, django_assert_num_queries: Any) -> None:
    client = bearing(give_token(ana)[1])
    client.get("/api/v1/tokens/")
    for number in (10, 1000):
        rows = [ApiToken(user=ana, name="x", digest=digest_of(f"{number} {one}")) for one in range(number)]
        ApiToken.objects.bulk_create(rows)
        with django_assert_num_queries(2):
            client.get("/api/v1/tokens/")
