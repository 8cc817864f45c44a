"""The queue beside the model of client-go's, in random runs on a real Redis, with time moved by the run.

Between any two steps a worker may die with its claim, a publisher with its message, and messages may come twice. After
every step both must agree, and in the end every key that was ever added has been processed since, whatever was lost on
the way: a ledger apart from both keeps count.
"""

import itertools
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from redis import Redis

from rollouts.queue.workqueue import MAX_BACK_OFF_MS, Claim, Depth, FinishResult, WorkQueue, compute_back_off_ms
from tests.queue.model import LEASE_MS, LONGEST_MS, Model
from tests.thoroughness import examples

KEYS = tuple(f"sandbox/default/workload-{number}" for number in range(4))
keys = st.sampled_from(KEYS)
# Around what matters: nothing, a moment, the resend, the lease, everything at once.
durations = st.sampled_from([0, 1, 999, 5_000, 9_999, 10_000, 59_999, 60_000, 200_000])
OWNERS = ("worker/1", "worker/12")
owners = st.sampled_from(OWNERS)
choices = st.integers(min_value=0, max_value=1_000)


class QueueMachine(RuleBasedStateMachine):
    """Random runs of publishers, a broker, workers and time."""

    redis: Redis
    numbers: Iterator[int]

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        name = f"run-{next(self.numbers)}"
        self.queues = {
            owner: WorkQueue(
                self.redis,
                lease_ms=LEASE_MS,
                max_claim_ms=LONGEST_MS,
                owner=owner,
                name=name,
                clock=lambda: self.model.now,
            )
            for owner in OWNERS
        }
        self.queue = self.queues[OWNERS[0]]
        self.messages: list[str] = []
        self.claims: list[Claim] = []  # of workers that live, good or not
        self.epoch = 0
        # Keys that were added, and over which no pass has begun and ended since.
        self.owed: set[str] = set()

    # Publishers

    @rule(some=st.lists(keys, min_size=1, max_size=5), lost=st.booleans())
    def add(self, some: list[str], lost: bool) -> None:
        expected = [key for key in some if self.model.add(key)]
        unsent = self.queue.add(some)
        assert unsent == expected
        self.owed.update(some)
        if not lost:
            self.messages += unsent

    # The broker

    @precondition(lambda self: self.messages)
    @rule(choice=choices)
    def double_a_message(self, choice: int) -> None:
        self.messages.append(self.messages[choice % len(self.messages)])

    @precondition(lambda self: self.messages)
    @rule(choice=choices)
    def lose_a_message(self, choice: int) -> None:
        del self.messages[choice % len(self.messages)]

    # Workers

    @precondition(lambda self: self.messages)
    @rule(choice=choices, owner=owners)
    def deliver(self, choice: int, owner: str = OWNERS[0]) -> None:
        self._claim(self.messages.pop(choice % len(self.messages)), owner)

    @rule(key=keys, owner=owners)
    def claim_out_of_the_blue(self, key: str, owner: str) -> None:
        self._claim(key, owner)

    @precondition(lambda self: self.claims)
    @rule(choice=choices)
    def renew(self, choice: int) -> None:
        claim = self.claims[choice % len(self.claims)]
        expected = self.model.holds(claim.key, claim.token)
        assert self.queue.renew(claim) == expected
        if expected:
            self.model.renew(claim.key)

    @rule(owner=owners)
    def give_back(self, owner: str) -> None:
        assert set(self.queue.release_claims(owner)) == self.model.give_back(owner)

    @precondition(lambda self: self.claims)
    @rule(choice=choices)
    def kill_a_worker(self, choice: int) -> None:
        self.claims.pop(choice % len(self.claims))

    @precondition(lambda self: self.claims)
    @rule(choice=choices, again=st.booleans())
    def done(self, choice: int, again: bool) -> None:
        claim = self.claims.pop(choice % len(self.claims))

        def expect() -> None:
            self.model.failures.pop(claim.key, None)
            if again:
                self.model.add(claim.key)

        self._end(claim, expect, self.queue.done(claim, requeue=again))

    @precondition(lambda self: self.claims)
    @rule(choice=choices, delay=durations)
    def wait(self, choice: int, delay: int) -> None:
        claim = self.claims.pop(choice % len(self.claims))

        def expect() -> None:
            self.model.failures.pop(claim.key, None)
            self.model.delay(claim.key, delay)

        self._end(claim, expect, self.queue.requeue_after(claim, delay))

    @precondition(lambda self: self.claims)
    @rule(choice=choices)
    def back_off(self, choice: int) -> None:
        claim = self.claims.pop(choice % len(self.claims))

        def expect() -> None:
            self.model.failures[claim.key] = self.model.failures.get(claim.key, 0) + 1
            self.model.delay(claim.key, compute_back_off_ms(self.model.failures[claim.key]))
            self.owed.add(claim.key)

        self._end(claim, expect, self.queue.back_off(claim))

    # Time

    @rule(duration=durations)
    def pass_time(self, duration: int) -> None:
        self.model.now += duration

    @rule(lost=st.booleans())
    def sweep(self, lost: bool) -> None:
        expected = self.model.sweep()
        unsent = self.queue.sweep()
        assert sorted(unsent) == sorted(expected)
        if not lost:
            self.messages += unsent

    # What always holds

    @invariant()
    def both_count_the_same(self) -> None:
        ready = self.model.ready
        assert self.queue.depth() == Depth(
            ready=len(ready),
            processing=len(self.model.processing),
            dirty=len(self.model.dirty) - len(ready),
            delayed=len(self.model.waiting),
            oldest_ms=max((self.model.now - since for since in ready.values()), default=0),
        )

    @invariant()
    def no_key_flies_twice(self) -> None:
        good = [claim.key for claim in self.claims if self.model.holds(claim.key, claim.token)]
        assert len(good) == len(set(good))

    def teardown(self) -> None:
        """Kill all processes, lose every message, and let quiet workers and the sweep run: no key stays unprocessed."""
        self.claims.clear()
        self.messages.clear()
        for _ in range(4):
            self.pass_time(LEASE_MS + MAX_BACK_OFF_MS + 200_000)
            self.sweep(lost=False)
            while self.messages:
                self.deliver(0)
                while self.claims:
                    self.done(0, again=False)
        assert not self.owed
        assert self.queue.depth() == Depth(ready=0, processing=0, dirty=0, delayed=0, oldest_ms=0)

    def _claim(self, key: str, owner: str) -> None:
        possible = self.model.can_claim(key)
        claim = self.queues[owner].claim(key)
        assert (claim is not None) == possible
        if claim is None:
            return
        assert claim.attempt == self.model.claim(key, claim.token, owner)
        assert claim.epoch > self.epoch
        self.epoch = claim.epoch
        self.claims.append(claim)

    def _end(self, claim: Claim, expect: Callable[[], None], ended: FinishResult) -> None:
        if not self.model.holds(claim.key, claim.token):
            assert ended is FinishResult.LOST
            return
        # After an add during processing another pass must follow; this one settles only what came before.
        if claim.key not in self.model.dirty and claim.key not in self.model.waiting:
            self.owed.discard(claim.key)
        expect()
        assert ended is (FinishResult.DUE if self.model.end(claim.key) else FinishResult.FREE)


@pytest.mark.slow
def test_random_runs_agree_with_a_model_of_client_go_and_lose_nothing(redis: Redis) -> None:
    machine = type("Machine", (QueueMachine,), {"redis": redis, "numbers": itertools.count()})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(150),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
