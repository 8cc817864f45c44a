"""The Django application."""

from django.apps import AppConfig


class RolloutsConfig(AppConfig):
    """Rollouts of Grove workloads."""

    name = "rollouts"
    verbose_name = "Rollouts"

    def ready(self) -> None:
        """Register the system checks, and what follows a migration."""
        from rollouts.accounts import permissions  # noqa: PLC0415 (needs settings and models)
        from rollouts.runtime import checks  # noqa: F401, PLC0415 (registers the checks)

        permissions.connect_roles(self)
