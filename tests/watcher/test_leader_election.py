"""One of several watchers leads; if it dies or releases the lease, another one does."""

import os
import socket

from redis import Redis

from rollouts.watcher.leader_election import LeaderElection, LeaderState
from tests.project.running import wait_until
from tests.watcher.watching import SECONDS


def test_the_first_who_asks_leads_and_the_others_stand_by(redis: Redis) -> None:
    first, second = LeaderElection(redis, "east", lease_seconds=60), LeaderElection(redis, "east", lease_seconds=60)
    assert first.acquire_or_renew() is LeaderState.ACQUIRED
    assert second.acquire_or_renew() is LeaderState.STANDBY
    assert first.acquire_or_renew() is LeaderState.LEADING


def test_each_cluster_has_a_leader_of_its_own(redis: Redis) -> None:
    assert LeaderElection(redis, "east").acquire_or_renew() is LeaderState.ACQUIRED
    assert LeaderElection(redis, "west").acquire_or_renew() is LeaderState.ACQUIRED


def test_a_leader_that_does_not_ask_again_is_replaced(redis: Redis) -> None:
    first, second = LeaderElection(redis, "east", lease_seconds=0.1), LeaderElection(redis, "east", lease_seconds=60)
    assert first.acquire_or_renew() is LeaderState.ACQUIRED
    wait_until(lambda: second.acquire_or_renew() is LeaderState.ACQUIRED, SECONDS)
    assert first.acquire_or_renew() is LeaderState.STANDBY


def test_a_lease_that_is_given_up_is_free_at_once_and_only_its_holder_can(redis: Redis) -> None:
    first, second = LeaderElection(redis, "east", lease_seconds=60), LeaderElection(redis, "east", lease_seconds=60)
    first.acquire_or_renew()
    second.release()
    assert second.acquire_or_renew() is LeaderState.STANDBY
    first.release()
    assert second.acquire_or_renew() is LeaderState.ACQUIRED


def test_a_redis_that_lost_everything_is_noticed_by_the_leader(redis: Redis) -> None:
    leader = LeaderElection(redis, "east")
    leader.acquire_or_renew()
    redis.flushall()
    assert leader.acquire_or_renew() is LeaderState.ACQUIRED


def test_a_redis_that_is_away_leaves_all_as_it_is() -> None:
    nowhere: Redis = Redis.from_url("unix:///nonexistent/redis.sock")
    leader = LeaderElection(nowhere, "east")
    assert leader.acquire_or_renew() is LeaderState.UNKNOWN
    leader.release()


def test_the_lease_says_which_process_holds_it(redis: Redis) -> None:
    LeaderElection(redis, "east").acquire_or_renew()
    held = redis.get("grove:leader:east")
    assert isinstance(held, bytes)
    assert held.decode().split(":")[:2] == [socket.gethostname(), str(os.getpid())]
