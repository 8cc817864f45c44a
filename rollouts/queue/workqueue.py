"""The queue of workloads that are due, on Redis, with the semantics of client-go's workqueue.

A key names a workload and carries no event: whoever works on it looks at everything. What the queue promises:

- *Coalescing*: a key added many times before it is worked on is worked on once.
- *Single flight*: of all workers at most one holds a claim on a key, from `claim` until the claim ends or its lease
  runs out. A claim whose lease ran out cannot end or be renewed any more: what it says is ignored.
- *Short leases*: a lease lasts seconds and is renewed by its holder, so a worker that is gone, or frozen, holds its key
  for seconds. Where the parent of a worker process sees it die, `give_back` frees its claims at once.
- *No lost wake-up*: a key added during its flight is dirty and due again when the flight ends.
- *Sooner wins*: of several delays of one key the earliest counts, and an `add` does not wait for it.
- *Counted failures*: each `back_off` in a row waits twice as long as the one before, up to a limit; a claim that ends
  in any other way forgets them. Waiting is not failing. A claim that its holder lost counts as a failure too, but the
  first one does not wait: a workload whose passes kill their worker again and again leaves the others their turn.

Before it: `dispatch`, the only user. Beside it: Celery, which carries the keys to the workers as messages and is never
the truth. A message without a due key claims nothing, so doubled ones are harmless; a due key whose message was lost is
found by `sweep`, as are delays that are over and leases that ran out. Killed between any two calls, a worker or a
publisher leaves the key where a sweep finds it.

A key is in exactly one of these places, or in none; `delayed` and `failures` go beside them:

    ready     due, waiting for a worker     add → ready → claim → flying
    flying    claimed, under a lease        the claim ends or is given back, or a sweep finds the lease over
    dirty     flying, and due again         → ready when the flight ends

Every transition is one script, so it happens whole or not at all. All times are Redis's own clock in milliseconds:
the clocks of the workers do not matter.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any, Final

from redis import Redis

Key = str
"""`<cluster>/<namespace>/<name>` of a workload."""

FIRST_BACK_OFF_MS: Final = 1_000
# A resync comes every few minutes anyway; longer than this would only hide that something is mended.
MAX_BACK_OFF_MS: Final = 60_000
# A message takes milliseconds to a free worker. When all are busy the key's age doubles between two messages.
RESEND_MS: Final = 5_000
_MAX_KEYS_PER_SCRIPT: Final = 500


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to work on a key, until its lease runs out; the holder renews the lease."""

    key: Key
    # Made up by the claimant, so that asking once more after a lost answer is answered alike.
    token: str
    # The number of this claim in the life of the queue: of two claims on a key the later one has the higher.
    epoch: int
    # 1 after a success, one more after each failure in a row.
    attempt: int


class FinishResult(Enum):
    """What became of a key whose flight ended."""

    FREE = "free"  # nothing is due now
    DUE = "due"  # it is ready again: send a message, or claim it right away
    LOST = "lost"  # the lease had run out: the key belongs to someone else, or to the next sweep


@dataclass(frozen=True, slots=True)
class Depth:
    """How much there is to do."""

    ready: int
    processing: int
    dirty: int
    delayed: int
    # How long the key that waits longest has been due; 0 when none waits.
    oldest_ms: int


