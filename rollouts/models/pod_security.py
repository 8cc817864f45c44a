"""The Pod Security levels of namespaces that do not have the level of the installation.

`services.pod_security` reads them before a template changes. The admin site writes them, and records it in the audit
log.
"""

from typing import ClassVar

from django.conf import settings
from django.db import models

from rollouts.engine.manifest.validation.pod_security import PodSecurityLevel
from rollouts.models.mirror import LABEL_LENGTH, NAME_LENGTH


class NamespacePodSecurity(models.Model):
    """The level of a namespace, or of all namespaces of a cluster that have no level of their own."""

    class Level(models.TextChoices):
        """A level of the Pod Security Standards: what pods may demand of their node."""

        RESTRICTED = PodSecurityLevel.RESTRICTED.value
        BASELINE = PodSecurityLevel.BASELINE.value
        PRIVILEGED = PodSecurityLevel.PRIVILEGED.value

    cluster = models.CharField(max_length=NAME_LENGTH)
    namespace = models.CharField(max_length=LABEL_LENGTH, blank=True)  # empty: all that have no level of their own
    level = models.CharField(max_length=20, choices=Level.choices)
    changed = models.DateTimeField(auto_now=True)
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )

    class Meta:
        ordering = ("cluster", "namespace")
        verbose_name = "Pod Security level"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=("cluster", "namespace"),
                name="one_pod_security_level_a_namespace",
                violation_error_message="This namespace has a level already; change that one.",
            )
        ]

    def __str__(self) -> str:
        return f"{self.cluster}/{self.namespace or '*'}"
