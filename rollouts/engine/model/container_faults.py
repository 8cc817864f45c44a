"""What a container can fail with so that waiting does not help, in Kubernetes' own words.

The mirror reads the fault of a pod off its container statuses (`rollouts.mirror.rows`); `diagnosis` calls it a problem
at once. A fault stays the same while a container ends, waits and is started again, so that nothing that is told about
it changes with every restart.
"""

from enum import StrEnum
from typing import Final

# A container that was started again so often ends again and again.
CRASH_LOOP_RESTARTS: Final = 2
# A pod that was restarted so often and is Ready for so many seconds has come out of it.
STABLE_AFTER: Final = 60.0


class ContainerFault(StrEnum):
    """What a container fails with; what explains most comes first."""

    IMAGE = "ImagePullBackOff"
    CONFIG = "CreateContainerConfigError"
    MEMORY = "OOMKilled"
    CRASH = "CrashLoopBackOff"


def is_stable(restarts: int, ready_for: float | None) -> bool:
    """Whether a pod that is Ready is so for good, and not for a moment between two crashes; None: nobody knows."""
    return restarts < CRASH_LOOP_RESTARTS or ready_for is None or ready_for >= STABLE_AFTER
