"""Why a command was not carried out, as exceptions with the sentence to show.

Services raise them; the API makes problem+json of them, pages and the admin show the same sentence. Whatever is raised
here, nothing was changed, unless the sentence says that the outcome is not known.
"""

from collections.abc import Iterable, Sequence

from rollouts.engine.manifest.findings import Finding


class CommandRefused(Exception):  # noqa: N818 (it reads as what happened)
    """A command was not carried out."""

    def __init__(self, sentence: str, findings: Sequence[Finding] = ()) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.findings = tuple(findings)


class PermissionDenied(CommandRefused):
    """Whoever asked may not do that, or nobody may now."""


class NotFound(CommandRefused):
    """There is no such thing."""


def make_cluster_not_found(name: str, configured: Iterable[str]) -> NotFound:
    """Return the error for a cluster that is not configured."""
    return NotFound(f"There is no cluster {name!r}; configured: {', '.join(configured) or 'none'}.")


class ValidationFailed(CommandRefused):
    """What was asked for breaks a rule; the findings name the fields."""


class InvalidState(CommandRefused):
    """It does not fit what is there, although it could have."""


class VersionConflict(CommandRefused):
    """It was asked for on account of a state that is no more."""

    def __init__(self, sentence: str, changed: Sequence[str] = ()) -> None:
        super().__init__(sentence)
        self.changed = tuple(changed)  # paths of the fields that somebody else changed


class ClusterUnavailable(CommandRefused):
    """The cluster gave no usable answer; the sentence says whether the command may have been carried out."""

    def __init__(self, sentence: str, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after  # seconds
