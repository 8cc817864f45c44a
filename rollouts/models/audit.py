"""The audit: every command that people gave, with what was before and after. Rows are added and never touched again.

A command that sends something has two rows: one that it has begun, written before anything is sent, and its outcome,
which refers to the first. A beginning without an outcome means that the process was ended in between, and that only the
cluster knows what came of it. What was refused, or found nothing to do, has one row. `rollouts.services.audit` writes
them. On PostgreSQL the database itself refuses to change or delete them, whoever asks (see migration 4).
"""

from typing import Any, ClassVar, Never

from django.db import models

from rollouts.models.mirror import LABEL_LENGTH, NAME_LENGTH


class AppendOnlyError(Exception):
    """Somebody tried to change or remove what is on record."""


class _AppendOnlyQuerySet(models.QuerySet["AuditEntry"]):
    """Refuses what would change rows in bulk, where `save` and `delete` are not asked."""

    def update(self, **_: Any) -> Never:
        raise AppendOnlyError("Audit entries are never changed.")

    def delete(self) -> Never:
        raise AppendOnlyError("Audit entries are never deleted.")


class AuditEntry(models.Model):
    """One command, or how one that began came out."""

    class Result(models.TextChoices):
        """What came of a command."""

        BEGUN = "Begun"
        DONE = "Done"
        REFUSED = "Refused"  # nothing was changed
        FAILED = "Failed"  # the detail says whether something may have been changed

    at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=150)  # a name and no reference: it stays when the account goes
    token = models.CharField(max_length=100, blank=True)  # the API token that was shown, as its owner calls it
    via = models.CharField(max_length=20, blank=True)  # which door it came by: audit.Via
    source_ip = models.GenericIPAddressField(null=True, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    command = models.CharField(max_length=80)
    cluster = models.CharField(max_length=NAME_LENGTH, blank=True)
    namespace = models.CharField(max_length=LABEL_LENGTH, blank=True)
    name = models.CharField(max_length=NAME_LENGTH, blank=True)
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)
    result = models.CharField(max_length=40, choices=Result.choices)
    detail = models.TextField(blank=True)
    # Of an outcome: the entry that the command had begun. The other way round: `outcome`.
    begun = models.OneToOneField("self", on_delete=models.PROTECT, null=True, blank=True, related_name="outcome")

    objects = _AppendOnlyQuerySet.as_manager()

    class Meta:
        ordering = ("-at", "-id")
        verbose_name_plural = "audit entries"
        indexes: ClassVar = [
            models.Index(fields=("-at",), name="audit_by_time"),
            models.Index(fields=("cluster", "namespace", "name", "-at"), name="audit_by_workload"),
            models.Index(fields=("actor", "-at"), name="audit_by_actor"),
            models.Index(fields=("command", "-at"), name="audit_by_command"),
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
