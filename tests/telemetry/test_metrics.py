"""Counts of many threads and processes add up in Redis, and stay in memory while Redis is down."""

import threading

from redis import Redis

from rollouts.telemetry.metrics import CALL_SECONDS, PASS_SECONDS, Histogram, Spread, Tally, read

NOWHERE: Redis = Redis.from_url("unix:///nonexistent/redis.sock")


def _spreads(redis: Redis, histogram: Histogram) -> dict[tuple[str, ...], Spread]:
    return {spread.labels: spread for found, spreads in read(redis) if found is histogram for spread in spreads}


def _count(spread: Spread) -> int:
    return spread.buckets[-1][1]


def test_an_observation_is_in_every_bucket_from_its_own_up(redis: Redis) -> None:
    tally = Tally()
    for seconds in (0.004, 0.005, 0.006, 99.0):
        tally.observe(PASS_SECONDS, ("Done",), seconds)
    tally.flush(redis)
    spread = _spreads(redis, PASS_SECONDS)[("Done",)]
    assert dict(spread.buckets)["0.005"] == 2
    assert dict(spread.buckets)["0.01"] == dict(spread.buckets)["30.0"] == 3
    assert spread.buckets[-1] == ("+Inf", 4)
    assert round(spread.sum, 3) == 99.015


def test_threads_and_processes_add_up(redis: Redis) -> None:
    def count(tally: Tally) -> None:
        for _ in range(200):
            tally.observe(CALL_SECONDS, ("sandbox", "create", "pods", "201"), 0.01)
            tally.flush(redis)

    tallies = [Tally(), Tally()]
    threads = [threading.Thread(target=count, args=(tally,)) for tally in tallies for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for tally in tallies:
        tally.flush(redis)
    assert _count(_spreads(redis, CALL_SECONDS)[("sandbox", "create", "pods", "201")]) == 1_200


def test_labels_are_kept_apart_whatever_they_hold(redis: Redis) -> None:
    tally = Tally()
    strange = ('a "quoted" name', "get", "pods,or|so", "200")
    tally.observe(CALL_SECONDS, strange, 1.0)
    tally.observe(CALL_SECONDS, ("sandbox", "get", "pods", "200"), 1.0)
    tally.flush(redis)
    assert set(_spreads(redis, CALL_SECONDS)) == {strange, ("sandbox", "get", "pods", "200")}


def test_counts_wait_for_a_redis_that_is_away_and_are_handed_over_once(redis: Redis) -> None:
    tally = Tally()
    tally.observe(PASS_SECONDS, ("Done",), 1.0)
    tally.flush(NOWHERE)
    tally.observe(PASS_SECONDS, ("Done",), 1.0)
    tally.flush(redis)
    tally.flush(redis)
    assert _count(_spreads(redis, PASS_SECONDS)[("Done",)]) == 2


def test_a_histogram_that_nothing_was_observed_of_is_there_and_empty(redis: Redis) -> None:
    assert [len(spreads) for _, spreads in read(redis)] == [0, 0, 0, 0]
