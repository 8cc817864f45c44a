"""The transitions of the queue one by one, on Redis's own clock."""

import secrets

import pytest
from redis import Redis

from rollouts.queue.workqueue import Claim, Depth, FinishResult, WorkQueue, compute_back_off_ms
from tests.project.running import wait_until
from tests.queue.delaying import delay

KEY = "sandbox/default/llama"
OTHER = "sandbox/default/qwen"


@pytest.fixture
def queue(redis: Redis) -> WorkQueue:
    return WorkQueue(redis, lease_ms=60_000)


def _claim(queue: WorkQueue, key: str = KEY) -> Claim:
    claim = queue.claim(key)
    assert claim is not None
    return claim


def test_a_key_added_twice_needs_one_message_and_is_claimed_once(queue: WorkQueue) -> None:
    assert queue.add([KEY, OTHER, KEY]) == [KEY, OTHER]
    assert queue.add([KEY]) == []
    assert queue.done(_claim(queue)) is FinishResult.FREE
    assert queue.claim(KEY) is None


def test_a_key_that_nobody_added_cannot_be_claimed(queue: WorkQueue) -> None:
    assert queue.claim(KEY) is None


def test_a_key_that_is_being_processed_cannot_be_claimed_again(queue: WorkQueue) -> None:
    queue.add([KEY])
    _claim(queue)
    queue.add([KEY])
    assert queue.claim(KEY) is None


def test_a_key_added_while_it_is_processed_is_due_when_the_claim_ends(queue: WorkQueue) -> None:
    queue.add([KEY])
    claim = _claim(queue)
    assert queue.add([KEY]) == []
    assert queue.done(claim) is FinishResult.DUE
    assert queue.done(_claim(queue)) is FinishResult.FREE


def test_a_key_whose_claim_ends_with_requeue_is_due_at_once(queue: WorkQueue) -> None:
    queue.add([KEY])
    assert queue.done(_claim(queue), requeue=True) is FinishResult.DUE
    assert queue.claim(KEY) is not None


def test_a_claim_ends_only_once(queue: WorkQueue) -> None:
    queue.add([KEY])
    claim = _claim(queue)
    assert queue.done(claim) is FinishResult.FREE
    assert queue.done(claim) is FinishResult.LOST
    queue.add([KEY])
    _claim(queue)
    assert queue.done(claim) is FinishResult.LOST
    assert queue.depth().processing == 1


def test_asking_once_more_after_a_lost_answer_gives_the_same_claim(
    queue: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _size: "the-same")
    queue.add([KEY])
    assert queue.claim(KEY) == queue.claim(KEY)


def test_a_lease_that_ran_out_is_found_by_the_sweep_and_its_claim_is_lost(redis: Redis) -> None:
    queue = WorkQueue(redis, lease_ms=30)
    queue.add([KEY])
    claim = _claim(queue)
    queue.add([KEY])  # dirty as well: it is due once, not twice
    wait_until(lambda: queue.sweep() == [KEY], 10)
    assert queue.depth().ready == 1
    assert queue.depth().processing == queue.depth().dirty == 0
    assert queue.done(claim) is FinishResult.LOST
    assert _claim(queue).epoch > claim.epoch


def test_an_expired_lease_cannot_end_even_before_the_sweep_finds_it(redis: Redis) -> None:
    moment = 1_000_000
    queue = WorkQueue(redis, lease_ms=1_000, clock=lambda: moment)
    queue.add([KEY])
    claim = _claim(queue)
    moment += 1_000
    assert queue.done(claim) is FinishResult.LOST
    assert queue.back_off(claim) is FinishResult.LOST
    assert queue.requeue_after(claim, 10) is FinishResult.LOST
    assert queue.renew(claim) is False
    assert queue.sweep() == [KEY]
    assert queue.renew(claim) is False
    assert _claim(queue).attempt == 2


def test_a_lease_that_is_renewed_lasts_longer_but_not_for_ever(redis: Redis) -> None:
    moment = 1_000_000
    queue = WorkQueue(redis, lease_ms=1_000, max_claim_ms=2_500, clock=lambda: moment)
    queue.add([KEY])
    claim = _claim(queue)
    for _ in range(3):
        moment += 800
        assert queue.renew(claim)
        assert queue.sweep() == []
    moment += 100  # 2.5 s after the claim
    assert queue.renew(claim) is False
    assert queue.done(claim) is FinishResult.LOST
    assert queue.sweep() == [KEY]


def test_the_claims_of_a_process_that_died_are_given_back_long_before_their_lease_is_over(redis: Redis) -> None:
    dead, alive = (WorkQueue(redis, lease_ms=3_600_000, owner=f"worker/{pid}") for pid in (7, 77))
    dead.add([KEY, OTHER])
    lost, kept = _claim(dead, KEY), _claim(alive, OTHER)
    assert alive.release_claims("worker/7") == [KEY]
    assert alive.sweep() == [KEY]  # no message has been sent yet
    assert dead.renew(lost) is False
    assert dead.done(lost) is FinishResult.LOST
    assert alive.done(kept) is FinishResult.FREE
    assert _claim(alive, KEY).epoch > lost.epoch
    assert alive.release_claims("worker/7") == []


