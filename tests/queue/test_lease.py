"""The lease of a claim: renewed while a pass runs, and a fence before each write once it may be lost."""

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
from django.conf import settings
from redis import ConnectionError as RedisConnectionError
from redis import Redis

from rollouts.cluster import Fence
from rollouts.queue import dispatch, lease
from rollouts.queue.lease import LEASE_SECONDS, RENEW_SECONDS, Lease, LeaseLost
from rollouts.queue.results import Done, ReconcileResult
from rollouts.queue.workqueue import Claim, WorkQueue

KEY = "sandbox/default/llama"
OWNER = "worker/7"


class Worker:
    """A claim under a lease; the test moves the clock of the worker and that of Redis."""

    def __init__(self, redis: Redis) -> None:
        self.now = 0.0  # of the worker, in seconds
        self.redis_now = 0.0
        self.queue = WorkQueue(
            redis,
            lease_ms=round(LEASE_SECONDS * 1000),
            max_claim_ms=3_600_000,
            owner=OWNER,
            clock=lambda: 1_000_000 + round(self.redis_now * 1000),
        )
        self.queue.add([KEY])
        self.claim = self._claim()
        self.lease = Lease(KEY, self.renew, asked_at=self.now, seconds=LEASE_SECONDS, clock=lambda: self.now)
        self.is_redis_away = False

    def _claim(self) -> Claim:
        claim = self.queue.claim(KEY)
        assert claim is not None
        return claim

    def renew(self) -> bool:
        if self.is_redis_away:
            raise RedisConnectionError
        return self.queue.renew(self.claim)

    def pass_time(self, seconds: float) -> None:
        """Move both clocks."""
        self.now += seconds
        self.redis_now += seconds

    def may_write(self) -> bool:
        """Call the fence as a write does."""
        try:
            self.lease.check()
        except LeaseLost:
            return False
        return True


@pytest.fixture
def worker(redis: Redis) -> Worker:
    return Worker(redis)


def test_a_pass_writes_for_as_long_as_its_lease_is_renewed(worker: Worker) -> None:
    for _ in range(20):
        worker.pass_time(RENEW_SECONDS)
        worker.lease.renew_if_due()
        assert worker.may_write()
        assert worker.queue.sweep() == []


def test_a_frozen_worker_that_wakes_up_after_its_lease_writes_nothing(worker: Worker) -> None:
    worker.pass_time(LEASE_SECONDS)
    assert not worker.may_write()
    assert worker.queue.sweep() == [KEY]
    assert not worker.may_write()


def test_a_worker_that_is_gone_leaves_its_workload_to_a_sweep_within_six_seconds(worker: Worker) -> None:
    sweep_seconds = cast("float", settings.CELERY_BEAT_SCHEDULE["sweep"]["schedule"])
    worker.pass_time(LEASE_SECONDS - 0.1)
    assert worker.queue.sweep() == []
    worker.pass_time(6.0 - sweep_seconds - (LEASE_SECONDS - 0.1))  # one sweep came just too early, the next one sees it
    assert worker.queue.sweep() == [KEY]


def test_a_machine_whose_clock_stood_still_is_told_by_redis_that_the_lease_is_over(worker: Worker) -> None:
    worker.redis_now += LEASE_SECONDS
    worker.pass_time(0.3)
    assert not worker.may_write()


def test_a_claim_that_was_given_back_writes_nothing_more(worker: Worker) -> None:
    worker.queue.release_claims(OWNER)
    worker.pass_time(0.3)
    assert not worker.may_write()


def test_a_redis_that_lost_the_claim_stops_its_pass(worker: Worker, redis: Redis) -> None:
    redis.flushall()
    worker.pass_time(0.3)
    assert not worker.may_write()


def test_while_redis_is_away_a_pass_writes_until_just_before_another_worker_could(worker: Worker) -> None:
    worker.is_redis_away = True
    worker.pass_time(LEASE_SECONDS * 0.75)
    assert worker.may_write()
    worker.pass_time(LEASE_SECONDS * 0.1)
    assert not worker.may_write()
    assert worker.queue.sweep() == []
    worker.is_redis_away = False
    assert worker.may_write()  # it is still ours after all


def test_a_pass_that_thinks_for_long_keeps_its_workload(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    renewed = threading.Event()
    monkeypatch.setattr(WorkQueue, "renew", _then(WorkQueue.renew, renewed.set))

    def think(_key: str, fence: Fence) -> ReconcileResult:
        assert renewed.wait(60)  # by the thread that renews: the pass asks nothing
        fence()
        return Done()

    dispatch.enqueue([KEY])
    dispatch.process_message(KEY, think)
    assert dispatch.open_queue().depth().processing == 0
    assert dispatch.open_queue().claim(KEY) is None


def test_a_pass_that_finds_its_lease_lost_ends_nothing_and_its_workload_goes_on(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_FRESH_SECONDS", 0.0)
    fenced: list[bool] = []

    def lose(_key: str, fence: Fence) -> ReconcileResult:
        redis.delete("grove:queue:reconcile:claims", "grove:queue:reconcile:flying")
        dispatch.enqueue([KEY])
        other = dispatch.open_queue().claim(KEY)
        assert other is not None
        try:
            fence()
        except LeaseLost:
            fenced.append(True)
            raise
        return Done()

    dispatch.enqueue([KEY])
    dispatch.process_message(KEY, lose)
    assert fenced == [True]
    assert dispatch.open_queue().depth().processing == 1  # the other one's, untouched


def _then(work: Callable[..., bool], after: Callable[[], None]) -> Callable[..., bool]:
    def both(*args: object) -> bool:
        answer = work(*args)
        after()
        return answer

    return both


def test_a_lease_and_the_sweep_after_it_are_over_within_six_seconds() -> None:
    """`docs/operating.md` promises this; `claim_history` shows on real processes that no other sweep is needed."""
    sweep: dict[str, Any] = settings.CELERY_BEAT_SCHEDULE["sweep"]
    assert LEASE_SECONDS + sweep["schedule"] <= 6
