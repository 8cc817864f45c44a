"""What pages and the API read."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from rollouts.runtime.readiness import ReadinessCheck, readiness_detail


@dataclass(frozen=True, slots=True)
class Overview:
    """What the first page shows."""

    parts: Sequence[ReadinessCheck]
    # Where kubectl finds the sandbox, None without one.
    kubeconfig: Path | None

    @property
    def is_healthy(self) -> bool:
        """Whether every part can do its work."""
        return all(part.ok for part in self.parts)


def overview_detail() -> Overview:
    """Read the state of the installation and of its clusters."""
    return Overview(
        parts=readiness_detail(),
        kubeconfig=kubeconfig_path(),
    )


def kubeconfig_path() -> Path | None:
    """Return where kubectl finds the sandbox; None without one."""
    environment = settings.ENVIRONMENT
    return environment.data_dir / "sandbox.kubeconfig" if "sandbox" in environment.clusters else None