class WorkQueue:
    """One queue on one Redis; any number of processes may hold one of the same name."""

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
        """Open the queue; a `clock` instead of Redis's own is for tests that move time.

        `longest_ms` bounds a claim however often its lease is renewed. `owner` names the process in its claims.
        """
        self.lease_ms: Final = lease_ms
        self._max_claim_ms = max_claim_ms or lease_ms
        self._owner = owner
        self._clock = clock
        self._redis_keys = [f"grove:queue:{name}:{place}" for place in _REDIS_KEYS]
        self._scripts = {source: redis.register_script(_SHARED + source) for source in _SOURCES}

    def add(self, keys: Iterable[Key]) -> list[Key]:
        """Make keys due and return those that need a message; the others wait for a worker already, or fly."""
        return [key for some in _batches(keys) for key in self._run_for_keys(_ADD, RESEND_MS, *some)]

    def add_after(self, key: Key, delay_ms: int) -> None:
        """Make a key due in a while, unless it will be sooner."""
        self._run(_ADD_AFTER, key, delay_ms)

    def claim(self, key: Key) -> Claim | None:
        """Take a key that is due, or None when it is not or somebody works on it."""
        token = secrets.token_hex(8)
        answer = self._run(_CLAIM, key, token, self.lease_ms, self._max_claim_ms, self._owner)
        return None if answer is None else Claim(key, token, epoch=int(answer[0]), attempt=int(answer[1]))

    def renew(self, claim: Claim) -> bool:
        """Begin the lease of a claim anew; False when the claim is lost."""
        return bool(self._run(_RENEW, claim.key, claim.token, self.lease_ms))

    def release_claims(self, owner: str) -> list[Key]:
        """Free the claims of a process that has ended, and return their keys: the next sweep sends them."""
        return self._run_for_keys(_GIVE_BACK, owner)

    def done(self, claim: Claim, *, requeue: bool = False) -> FinishResult:
        """End a flight that went well; with `again` the key is due at once, as if it had been added meanwhile."""
        return self._finish(_DONE, claim, int(requeue))

    def requeue_after(self, claim: Claim, delay_ms: int) -> FinishResult:
        """End a flight that went well and make the key due in a while."""
        return self._finish(_WAIT, claim, delay_ms)

    def back_off(self, claim: Claim) -> FinishResult:
        """End a flight that failed: the key is due later, and later the more often it failed in a row."""
        return self._finish(_BACK_OFF, claim, compute_back_off_ms(claim.attempt))

    def sweep(self, limit: int = 1000) -> list[Key]:
        """Find what became due by time alone and what seems lost; return the keys that need a message."""
        return self._run_for_keys(_SWEEP, RESEND_MS, limit)

    def depth(self) -> Depth:
        """Count the keys in each place."""
        return Depth(*map(int, self._run(_DEPTH)))

    def _finish(self, source: str, claim: Claim, detail: int) -> FinishResult:
        return FinishResult(self._run(source, claim.key, claim.token, RESEND_MS, detail).decode())

    def _run_for_keys(self, source: str, *arguments: str | int) -> list[Key]:
        return [key.decode() for key in self._run(source, *arguments)]

    def _run(self, source: str, *arguments: str | int) -> Any:
        now = "" if self._clock is None else self._clock()
        return self._scripts[source](keys=self._redis_keys, args=[now, *arguments])


def compute_back_off_ms(attempt: int) -> int:
    """How long to wait after the failure of this attempt: 1 s, 2 s, 4 s … 60 s."""
    # The exponent is bounded as well: a workload may fail for weeks.
    return min(FIRST_BACK_OFF_MS << min(attempt - 1, 16), MAX_BACK_OFF_MS)


def _batches(keys: Iterable[Key]) -> Iterator[Sequence[Key]]:
    rest = iter(keys)
    while some := list(islice(rest, _MAX_KEYS_PER_SCRIPT)):
        yield some


# The scripts, one a transition. Scores are milliseconds: when a key became due (`ready`, `dirty`), when to send its
# message once more (`resend`), when its lease ends (`flying`), when it will be due (`delayed`).
_REDIS_KEYS: Final = ("ready", "resend", "flying", "dirty", "delayed", "claims", "failures", "epoch")

_SHARED: Final = """
local ready, resend, flying, dirty, delayed, claims, failures, epoch = unpack(KEYS)
local call = redis.call

local now = tonumber(ARGV[1])
if not now then
    local time = call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Scores go as text: Lua's own way to print a number loses digits of a time in milliseconds.
local function text(number)
    return string.format('%.0f', number)
end

local function put_ready(key, since, resend_ms)
    call('ZADD', ready, since, key)
    call('ZADD', resend, text(now + resend_ms), key)
end

-- Says whether a message must be sent.
local function make_due(key, resend_ms)
    if call('ZSCORE', flying, key) then
        call('ZADD', dirty, 'NX', text(now), key)
        return false
    end
    if call('ZSCORE', ready, key) then
        return false
    end
    put_ready(key, text(now), resend_ms)
    return true
end

local function delay(key, delay_ms)
    local before = call('ZSCORE', delayed, key)
    if not before or now + delay_ms < tonumber(before) then
        call('ZADD', delayed, text(now + delay_ms), key)
    end
end

-- The claim on a key: its epoch, its token, when it ends at the latest, and the process that holds it.
local function held(key)
    return string.match(call('HGET', claims, key) or '', '^(%d+):([^:]*):(%d*):(.*)$')
end

local function is_held(key, token)
    local _, current, latest = held(key)
    return current == token and tonumber(call('ZSCORE', flying, key)) > now and tonumber(latest) > now
end

-- Ends a flight whose worker is gone. The key is due once, whether or not it got dirty; it waits where this is not the
-- first failure in a row. Says whether a message must be sent.
local function take_away(key, resend_ms, first_ms, longest_ms)
    call('ZREM', flying, key)
    call('HDEL', claims, key)
    local is_dirty = call('ZREM', dirty, key) == 1
    local count = call('HINCRBY', failures, key, 1)
    if is_dirty or count == 1 then
        return make_due(key, resend_ms)
    end
    delay(key, math.min(first_ms * 2 ^ math.min(count - 2, 16), longest_ms))
    return false
end

-- Says 'free' or 'due', or 'lost' when the claim no longer holds; then nothing has changed.
local function land(key, token, resend_ms)
    if not is_held(key, token) then
        return 'lost'
    end
    call('ZREM', flying, key)
    call('HDEL', claims, key)
    local since = call('ZSCORE', dirty, key)
    if not since then
        return 'free'
    end
    call('ZREM', dirty, key)
    put_ready(key, since, resend_ms)
    return 'due'
end
"""

