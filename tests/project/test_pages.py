"""The pages: a login first, then the state of the installation and its cluster, whatever that state is."""

from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from redis import Redis

from rollouts import heartbeats
from rollouts.models import User

pytestmark = [pytest.mark.database, pytest.mark.django_db]


@pytest.fixture(scope="module", autouse=True)
def _static_files() -> None:
    call_command("collectstatic", verbosity=0, interactive=False)


@pytest.fixture
def person(client: Client) -> Client:
    """A client who has signed in."""
    User.objects.create_user("ana", password="correct horse battery")
    assert client.login(username="ana", password="correct horse battery")
    return client


def test_every_page_sends_a_stranger_to_sign_in(client: Client) -> None:
    response = client.get("/")
    assert (response.status_code, response["Location"]) == (302, "/sign-in/?next=/")


def test_signing_in_leads_to_the_overview(client: Client) -> None:
    User.objects.create_user("ana", password="correct horse battery")
    response = client.post("/sign-in/", {"username": "ana", "password": "correct horse battery", "next": "/"})
    assert (response.status_code, response["Location"]) == (302, "/")


def test_a_wrong_password_is_answered_with_a_sentence_and_no_session(client: Client) -> None:
    User.objects.create_user("ana", password="correct horse battery")
    response = client.post("/sign-in/", {"username": "ana", "password": "wrong"})
    assert b"do not match an account" in response.content
    assert client.get("/").status_code == 302


def test_signing_in_needs_the_csrf_token() -> None:
    strict = Client(enforce_csrf_checks=True)
    assert strict.post("/sign-in/", {"username": "ana", "password": "x"}).status_code == 403


def test_the_overview_shows_counts_and_parts(person: Client, redis: Redis) -> None:
    heartbeats.record_sweep(redis)
    heartbeats.record_cluster_word(redis, "sandbox", {"podcliquesets": 6, "pods": 1234, "nodes": 11})
    page = person.get("/").content.decode()
    assert "<dt>Workloads</dt><dd>6</dd>" in page
    assert "<dt>Pods</dt><dd>1234</dd>" in page
    assert "Everything answers." in page


def test_before_the_first_list_the_overview_says_so(person: Client, redis: Redis) -> None:
    page = person.get("/").content.decode()
    assert "The cluster has not been listed yet." in page
    assert "Something needs attention" in page


def test_the_overview_works_while_redis_is_away(person: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from rollouts import readiness
    from rollouts.selectors import overview

    nowhere = Redis.from_url("unix:///nonexistent/redis.sock")
    for module in (readiness, overview):
        monkeypatch.setattr(module, "redis_client", lambda: nowhere)
    response = person.get("/")
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


def test_reading_the_overview_costs_a_constant_number_of_queries(
    person: Client, redis: Redis, django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(3):  # session, user, the readiness probe
        person.get("/")
