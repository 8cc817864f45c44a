"""One of several watchers leads; when it is gone, or gives up, another one does."""

import os
import socket

from redis import Redis

from rollouts.watcher.leader_election import Leadership, Standing
from tests.project.running import wait_until
from tests.watcher.watching import SECONDS


def test_the_first_who_asks_leads_and_the_others_stand_by(redis: Redis) -> None:
    first, second = Leadership(redis, "east", lease_seconds=60), Leadership(redis, "east", lease_seconds=60)
    assert first.claim() is Standing.NEW
    assert second.claim() is Standing.STANDING_BY
    assert first.claim() is Standing.LEADING


def test_each_cluster_has_a_leader_of_its_own(redis: Redis) -> None:
    assert Leadership(redis, "east").claim() is Standing.NEW
    assert Leadership(redis, "west").claim() is Standing.NEW


def test_a_leader_that_does_not_ask_again_is_replaced(redis: Redis) -> None:
    first, second = Leadership(redis, "east", lease_seconds=0.1), Leadership(redis, "east", lease_seconds=60)
    assert first.claim() is Standing.NEW
    wait_until(lambda: second.claim() is Standing.NEW, SECONDS)
    assert first.claim() is Standing.STANDING_BY


def test_a_lease_that_is_given_up_is_free_at_once_and_only_its_holder_can(redis: Redis) -> None:
    first, second = Leadership(redis, "east", lease_seconds=60), Leadership(redis, "east", lease_seconds=60)
    first.claim()
    second.release()
    assert second.claim() is Standing.STANDING_BY
    first.release()
    assert second.claim() is Standing.NEW


def test_a_redis_that_lost_everything_is_noticed_by_the_leader(redis: Redis) -> None:
    leader = Leadership(redis, "east")
    leader.claim()
    redis.flushall()
    assert leader.claim() is Standing.NEW


def test_a_redis_that_is_away_leaves_all_as_it_is() -> None:
    nowhere: Redis = Redis.from_url("unix:///nonexistent/redis.sock")
    leader = Leadership(nowhere, "east")
    assert leader.claim() is Standing.UNKNOWN
    leader.release()


def test_the_lease_says_which_process_holds_it(redis: Redis) -> None:
    Leadership(redis, "east").claim()
    held = redis.get("grove:leader:east")
    assert isinstance(held, bytes)
    assert held.decode().split(":")[:2] == [socket.gethostname(), str(os.getpid())]
