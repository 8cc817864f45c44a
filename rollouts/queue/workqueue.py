"""The queue of workloads that are due, on Redis, with the semantics of client-go's workqueue.

A key names a workload and carries no event: a pass over the key looks at the whole workload. What the queue guarantees:

- *Coalescing*: a key that is added many times before it is processed is processed once.
- *Single flight*: of all workers at most one has a claim on a key, from `claim` until the claim ends or its lease runs
  out. A claim whose lease ran out can neither end nor be renewed: its calls change nothing.
- *Short leases*: a lease lasts seconds and its holder renews it, so a worker that died or froze keeps its key for
  seconds only. If the parent of a worker process sees it die, `release_claims` ends its claims at once.
- *No lost wake-up*: a key that is added while it is processed is dirty, and due again when its claim ends.
- *Sooner wins*: of several delays of one key the earliest counts, and an `add` does not wait for it.
- *Counted failures*: each `back_off` in a row waits twice as long as the one before, up to a limit; a claim that ends
  in any other way resets the count. Waiting is not failing. A lost claim counts as a failure too, but the first one
  does not wait: a workload whose passes kill their worker again and again must not keep the others waiting.

Before it: `dispatch`, the only user. Beside it: Celery, whose messages carry the keys to the workers and are never the
truth. A message without a due key claims nothing, so a doubled message does no harm; `sweep` finds a due key whose
message was lost, delays that are over and leases that ran out. If a worker or a publisher is killed between any two
calls, a sweep finds the key where it is.

A key is in exactly one of these places, or in none; `delayed` and `failures` are independent of them:

    ready        due, waiting for a worker       add → ready → claim → processing
    processing   claimed, under a lease          until the claim ends or is released, or a sweep finds the lease over
    dirty        processing, and due again       → ready when the claim ends

Every transition is one Lua script (`lua/`), so Redis executes it as a whole or not at all. All times are milliseconds
of Redis's own clock: the clocks of the workers do not matter.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Any, Final

from redis import Redis

Key = str
"""`<cluster>/<namespace>/<name>` of a workload."""

FIRST_BACK_OFF_MS: Final = 1_000
# A resync comes every few minutes anyway; a longer delay would only hide that a problem is solved.
MAX_BACK_OFF_MS: Final = 60_000
# A message reaches a free worker within milliseconds. While all are busy, the key's age doubles between two messages.
RESEND_MS: Final = 5_000
_MAX_KEYS_PER_SCRIPT: Final = 500

# The suffixes of the Redis keys, in the order in which `lua/shared.lua` unpacks them. "flying" holds what is being
# processed: the name stays for queues that an earlier version has filled.
_REDIS_KEYS: Final = ("ready", "resend", "flying", "dirty", "delayed", "claims", "failures", "epoch")

_LUA: Final = Path(__file__).with_name("lua")
_SHARED: Final = (_LUA / "shared.lua").read_text()
# One script for each transition, by the name of its file.
_SCRIPTS: Final = {
    path.stem: f"{_SHARED}\n{path.read_text()}" for path in sorted(_LUA.glob("*.lua")) if path.stem != "shared"
}


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to process a key until the lease runs out; the holder renews the lease."""

    key: Key
    # Random, chosen by the worker: if an answer was lost and the worker asks again, it gets the same claim.
    token: str
    # A number that grows with every claim of the queue: of two claims on a key the later one has the higher number.
    epoch: int
    # 1 after a success, plus one for each failure in a row.
    attempt: int


class FinishResult(Enum):
    """The state of a key after a claim has ended."""

    FREE = "free"  # nothing is due now
    DUE = "due"  # it is ready again: send a message, or claim it right away
    LOST = "lost"  # the lease had run out: another worker has the key, or the next sweep finds it


@dataclass(frozen=True, slots=True)
class Depth:
    """How many keys are in each place."""

    ready: int
    processing: int
    dirty: int
    delayed: int
    # For how long the oldest ready key has been due; 0 if none is ready.
    oldest_ms: int