_ADD: Final = """
local unsent = {}
for place = 3, #ARGV do
    if make_due(ARGV[place], ARGV[2]) then
        unsent[#unsent + 1] = ARGV[place]
    end
end
return unsent
"""

_ADD_AFTER: Final = """
delay(ARGV[2], ARGV[3])
"""

_CLAIM: Final = """
local key, token, lease_ms, longest_ms, owner = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local attempt = (call('HGET', failures, key) or 0) + 1
local number, current = held(key)
if current == token then
    return {number, attempt}
end
if call('ZREM', ready, key) == 0 then
    return nil
end
call('ZREM', resend, key)
number = call('INCR', epoch)
call('ZADD', flying, text(now + lease_ms), key)
call('HSET', claims, key, table.concat({number, token, text(now + longest_ms), owner}, ':'))
return {number, attempt}
"""

_RENEW: Final = """
local key, token, lease_ms = ARGV[2], ARGV[3], ARGV[4]
if not is_held(key, token) then
    return 0
end
local _, _, latest = held(key)
call('ZADD', flying, text(math.min(now + lease_ms, latest)), key)
return 1
"""

# As many claims as there are workers. A message that is due at once is sent by the next sweep.
_GIVE_BACK: Final = f"""
local given = {{}}
for _, key in ipairs(call('HKEYS', claims)) do
    local _, _, _, owner = held(key)
    if owner == ARGV[2] then
        take_away(key, 0, {FIRST_BACK_OFF_MS}, {MAX_BACK_OFF_MS})
        given[#given + 1] = key
    end
end
return given
"""

_DONE: Final = """
local key, again = ARGV[2], ARGV[5] == '1'
local ended = land(key, ARGV[3], ARGV[4])
if ended ~= 'lost' then
    call('HDEL', failures, key)
end
if ended == 'free' and again then
    put_ready(key, text(now), ARGV[4])
    return 'due'
end
return ended
"""

_WAIT: Final = """
local ended = land(ARGV[2], ARGV[3], ARGV[4])
if ended ~= 'lost' then
    call('HDEL', failures, ARGV[2])
    delay(ARGV[2], ARGV[5])
end
return ended
"""

_BACK_OFF: Final = """
local ended = land(ARGV[2], ARGV[3], ARGV[4])
if ended ~= 'lost' then
    call('HINCRBY', failures, ARGV[2], 1)
    delay(ARGV[2], ARGV[5])
end
return ended
"""

# A key that became due here is sent by its place in `unsent`; its time in `resend` lies ahead, so the last step does
# not find it again.
_SWEEP: Final = f"""
local resend_ms, limit = tonumber(ARGV[2]), ARGV[3]
local unsent = {{}}

local function over(place)
    return call('ZRANGEBYSCORE', place, '-inf', text(now), 'LIMIT', 0, limit)
end

for _, key in ipairs(over(flying)) do
    if take_away(key, resend_ms, {FIRST_BACK_OFF_MS}, {MAX_BACK_OFF_MS}) then
        unsent[#unsent + 1] = key
    end
end
for _, key in ipairs(over(delayed)) do
    call('ZREM', delayed, key)
    if make_due(key, resend_ms) then
        unsent[#unsent + 1] = key
    end
end
for _, key in ipairs(over(resend)) do
    local age = now - call('ZSCORE', ready, key)
    call('ZADD', resend, text(now + math.max(age, resend_ms)), key)
    unsent[#unsent + 1] = key
end
return unsent
"""

_DEPTH: Final = """
local oldest = call('ZRANGE', ready, 0, 0, 'WITHSCORES')
return {
    call('ZCARD', ready), call('ZCARD', flying), call('ZCARD', dirty), call('ZCARD', delayed),
    oldest[2] and text(math.max(0, now - oldest[2])) or 0,
}
"""

_SOURCES: Final = (_ADD, _ADD_AFTER, _CLAIM, _RENEW, _GIVE_BACK, _DONE, _WAIT, _BACK_OFF, _SWEEP, _DEPTH)
