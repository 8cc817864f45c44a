"""How long we wait for an API server, and how long between two tries.

Pure values: `client` and `watch` ask, the caller of `Cluster` may choose other numbers. The invariant: a reading
call ends after about `deadline` seconds, and so does a writing one once its answer has begun, for which it waits
`connect + read` seconds.
"""

import random
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds, all of them."""

    connect: float = 4.0  # until a connection stands
    read: float = 20.0  # of silence within one answer
    deadline: float = 30.0  # for a reading call with all its repetitions, and for the body of any answer
    first_pause: float = 0.2  # before the first repetition; doubled each time
    longest_pause: float = 15.0  # between two tries
    quiet: float = 75.0  # of silence on a watch before it is opened anew (a server sends a bookmark a minute)
    renewal: float = 300.0  # after which the server itself ends a watch

    def within(self, left: float) -> "Patience":
        """Return the patience for one try when only so many seconds are left for all."""
        left = max(left, 0.001)
        return replace(
            self, connect=min(self.connect, left), read=min(self.read, left), deadline=min(self.deadline, left)
        )


def compute_pause(patience: Patience, attempt: int, retry_after: float | None = None) -> float:
    """Return the seconds to wait after the failed try number `attempt` (from 0).

    Exponential with jitter, so that many clients of a server that comes back do not come back together; never
    shorter than the server asked for. Example with the defaults: 0.1-0.2, 0.2-0.4, 0.4-0.8, ... up to 7.5-15.
    """
    longest = min(patience.longest_pause, patience.first_pause * 2.0 ** min(attempt, 30))
    pause = longest * random.uniform(0.5, 1.0)  # noqa: S311 (spreads load, guards nothing)
    return max(pause, retry_after or 0.0)
