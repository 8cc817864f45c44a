"""client-go's workqueue in a few lines of Python, with leases and a lossy broker around it: the reference for ours.

`dirty`, `processing`, `waiting` and `failures` are the sets of client-go's queue, delaying queue and rate limiter. In
addition, a claim has a lease, and a sweep does what client-go does with timers and the memory of one process.
"""

from dataclasses import dataclass, field

LEASE_MS = 60_000
LONGEST_MS = 200_000  # of a claim, however often it is renewed
RESEND_MS = 5_000
FIRST_BACK_OFF_MS, LONGEST_BACK_OFF_MS = 1_000, 60_000


@dataclass
class Processing:
    """A claim on a key."""

    token: str
    owner: str
    until: int
    latest: int


@dataclass
class Model:
    """The queue as it must behave."""

    now: int = 1_000_000
    dirty: dict[str, int] = field(default_factory=dict)  # since when
    processing: dict[str, Processing] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)  # until when
    failures: dict[str, int] = field(default_factory=dict)
    resend: dict[str, int] = field(default_factory=dict)  # when to send the message of a ready key again

    @property
    def ready(self) -> dict[str, int]:
        """Keys that wait for a worker."""
        return {key: since for key, since in self.dirty.items() if key not in self.processing}

    def add(self, key: str) -> bool:
        """Make a key due; return whether it is newly ready."""
        if key in self.dirty:
            return False
        self.dirty[key] = self.now
        return self._is_newly_ready(key)

    def delay(self, key: str, delay_ms: int) -> None:
        """Make a key due after a delay; the sooner wins."""
        self.waiting[key] = min(self.now + delay_ms, self.waiting.get(key, self.now + delay_ms))

    def can_claim(self, key: str) -> bool:
        """Return whether a worker that claims the key gets it."""
        return key in self.ready

    def claim(self, key: str, token: str, owner: str) -> int:
        """Claim the key; return the number of the attempt."""
        del self.dirty[key]
        self.resend.pop(key, None)
        self.processing[key] = Processing(token, owner, self.now + LEASE_MS, self.now + LONGEST_MS)
        return self.failures.get(key, 0) + 1

    def renew(self, key: str) -> None:
        """Renew the lease of a valid claim."""
        processing = self.processing[key]
        processing.until = min(self.now + LEASE_MS, processing.latest)

    def holds(self, key: str, token: str) -> bool:
        """Return whether a claim is valid."""
        processing = self.processing.get(key)
        return processing is not None and processing.token == token and processing.until > self.now

    def end(self, key: str) -> bool:
        """End a claim; return whether the key is ready again."""
        del self.processing[key]
        return key in self.dirty and self._is_newly_ready(key)

    def sweep(self) -> set[str]:
        """End leases and delays whose time is over; return the keys to send."""
        unsent = set()
        for key, processing in list(self.processing.items()):
            if processing.until <= self.now and self._take_away(key):
                self._is_newly_ready(key)
                unsent.add(key)
        for key, until in list(self.waiting.items()):
            if until <= self.now:
                del self.waiting[key]
                if self.add(key):
                    unsent.add(key)
        for key, at in list(self.resend.items()):
            if at <= self.now:
                self.resend[key] = self.now + max(RESEND_MS, self.now - self.dirty[key])
                unsent.add(key)
        return unsent

    def give_back(self, owner: str) -> set[str]:
        """Release the claims of a process; the next sweep sends their keys."""
        keys = {key for key, processing in self.processing.items() if processing.owner == owner}
        for key in keys:
            if self._take_away(key):
                self.resend[key] = self.now
        return keys

    def _take_away(self, key: str) -> bool:
        """End a claim as a failure; return whether the key is due at once."""
        del self.processing[key]
        is_dirty = key in self.dirty
        self.failures[key] = self.failures.get(key, 0) + 1
        if is_dirty or self.failures[key] == 1:
            self.dirty[key] = self.now
            return True
        self.delay(key, min(FIRST_BACK_OFF_MS << min(self.failures[key] - 2, 16), LONGEST_BACK_OFF_MS))
        return False

    def _is_newly_ready(self, key: str) -> bool:
        if key in self.processing:
            return False
        self.resend[key] = self.now + RESEND_MS
        return True
