"""Container faults that waiting does not cure, in Kubernetes' own words.

The mirror derives the fault of a pod from its container statuses (`rollouts.mirror.rows`); `diagnosis` reports it as a
problem at once. The invariant: a fault stays the same while a container ends, waits and starts again, so that no
status and no event changes with every restart.
"""

from enum import StrEnum
from typing import Final

# A container with this many restarts is in a crash loop.
CRASH_LOOP_RESTARTS: Final = 2
# A pod in a crash loop has recovered when it has been Ready for this many seconds.
STABLE_AFTER: Final = 60.0


class ContainerFault(StrEnum):
    """The fault of a container; the one that explains most comes first."""

    IMAGE = "ImagePullBackOff"
    CONFIG = "CreateContainerConfigError"
    MEMORY = "OOMKilled"
    CRASH = "CrashLoopBackOff"


def is_stable(restarts: int, ready_for: float | None) -> bool:
    """Whether a Ready pod is out of its crash loop; `ready_for` is None if the time is unknown."""
    return restarts < CRASH_LOOP_RESTARTS or ready_for is None or ready_for >= STABLE_AFTER
