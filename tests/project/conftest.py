"""A real Redis where the settings expect it."""

import subprocess
import time
from collections.abc import Iterator

import pytest
from django.conf import settings
from redis import Redis, RedisError

from rollouts.redis_server import find_redis_server, redis_command


@pytest.fixture(scope="session")
def redis_server() -> Iterator[None]:
    """Run a real Redis server where the settings expect it."""
    folder = settings.DATA_DIR / "redis"
    folder.mkdir(exist_ok=True)
    command = redis_command(find_redis_server(), socket=settings.REDIS_SOCKET, folder=folder)
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        _wait_for_redis(deadline=time.monotonic() + 10)
        yield
    finally:
        server.terminate()
        server.wait(timeout=10)


@pytest.fixture
def redis(redis_server: None) -> Iterator[Redis]:
    """Give a client of an empty Redis."""
    with Redis.from_url(settings.REDIS_URL) as client:
        client.flushall()
        yield client


def _wait_for_redis(deadline: float) -> None:
    while True:
        try:
            with Redis.from_url(settings.REDIS_URL) as client:
                client.ping()
                return
        except RedisError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
