"""The pages require a sign-in, and work in every state of the installation."""

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from redis import Redis

from rollouts.models import User
from rollouts.telemetry import heartbeats

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="session", autouse=True)
def _static_files(static_files: None) -> None:
    """Collect the static files, whose names contain hashes."""


@pytest.fixture
def person(client: Client) -> Client:
    """A viewer who has signed in."""
    account = User.objects.create_user("ana", password="correct horse battery")
    account.groups.add(Group.objects.get(name="viewer"))
    assert client.login(username="ana", password="correct horse battery")
    return client


def test_every_page_sends_a_stranger_to_sign_in(client: Client) -> None:
    response = client.get("/")
    assert (response.status_code, response["Location"]) == (302, "/sign-in/?next=/")


def test_signing_in_leads_to_the_workloads(client: Client) -> None:
    User.objects.create_user("ana", password="correct horse battery")
    response = client.post("/sign-in/", {"username": "ana", "password": "correct horse battery", "next": "/"})
    assert (response.status_code, response["Location"]) == (302, "/")


def test_a_wrong_password_is_answered_with_a_sentence_and_no_session(client: Client) -> None:
    User.objects.create_user("ana", password="correct horse battery")
    response = client.post("/sign-in/", {"username": "ana", "password": "wrong"})
    assert b"Wrong name or password" in response.content
    assert client.get("/").status_code == 302


def test_signing_in_needs_the_csrf_token() -> None:
    strict = Client(enforce_csrf_checks=True)
    assert strict.post("/sign-in/", {"username": "ana", "password": "x"}).status_code == 403


def test_an_account_without_a_role_is_told_whom_to_ask(client: Client) -> None:
    User.objects.create_user("ana", password="correct horse battery")
    assert client.login(username="ana", password="correct horse battery")
    response = client.get("/")
    assert response.status_code == 403
    assert b"Ask an administrator for the role viewer." in response.content


def test_the_clusters_page_shows_every_part(person: Client, redis: Redis) -> None:
    heartbeats.record_sweep(redis)
    heartbeats.record_cluster_heartbeat(redis, "sandbox", {"podcliquesets": 6, "pods": 1234, "nodes": 11})
    page = person.get("/clusters/").content.decode()
    assert '<h2 id="cluster-name-1">sandbox</h2>' in page
    assert "All components are healthy." in page


def test_before_the_first_list_the_clusters_page_says_so(person: Client, redis: Redis) -> None:
    page = person.get("/clusters/").content.decode()
    assert "The cluster is being listed." in page
    assert "Some components are not healthy" in page


def test_the_clusters_page_works_while_redis_is_away(person: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from rollouts.runtime import readiness

    nowhere = Redis.from_url("unix:///nonexistent/redis.sock")
    monkeypatch.setattr(readiness, "redis_client", lambda: nowhere)
    response = person.get("/clusters/")
    assert response.status_code == 200
    assert b"Redis does not answer" in response.content


def test_no_page_allows_inline_script(person: Client, redis: Redis) -> None:
    policy = person.get("/")["Content-Security-Policy"]
    assert "unsafe-inline" not in policy
    assert "default-src 'none'" in policy


def test_a_viewer_is_not_offered_the_admin_site(person: Client, redis: Redis) -> None:
    assert b"/admin/" not in person.get("/").content
    User.objects.update(is_staff=True)
    assert b"/admin/" in person.get("/").content


@pytest.mark.parametrize("path", ["/", "/clusters/", "/audit/", "/overrides/", "/tokens/", "/help/", "/api/v1/docs/"])
def test_nobody_keeps_a_page_for_those_who_come_after(person: Client, redis: Redis, path: str) -> None:
    response = person.get(path)
    assert response.status_code == 200
    assert "private" in response["Cache-Control"]
    assert "no-store" in response["Cache-Control"]


@pytest.mark.parametrize("path", ["/api/v1/workloads/", "/api/v1/me/", "/api/v1/audit/", "/api/v1/nothing/"])
def test_an_answer_of_the_api_is_asked_for_again_each_time(person: Client, redis: Redis, path: str) -> None:
    response = person.get(path)
    assert "no-store" in response["Cache-Control"] or response["Cache-Control"] == "private, no-cache"
