"""Who of several watchers listens to a cluster: one leads, the others stand by.

A lease in Redis, taken by whoever comes first and renewed about every second; when its holder is gone it runs out, and
the next who asks has it. The watcher asks at every turn of its loop. Leading is a matter of economy and not of safety:
rows move forward only, so two who both believe to lead do the same work twice and no harm. Therefore a Redis that is
away changes nothing: whoever leads goes on.
"""

import os
import secrets
import socket
from enum import Enum, auto
from typing import Final

from redis import Redis, RedisError

LEASE_SECONDS: Final = 3.0

_ACQUIRE_SCRIPT: Final = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 'other' end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return holder and 'again' or 'new'
"""
_RELEASE_SCRIPT: Final = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class LeaderState(Enum):
    """How we stand after asking."""

    ACQUIRED = auto()  # the lease was free: whoever held it, and what Redis knew, may be gone
    LEADING = auto()  # still ours
    STANDBY = auto()  # another watcher's
    UNKNOWN = auto()  # Redis does not answer: all stays as it is


class LeaderElection:
    """One watcher's claim to one cluster."""

    def __init__(self, redis: Redis, cluster: str, lease_seconds: float = LEASE_SECONDS) -> None:
        self._redis = redis
        self._key = f"grove:leader:{cluster}"
        # Told to whoever looks into Redis, and unlike any other.
        self._identity = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._lease_ms = str(round(lease_seconds * 1000))

    def acquire_or_renew(self) -> LeaderState:
        """Take or renew the lease if it is free or ours."""
        try:
            answer = self._redis.eval(_ACQUIRE_SCRIPT, 1, self._key, self._identity, self._lease_ms)
        except RedisError:
            return LeaderState.UNKNOWN
        text = answer.decode() if isinstance(answer, bytes) else answer
        return {"new": LeaderState.ACQUIRED, "again": LeaderState.LEADING}.get(str(text), LeaderState.STANDBY)

    def release(self) -> None:
        """Give the lease up, so that another watcher need not wait for its end."""
        try:
            self._redis.eval(_RELEASE_SCRIPT, 1, self._key, self._identity)
        except RedisError:
            return
