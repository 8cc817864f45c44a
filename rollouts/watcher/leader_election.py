"""Leader election of the watchers: one of them watches a cluster, the others stand by.

A lease in Redis, which the first watcher takes and renews about every second. When its holder is gone the lease runs
out, and the next watcher that asks gets it. The watcher asks in every turn of its loop. The election saves work and is
not needed for safety: rows of the mirror only move forward, so two watchers that both believe to lead do the same work
twice and no harm. So if Redis does not answer, nothing changes: the leader continues.
"""

import os
import secrets
import socket
from enum import Enum, auto
from pathlib import Path
from typing import Final

from redis import Redis, RedisError

LEASE_SECONDS: Final = 3.0

_ACQUIRE_SCRIPT: Final = Path(__file__).with_name("acquire_lease.lua").read_text()
_RELEASE_SCRIPT: Final = Path(__file__).with_name("release_lease.lua").read_text()


class LeaderState(Enum):
    """What this watcher is after it has asked for the lease."""

    ACQUIRED = auto()  # the lease was free: another watcher may have ended, or Redis may have lost its data
    LEADING = auto()  # this watcher held the lease already
    STANDBY = auto()  # another watcher holds the lease
    UNKNOWN = auto()  # Redis does not answer: nothing changes


class LeaderElection:
    """The lease of one cluster, as one watcher asks for it."""

    def __init__(self, redis: Redis, cluster: str, lease_seconds: float = LEASE_SECONDS) -> None:
        self._redis = redis
        self._key = f"grove:leader:{cluster}"
        # Unique, and readable for an operator who looks into Redis.
        self._identity = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._lease_ms = str(round(lease_seconds * 1000))

    def acquire_or_renew(self) -> LeaderState:
        """Take the lease if it is free, renew it if this watcher holds it."""
        try:
            answer = self._redis.eval(_ACQUIRE_SCRIPT, 1, self._key, self._identity, self._lease_ms)
        except RedisError:
            return LeaderState.UNKNOWN
        text = answer.decode() if isinstance(answer, bytes) else answer
        return {"new": LeaderState.ACQUIRED, "again": LeaderState.LEADING}.get(str(text), LeaderState.STANDBY)

    def release(self) -> None:
        """End the lease, so that another watcher need not wait until it runs out."""
        try:
            self._redis.eval(_RELEASE_SCRIPT, 1, self._key, self._identity)
        except RedisError:
            return
