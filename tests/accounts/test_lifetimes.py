"""How long a token is valid: the longest lifetime, suspension of single sign-on accounts, and a new password."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from rollouts.live.sse import StreamViewer
from rollouts.models import ApiToken, AuditEntry, OidcIdentity, User
from rollouts.services.first_account import account_ensure_first
from tests.accounts.conftest import PASSWORD, MakePerson, bearing, give_token

pytestmark = [pytest.mark.database, pytest.mark.django_db, pytest.mark.usefixtures("redis")]
JSON = "application/json"
ANOTHER = "staple battery horse correct"


@pytest.fixture
def ana(make_person: MakePerson) -> User:
    """A viewer."""
    return make_person("ana", "viewer")


def answers(text: str) -> int:
    return bearing(text).get("/api/v1/me/").status_code


def make(text: str, **wish: Any) -> Any:
    return bearing(text).post("/api/v1/tokens/", {"name": "ci", **wish}, content_type=JSON)


def age(token: ApiToken, **distance: float) -> None:
    ApiToken.objects.filter(pk=token.pk).update(created=timezone.now() - timedelta(**distance))


# ---- the longest lifetime


def test_a_token_without_an_end_is_made_only_where_the_setting_allows_it(ana: User, settings: Settings) -> None:
    _, text = give_token(ana)
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, token_max_days=30)
    for end in (None, (timezone.now() + timedelta(days=31)).isoformat()):
        answer = make(text, expires_at=end)
        assert answer.status_code == 422
        assert [one["field"] for one in answer.json()["findings"]] == ["expires_at"]
        assert "at most 30 days" in answer.json()["findings"][0]["message"]
    assert make(text, expires_at=(timezone.now() + timedelta(days=30)).isoformat()).status_code == 201
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, token_max_days=None)
    made = make(text, expires_at=None)
    assert (made.status_code, made.json()["expires_at"]) == (201, None)


def test_the_usual_life_is_no_longer_than_the_longest(ana: User, settings: Settings) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, token_max_days=7)
    made = make(give_token(ana)[1])
    assert made.status_code == 201
    row = ApiToken.objects.get(pk=made.json()["id"])
    assert row.expires_at is not None
    assert row.expires_at <= timezone.now() + timedelta(days=7)


def test_a_token_that_is_older_than_the_longest_life_opens_nothing(ana: User, settings: Settings) -> None:
    token, text = give_token(ana)
    age(token, days=29.9)
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, token_max_days=30)
    assert answers(text) == 200
    age(token, days=30)
    assert answers(text) == 401
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, token_max_days=None)
    assert answers(text) == 200
    row = bearing(text).get("/api/v1/tokens/").json()[0]
    assert (row["state"], row["expires_at"]) == ("valid", None)


def test_the_token_of_the_settings_lives_as_long_as_the_setting(settings: Settings) -> None:
    account_ensure_first("admin", "given password", "first-token-of-the-setting")
    age(ApiToken.objects.get(), days=4000)
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, token_max_days=30)
    assert answers("first-token-of-the-setting") == 200


# ---- suspension


@pytest.fixture
def away(ana: User) -> User:
    """An account with single sign-on that last signed in 31 days ago."""
    OidcIdentity.objects.create(user=ana, issuer="https://id.example", subject="1")
    User.objects.filter(pk=ana.pk).update(last_login=timezone.now() - timedelta(days=31))
    return ana


def test_tokens_of_single_sign_on_sleep_without_a_sign_in_and_wake_with_the_next(away: User) -> None:
    token, text = give_token(away)
    assert answers(text) == 401
    assert not StreamViewer(text, "").may_still_view()
    browser = Client()
    browser.force_login(
        away, "rollouts.accounts.permissions.AccountBackend"
    )  # sends the signal that every sign-in sends
    assert browser.get("/api/v1/tokens/").json()[0]["state"] == "valid"
    assert (answers(text), StreamViewer(text, "").may_still_view()) == (200, True)
    token.refresh_from_db()
    assert token.revoked_at is None


def test_one_sees_which_tokens_sleep(away: User, make_person: MakePerson) -> None:
    give_token(away, name="nightly")
    admin = Client()
    admin.force_login(make_person("ada", "admin"), "rollouts.accounts.permissions.AccountBackend")
    assert "suspended" in admin.get("/admin/rollouts/apitoken/").content.decode()


@pytest.mark.parametrize("days", [40, None])
def test_the_setting_says_when_tokens_sleep(away: User, settings: Settings, days: int | None) -> None:
    _, text = give_token(away)
    assert answers(text) == 401
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, oidc_token_days=days)
    assert answers(text) == 200


def test_tokens_of_accounts_with_a_password_do_not_sleep(ana: User) -> None:
    User.objects.filter(pk=ana.pk).update(last_login=timezone.now() - timedelta(days=3000))
    assert answers(give_token(ana)[1]) == 200


def test_whether_a_token_sleeps_costs_no_query(away: User, django_assert_num_queries: Any) -> None:
    User.objects.filter(pk=away.pk).update(last_login=timezone.now())
    _, text = give_token(away, last_used_at=timezone.now())
    with django_assert_num_queries(4):  # the token with its owner, permissions, groups, grants
        assert answers(text) == 200


# ---- a lost role or a new password


def test_a_token_loses_what_its_owner_loses(make_person: MakePerson) -> None:
    olga = make_person("olga", "admin")
    _, text = give_token(olga)
    client = bearing(text)
    assert client.get("/api/v1/audit/export/").status_code == 200
    olga.groups.set(Group.objects.filter(name="viewer"))
    assert client.get("/api/v1/audit/export/").status_code == 403
    olga.groups.clear()
    assert client.get("/api/v1/workloads/").status_code == 403


def test_a_password_that_an_administrator_sets_ends_tokens_and_sessions(ana: User, make_person: MakePerson) -> None:
    _, text = give_token(ana)
    session, admin = Client(), Client()
    session.force_login(ana, "rollouts.accounts.permissions.AccountBackend")
    admin.force_login(make_person("ada", "admin"), "rollouts.accounts.permissions.AccountBackend")
    assert (answers(text), session.get("/api/v1/me/").status_code) == (200, 200)
    form = {"password1": ANOTHER, "password2": ANOTHER, "usable_password": "true"}
    assert admin.post(f"/admin/rollouts/user/{ana.pk}/password/", form).status_code == 302
    assert (answers(text), session.get("/api/v1/me/").status_code) == (401, 401)
    assert AuditEntry.objects.latest("id").detail == "Set the password of ana. 1 token revoked."


def test_a_password_that_the_settings_change_ends_the_tokens_that_were_made(ana: User) -> None:
    account_ensure_first("admin", PASSWORD, "first-token-of-the-setting")
    _, text = give_token(User.objects.get(username="admin"))
    account_ensure_first("admin", ANOTHER, "first-token-of-the-setting")
    assert (answers(text), answers("first-token-of-the-setting")) == (401, 200)
