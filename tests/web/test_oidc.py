"""Single sign-on against a real provider: who may sign in, with which account, and every way to fail."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from pytest_django.fixtures import Settings
from redis import Redis

from grove_ui.environment import Oidc, Rate
from rollouts.models import AuditEntry, OidcIdentity, User
from rollouts.web import oidc
from tests.web.oidc_provider import CLIENT_ID, CLIENT_SECRET, Provider, running_provider

pytestmark = [pytest.mark.database, pytest.mark.django_db]

ANA = {
    "sub": "248289761001",
    "preferred_username": "ana",
    "email": "ana@example.com",
    "given_name": "Ana",
    "family_name": "Ng",
    "groups": ["sre"],
}
ROLES = {"platform": "admin", "sre": "operator", "*": "viewer"}


@pytest.fixture(scope="module")
def process() -> Iterator[Provider]:
    with running_provider() as running:
        yield running


@pytest.fixture
def provider(process: Provider, settings: Settings, redis: Redis) -> Provider:
    """A provider that knows Ana, and an installation that trusts it."""
    process.tell(person=ANA)
    configured = Oidc(
        issuer=process.issuer,
        client_id=CLIENT_ID,
        client_secret=CLIENT_SECRET,
        name="Example",
        scopes="openid profile email",
        username_claim="preferred_username",
        groups_claim="groups",
        roles=ROLES,
    )
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, oidc=configured)
    oidc._make_client.cache_clear()
    return process


def return_address(client: Client, provider: Provider, wanted: str = "/") -> str:
    """Start at the sign-in page, and return where the provider redirects the browser."""
    leaving = client.get("/sign-in/sso/", {"next": wanted})
    assert leaving.status_code == 302, leaving.content
    return provider.visit(leaving["Location"])


def come(client: Client, provider: Provider, wanted: str = "/") -> Any:
    """Complete the sign-in; return the last response."""
    return client.get(return_address(client, provider, wanted))


def roles_of(name: str) -> list[str]:
    return sorted(User.objects.get(username=name).groups.values_list("name", flat=True))


def test_somebody_who_is_vouched_for_gets_an_account_and_goes_where_they_wanted(
    client: Client, provider: Provider
) -> None:
    response = come(client, provider, "/metrics")
    assert (response.status_code, response["Location"]) == (302, "/metrics")
    user = User.objects.get()
    assert (user.username, user.email, user.first_name, user.has_usable_password()) == (
        *("ana", "ana@example.com", "Ana"),
        False,
    )
    assert roles_of("ana") == ["operator", "viewer"]
    assert client.get("/api/v1/me/").json()["username"] == "ana"


def test_the_same_person_has_the_same_account_whatever_they_are_called(provider: Provider) -> None:
    come(Client(), provider)
    provider.tell(person={**ANA, "preferred_username": "ana.ng", "email": "other@example.com"})
    come(Client(), provider)
    assert [user.username for user in User.objects.all()] == ["ana"]


def test_an_account_is_never_taken_over_by_its_name_or_address(provider: Provider) -> None:
    mine = User.objects.create_superuser("ana", "ana@example.com")
    browser = Client()
    come(browser, provider)
    other = OidcIdentity.objects.get().user
    assert other != mine
    assert other.username.startswith("ana-")
    assert browser.get("/api/v1/me/").json()["roles"] == ["operator", "viewer"]
    mine.refresh_from_db()
    assert mine.is_superuser
    assert not other.is_superuser


@pytest.mark.parametrize(
    ("groups", "roles", "is_staff"),
    [
        (["platform"], ["admin", "viewer"], True),
        (["sre", "platform"], ["admin", "operator", "viewer"], True),
        ("sre", ["operator", "viewer"], False),
        ([], ["viewer"], False),
        (None, ["viewer"], False),
        ([{"name": "platform"}, 7, ["platform"]], ["viewer"], False),
        (["*"], ["viewer"], False),
    ],
)
def test_groups_of_the_provider_are_roles_here(
    client: Client, provider: Provider, groups: Any, roles: list[str], is_staff: bool
) -> None:
    provider.tell(person={**ANA, "groups": groups})
    come(client, provider)
    assert (roles_of("ana"), User.objects.get().is_staff) == (roles, is_staff)


def test_roles_follow_the_provider_at_each_sign_in_and_other_groups_stay(provider: Provider) -> None:
    provider.tell(person={**ANA, "groups": ["platform"]})
    come(Client(), provider)
    User.objects.get().groups.add(Group.objects.create(name="night shift"))
    provider.tell(person={**ANA, "groups": []})
    come(Client(), provider)
    assert roles_of("ana") == ["night shift", "viewer"]
    assert not User.objects.get().is_staff
    change = AuditEntry.objects.filter(command="change_account").first()
    assert change is not None
    assert (change.before, change.after, change.actor) == (["admin", "viewer"], ["viewer"], "identity provider")


def test_without_a_mapping_roles_are_given_by_hand(provider: Provider, settings: Settings) -> None:
    assert settings.ENVIRONMENT.oidc is not None
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, oidc=replace(settings.ENVIRONMENT.oidc, roles={}))
    come(Client(), provider)
    User.objects.get().groups.add(Group.objects.get(name="operator"))
    come(Client(), provider)
    assert roles_of("ana") == ["operator"]


def test_groups_that_are_not_in_the_token_are_asked_for(client: Client, provider: Provider) -> None:
    provider.tell(faults=["short-token"])
    come(client, provider)
    assert roles_of("ana") == ["operator", "viewer"]


@pytest.mark.parametrize(
    "fault",
    [
        *("denies", "no-id-token", "other-issuer", "other-audience", "other-nonce", "no-nonce", "expired"),
        *("unsigned", "signed-with-our-secret", "other-key"),
    ],
)
def test_nobody_is_let_in_by_a_word_that_is_not_the_providers(
    client: Client, provider: Provider, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    provider.tell(faults=[fault])
    with caplog.at_level(logging.DEBUG):
        response = come(client, provider)
    assert response.status_code == 403
    assert b"did not confirm your identity" in response.content
    assert client.get("/api/v1/me/").status_code == 401
    assert not User.objects.exists()
    entry = AuditEntry.objects.get()
    assert (entry.command, entry.result) == ("sign_in", "Refused")
    assert CLIENT_SECRET not in caplog.text
    provider.tell()
    assert come(client, provider).status_code == 302


def test_an_answer_about_somebody_else_is_not_believed(client: Client, provider: Provider) -> None:
    provider.tell(faults=["short-token", "other-userinfo"])
    assert come(client, provider).status_code == 403


def test_a_description_that_names_another_issuer_is_not_believed(client: Client, provider: Provider) -> None:
    provider.tell(faults=["other-description"])
    response = client.get("/sign-in/sso/")
    assert response.status_code == 502
    provider.tell()
    oidc._make_client.cache_clear()
    assert client.get("/sign-in/sso/").status_code == 302


def test_a_provider_that_is_away_is_one_sentence(client: Client, provider: Provider, settings: Settings) -> None:
    assert settings.ENVIRONMENT.oidc is not None
    away = replace(settings.ENVIRONMENT.oidc, issuer="http://127.0.0.1:9")
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, oidc=away)
    response = client.get("/sign-in/sso/")
    assert response.status_code == 502
    assert b"does not answer" in response.content


def test_a_key_that_is_new_is_looked_up(provider: Provider) -> None:
    assert come(Client(), provider).status_code == 302
    provider.tell(rotate=True)
    assert come(Client(), provider).status_code == 302


def test_a_code_is_of_no_use_to_another_browser(provider: Provider) -> None:
    victim, thief = Client(), Client()
    address = return_address(victim, provider)
    assert thief.get(address).status_code == 403
    assert victim.get(address).status_code == 302


def test_a_code_is_of_no_use_twice(client: Client, provider: Provider) -> None:
    address = return_address(client, provider)
    assert client.get(address).status_code == 302
    client.logout()
    assert client.get(address).status_code == 403


def test_a_verifier_that_is_not_the_one_is_refused_by_the_provider(client: Client, provider: Provider) -> None:
    address = return_address(client, provider)
    session = client.session
    for name in [name for name in dict(session.items()) if name.startswith("_state_")]:
        session[name] = {**session[name], "data": {**session[name]["data"], "code_verifier": "x" * 48}}
    session.save()
    assert client.get(address).status_code == 403


@pytest.mark.parametrize("query", ["", "?code=x", "?state=x", "?code=x&state=x", "?error=access_denied", "?state=%00"])
def test_coming_back_without_having_set_out_leads_nowhere(client: Client, provider: Provider, query: str) -> None:
    assert client.get(f"/sign-in/sso/done/{query}").status_code == 403


def test_what_is_sent_to_the_provider_has_pkce_state_and_nonce_and_no_secret(
    client: Client, provider: Provider
) -> None:
    address = client.get("/sign-in/sso/")["Location"]
    asked = parse_qs(urlsplit(address).query)
    assert asked["code_challenge_method"] == ["S256"]
    assert {"state", "nonce", "code_challenge"} <= asked.keys()
    assert asked["redirect_uri"] == ["http://testserver/sign-in/sso/done/"]
    assert "secret" not in address


@pytest.mark.parametrize(
    "wanted",
    ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "http:///evil.example"],
)
def test_nobody_is_sent_to_another_site(client: Client, provider: Provider, wanted: str) -> None:
    assert come(client, provider, wanted)["Location"] == "/"


def test_the_session_is_another_one_after_signing_in(client: Client, provider: Provider) -> None:
    address = return_address(client, provider)
    before = client.session.session_key
    client.get(address)
    assert client.session.session_key != before


def test_a_deactivated_account_is_not_let_in(provider: Provider) -> None:
    come(Client(), provider)
    User.objects.update(is_active=False)
    browser = Client()
    response = come(browser, provider)
    assert response.status_code == 403
    assert b"is deactivated" in response.content
    assert browser.get("/api/v1/me/").status_code == 401


def test_signing_in_is_on_record(client: Client, provider: Provider) -> None:
    come(client, provider)
    created, roles, signed_in = AuditEntry.objects.order_by("id")
    assert (created.command, roles.command) == ("change_account", "change_account")
    assert (signed_in.command, signed_in.actor, signed_in.result, signed_in.detail) == (
        *("sign_in", "ana", "Done"),
        "By single sign-on.",
    )


def test_failing_too_often_has_an_end(client: Client, provider: Provider, settings: Settings) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, sign_in_rate=Rate(2, 3600))
    statuses = [client.get("/sign-in/sso/done/?code=x&state=x").status_code for _ in range(3)]
    assert statuses == [403, 403, 429]


def test_setting_out_too_often_has_an_end(client: Client, provider: Provider, settings: Settings) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, stranger_rate=Rate(2, 3600))
    assert [client.get("/sign-in/sso/").status_code for _ in range(3)] == [302, 302, 429]


@pytest.mark.parametrize("name", ["", "a b/c", "ü" * 300, "\x00", "admin"])
def test_whatever_somebody_is_called_there_is_a_name_for_them(client: Client, provider: Provider, name: str) -> None:
    User.objects.create_superuser("admin")
    provider.tell(person={**ANA, "preferred_username": name, "email": ""})
    assert come(client, provider).status_code == 302
    user = OidcIdentity.objects.get().user
    assert user.username != "admin"
    user.full_clean(exclude=["password"])


def test_without_a_provider_there_is_neither_button_nor_way(client: Client, redis: Redis) -> None:
    assert b"Sign in with" not in client.get("/sign-in/").content
    assert client.get("/sign-in/sso/").status_code == 404
    assert client.get("/sign-in/sso/done/").status_code == 404


def test_the_page_offers_the_provider_by_its_name(client: Client, provider: Provider) -> None:
    page = client.get("/sign-in/", {"next": "/metrics"}).content.decode()
    assert "Sign in with Example" in page
    assert 'href="/sign-in/sso/?next=/metrics"' in page