def test_a_workload_that_kills_its_worker_again_and_again_waits_longer_each_time(redis: Redis) -> None:
    moment = 1_000_000
    queue = WorkQueue(redis, lease_ms=60_000, owner="worker/7", clock=lambda: moment)
    queue.add([KEY])
    for pause in (0, 1_000, 2_000, 4_000):
        _claim(queue)
        assert queue.release_claims("worker/7") == [KEY]
        if pause:
            moment += pause - 1
            assert queue.sweep() == []
            moment += 1
        assert queue.sweep() == [KEY]
    queue.done(_claim(queue))
    queue.add([KEY])
    assert _claim(queue).attempt == 1


def test_a_delay_ends_by_the_sweep_and_the_sooner_wins(queue: WorkQueue) -> None:
    delay(queue, KEY, 3_600_000)
    delay(queue, KEY, 1)
    delay(queue, KEY, 3_600_000)
    wait_until(lambda: queue.sweep() == [KEY], 10)
    depth = queue.depth()
    assert depth == Depth(ready=1, processing=0, dirty=0, delayed=0, oldest_ms=depth.oldest_ms)


def test_an_add_does_not_wait_for_a_delay(queue: WorkQueue) -> None:
    delay(queue, KEY, 3_600_000)
    assert queue.add([KEY]) == [KEY]
    assert queue.claim(KEY) is not None


def test_failures_in_a_row_are_counted_and_any_other_end_forgets_them(redis: Redis) -> None:
    moment = 1_000_000
    queue = WorkQueue(redis, lease_ms=60_000, clock=lambda: moment)
    queue.add([KEY])
    for attempt, pause in ((1, 1_000), (2, 2_000), (3, 4_000)):
        claim = _claim(queue)
        assert claim.attempt == attempt
        queue.back_off(claim)
        moment += pause - 1
        assert queue.sweep() == []
        moment += 1
        assert queue.sweep() == [KEY]
    queue.requeue_after(_claim(queue), 5)
    moment += 5
    queue.sweep()
    assert _claim(queue).attempt == 1


def test_the_pause_after_failures_doubles_up_to_a_minute() -> None:
    assert [compute_back_off_ms(attempt) for attempt in (1, 2, 3, 6, 7, 8, 10_000)] == [
        *(1_000, 2_000, 4_000, 32_000, 60_000, 60_000, 60_000),
    ]


def test_a_lost_message_is_sent_again_less_often_the_longer_it_takes(redis: Redis) -> None:
    moment = 1_000_000
    queue = WorkQueue(redis, lease_ms=60_000, clock=lambda: moment)
    queue.add([KEY])
    sent_at = []
    for _ in range(200):
        moment += 1_000
        if queue.sweep():
            sent_at.append((moment - 1_000_000) // 1_000)
    assert sent_at == [5, 10, 20, 40, 80, 160]


def test_thousands_of_keys_are_added_and_swept_whole(queue: WorkQueue) -> None:
    many = [f"sandbox/default/w{number}" for number in range(2_345)]
    assert queue.add(many) == many
    assert queue.depth().ready == 2_345


def test_a_sweep_takes_up_at_most_its_limit_of_each_sort(queue: WorkQueue) -> None:
    for number in range(5):
        delay(queue, f"sandbox/default/w{number}", 0)
    assert len(queue.sweep(limit=3)) == 3
    assert len(queue.sweep(limit=3)) == 2


def test_queues_of_two_names_do_not_meet(redis: Redis) -> None:
    one, two = (WorkQueue(redis, lease_ms=1_000, name=name) for name in ("one", "two"))
    one.add([KEY])
    assert two.claim(KEY) is None
    assert one.claim(KEY) is not None


def test_a_redis_that_lost_everything_takes_no_end_of_an_earlier_claim(queue: WorkQueue, redis: Redis) -> None:
    queue.add([KEY])
    claim = _claim(queue)
    redis.flushall()
    assert queue.done(claim) is FinishResult.LOST
    queue.add([KEY])
    again = _claim(queue)
    assert again.epoch == claim.epoch  # the count started again; the token distinguishes them
    assert queue.done(claim) is FinishResult.LOST
    assert queue.done(again) is FinishResult.FREE


def test_two_sweeps_at_once_find_nothing_twice(redis: Redis) -> None:
    moment = 1_000_000
    one, two = (WorkQueue(redis, lease_ms=1_000, clock=lambda: moment) for _ in range(2))
    one.add(["lost", "flown"])
    _claim(one, "flown")
    delay(one, "delayed", 5)
    moment += 60_000
    assert sorted(one.sweep()) == ["delayed", "flown", "lost"]
    assert two.sweep() == []
