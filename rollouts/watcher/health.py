"""Why a cluster cannot be mirrored: the failures of the single watches, as one code and one sentence.

`watch_state` collects the failures, `cluster_status` puts what is said here on the cluster's row. Pure: the same
failures give the same words, so a trouble that lasts is written once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rollouts.cluster import ClusterError, Forbidden, Misconfigured, Resource, Unauthorized, UnknownResource
from rollouts.models import Trouble


@dataclass(frozen=True, slots=True)
class HealthIssue:
    """What is wrong with a cluster."""

    code: Trouble
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


# The first of them that applies is told: what comes later may be only its consequence.
_PRECEDENCE: Final = (
    Trouble.MISCONFIGURED,
    Trouble.UNAUTHORIZED,
    Trouble.UNREACHABLE,
    Trouble.FORBIDDEN,
    Trouble.MISSING_DEFINITIONS,
)


def find_health_issue(failures: Mapping[Resource, ClusterError]) -> HealthIssue | None:
    """Return what is wrong when these kinds cannot be heard; None when all can."""
    by_code: dict[Trouble, list[Resource]] = {}
    for resource, error in failures.items():
        by_code.setdefault(classify(error), []).append(resource)
    code = next((code for code in _PRECEDENCE if code in by_code), None)
    if code is None:
        return None
    resources = by_code[code]
    names = ", ".join(sorted(map(str, resources)))
    if code is Trouble.MISSING_DEFINITIONS:
        return HealthIssue(code, f"The cluster does not serve {names}: install deploy/crds.")
    if code is Trouble.FORBIDDEN:
        return HealthIssue(code, f"Our account may not list and watch {names}: grant it a role that may.")
    return HealthIssue(code, str(failures[min(resources, key=str)]))


def classify(error: ClusterError) -> Trouble:
    """Return the code of a failure."""
    match error:
        case Misconfigured():
            return Trouble.MISCONFIGURED
        case Unauthorized():
            return Trouble.UNAUTHORIZED
        case Forbidden():
            return Trouble.FORBIDDEN
        case UnknownResource():
            return Trouble.MISSING_DEFINITIONS
        case _:
            return Trouble.UNREACHABLE
