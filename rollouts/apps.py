"""The Django application."""

from django.apps import AppConfig


class RolloutsConfig(AppConfig):
    """Rollouts of Grove workloads."""

    name = "rollouts"
    verbose_name = "Rollouts"

    def ready(self) -> None:
        """Register the system checks."""
        from rollouts import checks  # noqa: F401, PLC0415 (checks read the settings)