class WorkQueue:
    """A queue on Redis; any number of processes may open the queue of one name."""

    def __init__(
        self,
        redis: Redis,
        *,
        lease_ms: int,
        max_claim_ms: int | None = None,
        owner: str = "",
        name: str = "reconcile",
        clock: Callable[[], int] | None = None,
    ) -> None:
        """Open the queue; tests that move time pass a `clock` in place of Redis's own.

        `max_claim_ms` bounds a claim however often its lease is renewed. `owner` names the process in its claims.
        """
        self.lease_ms: Final = lease_ms
        self._max_claim_ms = max_claim_ms or lease_ms
        self._owner = owner
        self._clock = clock
        self._redis_keys = [f"grove:queue:{name}:{place}" for place in _REDIS_KEYS]
        self._scripts = {name: redis.register_script(source) for name, source in _SCRIPTS.items()}

    def add(self, keys: Iterable[Key]) -> list[Key]:
        """Make keys due and return those that need a message; the others are ready already, or being processed."""
        return [key for some in _batches(keys) for key in self._run_for_keys("add", RESEND_MS, *some)]

    def claim(self, key: Key) -> Claim | None:
        """Claim a key; None if it is not due or another worker has it."""
        token = secrets.token_hex(8)
        answer = self._run("claim", key, token, self.lease_ms, self._max_claim_ms, self._owner)
        return None if answer is None else Claim(key, token, epoch=int(answer[0]), attempt=int(answer[1]))

    def renew(self, claim: Claim) -> bool:
        """Renew the lease of a claim; False if the claim is lost."""
        return bool(self._run("renew", claim.key, claim.token, self.lease_ms))

    def release_claims(self, owner: str) -> list[Key]:
        """End the claims of a process that has ended, and return their keys; the next sweep sends their messages."""
        return self._run_for_keys("release_claims", owner, FIRST_BACK_OFF_MS, MAX_BACK_OFF_MS)

    def done(self, claim: Claim, *, requeue: bool = False) -> FinishResult:
        """End a claim after a success; with `requeue` the key is due at once, as if it had been added meanwhile."""
        return self._finish("done", claim, int(requeue))

    def requeue_after(self, claim: Claim, delay_ms: int) -> FinishResult:
        """End a claim after a success and make the key due after a delay, unless it is due sooner."""
        return self._finish("requeue_after", claim, delay_ms)

    def back_off(self, claim: Claim) -> FinishResult:
        """End a claim after a failure: the key is due after a delay that doubles with every failure in a row."""
        return self._finish("back_off", claim, compute_back_off_ms(claim.attempt))

    def sweep(self, limit: int = 1000) -> list[Key]:
        """Find keys that became due by time alone and messages that seem lost; return the keys to send."""
        return self._run_for_keys("sweep", RESEND_MS, limit, FIRST_BACK_OFF_MS, MAX_BACK_OFF_MS)

    def depth(self) -> Depth:
        """Count the keys in each place."""
        return Depth(*map(int, self._run("depth")))

    def _finish(self, script: str, claim: Claim, detail: int) -> FinishResult:
        return FinishResult(self._run(script, claim.key, claim.token, RESEND_MS, detail).decode())

    def _run_for_keys(self, script: str, *arguments: str | int) -> list[Key]:
        return [key.decode() for key in self._run(script, *arguments)]

    def _run(self, script: str, *arguments: str | int) -> Any:
        now = "" if self._clock is None else self._clock()
        return self._scripts[script](keys=self._redis_keys, args=[now, *arguments])


def compute_back_off_ms(attempt: int) -> int:
    """Return how long to wait after the failure of this attempt: 1 s, 2 s, 4 s … 60 s."""
    # The exponent has a limit too: a workload may fail for weeks.
    return min(FIRST_BACK_OFF_MS << min(attempt - 1, 16), MAX_BACK_OFF_MS)


def _batches(keys: Iterable[Key]) -> Iterator[Sequence[Key]]:
    rest = iter(keys)
    while some := list(islice(rest, _MAX_KEYS_PER_SCRIPT)):
        yield some
