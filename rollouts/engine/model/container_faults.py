"""What a container can fail with so that waiting does not help: Kubernetes' own words, and a sentence for each.

The mirror reads the fault of a pod off its container statuses (`rollouts.mirror.rows`); `diagnosis` calls it a problem
at once. A fault stays the same while a container ends, waits and is started again, so that nothing that is told about
it changes with every restart.
"""

from collections.abc import Mapping
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


FAULT_SENTENCES: Final[Mapping[str, tuple[str, str]]] = {
    ContainerFault.IMAGE: ("cannot pull its image", "cannot pull their image"),
    ContainerFault.CONFIG: ("cannot create its container", "cannot create their containers"),
    ContainerFault.MEMORY: ("runs out of memory and is killed", "run out of memory and are killed"),
    ContainerFault.CRASH: ("crashes again and again", "crash again and again"),
}
"""What is the matter with one pod, and with several."""


def is_stable(restarts: int, ready_for: float | None) -> bool:
    """Whether a pod that is Ready is so for good, and not for a moment between two crashes; None: nobody knows."""
    return restarts < CRASH_LOOP_RESTARTS or ready_for is None or ready_for >= STABLE_AFTER
