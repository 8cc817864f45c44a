"""Why a cluster cannot be mirrored: the failures of its watches, as one code and one sentence.

Before it: `watch_state`, which collects the failures. After it: `cluster_status`, which writes the result to the
cluster's row. Pure: the same failures give the same sentence, so a problem that lasts is written once.
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


# The first of them that applies is reported: the later ones may be its consequences.
_PRECEDENCE: Final = (
    Trouble.MISCONFIGURED,
    Trouble.UNAUTHORIZED,
    Trouble.UNREACHABLE,
    Trouble.FORBIDDEN,
    Trouble.MISSING_DEFINITIONS,
)


def find_health_issue(failures: Mapping[Resource, ClusterError]) -> HealthIssue | None:
    """Return what is wrong if the watches of these kinds fail; None if all work."""
    by_code: dict[Trouble, list[Resource]] = {}
    for resource, error in failures.items():
        by_code.setdefault(classify(error), []).append(resource)
    code = next((code for code in _PRECEDENCE if code in by_code), None)
    if code is None:
        return None
    resources = by_code[code]
    names = ", ".join(sorted(map(str, resources)))
    if code is Trouble.MISSING_DEFINITIONS:
        return HealthIssue(code, f"The cluster does not serve {names}. Apply deploy/crds.")
    if code is Trouble.FORBIDDEN:
        return HealthIssue(
            code, f"Grove UI's account may not list and watch {names}. Grant it a role that allows both."
        )
    return HealthIssue(code, _render_failure(failures[min(resources, key=str)]))


def _render_failure(error: ClusterError) -> str:
    """Return an error as a sentence; its message begins with the request, except for a wrong configuration."""
    request, _, problem = str(error).partition(": ")
    if isinstance(error, Misconfigured) or not problem:
        return str(error)
    if error.code:
        return f"The API server rejects the request to {request}: {problem}."
    return f"{problem[0].upper()}{problem[1:]} ({request})."


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
