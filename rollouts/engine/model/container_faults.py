"""Container faults that waiting does not cure: Kubernetes' own reasons, and a sentence for each.

The mirror derives the fault of a pod from its container statuses (`rollouts.mirror.rows`); `diagnosis` reports it as a
problem at once. The invariant: a fault stays the same while a container ends, waits and starts again, so that no
status and no event changes with every restart.
"""

from collections.abc import Mapping
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


FAULT_SENTENCES: Final[Mapping[str, tuple[str, str]]] = {
    ContainerFault.IMAGE: ("cannot pull its image", "cannot pull their image"),
    ContainerFault.CONFIG: ("cannot create its container", "cannot create their containers"),
    ContainerFault.MEMORY: ("runs out of memory and is killed", "run out of memory and are killed"),
    ContainerFault.CRASH: ("crashes again and again", "crash again and again"),
}
"""The sentence about one pod, and about several."""


def is_stable(restarts: int, ready_for: float | None) -> bool:
    """Whether a Ready pod is out of its crash loop; `ready_for` is None if the time is unknown."""
    return restarts < CRASH_LOOP_RESTARTS or ready_for is None or ready_for >= STABLE_AFTER
