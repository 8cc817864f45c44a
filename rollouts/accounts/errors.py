"""Errors of commands, each with the sentence to show.

Services raise them; the API answers with problem+json, pages and the admin site show the same sentence. After each of
them nothing has changed, unless the sentence says that the outcome is unknown.
"""

from collections.abc import Iterable, Sequence

from rollouts.engine.manifest.findings import Finding


class CommandRefused(Exception):  # noqa: N818 (it reads as what happened)
    """A command was not executed."""

    def __init__(self, sentence: str, findings: Sequence[Finding] = ()) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.findings = tuple(findings)


class PermissionDenied(CommandRefused):
    """The caller may not do that, or the installation allows it to nobody."""


class NotFound(CommandRefused):
    """The object does not exist."""


def make_cluster_not_found(name: str, configured: Iterable[str]) -> NotFound:
    """Return the error for a cluster that is not configured."""
    return NotFound(f"There is no cluster {name!r}; configured: {', '.join(configured) or 'none'}.")


class ValidationFailed(CommandRefused):
    """The input breaks a rule; the findings name the fields."""


class InvalidState(CommandRefused):
    """The command is valid but does not fit the current state."""


class VersionConflict(CommandRefused):
    """The object has changed since the caller read it."""

    def __init__(self, sentence: str, changed: Sequence[str] = ()) -> None:
        super().__init__(sentence)
        self.changed = tuple(changed)  # paths of the fields that were changed meanwhile


class ClusterUnavailable(CommandRefused):
    """The cluster gave no usable answer; the sentence says whether the command may have taken effect."""

    def __init__(self, sentence: str, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after  # seconds
