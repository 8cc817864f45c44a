"""/healthz says that the process lives, /readyz part by part whether work can be done."""

from typing import Any

import pytest
from django.test import Client
from pytest_django.fixtures import Settings
from redis import Redis

from rollouts import heartbeats

pytestmark = pytest.mark.database


def _parts(client: Client) -> tuple[int, dict[str, bool]]:
    response = client.get("/readyz")
    return response.status_code, {part["name"]: part["ok"] for part in response.json()["parts"]}


@pytest.fixture
def alive(redis: Redis, db: None) -> Redis:
    """Everything answers."""
    heartbeats.record_sweep(redis)
    heartbeats.record_cluster_word(redis, "sandbox", {"pods": 3})
    return redis


def test_healthz_answers_without_login_and_without_asking_anything(client: Client) -> None:
    response = client.get("/healthz", headers={"host": "10.1.2.3:8000"})
    assert (response.status_code, response.content) == (200, b"ok\n")


def test_a_probe_is_refused_when_it_wants_to_write(client: Client) -> None:
    assert client.post("/readyz").status_code == 405


def test_ready_when_every_part_answers(client: Client, alive: Redis) -> None:
    assert _parts(client) == (200, {"database": True, "redis": True, "sweep": True, "cluster": True})


def test_not_ready_before_the_first_sweep(client: Client, alive: Redis) -> None:
    heartbeats.clear(alive)
    assert _parts(client) == (503, {"database": True, "redis": True, "sweep": False, "cluster": False})


def test_not_ready_when_the_last_sweep_is_old(client: Client, alive: Redis, settings: Settings) -> None:
    settings.SWEEP_MAX_AGE_SECONDS = -1
    assert _parts(client) == (503, {"database": True, "redis": True, "sweep": False, "cluster": True})


def test_not_ready_when_the_cluster_was_silent_too_long(client: Client, alive: Redis, settings: Settings) -> None:
    settings.CLUSTER_MAX_AGE_SECONDS = -1
    assert _parts(client) == (503, {"database": True, "redis": True, "sweep": True, "cluster": False})


def test_a_cluster_out_of_reach_is_said_with_its_reason_until_it_speaks_again(client: Client, alive: Redis) -> None:
    heartbeats.record_cluster_trouble(alive, "sandbox", "connection refused")
    assert _parts(client)[1]["cluster"] is False
    assert b"connection refused" in client.get("/readyz").content
    heartbeats.record_cluster_word(alive, "sandbox", {})
    assert _parts(client)[1]["cluster"] is True


@pytest.mark.django_db
def test_a_redis_that_is_away_is_said_and_does_not_hide_the_database(client: Client, monkeypatch: Any) -> None:
    from rollouts import readiness

    nowhere: Redis = Redis.from_url("unix:///nonexistent/redis.sock")
    monkeypatch.setattr(readiness, "redis_client", lambda: nowhere)
    assert _parts(client) == (503, {"database": True, "redis": False, "sweep": False, "cluster": False})
