"""The change feed on a real Redis: in order, resumable, merged, and harmless while Redis is down."""

import logging

import pytest
from redis import Redis

from rollouts.live import change_feed
from rollouts.live.change_feed import FIRST_ID, Change
from tests.live import feed_reader

KEY = "sandbox/default/llama"


def _changes(after: str = FIRST_ID) -> list[Change]:
    return [change for _, change in feed_reader.read(after).entries]


def test_changes_come_in_the_order_they_were_told(redis: Redis) -> None:
    told = [
        Change("sandbox", "workload", KEY, ("pods", "status")),
        Change("sandbox", "node", "gpu-node-0", deleted=True),
        Change("sandbox", "cluster", "sandbox"),
    ]
    change_feed.publish(redis, told[:2])
    change_feed.publish(redis, told[2:])
    assert _changes() == told


def test_a_reader_goes_on_where_it_stopped(redis: Redis) -> None:
    change_feed.publish(redis, [Change("sandbox", "workload", KEY, ("pods",))])
    (entry_id, _), *_ = feed_reader.read(FIRST_ID).entries
    assert entry_id == feed_reader.latest_id()
    change_feed.publish(redis, [Change("sandbox", "workload", KEY, ("status",))])
    reading = feed_reader.read(entry_id)
    assert [change.parts for _, change in reading.entries] == [("status",)]
    assert not reading.has_gap


def test_changes_of_one_thing_told_together_are_one_entry(redis: Redis) -> None:
    change_feed.publish(
        redis,
        [
            Change("sandbox", "workload", KEY, ("pods",)),
            Change("sandbox", "workload", "sandbox/default/qwen", ("pods",)),
            Change("sandbox", "workload", KEY, ("status", "pods"), deleted=True),
        ],
    )
    assert _changes() == [
        Change("sandbox", "workload", KEY, ("pods", "status"), deleted=True),
        Change("sandbox", "workload", "sandbox/default/qwen", ("pods",)),
    ]


def test_a_change_of_everything_swallows_the_parts(redis: Redis) -> None:
    change_feed.publish(redis, [Change("sandbox", "workload", KEY, ("pods",)), Change("sandbox", "workload", KEY)])
    assert _changes() == [Change("sandbox", "workload", KEY)]


def test_nothing_to_tell_writes_nothing(redis: Redis) -> None:
    change_feed.publish(redis, [])
    assert feed_reader.latest_id() == FIRST_ID


def test_the_feed_stays_short_and_a_late_reader_learns_that_it_missed_something(redis: Redis) -> None:
    change_feed.publish(redis, [Change("sandbox", "workload", KEY)])
    first = feed_reader.latest_id()
    for batch in range(25):
        change_feed.publish(redis, [Change("sandbox", "node", f"node-{batch}-{number}") for number in range(1_000)])
    assert redis.xlen("grove:feed") < 21_000
    assert feed_reader.read(first).has_gap
    assert not feed_reader.read(feed_reader.latest_id()).has_gap


def test_a_reader_of_a_feed_that_was_lost_learns_that_it_missed_something(redis: Redis) -> None:
    change_feed.publish(redis, [Change("sandbox", "workload", KEY)])
    last = feed_reader.latest_id()
    assert not feed_reader.read(last).has_gap
    redis.flushall()
    assert feed_reader.read(last).has_gap


def test_telling_a_redis_that_is_away_is_said_once_and_raises_nothing(caplog: pytest.LogCaptureFixture) -> None:
    change_feed._redis_outage.succeeded()
    nowhere: Redis = Redis.from_url("unix:///nonexistent/redis.sock")
    with caplog.at_level(logging.WARNING):
        change_feed.publish(nowhere, [Change("sandbox", "workload", KEY)])
        change_feed.publish(nowhere, [Change("sandbox", "workload", KEY)])
    assert [record.message for record in caplog.records] == [
        "Redis is down; live pages get no updates (ConnectionError)"
    ]
