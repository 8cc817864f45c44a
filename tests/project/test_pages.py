"""The pages require a sign-in, and work in every state of the installation."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings
from redis import Redis

from rollouts.models import Cluster, User
from rollouts.telemetry import heartbeats
from tests.markup import compact

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


@pytest.mark.parametrize(("clusters", "is_named"), [(("sandbox",), True), (("kubeconfig",), False)])
def test_only_the_sign_in_page_of_the_sandbox_says_who_prints_the_first_account(
    client: Client, settings: Settings, clusters: tuple[str, ...], is_named: bool
) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, clusters=clusters)
    response = client.post("/sign-in/", {"username": "ana", "password": "wrong"})
    assert (b"prints the first account" in response.content) is is_named


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


def test_a_notice_names_the_cluster_and_says_what_is_wrong_in_sentences(person: Client, redis: Redis) -> None:
    heard_at = timezone.now() - timedelta(minutes=3, seconds=1)
    trouble = "The API server cannot be reached (list pods)."
    Cluster.objects.create(name="sandbox", trouble_code="Unreachable", trouble=trouble, heard_at=heard_at)
    page = compact(person.get("/").content.decode())
    assert "<b>sandbox:</b> The API server cannot be reached (list pods). Last contact 3 min ago.</p>" in page


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
