"""The audit: every command that people gave, with what was before and after. Rows are added and never touched again."""

from typing import Any, ClassVar, Never

from django.db import models

from rollouts.models.mirror import LABEL_LENGTH, NAME_LENGTH


class AppendOnlyError(Exception):
    """Somebody tried to change or remove what is on record."""


class _AppendOnly(models.QuerySet["AuditEntry"]):
    """Refuses what would change rows in bulk, where `save` and `delete` are not asked."""

    def update(self, **_: Any) -> Never:
        raise AppendOnlyError("Audit entries are never changed.")

    def delete(self) -> Never:
        raise AppendOnlyError("Audit entries are never deleted.")


class AuditEntry(models.Model):
    """One command."""

    at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=150)  # a name and no reference: it stays when the account goes
    source_ip = models.GenericIPAddressField(null=True, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    command = models.CharField(max_length=80)
    cluster = models.CharField(max_length=NAME_LENGTH, blank=True)
    namespace = models.CharField(max_length=LABEL_LENGTH, blank=True)
    name = models.CharField(max_length=NAME_LENGTH, blank=True)
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)
    result = models.CharField(max_length=40)
    detail = models.TextField(blank=True)

    objects = _AppendOnly.as_manager()

    class Meta:
        ordering = ("-at", "-id")
        verbose_name_plural = "audit entries"
        indexes: ClassVar = [
            models.Index(fields=("-at",), name="audit_by_time"),
            models.Index(fields=("cluster", "namespace", "name", "-at"), name="audit_by_workload"),
        ]

    def __str__(self) -> str:
        return f"{self.actor}: {self.command}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Add the entry; one that is there already is refused."""
        if not self._state.adding:
            raise AppendOnlyError("Audit entries are never changed.")
        super().save(*args, **kwargs)

    def delete(self, *_args: Any, **_kwargs: Any) -> Never:
        """Refuse."""
        raise AppendOnlyError("Audit entries are never deleted.")
