"""What became of lost claims, by Redis's own clock: Redis reports each step of the queue's scripts with MONITOR.

So a test can say how long a workload was without a worker, and nothing that the test process does late counts.
"""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from redis import Redis

from rollouts.queue.lease import LEASE_SECONDS
from tests.project.running import wait_until

# From the end of a lease to the next claim: a sweep, its message, a worker. Generous, as beat can be late on a busy
# machine. The number of sweeps is exact on any machine: the first one after the lease ends the claim.
SECONDS_AFTER_THE_LEASE: Final = 30.0
SECONDS: Final = 120.0  # a limit for broken code only
_PROCESSING: Final = "grove:queue:reconcile:flying"
_CLAIMS: Final = "grove:queue:reconcile:claims"
_STOP: Final = "the test has ended"


@dataclass(frozen=True, slots=True)
class LostClaim:
    """A claim whose worker was killed or frozen."""

    age: float  # seconds from its last renewal to the next claim of the workload
    sweeps: int  # that found the lease over; 0: a parent process had released the claim before

    def assert_is_short(self) -> None:
        """Assert that the workload was without a worker for one lease, and that the next sweep ended it."""
        assert self.age <= LEASE_SECONDS + SECONDS_AFTER_THE_LEASE, self
        assert self.sweeps <= 1, self


@dataclass(frozen=True, slots=True)
class _Step:
    """A command of a script."""

    at: float  # seconds
    words: list[str]

    def names(self, command: str, place: str, word: str) -> bool:
        """Whether it is this command for a place of the queue, with this argument."""
        return self.words[:2] == [command, place] and word in self.words[2:]


@dataclass
class ClaimHistory:
    """The steps of the queue since the history was opened."""

    redis: Redis
    _steps: list[_Step] = field(default_factory=list)

    def now(self) -> float:
        """Redis's clock."""
        seconds, micros = self.redis.time()
        return float(seconds + micros / 1e6)

    def wait_for_the_next_claim(self, key: str, lost_at: float) -> LostClaim:
        """Return what became of the claim on a workload that was lost at this time, when there is another one."""
        found: list[LostClaim] = []

        def is_claimed_again() -> bool:
            found.extend(self._find(key, lost_at))
            return bool(found)

        wait_until(is_claimed_again, SECONDS, lambda: f"{key} is not claimed again")
        return found[0]

    def _find(self, key: str, lost_at: float) -> Iterator[LostClaim]:
        steps = list(self._steps)
        released = next((step for step in steps if step.at > lost_at and step.names("HDEL", _CLAIMS, key)), None)
        if released is None:
            return
        before, after = steps[: steps.index(released)], steps[steps.index(released) :]
        renewed = [step for step in before if step.names("ZADD", _PROCESSING, key)][-1]
        lease_over = int(renewed.words[2])
        sweeps = [step for step in before if step.names("ZRANGEBYSCORE", _PROCESSING, "-inf")]
        for claimed in after:
            if claimed.names("HSET", _CLAIMS, key):
                yield LostClaim(claimed.at - renewed.at, sum(int(sweep.words[3]) >= lease_over for sweep in sweeps))
                return

    def _read(self, opened: threading.Event) -> None:
        with self.redis.monitor() as monitor:  # type: ignore[no-untyped-call]
            opened.set()
            for told in monitor.listen():
                words = told["command"].split(" ")
                if words[0] == "ECHO" and told["command"].endswith(_STOP):
                    return
                if told["client_type"] == "lua":
                    self._steps.append(_Step(told["time"], words))


@contextlib.contextmanager
def claim_history(url: str) -> Iterator[ClaimHistory]:
    """Record the steps of the queue of a Redis inside the block."""
    # Without a timeout: on a busy machine nothing may happen for seconds.
    with Redis.from_url(url, decode_responses=True, socket_timeout=None) as redis:
        history, opened = ClaimHistory(redis), threading.Event()
        reader = threading.Thread(target=history._read, args=(opened,))
        reader.start()
        try:
            assert opened.wait(SECONDS)
            yield history
        finally:
            redis.echo(_STOP)
            reader.join()
