"""Rate limits: counted in a real Redis, and by each process for itself while Redis is down."""

import logging
from dataclasses import replace

import pytest
from django.test import Client
from pytest_django.fixtures import Settings
from redis import Redis

from grove_ui.environment import Rate
from rollouts.accounts import rate_limit
from tests.accounts.conftest import MakePerson, bearing, give_token

pytestmark = [pytest.mark.database, pytest.mark.django_db]
A_FEW = Rate(3, 3600)


def test_a_bucket_gives_what_the_rate_says_and_no_more(redis: Redis) -> None:
    assert [rate_limit.acquire("one", A_FEW) for _ in range(3)] == [0, 0, 0]
    assert 0 < rate_limit.acquire("one", A_FEW) <= 1200
    assert rate_limit.acquire("another", A_FEW) == 0


def test_what_is_put_back_can_be_taken_again(redis: Redis) -> None:
    for _ in range(3):
        rate_limit.acquire("one", A_FEW)
    rate_limit.release("one", A_FEW)
    assert rate_limit.acquire("one", A_FEW) == 0
    assert rate_limit.acquire("one", A_FEW) > 0


def test_a_bucket_is_never_more_than_full(redis: Redis) -> None:
    for _ in range(9):
        rate_limit.release("one", A_FEW)
    assert redis.keys("grove:rate:*") == []
    assert [rate_limit.acquire("one", A_FEW) > 0 for _ in range(4)] == [False, False, False, True]


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        (None, None, True),
    ],
)
def test_addresses_that_one_person_has_share_a_bucket(one: str | None, other: str | None, is_same: bool) -> None:
    assert (rate_limit.bucket_name_of_address("x", one) == rate_limit.bucket_name_of_address("x", other)) is is_same


def test_a_bucket_fills_again_evenly(redis: Redis) -> None:
    one_a_minute = Rate(1, 60)
    assert rate_limit.acquire("one", one_a_minute) == 0
    assert 0 < rate_limit.acquire("one", one_a_minute) <= 60
    redis.pexpire("grove:rate:one", 1)
    while redis.exists("grove:rate:one"):
        pass
    assert rate_limit.acquire("one", one_a_minute) == 0


def test_a_bucket_is_forgotten_once_it_is_full(redis: Redis) -> None:
    rate_limit.acquire("one", A_FEW)
    assert 0 < redis.pttl("grove:rate:one") <= 1_200_000


def test_no_rate_means_no_limit(redis: Redis) -> None:
    assert [rate_limit.acquire("one", None) for _ in range(9)] == [0] * 9
    assert redis.keys("grove:rate:*") == []


@pytest.fixture
def no_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis is down."""
    nowhere = Redis.from_url("unix:///nonexistent/redis.sock")
    monkeypatch.setattr(rate_limit, "redis_client", lambda: nowhere)
    rate_limit._redis_outage.succeeded()
    monkeypatch.setattr(rate_limit, "_local_buckets", rate_limit.LocalBuckets())


def test_without_redis_each_process_counts_for_itself_and_says_so_once(
    no_redis: None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert [rate_limit.acquire("one", A_FEW) for _ in range(3)] == [0, 0, 0]
        assert 0 < rate_limit.acquire("one", A_FEW) <= 1200
        assert rate_limit.acquire("another", A_FEW) == 0
        rate_limit.release("one", A_FEW)
        assert [rate_limit.acquire("one", A_FEW) > 0 for _ in range(2)] == [False, True]
    assert [record.message for record in caplog.records] == [
        "Redis is down; each web process counts requests for itself (ConnectionError)"
    ]


def test_without_redis_wrong_passwords_come_to_an_end(
    client: Client, no_redis: None, settings: Settings, static_files: None
) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, sign_in_rate=A_FEW)
    guesses = [client.post("/sign-in/", {"username": "ana", "password": f"guess-{n}"}) for n in range(5)]
    assert [answer.status_code for answer in guesses][-1] == 429


def test_what_a_process_counts_itself_is_bounded(no_redis: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "_MAX_LOCAL_BUCKETS", 2)
    for bucket in ("one", "two", "three"):
        rate_limit.acquire(bucket, Rate(1, 60))
    assert [rate_limit.acquire(bucket, Rate(1, 60)) > 0 for bucket in ("three", "two", "one")] == [True, True, False]


def test_a_bucket_does_not_tell_whose_it_is() -> None:
    assert "hunter2" not in rate_limit.bucket_name("name", "hunter2")


def test_a_token_that_asks_too_often_is_told_when_to_come_again(
    make_person: MakePerson, settings: Settings, redis: Redis
) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, api_rate=A_FEW)
    ana = make_person("ana", "viewer")
    first, second = (bearing(give_token(ana)[1]) for _ in range(2))
    assert [first.get("/api/v1/me/").status_code for _ in range(4)] == [200, 200, 200, 429]
    refused = first.get("/api/v1/me/")
    assert 0 < int(refused["Retry-After"]) <= 1200
    assert refused["Content-Type"] == "application/problem+json"
    assert refused.json()["type"] == "urn:grove-ui:problem:throttled"
    assert second.get("/api/v1/me/").status_code == 200


def test_strangers_are_counted_by_address_and_never_stop_a_valid_token(
    make_person: MakePerson, settings: Settings, redis: Redis
) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, stranger_rate=A_FEW)
    guesser, stranger = bearing("grove_guessed"), Client()
    statuses = [client.get("/api/v1/me/").status_code for client in (guesser, stranger, guesser, stranger, guesser)]
    assert statuses == [401, 401, 401, 429, 429]
    assert Client(REMOTE_ADDR="198.51.100.9").get("/api/v1/me/").status_code == 401
    assert bearing(give_token(make_person("ana"))[1]).get("/api/v1/me/").status_code == 200
