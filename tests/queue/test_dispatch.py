"""What one message starts: the result of a pass becomes one transition of the queue, and no crash loses a key."""

import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from celery.exceptions import SoftTimeLimitExceeded
from django.db import DataError
from redis import ConnectionError as RedisConnectionError
from redis import Redis

from rollouts.cluster import Fence
from rollouts.queue.dispatch import process_key
from rollouts.queue.results import Done, ReconcileResult, Requeue, RequeueAfter, Retry, Stop
from rollouts.queue.workqueue import Depth, WorkQueue
from rollouts.telemetry import metrics
from tests.queue.model import LEASE_MS

KEY = "sandbox/default/llama"
EMPTY = Depth(ready=0, processing=0, dirty=0, delayed=0, oldest_ms=0)


class World:
    """A queue with a clock to move, a broker that is a list, and passes with given results."""

    def __init__(self, redis: Redis) -> None:
        self.moment = 1_000_000
        self.queue = WorkQueue(redis, lease_ms=LEASE_MS, clock=lambda: self.moment)
        self.messages: list[str] = []
        self.outcomes: list[ReconcileResult | Exception] = []
        self.passes = 0
        self.last: ReconcileResult | None = None  # what the last pass came to
        self.during: Callable[[Fence], object] = lambda _fence: None  # what happens in a pass

    def publish(self, keys: Iterable[str]) -> None:
        self.messages.extend(keys)

    def reconcile(self, key: str, fence: Fence) -> ReconcileResult:
        self.passes += 1
        self.during(fence)
        outcome = self.outcomes.pop(0) if self.outcomes else Done()
        if isinstance(outcome, Exception):
            raise outcome
        self.last = outcome
        return outcome

    def turn(
        self, *outcomes: ReconcileResult | Exception, turn_seconds: float = 60.0, queue: WorkQueue | None = None
    ) -> None:
        self.outcomes += outcomes
        process_key(queue or self.queue, KEY, self.reconcile, publish=self.publish, yield_after_seconds=turn_seconds)


@pytest.fixture
def world(redis: Redis) -> World:
    world = World(redis)
    world.queue.add([KEY])
    return world


def test_a_pass_that_is_done_leaves_nothing(world: World) -> None:
    world.turn(Done())
    assert (world.passes, world.queue.depth(), world.messages) == (1, EMPTY, [])


def test_a_doubled_message_runs_no_pass(world: World) -> None:
    world.turn()
    world.turn()
    assert world.passes == 1


def test_a_pass_that_can_go_on_does_so_without_a_message(world: World) -> None:
    world.turn(Requeue(), Requeue(), Requeue(), Done())
    assert (world.passes, world.queue.depth(), world.messages) == (4, EMPTY, [])


def test_a_turn_that_is_over_leaves_the_rest_to_a_message(world: World) -> None:
    world.turn(Requeue(), turn_seconds=0)
    assert (world.passes, world.messages, world.queue.depth().ready) == (1, [KEY], 1)


def test_a_key_woken_during_its_pass_has_another_one(world: World) -> None:
    def woken_meanwhile(key: str, fence: Fence) -> ReconcileResult:
        world.passes += 1
        if world.passes == 1:
            world.queue.add([key])
        return Done()

    process_key(world.queue, KEY, woken_meanwhile, publish=world.publish)
    assert (world.passes, world.queue.depth(), world.messages) == (2, EMPTY, [])


def test_a_pass_that_waits_is_looked_at_again_on_time_and_has_not_failed(world: World) -> None:
    world.turn(RequeueAfter(2.5, "WaitingForReady"))
    world.moment += 2_499
    assert world.queue.sweep() == []
    world.moment += 1
    assert world.queue.sweep() == [KEY]
    claim = world.queue.claim(KEY)
    assert claim is not None
    assert claim.attempt == 1


def test_a_pass_that_is_to_be_retried_waits_longer_each_time(world: World) -> None:
    for pause in (1_000, 2_000, 4_000):
        world.turn(Retry("the API server is away"))
        world.moment += pause - 1
        assert world.queue.sweep() == []
        world.moment += 1
        assert world.queue.sweep() == [KEY]


