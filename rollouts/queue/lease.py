"""The lease of a claim while a pass works under it: renewed in time, and nothing is written once it is lost.

Before it: `dispatch`, which claims a key and holds the lease for as long as a pass runs. After it: `workqueue`, which
grants leases of a few seconds. The reconciler gets `Lease.check` as its fence and puts it before each write.

A worker that is killed or frozen renews nothing, so another worker has the key within seconds. One that was frozen and
wakes up asks Redis before its next write and learns that the lease is lost: `check` raises, and the pass ends without
another write. Where Redis does not answer, its own clock says when the lease is over. The invariant: `check` returns
only if the lease was confirmed, and asked for no longer ago than it lasts, less a margin. The clocks of Redis and of
the worker must go at the same pace; what they say does not matter.

What no check can stop is a write between its check and the network: docs/adr/0026 says what such a write may do.
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

# With a sweep a second, a workload goes on within 6 seconds of the last renewal.
LEASE_SECONDS: Final = 4.5
RENEW_SECONDS: Final = 1.0
# A lease that was confirmed this long ago is confirmed again before the next write: a Redis that lost what it held, or
# a machine that stood still with its clock, is noticed here.
_FRESH_SECONDS: Final = 0.25
# For a write that is sent at the last moment. A fifth of the lease, so that a test may have a shorter one.
_MARGIN: Final = 0.2

Renew = Callable[[], bool]


class LeaseLost(Exception):  # noqa: N818 (as Kubernetes' leader election calls it)
    """The workload is another worker's now, or may be: nothing more may be written."""


class Lease:
    """The lease of one claim. Safe to share between the threads that write."""

    def __init__(
        self, key: str, renew: Renew, *, asked_at: float, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Take a lease that was asked for at a moment of the clock."""
        self._key = key
        self._renew = renew
        self._valid_seconds = seconds * (1 - _MARGIN)
        self._clock = clock
        self._confirmed_at = asked_at
        self._is_lost = False
        self._lock = threading.Lock()

    def check(self) -> None:
        """Return if the claim is still ours, else raise LeaseLost; call it right before each write."""
        if not self._renew_after(_FRESH_SECONDS):
            raise LeaseLost(f"another worker may have {self._key} by now, so this pass writes nothing more")

    def renew_if_due(self) -> None:
        """Renew the lease if that is some time ago."""
        self._renew_after(RENEW_SECONDS)

    def _renew_after(self, seconds: float) -> bool:
        """Renew a lease that is older than this; say whether it is still good."""
        with self._lock:
            asked_at = self._clock()
            if not self._is_lost and asked_at - self._confirmed_at >= seconds:
                # A Redis that does not answer changes nothing: the lease is good until its time is over.
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
    """The thread of a process that renews its leases while passes think or wait."""

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
    """Return the renewer of this process; made on first use, so never carried across a fork."""
    return _Renewer()
