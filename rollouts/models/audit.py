"""The audit log: every command of a user, with the values before and after it. Rows are added and never changed.

A command that writes to a cluster has two rows: one that it has begun, stored before the first write, and its outcome,
which refers to the first. If there is no outcome, the process ended in between, and only the cluster knows what was
done. A command that was refused or had nothing to do has one row. `rollouts.services.audit` writes the rows. On
PostgreSQL the database itself refuses to change or delete them (migration 4).
"""

from typing import Any, ClassVar, Never

from django.db import models

from rollouts.models.mirror import LABEL_LENGTH, NAME_LENGTH


class AppendOnlyError(Exception):
    """An entry of the audit log was to be changed or deleted."""


class _AppendOnlyQuerySet(models.QuerySet["AuditEntry"]):
    """Refuses changes of many rows at once, for which Django does not call `save` and `delete`."""

    def update(self, **_: Any) -> Never:
        raise AppendOnlyError("Audit entries are never changed.")

    def delete(self) -> Never:
        raise AppendOnlyError("Audit entries are never deleted.")


class AuditEntry(models.Model):
    """One command, or the outcome of one that had begun."""

    class Result(models.TextChoices):
        """The result of a command."""

        BEGUN = "Begun"
        DONE = "Done"
        REFUSED = "Refused"  # nothing was changed
        FAILED = "Failed"  # the detail says whether something may have been changed

    at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=150)  # a name, not a reference: it outlives the account
    token = models.CharField(max_length=100, blank=True)  # the name of the API token that was sent
    via = models.CharField(max_length=20, blank=True)  # a value of `services.audit.Source`: page, API, ...
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
    # Of an outcome: the entry of the beginning, whose `outcome` is this one.
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
        """Add the entry; raises AppendOnlyError for a stored one."""
        if not self._state.adding:
            raise AppendOnlyError("Audit entries are never changed.")
        super().save(*args, **kwargs)

    def delete(self, *_args: Any, **_kwargs: Any) -> Never:
        """Raise AppendOnlyError."""
        raise AppendOnlyError("Audit entries are never deleted.")
