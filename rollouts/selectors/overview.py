"""The state of the installation, for the page of clusters."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from rollouts.runtime.readiness import ReadinessCheck, readiness_detail


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of the installation."""

    parts: Sequence[ReadinessCheck]
    # The kubeconfig of the sandbox; None without one.
    kubeconfig: Path | None

    @property
    def is_healthy(self) -> bool:
        """Whether every part works."""
        return all(part.ok for part in self.parts)


def overview_detail() -> Overview:
    """Return the state of the installation."""
    return Overview(
        parts=readiness_detail(),
        kubeconfig=kubeconfig_path(),
    )


def kubeconfig_path() -> Path | None:
    """Return the path of the kubeconfig of the sandbox; None without one."""
    environment = settings.ENVIRONMENT
    return environment.data_dir / "sandbox.kubeconfig" if "sandbox" in environment.clusters else None
