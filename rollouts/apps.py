"""The Django application."""

from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Tags, register


class RolloutsConfig(AppConfig):
    """Rollouts of Grove workloads."""

    name = "rollouts"
    verbose_name = "Rollouts"

    def ready(self) -> None:
        """Register the system checks, and what follows a migration."""
        from rollouts.accounts import permissions  # noqa: PLC0415 (needs settings and models)
        from rollouts.runtime import checks  # noqa: F401, PLC0415 (registers the checks)

        permissions.connect_roles(self)


@register(Tags.admin)
def admin_site_is_in_order(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """Run Django's check of admin sites on ours, which only the URLs and this check import."""
    from rollouts.admin.site import site  # noqa: PLC0415 (importing it takes a fifth of a start)

    return list(site.check(app_configs))
