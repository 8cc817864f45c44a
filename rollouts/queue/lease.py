"""The lease of a claim while a pass runs: it is renewed in time, and once it is lost nothing more is written.

Before it: `dispatch`, which claims a key and holds the lease while a pass runs. After it: `workqueue`, which grants
leases of a few seconds. The reconciler gets `Lease.check` as its fence, and the client calls it before each write.

A worker that is killed or frozen renews nothing, so another worker gets the key within seconds. A frozen worker that
continues asks Redis before its next write and learns that the lease is lost: `check` raises, and the pass ends without
another write. If Redis does not answer, the worker's own clock decides when the lease ends. The invariant: `check`
returns only if Redis has confirmed the lease for a request that is younger than the lease, less a margin. The clocks of
Redis and of the worker must run at the same speed; their absolute times do not matter.

No check can stop a write that is already on its way to the network: docs/adr/0026 describes what such a write may do.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final

from redis import RedisError

from rollouts.queue.workqueue import Claim, WorkQueue

logger = logging.getLogger(__name__)

# With one sweep a second, another worker continues within 6 seconds of the last renewal.
LEASE_SECONDS: Final = 4.5
RENEW_SECONDS: Final = 1.0
# A lease that was confirmed longer ago is confirmed again before the next write: so a Redis that lost its data, or a
# machine that stood still together with its clock, is noticed.
_FRESH_SECONDS: Final = 0.25
# For a write that is sent at the last moment: a fifth of the lease, which tests make shorter.
_MARGIN: Final = 0.2

Renew = Callable[[], bool]


class LeaseLost(Exception):  # noqa: N818 (as Kubernetes' leader election calls it)
    """Another worker has the workload, or may have it: nothing more may be written."""


class Lease:
    """The lease of one claim. Safe to share between the threads that write."""

    def __init__(
        self, key: str, renew: Renew, *, asked_at: float, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Hold a lease that was requested at this time of the clock."""
        self._key = key
        self._renew = renew
        self._valid_seconds = seconds * (1 - _MARGIN)
        self._clock = clock
        self._confirmed_at = asked_at
        self._is_lost = False
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raise LeaseLost unless the claim is still ours; call it right before each write."""
        if not self._renew_after(_FRESH_SECONDS):
            raise LeaseLost(f"another worker may have {self._key} by now, so this pass writes nothing more")

    def renew_if_due(self) -> None:
        """Renew the lease if the last renewal is long enough ago."""
        self._renew_after(RENEW_SECONDS)

    def _renew_after(self, seconds: float) -> bool:
        """Renew the lease if it is older than this; return whether it is still valid."""
        with self._lock:
            asked_at = self._clock()
            if not self._is_lost and asked_at - self._confirmed_at >= seconds:
                # If Redis does not answer, the lease stays valid until it runs out.
                with contextlib.suppress(RedisError):
                    self._is_lost = not self._renew()
                    self._confirmed_at = asked_at
            return not self._is_lost and self._clock() - self._confirmed_at < self._valid_seconds


@contextlib.contextmanager
def renewed_lease(queue: WorkQueue, claim: Claim, asked_at: float) -> Iterator[Lease]:
    """Keep the lease of a claim renewed inside the block."""
    lease = Lease(claim.key, lambda: queue.renew(claim), asked_at=asked_at, seconds=queue.lease_ms / 1000)
    renewer = _renewer(os.getpid())
    renewer.add(lease)
    try:
        yield lease
    finally:
        renewer.remove(lease)


class _Renewer:
    """The thread of a process that renews its leases while passes compute or wait."""

    def __init__(self) -> None:
        self._leases: set[Lease] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name="leases", daemon=True).start()

    def add(self, lease: Lease) -> None:
        with self._lock:
            self._leases.add(lease)

    def remove(self, lease: Lease) -> None:
        with self._lock:
            self._leases.discard(lease)

    def _run(self) -> None:
        while True:
            time.sleep(RENEW_SECONDS / 2)
            with self._lock:
                leases = list(self._leases)
            for lease in leases:
                lease.renew_if_due()


@cache
def _renewer(_pid: int) -> _Renewer:
    """Return the renewer of this process; its thread starts on first use, after the fork."""
    return _Renewer()