def test_a_pass_is_measured_under_the_label_of_its_result(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = list[str]()
    monkeypatch.setattr(metrics, "observe_pass", lambda label, _seconds: labels.append(label))
    for result in (
        Done(),
        Requeue(),
        RequeueAfter(1.0, "BudgetExhausted"),
        Retry("no answer"),
        Stop("no", "InvalidSpec"),
    ):
        world.queue.add([KEY])
        world.turn(result, turn_seconds=0.0)
        world.moment += 10_000
    assert labels == ["Done", "Again", "Wait", "Retry", "Stop"]


def test_a_workload_left_alone_is_not_looked_at_until_it_is_woken(world: World) -> None:
    world.turn(Stop("spec.replicas: must not be negative", "InvalidSpec"))
    assert world.queue.depth() == EMPTY
    assert world.queue.add([KEY]) == [KEY]


def test_what_a_database_says_is_not_logged_since_it_may_quote_a_template(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.turn(DataError('invalid input: "password": "hunter2"'))
    assert world.queue.depth().delayed == 1
    assert "DataError" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_pass_that_raises_is_retried_and_told_with_its_story_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(3):
        world.turn(ValueError("poisoned"))
        world.moment += 60_000
        world.queue.sweep()
    assert world.passes == 3
    assert sum(bool(record.exc_info) for record in caplog.records) == 1
    assert all(KEY in record.getMessage() for record in caplog.records)


def test_a_pass_over_its_time_limit_is_retried(world: World) -> None:
    world.turn(SoftTimeLimitExceeded())
    assert world.queue.depth().delayed == 1


class _DeafQueue(WorkQueue):
    """A queue whose Redis does not answer some calls after the first."""

    deaf = 0

    def _run(self, source: str, *arguments: str | int) -> Any:
        if self.deaf < 0:
            self.deaf += 1
            raise RedisConnectionError
        answer = super()._run(source, *arguments)
        self.deaf = -3 if self.deaf == 0 else self.deaf
        return answer


def test_the_end_of_a_pass_waits_for_a_redis_that_restarts(
    world: World, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollouts.queue.dispatch._PAUSES_FOR_REDIS", (0, 0, 0))
    world.turn(Done(), queue=_DeafQueue(redis, lease_ms=LEASE_MS, clock=lambda: world.moment))
    assert (world.passes, world.queue.depth()) == (1, EMPTY)


class _Crash(BaseException):
    """The process has died."""


class _MortalQueue(WorkQueue):
    """A queue whose user dies at the n-th call, before Redis executes it or after."""

    def __init__(self, world: World, redis: Redis, *, calls: int, heard: bool) -> None:
        super().__init__(redis, lease_ms=LEASE_MS, clock=lambda: world.moment)
        self._calls = calls
        self._heard = heard

    def _run(self, source: str, *arguments: str | int) -> Any:
        self._calls -= 1
        if self._calls == 0 and not self._heard:
            raise _Crash
        answer = super()._run(source, *arguments)
        if self._calls == 0:
            raise _Crash
        return answer


# A turn of three passes makes six calls, and a seventh finds nothing to claim.
@pytest.mark.parametrize("heard", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", range(1, 8))
@pytest.mark.parametrize(
    "outcome",
    [Requeue(), RequeueAfter(5, "WaitingForReady"), Retry("away")],
    ids=lambda outcome: type(outcome).__name__,
)
def test_a_worker_killed_at_any_call_leaves_its_key_to_the_sweep(
    world: World, redis: Redis, outcome: ReconcileResult, call: int, heard: bool
) -> None:
    with contextlib.suppress(_Crash):
        world.turn(Requeue(), outcome, queue=_MortalQueue(world, redis, calls=call, heard=heard))
    for _ in range(3):
        world.moment += LEASE_MS
        for _key in world.queue.sweep():
            world.turn()
    assert world.outcomes == []
    assert world.last == Done()
    assert world.queue.depth() == EMPTY
