"""How long a call waits for an API server, and how long it pauses between two attempts.

What is repeated, `client` decides: reads, after 429 (with its Retry-After), 5xx and lost connections. A write is sent
once. Pure values, used by `client` and `watch`; the caller of `ClusterClient` may choose other numbers. The invariant:
a read ends after about `deadline` seconds. A write waits `connect_timeout + read_timeout` seconds for the beginning of
its answer, and at most `deadline` seconds for the rest.
"""

import random
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Timeouts and pauses, all in seconds."""

    connect_timeout: float = 4.0  # until a connection is open
    read_timeout: float = 20.0  # of silence within one answer
    deadline: float = 30.0  # for a read with all its attempts, and for the body of any answer
    initial_backoff: float = 0.2  # before the second attempt; doubled each time
    max_backoff: float = 15.0  # between two attempts
    watch_idle_timeout: float = 75.0  # of silence on a watch before it is reopened (bookmarks come every minute)
    watch_timeout: float = 300.0  # after which the server itself ends a watch

    def within(self, left: float) -> "RetryPolicy":
        """Return the policy for one attempt when only so many seconds are left for all of them."""
        left = max(left, 0.001)
        return replace(
            self,
            connect_timeout=min(self.connect_timeout, left),
            read_timeout=min(self.read_timeout, left),
            deadline=min(self.deadline, left),
        )


def compute_backoff(policy: RetryPolicy, attempt: int, retry_after: float | None = None) -> float:
    """Return how many seconds to wait after the failed attempt number `attempt` (from 0).

    Exponential with jitter, so that many clients do not return to a restarted server all at once; never shorter than
    the server asks for. Example with the defaults: 0.1-0.2, 0.2-0.4, 0.4-0.8, ... up to 7.5-15.
    """
    longest = min(policy.max_backoff, policy.initial_backoff * 2.0 ** min(attempt, 30))
    pause = longest * random.uniform(0.5, 1.0)  # noqa: S311 (spreads load; not a secret)
    return max(pause, retry_after or 0.0)
