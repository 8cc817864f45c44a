"""How long we wait for an API server, and how long between two tries.

Pure values: `client` and `watch` ask, the caller of `Cluster` may choose other numbers. The invariant: a reading
call ends after about `deadline` seconds, and so does a writing one once its answer has begun, for which it waits
`connect + read` seconds.
"""

import random
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Seconds, all of them."""

    connect_timeout: float = 4.0  # until a connection stands
    read_timeout: float = 20.0  # of silence within one answer
    deadline: float = 30.0  # for a reading call with all its repetitions, and for the body of any answer
    initial_backoff: float = 0.2  # before the first repetition; doubled each time
    max_backoff: float = 15.0  # between two tries
    watch_idle_timeout: float = (
        75.0  # of silence on a watch before it is opened anew (a server sends a bookmark a minute)
    )
    watch_timeout: float = 300.0  # after which the server itself ends a watch

    def within(self, left: float) -> "RetryPolicy":
        """Return the patience for one try when only so many seconds are left for all."""
        left = max(left, 0.001)
        return replace(
            self,
            connect_timeout=min(self.connect_timeout, left),
            read_timeout=min(self.read_timeout, left),
            deadline=min(self.deadline, left),
        )


def compute_backoff(policy: RetryPolicy, attempt: int, retry_after: float | None = None) -> float:
    """Return the seconds to wait after the failed try number `attempt` (from 0).

    Exponential with jitter, so that many clients of a server that comes back do not come back together; never
    shorter than the server asked for. Example with the defaults: 0.1-0.2, 0.2-0.4, 0.4-0.8, ... up to 7.5-15.
    """
    longest = min(policy.max_backoff, policy.initial_backoff * 2.0 ** min(attempt, 30))
    pause = longest * random.uniform(0.5, 1.0)  # noqa: S311 (spreads load, guards nothing)
    return max(pause, retry_after or 0.0)
