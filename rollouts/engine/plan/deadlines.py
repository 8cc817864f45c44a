"""When a wait becomes a problem: after the time that such pods usually take, and not before (`docs/semantics.md` 12).

`diagnosis` asks for each pod that waits. The measured times come from `ready_times`.
"""

from typing import Final

from rollouts.engine.model.observed import Pod
from rollouts.engine.plan.wait_codes import WaitCode
from rollouts.engine.rollout.ready_times import READY_WITHIN

# Seconds in which a pod should get a node.
SCHEDULED_WITHIN: Final = 60.0
# A pod is late after this many times the usual time until such pods are Ready, and after this many seconds at least.
LATE_FACTOR: Final = 3.0
LATE_AFTER: Final = 30.0
# The kubelet reports soon after a pod got its node that it is not Ready. A later report means that the pod was Ready.
FIRST_REPORT_WITHIN: Final = 10.0
# Seconds that a pod may take to terminate beyond its grace period.
DELETED_WITHIN: Final = 60.0


def compute_deadline(code: WaitCode, pod: Pod, usual_seconds: float | None) -> float:
    """Return when it is a problem that a pod has no node, or is not Ready.

    Example: a pod that started at 100 and whose like take 20 s is late at 160; without a measured time it is late at
    700, or 30 s after it was last Ready.
    """
    if code not in (WaitCode.WAITING_FOR_READY, WaitCode.SURGE_NOT_READY):
        return pod.created + SCHEDULED_WITHIN
    if usual_seconds is None:
        return find_waiting_since(pod) + (LATE_AFTER if _was_ready(pod) else READY_WITHIN)
    return find_waiting_since(pod) + max(LATE_AFTER, LATE_FACTOR * usual_seconds)


def find_waiting_since(pod: Pod) -> float:
    """Return since when a pod is waited for: since it was last Ready, else since it got its node or was created."""
    if not pod.ready and pod.ready_since is not None and _was_ready(pod):
        return pod.ready_since
    return pod.started_at if pod.node else pod.created


def _was_ready(pod: Pod) -> bool:
    """Whether a pod that is not Ready was Ready before."""
    return pod.ready_since is not None and pod.ready_since > pod.started_at + FIRST_REPORT_WITHIN
